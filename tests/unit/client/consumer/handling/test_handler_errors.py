"""Failures of handlers: the line in the log with its traceback, and the hook ``on_error``."""

import logging

from twisted.internet.defer import Deferred
from twisted.logger import LogLevel, formatEvent, globalLogPublisher

from rocketd.client.consumer.retries.handler_results import Reject, Retry
from rocketd.client.errors import IllegalOptionError
from rocketd.client.messages.codec import JsonCodec
from rocketd.client.runtime.logs import LoggingBridge
from rocketd.client.runtime.tracebacks import LoggedError
from rocketd.client.sync import Consumer
from tests.support.consuming import ORDERS, ConsumingTestCase


class HandlerErrorTests(ConsumingTestCase):
    def setUp(self):
        super().setUp()
        self.told = []

    def fail_in_coroutine(self):
        async def handler(message):
            raise ValueError(message.body)

        return handler

    def fail_in_thread(self, message):
        raise ValueError(message.body)

    def deliver_one(self):
        self.cluster.deliver("a:10911", [(b"one", "KEYS\x01A17 B18\x02UNIQ_KEY\x010A00")], 0)

    def test_coroutine_raises_logs_traceback_and_message(self):
        self.start(self.fail_in_coroutine())
        self.cluster.reconsume_times = 2
        self.deliver_one()
        (line,) = self.lines
        first, *trace = line.splitlines()
        self.assertRegex(first, r"handler failed on .* at 0: ValueError\(b'one'\); ")
        self.assertTrue(first.endswith("; message 0A00, keys 'A17 B18', attempt 3, group cg"), first)
        self.assertEqual(trace[0], "Traceback (most recent call last):")
        self.assertIn("in handler", trace[1])
        self.assertEqual(trace[-1], "ValueError: b'one'")

    def test_dead_letter_is_logged_as_an_error_unless_the_handler_rejected_it(self):
        for order in ORDERS:
            self.setUp()
            levels = []
            globalLogPublisher.addObserver(levels.append)
            self.addCleanup(globalLogPublisher.removeObserver, levels.append)
            self.start(self.fail_in_coroutine(), order=order, max_reconsume_times=0)
            self.deliver_one()
            self.clock.advance(1)
            found = [
                (event["log_level"].name, formatEvent(event))
                for event in levels
                if "is a dead letter" in formatEvent(event)
            ]
            ((level, line),) = found
            self.assertEqual(level, "error")
            self.assertRegex(
                line, r"message 0A00 .* is a dead letter of group cg after 1 attempts: ValueError\(b'one'\)"
            )

    def test_function_raises_logs_frames_of_application_only(self):
        def handler(message):
            raise ValueError(message.body)

        self.start(handler)
        self.deliver_one()
        self.clock.run_call()
        (line,) = self.lines
        self.assertEqual(line.count("  File "), 1, line)
        self.assertIn("in handler", line)

    def test_batch_raises_logs_number_of_messages(self):
        async def handler(messages):
            raise KeyError(len(messages))

        self.start(handler, batch=3)
        self.deliver(b"one", b"two", b"three")
        self.assertIn("KeyError(3); message 0A00000100000001", self.lines[0])
        self.assertIn(", group cg, with 2 more messages\n", self.lines[0])

    def test_logging_gets_exception_and_one_line(self):
        records = []
        handler = logging.Handler()
        handler.emit = records.append
        logger = logging.getLogger("rocketd.client.consumer.handling.handler")
        logger.addHandler(handler)
        self.addCleanup(logger.removeHandler, handler)
        try:
            raise KeyError("one")
        except KeyError as caught:
            error = caught
        event = {"log_namespace": logger.name, "log_format": "failed: {error!r}{trace}", "error": error}
        event["log_level"] = LogLevel.warn
        LoggingBridge()({**event, "trace": LoggedError(error)})
        (record,) = records
        self.assertEqual(record.getMessage(), "failed: KeyError('one')")
        self.assertEqual(record.exc_info[:2], (KeyError, error))
        self.assertIsNotNone(record.exc_info[2])

    def test_on_error_gets_exception_and_message_before_it_is_given_back(self):
        async def on_error(error, message):
            self.told.append((repr(error), message.body, message.reconsume_times, self.given_back()))

        self.start(self.fail_in_coroutine(), on_error=on_error)
        self.deliver_one()
        self.assertEqual(self.told, [("ValueError(b'one')", b"one", 0, [])])
        self.assertEqual(self.given_back(), [0])

    def test_on_error_in_thread_gets_list_of_batch(self):
        async def handler(messages):
            raise KeyError("no")

        def on_error(error, messages):
            self.told.append([message.body for message in messages])

        self.start(handler, batch=2, on_error=on_error)
        self.deliver(b"one", b"two")
        self.clock.run_call()
        self.assertEqual(self.told, [[b"one", b"two"]])
        self.assertEqual(self.given_back(), [0, 1])

    def test_on_error_raises_is_logged_and_message_comes_again(self):
        async def on_error(error, message):
            raise OSError("no reporter")

        for order in ("none", "queue"):
            self.lines.clear()
            consumer = self.start(self.fail_in_coroutine(), on_error=on_error, order=order, group=f"cg-{order}")
            self.cluster.deliver("a:10911", [(b"one", "")], 0)
            self.assertIn("on_error of group cg", self.lines[1])
            self.assertIn("OSError: no reporter", self.lines[1])
            if order == "queue":
                self.clock.advance(1)
                self.assertEqual(len(self.lines), 4)
            self.end_of(consumer.stop())
        self.assertEqual(self.given_back(), [0])

    def test_retry_and_reject_are_not_errors(self):
        results = [Retry(), Reject()]

        async def handler(message):
            raise results.pop()

        self.start(handler, on_error=lambda *arguments: self.told.append(arguments))
        self.deliver(b"one", b"two")
        self.assertEqual((self.told, self.lines), ([], []))

    def test_unreadable_body_reaches_on_error_as_bytes(self):
        async def on_error(error, message):
            self.told.append((type(error).__name__, message.body))

        self.start(self.fail_in_coroutine(), on_error=on_error, codec=JsonCodec())
        self.deliver(b"no JSON")
        self.assertEqual(self.told, [("IllegalMessageError", b"no JSON")])

    def test_consumer_stops_while_on_error_runs_leaves_message_in_place_after_grace(self):
        async def on_error(error, message):
            await Deferred()

        for order in ("none", "key", "queue"):
            for handler in (self.fail_in_coroutine(), self.fail_in_thread):
                with self.subTest(order=order, handler=handler):
                    self.setUp()
                    consumer = self.start(handler, on_error=on_error, order=order, grace=2, max_reconsume_times=0)
                    self.deliver_one()
                    if handler == self.fail_in_thread:
                        self.clock.run_call()
                    stopping = Deferred.fromCoroutine(consumer.stop())
                    self.assertNoResult(stopping)
                    self.clock.advance(2)
                    self.end_of(stopping)
                    self.assertEqual((self.given_back(), self.cluster.of(310)), ([], []))
                    self.assertNotEqual(self.cluster.offsets.get(("a:10911", "T")), 1)

    def test_on_error_of_wrong_type_is_refused(self):
        def generator(error, message):
            yield

        for wrong in (5, generator):
            self.assertRaisesRegex(IllegalOptionError, "^on_error=", Consumer, "g", on_error=wrong)
