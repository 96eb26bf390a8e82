"""Compares the messages of a restarted broker with the acknowledged ones."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from threading import Event

from rocketd.common.names import SCHEDULE_TOPIC, TRANS_HALF_TOPIC, UNIQUE_KEY_QUERY
from rocketd.remoting.wire.codes import RequestCode, ResponseCode
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.store.base.errors import RecordError
from rocketd.store.format.record import MessageExt, decode_messages
from tests.crash.load import Connection, Producer
from tests.crash.messages import (
    DELAYED_TOPIC,
    LEVELS,
    PLAIN_TOPIC,
    QUEUES,
    TAGS,
    TRANSACTION_TOPIC,
    MessageId,
    Place,
    body_of,
    end,
    id_of,
    is_committed,
    keys_of,
    properties_of,
    tag_of,
)

DELIVERY_LIMIT = 60.0  # seconds
QUERIED = 24
_FOREVER = str(1 << 62)
_SUBSCRIPTION_IN_REQUEST = 4


class CheckError(AssertionError):
    """The broker serves something else than it should."""


@dataclass
class Ledger:
    """Knowledge about one store: ``places`` of the messages it must serve, the number of messages sent by each producer,
    the due time (Unix ms) of each delayed one, and the half messages whose transactions ``ended``.
    """

    places: dict[MessageId, Place] = field(default_factory=dict)
    acknowledged: set[MessageId] = field(default_factory=set)
    sent: dict[str, int] = field(default_factory=dict)
    scheduled: dict[MessageId, int] = field(default_factory=dict)
    ended: set[MessageId] = field(default_factory=set)

    def add(self, producer: Producer) -> None:
        """Add the messages and acknowledgements of a producer."""
        self.sent[producer.name] = producer.sent
        self.places |= producer.acknowledged
        self.acknowledged |= producer.acknowledged.keys()
        self.ended |= producer.ended

    def keep(self, flushed: set[int], acknowledged: bool) -> None:
        """Forget records that a power cut may have taken. The records at ``flushed`` offsets of the log stay, and with
        ``acknowledged``, as synchronous flush promises, the acknowledged ones, too.
        """
        self.places = {
            message: place
            for message, place in self.places.items()
            if place.physical_offset in flushed or (acknowledged and message in self.acknowledged)
        }
        self.scheduled = {message: due for message, due in self.scheduled.items() if message in self.places}
        if not acknowledged:
            self.ended.clear()


class Checker:
    """Reads all messages of a broker, once."""

    def __init__(self, port: int, ledger: Ledger, random: Random) -> None:
        self._connection = Connection(port)
        self._ledger = ledger
        self._random = random
        self._began_ms = int(time.time() * 1000)

    def check(self, delays_over: bool) -> int:
        """Raise CheckError for the first fault; return the number of messages.

        Messages served now must be served from now on. ``delays_over``: wait for all delayed messages, not only for
        those that were due before.
        """
        try:
            served: dict[MessageId, Place] = {}
            for queue_id in range(QUEUES):
                self._take_queue(PLAIN_TOPIC, queue_id, served)
            for level in range(LEVELS):
                self._take_queue(SCHEDULE_TOPIC, level, served)
            self._take_queue(TRANS_HALF_TOPIC, 0, served)
            for message, place in self._ledger.places.items():
                if served.get(message) != place:
                    raise CheckError(f"lost: {message} should be at {place}, and is at {served.get(message)}")
            self._ledger.places = served
            self._check_queries(served)
            self._check_tags(served)
            self._check_transactions(served)
            self._wait_for_deliveries(delays_over)
            return len(served)
        finally:
            self._connection.close()

    def _take_queue(self, topic: str, queue_id: int, served: dict[MessageId, Place]) -> None:
        last_number: dict[str, int] = {}
        last_physical = -1
        count = 0
        for stored in self._pull_all(topic, queue_id):
            place = Place(topic, queue_id, stored.queue_offset, stored.physical_offset)
            if (stored.topic, stored.queue_id, stored.queue_offset) != (topic, queue_id, count):
                raise CheckError(f"{topic} {queue_id} serves at {count}: {stored.topic} {stored.queue_id} {place}")
            message = self._checked(stored, place)
            if message in served:
                raise CheckError(f"twice: {message} at {served[message]} and {place}")
            if message[1] <= last_number.get(message[0], -1) or stored.physical_offset <= last_physical:
                raise CheckError(f"out of order: {message} at {place}")
            if topic == SCHEDULE_TOPIC:
                delay_ms = (queue_id + 1) * 1000
                self._ledger.scheduled.setdefault(message, stored.store_timestamp + delay_ms)
            last_number[message[0]], last_physical = message[1], stored.physical_offset
            served[message] = place
            count += 1
        end = self._ask(RequestCode.GET_MAX_OFFSET, {"topic": topic, "queueId": str(queue_id)})
        if end is not None and (end.ext_fields or {}).get("offset") != str(count):
            raise CheckError(f"{topic} {queue_id} has {count} messages, its end is {end.ext_fields}")

    def _checked(self, stored: MessageExt, place: Place) -> MessageId:
        """Return the message id of a record after comparing the whole record with it."""
        try:
            message = id_of(stored.body)
        except ValueError:
            raise CheckError(f"a body that was never sent at {place}: {stored.body[:80]!r}") from None
        properties = stored.properties_map()
        if (
            message[1] >= self._ledger.sent.get(message[0], 0)
            or stored.body != body_of(message)
            or any(properties.get(name) != value for name, value in properties_of(message).items())
        ):
            raise CheckError(f"not as it was sent: {message} at {place}, {properties}")
        return message

    def _pull_all(self, topic: str, queue_id: int, subscription: str = "*", offset: int = 0) -> Iterator[MessageExt]:
        while True:
            fields = {
                "consumerGroup": "CrashCheck", "topic": topic, "queueId": str(queue_id), "queueOffset": str(offset),
                "maxMsgNums": "32", "sysFlag": str(_SUBSCRIPTION_IN_REQUEST), "commitOffset": "0",
                "suspendTimeoutMillis": "0", "subscription": subscription, "subVersion": "0",
            }  # fmt: skip
            answer = self._connection.ask(RemotingCommand(RequestCode.PULL_MESSAGE, fields))
            if answer.code in (ResponseCode.PULL_NOT_FOUND, ResponseCode.TOPIC_NOT_EXIST):
                return
            if answer.code == ResponseCode.SUCCESS:
                try:
                    yield from decode_messages(answer.body or b"")
                except RecordError as error:
                    raise CheckError(f"corrupt: {topic} {queue_id} from {offset}: {error}") from error
            elif answer.code != ResponseCode.PULL_RETRY_IMMEDIATELY:
                raise CheckError(f"{topic} {queue_id} from {offset}: {answer.code} {answer.remark}")
            following = int((answer.ext_fields or {})["nextBeginOffset"])
            if following <= offset:
                raise CheckError(f"{topic} {queue_id} from {offset} leads to {following}")
            offset = following

    def _ask(self, code: int, fields: dict[str, str]) -> RemotingCommand | None:
        answer = self._connection.ask(RemotingCommand(code, fields))
        return answer if answer.code == ResponseCode.SUCCESS else None

    def _check_queries(self, served: dict[MessageId, Place]) -> None:
        """Some of all messages, and the newest, must be found by each of their keys, once."""
        plain = [(place, message) for message, place in served.items() if place.topic == PLAIN_TOPIC]
        newest = sorted(plain, key=lambda each: each[0].physical_offset)[-QUERIED:]
        chosen = [*self._random.sample(plain, min(QUERIED, len(plain))), *newest]
        for place, message in chosen:
            for key in (properties_of(message)["UNIQ_KEY"], *keys_of(message)):
                found = self._query(key)
                if len(set(found)) != len(found):
                    raise CheckError(f"the query for {key} finds twice the same: {found}")
                if place not in found:
                    raise CheckError(f"the query for {key} finds {found}, not {place}")

    def _query(self, key: str) -> list[Place]:
        fields = {"topic": PLAIN_TOPIC, "key": key, "maxNum": "32", "beginTimestamp": "0", "endTimestamp": _FOREVER}
        command = RemotingCommand(RequestCode.QUERY_MESSAGE, {**fields, UNIQUE_KEY_QUERY: "false"})
        answer = self._connection.ask(command)
        if answer.code not in (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND):
            raise CheckError(f"the query for {key} is answered {answer.code} {answer.remark}")
        records = decode_messages(answer.body or b"")
        return [Place(one.topic, one.queue_id, one.queue_offset, one.physical_offset) for one in records]

    def _check_tags(self, served: dict[MessageId, Place]) -> None:
        """One queue, by one tag: the codes in the consume queue must be those of the messages."""
        queue_id, tag = self._random.randrange(QUEUES), self._random.choice(TAGS)
        expected = {
            place.queue_offset
            for message, place in served.items()
            if (place.topic, place.queue_id, tag_of(message)) == (PLAIN_TOPIC, queue_id, tag)
        }
        found = {stored.queue_offset for stored in self._pull_all(PLAIN_TOPIC, queue_id, tag)}
        if found != expected:
            raise CheckError(f"queue {queue_id} by {tag}: differs at {sorted(found ^ expected)[:10]}")

    def _check_transactions(self, served: dict[MessageId, Place]) -> None:
        """Committed messages are there at least once, rolled back ones are not, and open ones can still be ended."""
        halves = {message: place for message, place in served.items() if place.topic == TRANS_HALF_TOPIC}
        for message in halves.keys() - self._ledger.ended:
            answer = self._connection.ask(end(message, halves[message]))
            if answer.code != ResponseCode.SUCCESS:
                raise CheckError(f"{message} at {halves[message]} cannot be ended: {answer.code} {answer.remark}")
        self._ledger.ended |= halves.keys()
        self._wait_for(TRANSACTION_TOPIC, {message for message in halves if is_committed(message)}, is_committed)

    def _wait_for_deliveries(self, all_of_them: bool) -> None:
        """Every scheduled message is delivered at least once, as it was sent."""
        scheduled = self._ledger.scheduled
        wanted = {each for each, due in scheduled.items() if all_of_them or due < self._began_ms}
        self._wait_for(DELAYED_TOPIC, wanted, lambda message: True)

    def _wait_for(self, topic: str, wanted: set[MessageId], may_be_there: Callable[[MessageId], bool]) -> None:
        ends = [0] * QUEUES
        delivered: set[MessageId] = set()
        deadline = time.monotonic() + DELIVERY_LIMIT
        while True:
            for queue_id in range(QUEUES):
                for stored in self._pull_all(topic, queue_id, offset=ends[queue_id]):
                    place = Place(topic, queue_id, stored.queue_offset, stored.physical_offset)
                    if stored.queue_offset != ends[queue_id]:
                        raise CheckError(f"{topic} {queue_id} serves at {ends[queue_id]}: {place}")
                    message = self._checked(stored, place)
                    if not may_be_there(message):
                        raise CheckError(f"rolled back and delivered: {message} at {place}")
                    delivered.add(message)
                    ends[queue_id] += 1
            missing = wanted - delivered
            if not missing:
                return
            if time.monotonic() > deadline:
                places = [(each, self._ledger.places[each]) for each in sorted(missing)]
                raise CheckError(f"{len(missing)} messages never reached {topic}: {places[:10]}")
            Event().wait(0.05)
