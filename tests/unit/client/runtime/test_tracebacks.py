"""Tracebacks of errors that leave the client: the frames of the application, and none of the client's."""

import asyncio
from traceback import format_exception

from twisted.trial.unittest import SynchronousTestCase

from rocketd.client import ClientConfig, Message, aio, sync
from rocketd.client.errors import NoNameServerError
from rocketd.client.runtime.tracebacks import without_internal_frames

NOWHERE = ClientConfig(namesrv="127.0.0.1:1")


def select_nothing(queues, message, key):
    raise KeyError("no queue for it")


class FaceTests(SynchronousTestCase):
    def check(self, error):
        text = "".join(format_exception(error))
        self.assertNotIn("/twisted/internet/", text)
        self.assertEqual(text.count("/rocketd/remoting/"), 0, text)
        self.assertIn("in send_nowhere", text)
        self.assertIn("connect to 127.0.0.1:1 failed", text.splitlines()[-1])
        self.assertEqual(text.count("Traceback"), 1, text)
        self.assertNotIn("exception", text)
        self.assertIsInstance(error.__context__, Exception)  # it stays, but is not printed

    def test_blocking_call_raises_without_frames_of_twisted(self):
        def send_nowhere():
            with sync.Producer("pg", NOWHERE) as producer:
                producer.send(Message("T", b"x"))

        self.check(self.assertRaises(NoNameServerError, send_nowhere))

    def test_awaited_call_raises_without_frames_of_twisted(self):
        async def send_nowhere():
            async with aio.Producer("pg", NOWHERE) as producer:
                await producer.send(Message("T", b"x"))

        self.check(self.assertRaises(NoNameServerError, asyncio.run, send_nowhere()))


class FrameTests(SynchronousTestCase):
    def error_of(self, function):
        try:
            function()
        except Exception as error:
            return error
        return None

    def test_frames_of_application_stay(self):
        error = self.error_of(lambda: select_nothing((), None, None))
        without_internal_frames(error)
        self.assertIn("in select_nothing", "".join(format_exception(error)))

    def test_cause_of_application_is_printed_with_error_of_client(self):
        def fail():
            try:
                select_nothing((), None, None)
            except KeyError as cause:
                raise NoNameServerError("gone") from cause

        text = "".join(format_exception(without_internal_frames(self.error_of(fail))))
        self.assertIn("in select_nothing", text)
        self.assertIn("direct cause", text)

    def test_other_error_inside_client_keeps_its_frames(self):
        error = self.error_of(lambda: ClientConfig(namesrv="h:1").reactor_on.__call__())
        frames = error.__traceback__
        without_internal_frames(error)
        self.assertIs(error.__traceback__, frames)

    def test_errors_that_are_their_own_cause_end(self):
        error = NoNameServerError("gone")
        other = NoNameServerError("gone, too")
        error.__cause__, other.__cause__ = other, error
        self.assertIs(without_internal_frames(error), error)
