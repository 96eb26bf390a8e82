"""Messages with further queues beside the queue of their topic, such as light queues.

Counterpart: `MultiDispatch`, and the parts of `ConsumeQueue` and `ReputMessageService` that serve it (Apache). A
message names its further queues in INNER_MULTI_DISPATCH. Its offsets in them are stored with it in
INNER_MULTI_QUEUE_OFFSET, so their entries can be rebuilt from the log. Unlike Apache, only light queues may be
named, because the names bypass the checks of a topic. Delayed and half messages get their further queues when they
reach their own topic.
"""

from collections.abc import Callable, Sequence
from itertools import groupby, takewhile

from twisted.logger import Logger

from rocketd.common.message_properties import (
    INNER_MULTI_DISPATCH,
    INNER_MULTI_QUEUE_OFFSET,
    NAME_VALUE_SEPARATOR,
    find_property,
    join_entries,
    property_entries,
)
from rocketd.common.names import BROKER_ONLY_TOPICS, LMQ_PREFIX, is_storable
from rocketd.store.base.settings import MessageStoreConfig
from rocketd.store.format.compose import TopicQueue
from rocketd.store.format.message import (
    SYS_FLAG_TRANSACTION_PREPARED,
    DispatchRequest,
    MessageInner,
    PutResult,
    PutStatus,
)
from rocketd.store.format.record import MAX_PROPERTIES_LENGTH
from rocketd.store.log.append import AppendedGroup

SPLITTER = ","
_NAMES = INNER_MULTI_DISPATCH.encode()
_OFFSETS = INNER_MULTI_QUEUE_OFFSET.encode()

_OF_ONE_MESSAGE = (
    PutStatus.PUT_OK,
    PutStatus.MESSAGE_ILLEGAL,
    PutStatus.PROPERTIES_SIZE_EXCEEDED,
    PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED,
)
"""Results of an append without consequences for later messages."""

_Key = tuple[str, int]
_Appended = tuple[list[PutResult], AppendedGroup | None]
Append = Callable[[Sequence[MessageInner]], _Appended]


class MultiDispatch:
    """``append`` and ``refusal_of_batch`` belong to the storage thread, ``further`` to the dispatching thread."""

    _log = Logger()

    def __init__(self, config: MessageStoreConfig, topic_queues: Callable[[], dict[_Key, TopicQueue]]) -> None:
        """``topic_queues`` returns the queues' next offsets. They belong to the storage thread."""
        self._config = config
        self._topic_queues = topic_queues
        self._light = 0
        self._counted = 0
        self._newest: TopicQueue | None = None

    # ---------------------------------------------------------------- storage thread

    def append(self, messages: Sequence[MessageInner], append: Append) -> _Appended:
        """Append messages; those with further queues one by one, because their offsets count only after they are
        stored.

        As in ``GroupAppender.append``, all messages after a disk failure fail.
        """
        results: list[PutResult] = []
        groups: list[AppendedGroup] = []
        for further, run in groupby(messages, _has_further_queues):
            for part in [[message] for message in run] if further else [list(run)]:
                some, group = self._append_further(part[0], append) if further else append(part)
                results += some
                if group is not None:
                    groups.append(group)
                failure = next((result for result in some if result.status not in _OF_ONE_MESSAGE), None)
                if failure is not None:
                    results += [failure] * (len(messages) - len(results))
                    return results, _joined(groups)
        return results, _joined(groups)

    def refusal_of_batch(self, messages: Sequence[MessageInner]) -> PutResult | None:
        """Return why a batch is not stored, or None: its messages must not name further queues."""
        if any(map(_has_further_queues, messages)):
            return PutResult(PutStatus.MESSAGE_ILLEGAL, cause="a message of a batch cannot name further queues")
        return None

    def _append_further(self, message: MessageInner, append: Append) -> _Appended:
        names = _texts(message.properties, _NAMES)
        keys = [self._key(name, message.queue_id) for name in names]
        queues = self._topic_queues()
        offsets = [queues[key].next_offset if key in queues else 0 for key in keys]
        properties = _with_offsets(message.properties, offsets)
        refusal = self._refusal(message, names, keys, properties)
        if refusal is not None:
            if not message.is_accepted:
                return [refusal], None
            self._log.error(
                "a delayed message to {topic} is stored without its further queues: {cause}",
                topic=message.topic,
                cause=refusal.cause,
            )
            message.properties = _without_further(message.properties)
            return append([message])
        message.properties = properties
        results, group = append([message])
        if results[0].status is PutStatus.PUT_OK:
            for key, offset in zip(keys, offsets, strict=True):
                if key in queues:
                    queues[key].next_offset = offset + 1
                else:
                    queues[key] = TopicQueue(key[0], offset + 1)
        return results, group

    def _refusal(
        self, message: MessageInner, names: list[str], keys: list[_Key], properties: bytes
    ) -> PutResult | None:
        """Return why a message cannot go into its further queues.

        ``properties`` are the ones it would be stored with.
        """
        if (fault := _fault_of(names)) is not None:
            return PutResult(PutStatus.MESSAGE_ILLEGAL, cause=fault)
        if (message.topic, message.queue_id) in keys:
            return PutResult(PutStatus.MESSAGE_ILLEGAL, cause="the message names its own queue as a further one")
        limit = self._config.max_lmq_consume_queue_num
        count = self._light_queues()
        if count > limit:
            return PutResult(
                PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED,
                cause=f"there are {count} light queues, more than maxLmqConsumeQueueNum={limit}",
            )
        if len(properties) > MAX_PROPERTIES_LENGTH:
            cause = f"the properties have {len(properties)} bytes with the offsets, more than {MAX_PROPERTIES_LENGTH}"
            return PutResult(PutStatus.PROPERTIES_SIZE_EXCEEDED, cause=cause)
        return None

    def _light_queues(self) -> int:
        """Return the number of light queues.

        Only queues created since the last call are looked at, unless queues were removed.
        """
        queues = self._topic_queues()
        # The newest queue of a table is the last. If it is still there and the count is right, none was removed.
        new = list(takewhile(lambda item: item[1] is not self._newest, reversed(queues.items())))
        if len(new) < len(queues) == self._counted + len(new):
            self._light += sum(key[0].startswith(LMQ_PREFIX) for key, _ in new)
        else:
            self._light = sum(key[0].startswith(LMQ_PREFIX) for key in queues)
        self._counted = len(queues)
        if new:
            self._newest = new[0][1]
        return self._light

    def _key(self, name: str, queue_id: int) -> _Key:
        return name, 0 if self._config.enable_lmq and name.startswith(LMQ_PREFIX) else queue_id

    # ---------------------------------------------------------------- dispatching thread

    def further(self, requests: Sequence[DispatchRequest]) -> list[DispatchRequest]:
        """Return the requests for further queues, in log order."""
        found = []
        for request in requests:
            if request.topic in BROKER_ONLY_TOPICS or request.sys_flag & SYS_FLAG_TRANSACTION_PREPARED:
                continue
            if _NAMES not in request.properties:
                continue
            names, offsets = _texts(request.properties, _NAMES), _texts(request.properties, _OFFSETS)
            if len(names) != len(offsets) or not all(offset.isdecimal() for offset in offsets):
                continue
            for name, offset in zip(names, offsets, strict=True):
                if not name.startswith(LMQ_PREFIX):
                    # Stored while the names were not checked, so it has no right to that queue.
                    continue
                topic, queue_id = self._key(name, request.queue_id)
                found.append(
                    DispatchRequest(
                        topic,
                        queue_id,
                        request.physical_offset,
                        request.size,
                        request.tags_code,
                        request.store_timestamp,
                        int(offset),
                        (),
                        request.sys_flag,
                        request.prepared_transaction_offset,
                        request.properties,
                        request.bitmap,
                    )
                )
        return found


def fault_of_further(properties: bytes) -> str | None:
    """Return why the further queues named by properties can never get a message.

    None if they can, or if there are none.
    """
    return _fault_of(_texts(properties, _NAMES)) if _NAMES in properties else None


def _fault_of(names: list[str]) -> str | None:
    for name in names:
        if not name.startswith(LMQ_PREFIX):
            return f"INNER_MULTI_DISPATCH may only name queues that begin with {LMQ_PREFIX}, not {name!r:.200}"
        if not is_storable(name):
            return f"no queue can have the name {name!r:.200}"
    return None


def _has_further_queues(message: MessageInner) -> bool:
    return (
        _NAMES in message.properties
        and message.topic not in BROKER_ONLY_TOPICS
        and not message.sys_flag & SYS_FLAG_TRANSACTION_PREPARED
        and find_property(message.properties, _NAMES) is not None
    )


def _texts(properties: bytes, name: bytes) -> list[str]:
    value = find_property(properties, name)
    return [] if value is None else value.decode("utf-8", "replace").split(SPLITTER)


def _with_offsets(properties: bytes, offsets: list[int]) -> bytes:
    entries = property_entries(properties.decode("utf-8", "replace"))
    text = SPLITTER.join(map(str, offsets))
    entries[INNER_MULTI_QUEUE_OFFSET] = INNER_MULTI_QUEUE_OFFSET + NAME_VALUE_SEPARATOR + text
    return join_entries(entries).encode()


def _without_further(properties: bytes) -> bytes:
    entries = property_entries(properties.decode("utf-8", "replace"))
    for name in (INNER_MULTI_DISPATCH, INNER_MULTI_QUEUE_OFFSET):
        entries.pop(name, None)
    return join_entries(entries).encode()


def _joined(groups: list[AppendedGroup]) -> AppendedGroup | None:
    if not groups:
        return None
    requests = [request for group in groups for request in group.requests]
    return AppendedGroup(groups[0].start_offset, groups[-1].end_offset, requests)
