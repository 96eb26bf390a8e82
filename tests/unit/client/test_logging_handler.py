"""The logging handler: its messages to a broker in this process, and that it never blocks."""

import logging
import os
import subprocess
import sys
from pathlib import Path
from threading import Event
from time import monotonic

from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import SynchronousTestCase, TestCase

import rocketd
from rocketd.broker.base.settings import BrokerSettings
from rocketd.broker.service import make_broker
from rocketd.client.errors import (
    ConnectionLostError,
    IllegalGroupError,
    IllegalMessageError,
    IllegalOptionError,
    IllegalTopicError,
)
from rocketd.client.logging_handler import RocketMQHandler
from rocketd.client.sync import Consumer
from rocketd.namesrv.service import make_namesrv
from rocketd.namesrv.settings import NamesrvSettings

LIMIT = 60.0  # seconds
SOURCES = str(Path(rocketd.__file__).parents[1])
AT_EXIT = """
import logging, sys
from rocketd.client.logging_handler import RocketMQHandler
logging.basicConfig(handlers=[RocketMQHandler("ExitLogs", "exit_logging", sys.argv[1])])
logging.warning("the last words")
"""


def record_of(text, *values, name="shop", level=logging.INFO):
    return logging.LogRecord(name, level, __file__, 1, text, values, None)


class ScriptedProducer:
    """Takes batches, once ``available`` is set; a body of "bad" is refused."""

    def __init__(self):
        self.available = Event()
        self.batches = []
        self.closed = False

    def open(self):
        return self

    def close(self):
        self.closed = True

    def send_batch(self, messages, timeout=None):
        if not self.available.is_set():
            raise ConnectionLostError("broker is down")
        for message in messages:
            self.refuse(message)
        self.batches.append([message.body.decode() for message in messages])

    def send(self, message, timeout=None):
        self.refuse(message)
        self.batches.append([message.body.decode()])

    def refuse(self, message):
        if message.body == b"bad":
            raise IllegalMessageError("no message")

    @property
    def texts(self):
        return [text for batch in self.batches for text in batch]


class HandlerTests(SynchronousTestCase):
    def handler(self, **options):
        self.producer = ScriptedProducer()
        handler = RocketMQHandler("Logs", "logging", "ns:9876", **{"timeout": LIMIT, **options})
        handler._make_producer = lambda: self.producer
        # Closed with a short limit where a test has not: nothing waits for a producer that never takes anything.
        self.addCleanup(handler.close)
        return handler

    def available(self, **options):
        handler = self.handler(**options)
        self.producer.available.set()
        return handler

    def test_batches(self):
        handler = self.available(batch=3, interval=LIMIT)
        for number in range(7):
            handler.handle(record_of("%d", number))
        handler.flush()
        self.assertEqual(self.producer.texts, list("0123456"))
        self.assertEqual(max(map(len, self.producer.batches)), 3)

    def test_a_record_waits_no_longer_than_the_interval(self):
        handler = self.available(interval=0.01)
        arrived = Event()
        send_batch = self.producer.send_batch
        self.producer.send_batch = lambda *args, **options: (send_batch(*args, **options), arrived.set())
        handler.handle(record_of("alone"))
        self.assertTrue(arrived.wait(LIMIT))

    def test_message(self):
        handler = self.handler(tags=lambda record: record.levelname, keys=lambda record: record.name.split("."))
        handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
        message = handler.message_of(record_of("caf\u00e9 %d \ud800", 7, name="shop.stock", level=logging.ERROR))
        self.assertEqual(message.body, b"ERROR caf\xc3\xa9 7 \\ud800")
        self.assertEqual((message.topic, message.tags, message.keys), ("Logs", "ERROR", ["shop", "stock"]))
        self.assertEqual(message.properties, {"logger": "shop.stock", "level": "ERROR"})

    def test_constant_tags_and_keys(self):
        message = self.handler(tags="web", keys=["host1"]).message_of(record_of(""))
        self.assertEqual((message.body, message.tags, message.keys), (b"\n", "web", ["host1"]))

    def test_records_of_the_client_are_not_sent(self):
        handler = self.available()
        for name in ("rocketd", "rocketd.client.logging_handler", "rocketd.remoting"):
            self.assertFalse(handler.handle(record_of("x", name=name)))
        handler.handle(record_of("y", name="rocketdash"))
        handler.flush()
        self.assertEqual(self.producer.texts, ["y"])

    def test_filters_count(self):
        handler = self.available()
        handler.addFilter(lambda record: "secret" not in record.getMessage())
        handler.handle(record_of("a secret"))
        handler.handle(record_of("known"))
        handler.flush()
        self.assertEqual(self.producer.texts, ["known"])

    def test_records_over_capacity_are_dropped_and_counted(self):
        handler = self.handler(capacity=5, interval=0)
        for number in range(12):
            handler.handle(record_of("%d", number))
        self.assertEqual(handler.dropped, 7)
        self.producer.available.set()
        handler.flush()
        handler.close()
        self.assertEqual(
            self.producer.texts,
            [*"01234", "7 log records were dropped: topic Logs did not accept them, or not fast enough"],
            [*"01234", "7 log records were dropped: topic Logs did not accept them, or not fast enough"],
        )
        self.assertTrue(self.producer.closed)

    def test_unavailable_broker_is_logged_once(self):
        with self.assertLogs("rocketd.client.logging_handler", logging.WARNING) as logs:
            handler = self.handler(timeout=0.5)
            handler.handle(record_of("a"))
            for _ in range(int(LIMIT / 0.5)):
                handler.flush()
                if logs.output:
                    break
        self.assertEqual(
            logs.output, ["WARNING:rocketd.client.logging_handler:records are not sent yet: broker is down"]
        )

    def test_flush_and_close_are_bounded(self):
        handler = self.handler(timeout=0.1)
        handler.handle(record_of("a"))
        began = monotonic()
        handler.flush()
        handler.close()
        self.assertGreaterEqual(monotonic() - began, 0.2)
        self.assertEqual((handler.dropped, self.producer.texts), (1, []))

    def test_after_the_close(self):
        handler = self.available()
        handler.handle(record_of("a"))
        handler.close()
        handler.close()
        handler.handle(record_of("b"))
        handler.flush()
        self.assertEqual((handler.dropped, self.producer.texts), (1, ["a"]))

    def test_close_without_records_starts_no_producer(self):
        handler = self.available()
        handler.flush()
        handler.close()
        self.assertFalse(self.producer.closed)

    def test_bad_record_does_not_drop_others(self):
        handler = self.available(interval=LIMIT)
        for text in ("a", "bad", "b"):
            handler.handle(record_of(text))
        handler.close()
        self.assertEqual(self.producer.texts[:2], ["a", "b"])
        self.assertEqual(handler.dropped, 1)

    def test_record_without_legal_message_calls_handle_error(self):
        handler = self.available(keys=lambda record: 7)
        faults = []
        handler.handleError = faults.append
        for record in (record_of("x"), record_of("%d", "no number")):
            handler.handle(record)
            self.assertIs(faults.pop(), record)

    def test_forked_child_sends_only_its_records(self):
        handler = self.handler(interval=0)
        handler.handle(record_of("the parent's"))
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                self.producer.available.set()
                handler.handle(record_of("the child's"))
                handler.flush()
                os.write(writing, repr((self.producer.texts, handler.dropped)).encode())
            finally:
                os._exit(0)
        os.close(writing)
        os.waitpid(child, 0)
        with open(reading) as pipe:
            self.assertEqual(pipe.read(), repr((["the child's"], 0)))
        self.producer.available.set()
        handler.flush()
        self.assertEqual(self.producer.texts, ["the parent's"])

    def test_options(self):
        for error, arguments, options in (
            (IllegalTopicError, ("no topic",), {}),
            (IllegalTopicError, ("SCHEDULE_TOPIC_XXXX",), {}),
            (IllegalGroupError, ("Logs", "no group"), {}),
            (IllegalOptionError, ("Logs",), {"capacity": 0}),
            (IllegalOptionError, ("Logs",), {"batch": True}),
            (IllegalOptionError, ("Logs",), {"timeout": 0}),
            (IllegalOptionError, ("Logs",), {"interval": -1}),
        ):
            with self.assertRaises(error):
                RocketMQHandler(*arguments, **options)


class BrokerTests(TestCase):
    timeout = 4 * LIMIT

    def setUp(self):
        directory = self.mktemp()
        options = {
            "listenPort": "0",
            "kvConfigPath": f"{directory}/kvConfig.json",
            "configStorePath": f"{directory}/namesrv.properties",
        }
        self.namesrv = make_namesrv(NamesrvSettings.load(overrides=options.items())[0])
        self.namesrv.startService()
        self.address = f"127.0.0.1:{self.namesrv.port}"
        options = {
            "listenPort": "0",
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "namesrvAddr": self.address,
            "storePathRootDir": f"{directory}/store",
            "mappedFileSizeCommitLog": "1048576",
            "mappedFileSizeConsumeQueue": "60000",
            "diskMaxUsedSpaceRatio": "99",
        }
        self.broker = make_broker(BrokerSettings.load(overrides=options.items())[0])
        self.broker.startService()
        # If another broker of this name was registered, it would not serve: then its reason fails the test.
        return self.broker.when_serving()

    def tearDown(self):
        return Deferred.fromCoroutine(self.stop())

    async def stop(self):
        await self.broker.stopService()
        await self.namesrv.stopService()

    def test_records_become_messages(self):
        return deferToThread(self.ship)

    def ship(self):
        logger = logging.Logger("shop", logging.DEBUG)
        handler = RocketMQHandler("Logs", "shop_logging", self.address, tags="web", timeout=LIMIT, level="INFO")
        handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
        logger.addHandler(handler)
        logger.debug("too little")
        for number in range(250):
            logger.info("number %d", number)
        try:
            raise ValueError("broken")
        except ValueError:
            logger.exception("it is")
        handler.close()
        self.assertEqual(handler.dropped, 0)
        messages = self.consumed("Logs", 251)
        texts = {message.body.decode().partition("\n")[0] for message in messages}
        self.assertEqual(texts, {"ERROR it is", *(f"INFO number {number}" for number in range(250))})
        self.assertIn("ValueError: broken", "".join(message.body.decode() for message in messages))
        one = messages[0]
        self.assertEqual((one.tags, one.properties["logger"]), ("web", "shop"))

    def test_waiting_records_are_sent_at_exit(self):
        return deferToThread(self.ship_at_exit)

    def ship_at_exit(self):
        run = subprocess.run(
            [sys.executable, "-X", "dev", "-W", "error", "-c", AT_EXIT, self.address],
            env={**os.environ, "PYTHONPATH": SOURCES},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        self.assertEqual((run.stdout, run.stderr, run.returncode), ("", "", 0))
        (message,) = self.consumed("ExitLogs", 1)
        self.assertEqual(message.body, b"WARNING:root:the last words")

    def consumed(self, topic, count):
        with Consumer(f"{topic}_readers", self.address, topics=topic, begin="earliest") as consumer:
            return [next(consumer) for _ in range(count)]
