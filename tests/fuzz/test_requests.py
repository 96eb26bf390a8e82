"""The fuzzer's requests: their headers decode, and there are some for every code."""

from random import Random

from twisted.trial.unittest import SynchronousTestCase

from rocketd.remoting.errors import RemotingCommandError
from rocketd.remoting.headers.client import read_header
from rocketd.remoting.wire.codes import ResponseCode
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.remoting.wire.frame import FrameDecoder
from tests.fuzz.frames import FrameMaker
from tests.fuzz.requests import HEADERS, code_of
from tests.fuzz.wire import is_of_processor
from twisted.plugins import rocketd_broker_processors, rocketd_namesrv_processors


class RequestTests(SynchronousTestCase):
    def setUp(self):
        self.maker = FrameMaker(Random(7)).requests

    def decoded(self, code, **how):
        (frame,) = FrameDecoder().feed(self.maker.request(code, **how).encode())
        return RemotingCommand.decode(frame)

    def test_every_code_of_the_servers_has_requests(self):
        plugins = [
            plugin
            for plugin in vars(rocketd_broker_processors).values()
            if isinstance(plugin, rocketd_broker_processors.BuiltInProcessor)
        ]
        plugins += [rocketd_namesrv_processors.route_plugin, rocketd_namesrv_processors.namesrv_plugin]
        self.assertEqual({code for plugin in plugins for code in plugin.codes} - HEADERS.keys(), set())

    def test_valid_requests_decode_for_every_code(self):
        for code, header in HEADERS.items():
            for _ in range(50):
                request = self.decoded(code)
                self.assertEqual((request.code, code_of(request.opaque)), (code, code))
                if header is not None:
                    read_header(header, request)

    def test_broken_requests_fail_to_decode_in_a_share(self):
        for code, header in HEADERS.items():
            if header is None or not any(field.isdigit() for field in self.maker._fields(code).values()):
                continue
            failed = 0
            for _ in range(200):
                try:
                    read_header(header, self.decoded(code, broken=True))
                except RemotingCommandError:
                    failed += 1
            self.assertGreater(failed, 0, code)

    def test_answer_of_processor_is_told_from_refusal_before_it(self):
        for code, remark, expected in (
            (ResponseCode.SUCCESS, None, True),
            (ResponseCode.SYSTEM_ERROR, "topic not exist", True),
            (ResponseCode.SYSTEM_ERROR, "the custom field <a> is null", False),
            (ResponseCode.SYSTEM_BUSY, "[OVERLOAD]system busy", False),
            (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "no", False),
        ):
            self.assertEqual(is_of_processor(RemotingCommand.response(code, remark)), expected)
