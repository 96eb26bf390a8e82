"""The helper that leaves out lines about a slow machine must leave everything else."""

import asyncio
import io
import logging
import time

from twisted.trial.unittest import SynchronousTestCase

from rocketd.store.log import flush
from tests.support.complaints import complaints


class ComplaintsTests(SynchronousTestCase):
    def test_slow_callback_of_asyncio_is_not_a_complaint(self):
        text = io.StringIO()
        handler = logging.StreamHandler(text)
        logging.getLogger("asyncio").addHandler(handler)
        self.addCleanup(logging.getLogger("asyncio").removeHandler, handler)

        async def slow():
            asyncio.get_running_loop().slow_callback_duration = 0.001
            time.sleep(0.01)

        asyncio.run(slow(), debug=True)
        self.assertIn("Executing", text.getvalue())
        self.assertEqual(complaints(text.getvalue()), [])

    def test_slow_store_is_not_a_complaint(self):
        lines = (
            f"rocketd: the flush of /store/commitlog took {flush.SLOW_FLUSH_SECONDS * 1000:.0f} ms",
            "appending 3 messages to the log took 700 ms, more than 500: the disk or the machine is slow",
            "a put took 700 ms, more than 500, 1 of them in the append, the rest until its flush: PUT_OK",
        )
        self.assertEqual(complaints("\n".join(lines)), [])

    def test_errors_are_complaints(self):
        lines = [
            "Traceback (most recent call last):",
            "rocketd produce: the send took all of 3000 ms",
            "the handler took 700 ms",
            "Task was destroyed but it is pending!",
        ]
        self.assertEqual(complaints("\n".join(lines)), lines)
