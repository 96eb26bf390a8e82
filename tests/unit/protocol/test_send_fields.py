"""The fields of a send request, made without a header object."""

from twisted.trial.unittest import SynchronousTestCase

from rocketd.protocol.send import send_fields, send_header
from rocketd.remoting.bodies.tables import MessageQueue
from rocketd.remoting.headers.client import write_header


class SendFieldsTests(SynchronousTestCase):
    def test_fields_equal_those_of_the_written_header_in_their_order(self):
        place = ("g", "T", MessageQueue("T", "b", 3), "UNIQ_KEY\x01A\x02WAIT\x01true")
        for more in (
            {},
            {"flag": -7, "sys_flag": 1, "batch": True, "template": "TBW102", "max_queues": 8},
        ):
            made = send_fields(*place, born_ms=1_700_000_000_000, **more)
            written = write_header(send_header(*place, born_ms=1_700_000_000_000, **more))
            self.assertEqual(list(made.items()), list(written.items()))
