"""A Kombu queue as a member of its consumer group: messages in, acknowledged offsets out.

One thread calls ``take`` and ``close``. Any thread may call ``acknowledge``. ``_assigned`` and ``_revoked`` are called in a
thread of the client, ``_reset`` in the reactor thread, which must never wait for ``_committing``.
"""

import os
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from threading import Lock
from uuid import uuid4

from kombu.log import get_logger

from rocketd.client import ClientConfig, MessageQueue, ReceivedMessage
from rocketd.client.errors import GroupInUseError, RocketMQError, UsageError
from rocketd.kombu.offset_track import OffsetTrack
from rocketd.kombu.reset_listener import ResetTellingConsumer

logger = get_logger(__name__)

HELD = 100
"""Maximum number of messages held for ``take``, of all queues of a reader."""


class GroupReader:
    """The messages of a topic, shared with the other members of the group. ``resend`` stores a message again."""

    def __init__(
        self, config: ClientConfig, topic: str, group: str, resend: Callable[[ReceivedMessage[bytes]], None]
    ) -> None:
        """Open the consumer. Raises RocketMQError."""
        self._resend = resend
        self._process = os.getpid()
        self._lock = Lock()
        self._committing = Lock()
        self._ready: deque[ReceivedMessage[bytes]] = deque()
        self._tracks: dict[MessageQueue, OffsetTrack] = {}
        self._first: dict[MessageQueue, int] = {}
        """The queues of this member. Messages before the offset are skipped, since an administrator has reset it."""
        try:
            self._consumer = self._open(config, topic, group)
        except GroupInUseError:  # another channel of this connection reads the queue, too
            other = replace(config, instance_name=f"{os.getpid()}#{uuid4().hex}")
            self._consumer = self._open(other, topic, group)

    def _open(self, config: ClientConfig, topic: str, group: str) -> ResetTellingConsumer:
        consumer = ResetTellingConsumer(
            group,
            config,
            topics=topic,
            begin="earliest",
            auto_commit=False,
            max_held=HELD,
            on_assigned=lambda queues: self._assigned(consumer, queues),
            on_revoked=self._revoked,
        )
        consumer.on_reset = self._reset
        return consumer.open()

    @property
    def is_of_this_process(self) -> bool:
        """Whether this process, not its parent, has opened the reader."""
        return os.getpid() == self._process

    def take(self, timeout: float) -> ReceivedMessage[bytes] | None:
        """Return the next message; None if none comes within ``timeout`` seconds."""
        if not self._ready:
            self._store_all()
            polled = self._consumer.poll(timeout)
            with self._lock:
                for message in polled:
                    self._add(message)
        with self._lock:
            return self._ready.popleft() if self._ready else None

    def _add(self, message: ReceivedMessage[bytes]) -> None:
        """Keep a polled message, unless its queue was revoked or its offset skipped meanwhile."""
        queue = message.queue
        if message.queue_offset < self._first.get(queue, message.queue_offset + 1):
            return
        track = self._tracks.get(queue)
        if track is not None and not track.continues_with(message):
            self._forget([queue])  # after a step back, all its messages come again
            track = None
        if track is None:
            track = self._tracks[queue] = OffsetTrack()
        track.add(message)
        self._ready.append(message)

    def acknowledge(self, message: ReceivedMessage[bytes]) -> None:
        """Note the acknowledgement of a message, and commit. A failed commit is logged, and repeated later."""
        with self._lock:
            track = self._tracks.get(message.queue)
            if track is None:
                return  # the queue is another member's now
            track.acknowledge(message)
        self._store(message.queue)

    def _store(self, queue: MessageQueue) -> None:
        """Commit the position of a queue if it has changed."""
        with self._committing:
            with self._lock:
                track = self._tracks.get(queue)
                if track is None or track.position <= track.committed:
                    return
                position = track.position
            try:
                self._consumer.commit_if(lambda: self._tracks.get(queue) is track, {queue: position})
            except UsageError:
                return  # another member has the queue
            except RocketMQError as error:
                logger.warning("offset %d of %s is not committed yet: %s", position, queue.topic, error)
                return
            track.committed = position

    def _store_all(self) -> None:
        """Commit positions whose last commit has failed."""
        with self._lock:
            late = [queue for queue, track in self._tracks.items() if track.is_late]
        for queue in late:
            self._store(queue)

    def _assigned(self, consumer: ResetTellingConsumer, queues: list[MessageQueue]) -> None:
        """Begin with queues."""
        with self._lock:
            self._forget(queues)
            self._first.update(dict.fromkeys(queues, 0))
        try:
            consumer.commit_beginnings(queues)
        except RocketMQError as error:
            logger.warning("a purge may fail until each queue of %s has an offset: %s", queues[0].topic, error)

    def _revoked(self, queues: list[MessageQueue]) -> None:
        """Forget queues of other members. Their unacknowledged messages come again there."""
        with self._lock:
            self._forget(queues)
            for queue in queues:
                self._first.pop(queue, None)

    def _reset(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Continue from offsets chosen by an administrator."""
        with self._lock:
            mine = {queue: offset for queue, offset in offsets.items() if queue in self._first}
            self._forget(mine)
            self._first.update(mine)

    def _forget(self, queues: Collection[MessageQueue]) -> None:
        """Drop the messages of queues. Later acknowledgements of them have no effect."""
        for queue in queues:
            self._tracks.pop(queue, None)
        self._ready = deque(message for message in self._ready if message.queue not in queues)

    @property
    def idle(self) -> bool:
        """Whether every taken message is acknowledged."""
        with self._lock:
            return sum(track.waiting for track in self._tracks.values()) == len(self._ready)

    def close(self) -> None:
        """Leave the group. Other members get all unacknowledged messages.

        Those in front of acknowledged ones are stored again, so that the latter do not come again.
        """
        with self._lock:
            blockers = [message for track in self._tracks.values() for message in track.blockers()]
        for message in blockers:
            try:
                self._resend(message)
            except RocketMQError as error:
                logger.warning("messages behind %s come again: it is not stored again: %s", message.msg_id, error)
                break
            self.acknowledge(message)
        self._store_all()
        self._consumer.close()
