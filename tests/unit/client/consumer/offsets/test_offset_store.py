"""Where a group's offsets are kept: at the brokers, or in a file of the client's."""

import errno
import os
import threading
from pathlib import Path

from twisted.internet.defer import Deferred, fail, maybeDeferred, succeed
from twisted.trial.unittest import SynchronousTestCase

from rocketd.client.consumer.offsets.offset_store import NO_OFFSET, ReadOffsetType
from rocketd.client.consumer.offsets.offset_store_local import LocalFileOffsetStore, OffsetFileError, offsets_path
from rocketd.client.consumer.offsets.offset_store_remote import RemoteBrokerOffsetStore
from rocketd.client.errors import BrokerError, NoRouteError, RequestTimeoutError, UnreachableError
from rocketd.remoting.bodies.tables import MessageQueue
from rocketd.remoting.errors import RemotingConnectError, RemotingTimeoutError
from rocketd.remoting.headers.client import OffsetResponseHeader, write_header
from rocketd.remoting.wire.codes import RequestCode, ResponseCode
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.store.base.filesystem import RealFileSystem
from tests.support.places import GOLDEN

APACHES = GOLDEN / "config" / "clientOffsets-4.9.7.json"
"""Written by LocalFileOffsetStore of rocketmq-client 4.9.7, of which a program with an MQClientInstance that was not started
called updateOffset for these queues and then persistAll."""

OF_GOLDEN = {
    MessageQueue("%RETRY%GroupA", "broker-a", 0): 5,
    MessageQueue("TopicTest", "broker-b", 0): 0,
    MessageQueue("TopicTest", "broker-a", 1): 9223372036854775806,
    MessageQueue("TopicTest", "broker-a", 0): 17,
}

A0, A1, B0 = MessageQueue("T", "a", 0), MessageQueue("T", "a", 1), MessageQueue("T", "b", 0)
OTHER = MessageQueue("Other", "a", 0)
MEMORY, STORE, BOTH = (
    ReadOffsetType.READ_FROM_MEMORY,
    ReadOffsetType.READ_FROM_STORE,
    ReadOffsetType.MEMORY_FIRST_THEN_STORE,
)


def answer(code, offset=None):
    fields = {} if offset is None else write_header(OffsetResponseHeader(offset=offset))
    return RemotingCommand(code, fields, remark="as told")


class Brokers:
    """Records requests and one-way commands; gives the answers set by the test, at once or later."""

    def __init__(self):
        self.asked = []
        self.told = []
        self.answers = {}

    def ask(self, broker_name, request):
        self.asked.append((broker_name, request.code, dict(request.ext_fields)))
        return self._answer(broker_name)

    def tell(self, broker_name, request):
        self.told.append((broker_name, request.code, dict(request.ext_fields)))
        return self._answer(broker_name)

    def _answer(self, broker_name):
        given = self.answers.get(broker_name, answer(ResponseCode.SUCCESS))
        if isinstance(given, Deferred):
            return given
        return fail(given) if isinstance(given, Exception) else succeed(given)


class StoreCase(SynchronousTestCase):
    """For both stores."""

    def result(self, coroutine):
        return self.successResultOf(Deferred.fromCoroutine(coroutine))

    def failure(self, coroutine, *kinds):
        return self.failureResultOf(Deferred.fromCoroutine(coroutine), *kinds).value

    def read(self, queue, source):
        return self.result(self.store.read(queue, source))

    def update_many(self, *pairs):
        for queue, offset in pairs:
            self.store.update(queue, offset, False)


class RemoteTests(StoreCase):
    def setUp(self):
        self.brokers = Brokers()
        self.store = RemoteBrokerOffsetStore("G", self.brokers.ask, self.brokers.tell)
        self.result(self.store.load())

    def test_update(self):
        self.store.update(A0, 5, True)
        self.store.update(A0, 4, True)
        self.assertEqual(self.read(A0, MEMORY), 5)
        self.store.update(A0, 4, False)
        self.assertEqual(self.read(A0, MEMORY), 4)
        self.store.update(A0, 6, True)
        self.assertEqual(self.store.clone(), {A0: 6})

    def test_clone_of_topic(self):
        self.update_many((A0, 1), (OTHER, 2))
        self.assertEqual(self.store.clone("T"), {A0: 1})
        self.assertEqual(self.store.clone(" "), {A0: 1, OTHER: 2})

    def test_read_from_memory_sends_no_request(self):
        self.assertEqual(self.read(A0, MEMORY), NO_OFFSET)
        self.update_many((A0, 0))
        self.assertEqual(self.read(A0, BOTH), 0)
        self.assertEqual(self.brokers.asked, [])

    def test_read_from_broker(self):
        self.brokers.answers["a"] = answer(ResponseCode.SUCCESS, 42)
        self.assertEqual(self.read(A1, BOTH), 42)
        self.assertEqual(
            self.brokers.asked,
            [
                (
                    "a",
                    RequestCode.QUERY_CONSUMER_OFFSET,
                    {"consumerGroup": "G", "topic": "T", "queueId": "1", "bname": "a"},
                )
            ],
        )
        self.assertEqual(self.read(A1, MEMORY), 42)
        self.brokers.answers["a"] = answer(ResponseCode.SUCCESS, 7)
        self.assertEqual(self.read(A1, STORE), 7)
        self.assertEqual(self.read(A1, MEMORY), 7)

    def test_a_store_waits_for_the_one_before_of_its_queue(self):
        """A broker that handles both at once may keep the older offset."""
        held, told = [], []

        async def ask(broker, request):
            held.append((request.ext_fields["queueId"], Deferred()))
            return await held[-1][1]

        async def tell(broker, request):
            told.append((request.ext_fields["queueId"], request.ext_fields["commitOffset"]))

        self.store = RemoteBrokerOffsetStore("G", ask, tell)
        self.update_many((A0, 1), (A1, 1))
        first = Deferred.fromCoroutine(self.store.persist(A0, oneway=False))
        self.store.update(A0, 2, False)
        second = Deferred.fromCoroutine(self.store.persist(A0))
        self.result(self.store.persist(A1))
        self.assertEqual(told, [("1", "1")])
        held[0][1].callback(answer(ResponseCode.SUCCESS))
        self.assertEqual([self.successResultOf(each) for each in (first, second)], [True, True])
        self.assertEqual(told, [("1", "1"), ("0", "2")])

    def test_broker_has_no_offset(self):
        self.brokers.answers["a"] = answer(ResponseCode.QUERY_NOT_FOUND)
        self.assertEqual(self.read(A0, BOTH), NO_OFFSET)
        self.assertEqual(self.read(A0, STORE), NO_OFFSET)
        self.assertEqual(self.store.clone(), {})

    def test_failed_read_is_not_a_missing_offset(self):
        for given, kind in (
            (answer(ResponseCode.SYSTEM_BUSY), BrokerError),
            (RemotingConnectError("a:1"), UnreachableError),
            (RemotingTimeoutError("a:1", 5000), RequestTimeoutError),
            (NoRouteError("no broker a"), NoRouteError),
        ):
            self.brokers.answers["a"] = given
            self.failure(self.store.read(A0, BOTH), kind)
        self.assertEqual(self.store.clone(), {})

    def test_update_while_the_broker_is_asked(self):
        for source, wanted in ((BOTH, 9), (STORE, 3)):
            waiting = self.brokers.answers["a"] = Deferred()
            self.store.remove(A0)
            reading = Deferred.fromCoroutine(self.store.read(A0, source))
            self.store.update(A0, 9, False)
            waiting.callback(answer(ResponseCode.SUCCESS, 3))
            self.assertEqual(self.successResultOf(reading), wanted)
            self.assertEqual(self.read(A0, MEMORY), wanted)

    def test_persist_all_sends_offsets_and_drops_other_queues(self):
        self.update_many((A0, 1), (B0, 2), (OTHER, 3))
        self.assertEqual(self.result(self.store.persist_all([A0, A1, B0])), [])
        self.assertEqual(self.brokers.asked, [])
        self.assertEqual(
            self.brokers.told,
            [
                (
                    name,
                    RequestCode.UPDATE_CONSUMER_OFFSET,
                    {"consumerGroup": "G", "topic": "T", "queueId": "0", "commitOffset": offset, "bname": name},
                )
                for name, offset in (("a", "1"), ("b", "2"))
            ],
        )
        self.assertEqual(self.store.clone(), {A0: 1, B0: 2})

    def test_persist_of_no_queue_sends_nothing(self):
        self.update_many((A0, 1))
        self.assertEqual(self.result(self.store.persist_all([])), [])
        self.assertTrue(self.result(self.store.persist(B0)))
        self.assertEqual((self.store.clone(), self.brokers.told), ({A0: 1}, []))

    def test_persist_all_returns_failed_queues(self):
        self.update_many((A0, 1), (A1, 2), (B0, 3))
        self.brokers.answers["a"] = RemotingConnectError("a:1")
        self.assertEqual(self.result(self.store.persist_all({A0, A1, B0})), [A0, A1])
        self.assertEqual(len(self.brokers.told), 3)
        self.assertFalse(self.result(self.store.persist(A0)))
        self.assertTrue(self.result(self.store.persist(B0)))

    def test_persist_waits_at_the_end(self):
        self.update_many((A0, 1), (B0, 3))
        waiting = self.brokers.answers["a"] = Deferred()
        self.brokers.answers["b"] = answer(ResponseCode.SYSTEM_ERROR)
        storing = Deferred.fromCoroutine(self.store.persist_all([A0, B0], oneway=False))
        self.assertNoResult(storing)
        self.assertEqual([name for name, _, _ in self.brokers.asked], ["a", "b"])
        waiting.callback(answer(ResponseCode.SUCCESS))
        self.assertEqual(self.successResultOf(storing), [B0])
        self.assertEqual(self.brokers.told, [])

    def test_persist_at_the_end_sends_one_offset_per_broker_first(self):
        self.update_many((A0, 1), (A1, 2), (B0, 3))
        waiting = self.brokers.answers["a"] = Deferred()
        self.brokers.answers["b"] = answer(ResponseCode.SUCCESS)
        storing = Deferred.fromCoroutine(self.store.persist_all([A0, A1, B0], oneway=False))
        (first,) = {name: fields["commitOffset"] for name, _, fields in self.brokers.asked if name == "a"}.values()
        self.assertEqual(len(self.brokers.asked), 2)
        self.brokers.answers["a"] = answer(ResponseCode.SYSTEM_ERROR)
        waiting.callback(answer(ResponseCode.SUCCESS))
        offset, failed = ("2", A1) if first == "1" else ("1", A0)
        name, _, fields = self.brokers.asked[-1]
        self.assertEqual((name, fields["commitOffset"], len(self.brokers.asked)), ("a", offset, 3))
        self.assertEqual(self.successResultOf(storing), [failed])

    def test_update_to_broker(self):
        self.result(self.store.update_to_broker(A0, 5))
        self.result(self.store.update_to_broker(A0, 6, oneway=False))
        self.assertEqual(
            [fields["commitOffset"] for _, _, fields in self.brokers.told + self.brokers.asked], ["5", "6"]
        )
        self.assertEqual(self.store.clone(), {})
        self.brokers.answers["a"] = answer(ResponseCode.SYSTEM_ERROR)
        self.failure(self.store.update_to_broker(A0, 6, oneway=False), BrokerError)

    def test_remove(self):
        self.update_many((A0, 1))
        self.store.remove(A0)
        self.store.remove(A0)
        self.assertEqual(self.store.clone(), {})


class Disk(RealFileSystem):
    """Counts the calls that change or read files; the call with the given number fails."""

    def __init__(self):
        self.calls = []
        self.fails_at = None
        self.error = OSError(errno.EIO, "broken")

    def _enter(self, name):
        self.calls.append(name)
        if len(self.calls) == self.fails_at:
            raise self.error

    def fail_next(self, number=1):
        self.fails_at = len(self.calls) + number

    def read_file(self, path):
        self._enter("read")
        return super().read_file(path)

    def write_file(self, path, data):
        self._enter("write")
        super().write_file(path, data)

    def rename(self, source, target):
        self._enter("rename")
        super().rename(source, target)

    def sync_dir(self, path):
        self._enter("sync")
        super().sync_dir(path)


class LocalTests(StoreCase):
    def setUp(self):
        self.directory = self.mktemp()
        self.path = offsets_path("10.0.0.1@DEFAULT", "GroupA", self.directory)
        self.disk = Disk()
        self.open()

    def open(self, defer_to_thread=maybeDeferred):
        self.store = LocalFileOffsetStore(self.path, defer_to_thread, self.disk)

    def write(self, text, suffix=""):
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        Path(self.path + suffix).write_bytes(text)

    def stored(self, suffix=""):
        other = LocalFileOffsetStore(self.path + suffix, maybeDeferred)
        self.result(other.load())
        return other.clone()

    def test_path(self):
        self.assertEqual(self.path, os.path.join(self.directory, "10.0.0.1@DEFAULT", "GroupA", "offsets.json"))
        self.assertEqual(
            offsets_path("c", "g"), os.path.join(os.path.expanduser("~"), ".rocketmq_offsets", "c", "g", "offsets.json")
        )

    def test_new_group(self):
        self.result(self.store.load())
        self.assertEqual(self.store.clone(), {})
        self.assertEqual(self.read(A0, BOTH), NO_OFFSET)
        self.assertFalse(os.path.exists(self.directory))

    def test_apaches_file(self):
        self.write(APACHES.read_bytes())
        self.result(self.store.load())
        self.assertEqual(self.store.clone(), OF_GOLDEN)

    def test_written_as_apache_writes(self):
        # Apache's map has no order that could be relied on; ours is sorted.
        self.write(APACHES.read_bytes())
        self.result(self.store.load())
        self.result(self.store.persist_all(OF_GOLDEN))
        self.assertEqual(_entries(Path(self.path).read_bytes()), _entries(APACHES.read_bytes()))
        self.assertEqual(self.stored(), OF_GOLDEN)

    def test_read(self):
        self.update_many((A0, 3))
        self.result(self.store.persist_all([A0]))
        self.update_many((A0, 4))
        self.assertEqual(self.read(A0, BOTH), 4)
        self.assertEqual(self.read(A0, STORE), 3)
        self.assertEqual(self.read(A0, MEMORY), 3)
        self.open()
        self.assertEqual(self.read(A0, MEMORY), NO_OFFSET)
        self.assertEqual(self.read(A0, BOTH), 3)
        self.assertEqual(self.read(A1, STORE), NO_OFFSET)
        self.assertEqual(self.store.clone(), {A0: 3})

    def test_persist_all(self):
        self.result(self.store.persist_all([]))
        self.assertFalse(os.path.exists(self.path))
        self.update_many((A0, 1), (A1, 2), (OTHER, 3))
        self.assertEqual(self.result(self.store.persist_all([A0, A1])), [])
        self.assertEqual(self.stored(), {A0: 1, A1: 2, OTHER: 3})

    def test_offset_of_an_absent_queue_stays_in_the_file(self):
        """Its broker is away, or the application does not read it now."""
        self.update_many((A0, 1), (B0, 2))
        self.result(self.store.persist_all([A0, B0]))
        self.update_many((A0, 3))
        self.result(self.store.persist_all([A0]))
        self.assertEqual(self.stored(), {A0: 3, B0: 2})
        self.update_many((A0, 4))
        self.result(self.store.persist_all([]))
        self.assertEqual(self.stored(), {A0: 4, B0: 2})

    def test_persist_keeps_previous_file_as_backup(self):
        self.update_many((A0, 1))
        self.result(self.store.persist_all([A0]))
        self.update_many((A0, 2))
        self.result(self.store.persist_all([A0]))
        self.assertEqual(self.stored(), {A0: 2})
        self.assertEqual(self.stored(".bak"), {A0: 1})
        self.assertEqual(sorted(os.listdir(os.path.dirname(self.path))), ["offsets.json", "offsets.json.bak"])

    def test_persist_without_change_writes_nothing(self):
        self.update_many((A0, 1))
        self.result(self.store.persist_all([A0]))
        self.assertEqual(self.disk.calls[-3:], ["write", "rename", "sync"])
        calls = len(self.disk.calls)
        self.assertEqual(self.result(self.store.persist_all([A0])), [])
        self.assertEqual(len(self.disk.calls), calls)

    def test_damaged_file(self):
        for damage in (b"", b'{\n\t"offsetTable":{{\n\t\t\t"brok', b'{"offsetTable":{{"topic":"T"}:1}}', b"null"):
            self.write(damage)
            self.write(b"", ".bak")
            error = self.failure(self.store.load(), OffsetFileError)
            self.assertIn(self.path, str(error))
            self.assertIn(self.path + ".bak", str(error))
            self.failure(self.store.read(A0, BOTH), OffsetFileError)

    def test_backup_stands_in_and_is_not_lost(self):
        self.write(APACHES.read_bytes(), ".bak")
        for damage in (None, b"{"):
            if damage is not None:
                self.write(damage)
            self.open()
            self.result(self.store.load())
            self.assertEqual(self.store.clone(), OF_GOLDEN)
            self.update_many((A0, 1))
            self.result(self.store.persist_all([*OF_GOLDEN, A0]))
            self.assertEqual(self.stored(), {**OF_GOLDEN, A0: 1})
            self.assertEqual(self.stored(".bak"), OF_GOLDEN)
        self.update_many((A0, 2))
        self.result(self.store.persist_all([*OF_GOLDEN, A0]))
        self.assertEqual(self.stored(".bak"), {**OF_GOLDEN, A0: 1})

    def test_unreadable_file(self):
        self.write(APACHES.read_bytes())
        self.disk.fail_next()
        self.assertIn("broken", str(self.failure(self.store.load(), OffsetFileError)))

    def test_failure_at_any_step_leaves_a_whole_file(self):
        for number in range(1, 6):
            self.disk.fails_at = None
            self.update_many((A0, number * 10), (A1, 7))
            self.assertEqual(self.result(self.store.persist_all([A0, A1, B0])), [])
            self.update_many((A0, number * 10 + 1))
            self.disk.calls.clear()
            self.disk.fail_next(number)
            self.assertEqual(self.result(self.store.persist_all([A0, A1, B0])), [A0, A1])
            self.assertEqual(len(self.disk.calls), number)
            # The last step only says that the new name is to last.
            self.assertEqual(self.stored(), {A0: number * 10 + (number == 5), A1: 7})
        self.assertEqual(self.disk.calls, ["write", "read", "write", "rename", "sync"])
        self.assertEqual(self.result(self.store.persist_all([A0, A1, B0])), [])
        self.assertEqual(self.stored(), {A0: 51, A1: 7})

    def test_work_in_the_thread_is_one_at_a_time(self):
        jobs = []

        def defer_to_thread(function):
            done = Deferred()
            jobs.append((function, done))
            return done

        def finish_first():
            function, done = jobs.pop(0)
            thread = threading.Thread(target=lambda: results.append(function()))
            results = []
            thread.start()
            thread.join()
            done.callback(results[0])

        self.open(defer_to_thread)
        self.update_many((A0, 1))
        first = Deferred.fromCoroutine(self.store.persist_all([A0]))
        self.update_many((A0, 2))
        second = Deferred.fromCoroutine(self.store.persist_all([A0]))
        reading = Deferred.fromCoroutine(self.store.read(A0, STORE))
        self.assertEqual(len(jobs), 1)
        finish_first()
        self.assertEqual(self.successResultOf(first), [])
        self.assertEqual(self.stored(), {A0: 1})
        self.assertEqual(len(jobs), 1)
        finish_first()
        self.assertEqual(self.successResultOf(second), [])
        finish_first()
        self.assertEqual(self.successResultOf(reading), 2)

    def test_persist_of_one_queue_writes_no_file(self):
        self.update_many((A0, 1))
        self.assertTrue(self.result(self.store.persist(A0)))
        self.result(self.store.update_to_broker(A0, 9))
        self.store.remove(A0)
        self.assertEqual(self.store.clone(), {A0: 1})
        self.assertFalse(os.path.exists(self.path))


def _entries(data):
    """The text around the entries of the map, and the text of each, in the order of the texts."""
    begin, rest = data.split(b"{{", 1)
    body, end = rest.rsplit(b"\n\t}", 1)
    return begin, sorted(body.split(b",{")), end
