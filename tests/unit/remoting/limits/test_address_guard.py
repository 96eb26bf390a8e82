"""Guards by address: accepted administrative writes, and answers, counts and log lines of refusals."""

from twisted.internet.task import Clock
from twisted.logger import formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from rocketd.broker.base.settings import BrokerSettings
from rocketd.common.logs.throttle import INTERVAL
from rocketd.common.settings.declaration import ConfigError
from rocketd.namesrv.settings import NamesrvSettings
from rocketd.remoting.errors import RequestError
from rocketd.remoting.interfaces import IJobProcessor, IRequestProcessor
from rocketd.remoting.limits.address_guard import ADMIN_WRITES, REGISTRATIONS, admin_guard
from rocketd.remoting.serving.dispatch import Dispatcher
from rocketd.remoting.serving.pools import Job
from rocketd.remoting.wire.codes import RequestCode, ResponseCode, SerializeType
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.remoting.wire.frame import FrameDecoder
from tests.support.broker import RecordingConnection
from twisted.plugins import rocketd_broker_processors, rocketd_namesrv_processors

PUBLIC = "203.0.113.9:4097"
READS = {
    "broker": {
        10, 310, 320, 324, 325, 36, 37, 11, 361, 34, 35, 46, 38, 15, 14, 12, 33, 29, 30, 31, 32, 41, 42, 21, 201, 26, 28,
        43, 45, 202, 203, 204, 328, 300, 305, 30002, 30003, 208, 303, 308, 315, 317, 223, 307, 321, 52, 54, 30001,
        351, 352,
    },
    "namesrv": {101, 105, 106, 206, 219, 224, 304, 311, 312, 313, 319},
}  # fmt: skip
"""Requests that change nothing, and those that clients need."""


@implementer(IRequestProcessor)
class Processor:
    def __init__(self):
        self.requests = []

    def process(self, request, context):
        self.requests.append(request)
        return RemotingCommand.response()


@implementer(IJobProcessor)
class JobProcessor:
    def process_jobs(self, jobs):
        raise AssertionError


class GuardTests(SynchronousTestCase):
    def setUp(self):
        self.clock = Clock()
        self.allowed = "private"
        self.guard = admin_guard(lambda: self.allowed, self.clock.seconds)
        self.events = []
        globalLogPublisher.addObserver(self.events.append)
        self.addCleanup(globalLogPublisher.removeObserver, self.events.append)

    def refused(self, address, code=RequestCode.DELETE_TOPIC_IN_BROKER):
        return self.assertRaises(RequestError, self.guard.check, address, code)

    def test_admin_write_from_public_address_is_refused_and_names_setting(self):
        error = self.refused(PUBLIC)
        self.assertEqual(error.code, ResponseCode.NO_PERMISSION)
        self.assertEqual(
            error.remark,
            "request DELETE_TOPIC_IN_BROKER (215) from 203.0.113.9 is not permitted; cause: without accounts, "
            "administrative writes are accepted only from: private (setting adminWithoutAcl); run the command on a "
            "machine "
            "of that list, have the operator add 203.0.113.9 to it, or use accounts (aclEnable) [admin-address-refused]",
        )
        for address in ("[2001:db8::7]:1", "localhost:1", ""):
            self.refused(address)

    def test_admin_write_from_private_address_passes(self):
        for address in ("127.0.0.1:1", "10.0.0.9:1", "[::1]:1", "[fd00::1]:1", "[fe80::1%eth0]:1"):
            self.guard.check(address, RequestCode.DELETE_TOPIC_IN_BROKER)
        self.assertEqual(self.guard.refused, 0)

    def test_changed_list_counts_at_once(self):
        self.refused(PUBLIC)
        self.allowed = "private,203.0.113.0/24"
        self.guard.check(PUBLIC, RequestCode.DELETE_TOPIC_IN_BROKER)

    def test_refusals_are_counted_and_logged_once_a_minute(self):
        for _ in range(1000):
            self.refused(PUBLIC)
        (line,) = map(formatEvent, self.events)
        refused = "request DELETE_TOPIC_IN_BROKER (215) is refused: the address is not in adminWithoutAcl = private"
        self.assertEqual(line, f"{PUBLIC}: {refused}")
        self.clock.advance(INTERVAL)
        self.refused(PUBLIC)
        self.assertEqual(self.guard.refused, 1001)
        line = formatEvent(self.events[-1])
        self.assertTrue(line.endswith(" (999 more like this were not logged)"), line)


class DispatcherTests(SynchronousTestCase):
    def setUp(self):
        self.dispatcher = Dispatcher(lambda function, *arguments: function(*arguments))
        self.pool = self.dispatcher.add_pool("admin")
        self.guard = admin_guard(lambda: "private")
        self.dispatcher.guard(ADMIN_WRITES, self.guard)
        self.processor = Processor()
        for code in (RequestCode.DELETE_TOPIC_IN_BROKER, RequestCode.GET_ALL_TOPIC_CONFIG):
            self.dispatcher.register(code, self.processor, "admin")

    def ask(self, data, address=PUBLIC):
        connection = RecordingConnection(address)
        (frame,) = FrameDecoder().feed(data)
        (_, handler) = self.dispatcher._target(frame) or self.dispatcher._targets[RemotingCommand.decode(frame).code]
        handler.process_jobs([Job(handler, connection, [frame], 0)])
        return connection.answer()

    def test_guarded_code_is_refused_in_every_header_form(self):
        code = RequestCode.DELETE_TOPIC_IN_BROKER
        plain = RemotingCommand(code).encode()
        header = plain[8:].replace(b'{"code"', b' { "code"')
        blanks = (4 + len(header)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header
        two = header.replace(b'"code":215', b'"code":21,"code":215')
        twice = (4 + len(two)).to_bytes(4, "big") + len(two).to_bytes(4, "big") + two
        binary = RemotingCommand(code, serialize_type=SerializeType.ROCKETMQ).encode()
        for data in (plain, blanks, twice, binary):
            self.assertEqual(self.ask(data).code, ResponseCode.NO_PERMISSION, data)
        self.assertEqual(self.processor.requests, [])
        self.assertEqual(self.dispatcher.refused_by_address(), {"adminWritesRefused": 4})
        self.assertEqual(self.ask(plain, "127.0.0.1:5").code, ResponseCode.SUCCESS)

    def test_unguarded_code_passes(self):
        self.assertEqual(self.ask(RemotingCommand(RequestCode.GET_ALL_TOPIC_CONFIG).encode()).code, 0)

    def test_processor_of_jobs_is_refused_for_guarded_code(self):
        error = self.assertRaises(
            ValueError, self.dispatcher.register, RequestCode.UPDATE_BROKER_CONFIG, JobProcessor(), "admin"
        )
        self.assertIn("use process, not process_jobs", str(error))


class DeclarationTests(SynchronousTestCase):
    def test_server_codes_are_classified_for_guard(self):
        """A new code has to be put into one of the lists."""
        broker = {
            code
            for plugin in vars(rocketd_broker_processors).values()
            if isinstance(plugin, rocketd_broker_processors.BuiltInProcessor)
            for code in plugin.codes
        }
        name_server = {
            *rocketd_namesrv_processors.route_plugin.codes,
            *rocketd_namesrv_processors.namesrv_plugin.codes,
        }
        self.assertEqual(broker - ADMIN_WRITES, READS["broker"])
        self.assertEqual(name_server - ADMIN_WRITES - REGISTRATIONS, READS["namesrv"])
        self.assertEqual(ADMIN_WRITES - broker - name_server, set())


class SettingTests(SynchronousTestCase):
    def test_defaults_are_private_for_admins_and_brokers(self):
        self.assertEqual(BrokerSettings.load()[0].broker.admin_without_acl, "private")
        settings = NamesrvSettings.load()[0].namesrv
        self.assertEqual((settings.admin_without_acl, settings.broker_allowed_addresses), ("private", "private"))

    def test_text_that_is_not_a_list_is_refused_at_start(self):
        error = self.assertRaises(ConfigError, BrokerSettings.load, None, [("adminWithoutAcl", "privat")])
        self.assertIn("adminWithoutAcl", str(error))
        self.assertIn("any, none, or a list", str(error))
