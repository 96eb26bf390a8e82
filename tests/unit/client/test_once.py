"""Handlers that handle a message once, with keys in memory and in a database."""

import os
import sqlite3
from concurrent.futures import ThreadPoolExecutor

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from rocketd.client.consumer.retries.handler_results import Retry
from rocketd.client.errors import UsageError
from rocketd.client.once import MemoryStore, SqliteStore, once
from tests.support.once_stores import Answers, StoreTests, message


class MemoryStoreTests(StoreTests, SynchronousTestCase):
    def setUp(self):
        self.store = MemoryStore(limit=3)

    def test_message_handled_twice_at_once_is_retried(self):
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

    def test_oldest_keys_are_dropped(self):
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

    def test_database_is_opened_at_first_use(self):
        self.assertFalse(os.path.exists(self.path))

    def test_another_process_skips_handled_message(self):
        handler = Answers()
        once(self.store)(handler)(message())
        self.store.close()
        once(self.open())(handler)(message())
        self.assertEqual(len(handler.got), 1)

    def test_handler_writes_and_key_are_one_transaction(self):
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

    def test_lock_timeout_raises_for_retry(self):
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

    def test_coroutine_functions_are_refused(self):
        async def handle(message):
            pass

        self.assertRaises(UsageError, once(self.store), handle)

    def test_table_is_a_name(self):
        self.assertRaises(UsageError, SqliteStore, self.path, table="a; DROP TABLE b")
