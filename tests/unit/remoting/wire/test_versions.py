"""The version that this process names in its commands: its sources, their order, and a wrong one."""

from unittest import mock

from twisted.trial.unittest import SynchronousTestCase

from rocketd.broker import tap as broker_tap
from rocketd.broker.base.settings import BrokerSettings
from rocketd.client import ClientConfig
from rocketd.client.errors import IllegalOptionError
from rocketd.common.settings.declaration import ConfigError
from rocketd.namesrv import tap as namesrv_tap
from rocketd.namesrv.settings import NamesrvSettings
from rocketd.remoting.errors import RemotingCommandError
from rocketd.remoting.wire.codes import SerializeType
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.remoting.wire.frame import FrameDecoder
from rocketd.remoting.wire.versions import own_version, set_own_version
from rocketd.tools.cli import main
from rocketd.tools.servers import up

VARIABLE = "ROCKETMQ_REMOTING_VERSION"


class OwnVersionTests(SynchronousTestCase):
    def setUp(self):
        self.environment("")
        self.addCleanup(set_own_version, None)

    def environment(self, text):
        patch = mock.patch.dict("os.environ", {VARIABLE: text})
        patch.start()
        self.addCleanup(patch.stop)
        set_own_version(None)

    def on_the_wire(self, command):
        (frame,) = FrameDecoder().feed(command.encode())
        return RemotingCommand.decode(frame).version

    def test_commands_without_environment_name_407(self):
        self.assertEqual(self.on_the_wire(RemotingCommand(10)), 407)
        self.assertEqual(self.on_the_wire(RemotingCommand.response()), 407)

    def test_environment_sets_version_of_requests_and_answers(self):
        self.environment("399")
        for serialize_type in SerializeType:
            request = RemotingCommand(10, serialize_type=serialize_type)
            self.assertEqual(self.on_the_wire(request), 399)
            self.assertEqual(self.on_the_wire(RemotingCommand.response().answering(request)), 399)

    def test_environment_is_read_once(self):
        self.environment("399")
        self.assertEqual(own_version(), 399)
        with mock.patch.dict("os.environ", {VARIABLE: "300"}):
            self.assertEqual(own_version(), 399)

    def test_version_of_received_command_is_kept(self):
        self.environment("399")
        self.assertEqual(self.on_the_wire(RemotingCommand(10, version=61)), 61)

    def test_malformed_environment_version_is_refused_by_name(self):
        for text in ("4.9.7", "-1", "32768", "x", "1" * 5000, "٣"):
            self.environment(text)
            self.assertIn(VARIABLE, str(self.assertRaises(RemotingCommandError, own_version)))
            self.assertIn(VARIABLE, str(self.assertRaises(IllegalOptionError, ClientConfig)))


class SettingTests(SynchronousTestCase):
    def test_version_option_of_daemons_wins_over_environment(self):
        for settings in (BrokerSettings, NamesrvSettings):
            self.assertEqual(settings.load()[0].remoting.version, 407)
            self.assertEqual(settings.load(environ={VARIABLE: "399"})[0].remoting.version, 399)
            both = settings.load(overrides=[("rocketmq.remoting.version", "398")], environ={VARIABLE: "399"})
            self.assertEqual((both[0].remoting.version, both[1]), (398, []))

    def test_setting_beyond_15_bits_ends_the_start(self):
        for text in ("32768", "-1", "4.9.7"):
            error = self.assertRaises(ConfigError, BrokerSettings.load, environ={VARIABLE: text})
            self.assertIn("from 0 to 32767", str(error))

    def test_command_of_a_daemon_sets_the_version_of_its_process(self):
        self.addCleanup(set_own_version, None)
        for number, tap in enumerate((broker_tap, namesrv_tap), 300):
            options = tap.Options()
            options.parseOptions(["-o", f"rocketmq.remoting.version={number}"])
            with mock.patch.object(options, "make"):
                tap.makeService(options)
            self.assertEqual(own_version(), number)

    def test_rocketd_up_sets_the_version_of_its_process(self):
        self.addCleanup(set_own_version, None)
        with mock.patch.multiple(
            up, run_command=mock.DEFAULT, show_log=mock.DEFAULT, tune_interpreter=mock.DEFAULT
        ) as made:
            made["run_command"].return_value = 0
            self.assertEqual(main(("up", "--data", self.mktemp(), "-o", "rocketmq.remoting.version=302")), 0)
        self.assertEqual(own_version(), 302)
