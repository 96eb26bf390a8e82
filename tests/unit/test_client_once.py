"""Handlers that handle a message once, with keys in memory and in a database."""

import os
import sqlite3
from concurrent.futures import ThreadPoolExecutor

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from rocketd.client.consumer.outcome import Reject, Retry
from rocketd.client.errors import UsageError
from rocketd.client.message import ReceivedMessage
from rocketd.client.once import MemoryStore, SqliteStore, once
from rocketd.remoting.bodies import MessageQueue


def message(body=b"one", keys="", msg_id="ID"):
    return ReceivedMessage(
        topic="T",
        body=body,
        properties={"KEYS": keys},
        msg_id=msg_id,
        offset_msg_id="OFFSETID",
        queue=MessageQueue("T", "a", 0),
        queue_offset=0,
        physical_offset=0,
        flag=0,
        sys_flag=0,
        born_timestamp=0,
        store_timestamp=0,
        born_host="",
        store_host="",
        store_size=0,
        reconsume_times=0,
    )


class Answers:
    """A handler that answers with what is in ``then``, one after the other, and keeps what it got."""

    def __init__(self, *then):
        self.then = list(then)
        self.got = []

    def __call__(self, message):
        self.got.append(message.body)
        answer = self.then.pop(0) if self.then else None
        if isinstance(answer, LookupError):
            raise answer
        return answer


class StoreTests:
    """What holds for every store."""

    def test_comes_twice_and_is_done_once(self):
        handler = Answers()
        handle = once(self.store)(handler)
        for each in (message(b"one"), message(b"again"), message(b"other", msg_id="ID2")):
            self.assertIsNone(handle(each))
        self.assertEqual(handler.got, [b"one", b"other"])

    def test_a_plain_handler_that_is_to_be_awaited_has_not_done_it(self):
        async def work(message):
            self.fail("nobody awaits it")

        handle = once(self.store)(lambda message: work(message))
        for _ in range(2):
            error = self.assertRaises(UsageError, handle, message())
            self.assertIn("make it a coroutine function", str(error))

    def test_what_was_not_consumed_is_not_done(self):
        handler = Answers(LookupError(), Retry(5), Reject())
        handle = once(self.store)(handler)
        for error in (LookupError, Retry, Reject):
            self.assertRaises(error, handle, message())
        handle(message())
        handle(message())
        self.assertEqual(len(handler.got), 4)

    def test_the_application_makes_keys(self):
        handler = Answers()
        handle = once(self.store, key=lambda message: message.properties["KEYS"] or None)(handler)
        for number, keys in enumerate(("order-1", "order-1", "order-2", "", "")):
            handle(message(b"%d" % number, keys, msg_id=str(number)))
        self.assertEqual(handler.got, [b"0", b"2", b"3", b"4"])

    def test_lists_are_refused(self):
        self.assertRaises(UsageError, once(self.store)(Answers()), [message()])

    def test_handlers_keep_their_names(self):
        def handle_order(message):
            pass

        self.assertEqual(once(self.store)(handle_order).__name__, "handle_order")


class MemoryStoreTests(StoreTests, SynchronousTestCase):
    def setUp(self):
        self.store = MemoryStore(most=3)

    def test_a_message_that_two_get_at_once_comes_again(self):
        caught = []

        def handler(message):
            if message.body == b"first":
                try:
                    handle(_again)
                except Retry as error:
                    caught.append(error)

        _again = message(b"second")
        handle = once(self.store)(handler)
        handle(message(b"first"))
        self.assertEqual(len(caught), 1)

    def test_coroutine_functions(self):
        got, waiting = [], Deferred()

        @once(self.store)
        async def handle(message):
            got.append(message.body)
            await waiting

        first = Deferred.fromCoroutine(handle(message(b"first")))
        self.failureResultOf(Deferred.fromCoroutine(handle(message(b"meanwhile"))), Retry)
        waiting.callback(None)
        self.successResultOf(first)
        self.successResultOf(Deferred.fromCoroutine(handle(message(b"after"))))
        self.assertEqual(got, [b"first"])

    def test_the_oldest_keys_are_forgotten(self):
        handler = Answers()
        handle = once(self.store)(handler)
        for key in "abcda":
            handle(message(key.encode(), msg_id=key))
        self.assertEqual(handler.got, [b"a", b"b", b"c", b"d", b"a"])


class SqliteStoreTests(StoreTests, SynchronousTestCase):
    def setUp(self):
        self.path = self.mktemp()
        self.time = 1000.0
        self.store = self.open()

    def open(self, **options):
        store = SqliteStore(self.path, now=lambda: self.time, **options)
        self.addCleanup(store.close)
        return store

    def test_nothing_is_opened_when_it_is_made(self):
        self.assertFalse(os.path.exists(self.path))

    def test_another_process_finds_what_was_done(self):
        handler = Answers()
        once(self.store)(handler)(message())
        self.store.close()
        once(self.open())(handler)(message())
        self.assertEqual(len(handler.got), 1)

    def test_what_a_handler_writes_is_written_with_the_key_or_not_at_all(self):
        self.store.connection.execute("CREATE TABLE paid (body BLOB)")
        fails = [True, False]

        @once(self.store)
        def handle(message):
            self.store.connection.execute("INSERT INTO paid VALUES (?)", (message.body,))
            if fails.pop(0):
                raise LookupError

        self.assertRaises(LookupError, handle, message())
        self.assertEqual(self.paid(), [])
        handle(message())
        handle(message())
        self.assertEqual(self.paid(), [(b"one",)])

    def paid(self):
        return self.store.connection.execute("SELECT body FROM paid").fetchall()

    def test_threads_wait_for_each_other(self):
        handler = Answers()
        handle = once(self.store)(handler)
        with ThreadPoolExecutor(8) as pool:
            for done in [pool.submit(handle, message()) for _ in range(40)]:
                done.result()
        self.assertEqual(len(handler.got), 1)

    def test_who_waits_too_long_gets_the_message_again(self):
        impatient = self.open(timeout=0.01)
        with self.store.transaction("ID") as first:
            self.assertTrue(first)
            self.assertRaises(sqlite3.OperationalError, once(impatient)(Answers()), message())

    def test_keys_are_kept_for_a_time(self):
        handler = Answers()
        handle = once(self.open(keep=10))(handler)
        for self.time in (1000.0, 1010.0, 1010.5, 1020.0):
            handle(message())
        self.assertEqual(len(handler.got), 2)

    def test_is_not_for_coroutine_functions(self):
        async def handle(message):
            pass

        self.assertRaises(UsageError, once(self.store), handle)

    def test_table_is_a_name(self):
        self.assertRaises(UsageError, SqliteStore, self.path, table="a; DROP TABLE b")
