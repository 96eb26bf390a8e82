import io
import os
import signal
import subprocess
import sys
import tempfile

from twisted.application.service import IService, IServiceMaker, Service
from twisted.logger import formatEvent, globalLogPublisher
from twisted.plugin import getPlugins
from twisted.python.usage import UsageError
from twisted.trial.unittest import SynchronousTestCase

import rocketd
from rocketd import core
from rocketd.broker import tap as broker_tap
from rocketd.broker.base.settings import BrokerSettings
from rocketd.common.settings.declaration import ConfigError
from rocketd.common.settings.properties_file import parse
from rocketd.namesrv import tap as namesrv_tap
from rocketd.namesrv.settings import NamesrvSettings
from rocketd.tools.gen_docs.settings import page
from tests.support.places import ROOT


class OptionsTests(SynchronousTestCase):
    def setUp(self):
        self.out, self.err = io.StringIO(), io.StringIO()
        self.patch(sys, "stdout", self.out)
        self.patch(sys, "stderr", self.err)
        self.patch(os, "environ", {"HOME": "/home/u"})

    def parse(self, *arguments, tap=broker_tap):
        options = tap.Options()
        options.parseOptions(list(arguments))
        return options

    def leave(self, *arguments, tap=broker_tap):
        return self.assertRaises(SystemExit, self.parse, *arguments, tap=tap).code

    def conf(self, text):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        path = os.path.join(directory.name, "daemon.conf")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def test_options_default_to_settings_defaults(self):
        self.assertEqual(self.parse().settings.server.listen_port, 10911)
        self.assertEqual(self.parse(tap=namesrv_tap).settings.server.listen_port, 9876)
        self.assertEqual(self.out.getvalue() + self.err.getvalue(), "")

    def test_options_win_over_the_file(self):
        path = self.conf("brokerName=a\nlistenPort=1\nnamesrvAddr=x:1\n")
        for arguments in (
            ("-c", path, "-n", "n:1", "-o", "listenPort=2", "-o", "brokerId = 0"),
            ("--config", path, "--namesrv-addr", "n:1", "--option", "listenPort=2"),
        ):
            settings = self.parse(*arguments).settings
            self.assertEqual(settings.broker.broker_name, "a")
            self.assertEqual(settings.server.listen_port, 2)
            self.assertEqual(settings.broker.namesrv_addr, "n:1")

    def test_value_may_hold_an_equals_sign(self):
        self.assertEqual(self.parse("-o", "regionId=a=b").settings.broker.region_id, "a=b")

    def test_option_without_value(self):
        self.assertEqual(self.leave("-o", "listenPort"), "rocketd-broker: -o listenPort: accepted is KEY=VALUE")
        self.assertEqual(self.leave("-o", "=1"), "rocketd-broker: -o =1: accepted is KEY=VALUE")

    def test_bad_value_is_one_line(self):
        self.assertEqual(
            self.leave("-o", "listenPort=x", tap=namesrv_tap),
            "rocketd-namesrv: -o: listenPort = x: accepted is a whole number from 0 to 65535",
        )

    def test_bad_value_is_a_usage_error(self):
        options = broker_tap.Options()
        options.opt_option("listenPort=x")
        self.assertRaises(UsageError, options.postOptions)

    def test_unknown_option_is_one_line(self):
        self.assertEqual(self.leave("--nothing"), "rocketd-broker: option --nothing not recognized")

    def test_unknown_key_warns(self):
        options = self.parse("-o", "listenport=1")
        self.assertEqual(options.warnings, ["-o: unknown key listenport is ignored; did you mean listenPort?"])
        self.assertEqual(self.err.getvalue(), f"rocketd-broker: {options.warnings[0]}\n")

    def test_warnings_are_printed_unless_the_log_on_the_same_terminal_has_them(self):
        for nodaemon, logfile, count in ((True, None, 0), (True, "-", 0), (True, "broker.log", 1), (False, None, 1)):
            options = broker_tap.Options()
            options.parent = {"nodaemon": nodaemon, "logfile": logfile}
            self.patch(signal, "signal", lambda *_: None)
            self.err.truncate(0)
            options.parseOptions(["-o", "listenport=1"])
            self.assertEqual(self.err.getvalue().count("did you mean listenPort?"), count, (nodaemon, logfile))
            self.assertEqual(len(options.warnings), 1)

    def test_missing_file_is_refused_with_the_working_directory_and_the_samples(self):
        self.patch(sys, "prefix", self.mktemp())
        samples = os.path.join(sys.prefix, "share", "rocketd", "etc")
        text = "rocketd-broker: etc/no.conf: cannot be read: No such file or directory; the working directory is "
        self.assertEqual(self.leave("-c", "etc/no.conf"), text + os.getcwd())
        os.makedirs(samples)
        self.assertEqual(self.leave("-c", "etc/no.conf"), f"{text}{os.getcwd()}; samples are in {samples}")

    def test_version_is_printed(self):
        self.assertEqual(self.leave("--version"), 0)
        self.assertEqual(self.out.getvalue(), f"rocketd {rocketd.__version__} ({core.kind()})\n")

    def test_print_config(self):
        self.assertEqual(self.leave("-o", "brokerName=a", "-p"), 0)
        values = {entry.key: entry.value for entry in parse(self.out.getvalue())}
        self.assertEqual(values["brokerName"], "a")
        self.assertEqual(values["storePathRootDir"], "/home/u/store")
        self.assertEqual(values["transferMsgByHeap"], "true")

    def test_print_important(self):
        self.assertEqual(self.leave("-m"), 0)
        keys = {entry.key for entry in parse(self.out.getvalue())}
        self.assertEqual(
            keys, {s.name for s, value in BrokerSettings().effective() if s.important and value is not None}
        )

    def test_print_of_a_bad_configuration_is_an_error(self):
        self.assertEqual(
            self.leave("-p", "-o", "traceOn=1"), "rocketd-broker: -o: traceOn = 1: accepted is true or false"
        )
        self.assertEqual(self.out.getvalue(), "")


class MakeTests(SynchronousTestCase):
    def test_warnings_are_logged(self):
        options = broker_tap.Options()
        options.warnings = ["{braces} are no format"]
        seen = []
        globalLogPublisher.addObserver(seen.append)
        self.addCleanup(globalLogPublisher.removeObserver, seen.append)
        service = Service()
        root = options.make(lambda: service, ())
        self.assertIn(service, list(root))
        self.assertEqual([formatEvent(event) for event in seen], ["{braces} are no format"])

    def test_core_that_the_machine_lacks_exits_with_one_line(self):
        options = broker_tap.Options()
        options.settings.process.cpu_affinity = "9999"
        error = self.assertRaises(SystemExit, options.make, Service, ())
        self.assertIn("rocketd-broker: cpuAffinity = 9999: accepted are auto, off, and the cores ", str(error.code))

    def test_settings_refused_by_service_exit_with_one_line(self):
        def refuse():
            raise ConfigError("tls.server.keyPath is not set")

        code = self.assertRaises(SystemExit, broker_tap.Options().make, refuse, (ConfigError,)).code
        self.assertEqual(code, "rocketd-broker: tls.server.keyPath is not set")
        options = broker_tap.Options()
        options.settings.start_hint = " (look there)"
        code = self.assertRaises(SystemExit, options.make, refuse, (ConfigError,)).code
        self.assertEqual(code, "rocketd-broker: tls.server.keyPath is not set (look there)")

    def test_name_server(self):
        options = namesrv_tap.Options()
        options.parseOptions(["-o", "listenPort=0"])
        service = namesrv_tap.makeService(options)
        self.assertTrue(IService.providedBy(service))
        self.assertFalse(service.running)


class PluginTests(SynchronousTestCase):
    def test_twistd_finds_both_commands(self):
        makers = {maker.tapname: maker for maker in getPlugins(IServiceMaker)}
        self.assertIs(makers["rocketd-namesrv"].options, namesrv_tap.Options)
        self.assertIs(makers["rocketd-broker"].options, broker_tap.Options)

    def test_plugin_listing_imports_no_daemon(self):
        code = (
            "import sys, twisted.plugins.rocketd_services\n"
            "print(sorted(name for name in sys.modules if name.startswith('rocketd')))"
        )
        root = os.path.dirname(os.path.dirname(rocketd.__file__))
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join([root, *filter(None, sys.path)])}
        output = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, check=True, text=True)
        self.assertEqual(output.stdout.strip(), "[]")

    def test_reading_the_options_imports_no_reactor_and_no_service(self):
        code = (
            "import sys\n"
            "from rocketd.broker.tap import Options\n"
            "Options().parseOptions(['-o', 'listenPort=1'])\n"
            "assert 'twisted.internet.reactor' not in sys.modules\n"
            "assert 'rocketd.broker.service' not in sys.modules\n"
        )
        root = os.path.dirname(os.path.dirname(rocketd.__file__))
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join([root, *filter(None, sys.path)])}
        subprocess.run([sys.executable, "-c", code], env=environ, check=True)


class SampleTests(SynchronousTestCase):
    def test_samples_have_known_keys_only_even_in_comments(self):
        for daemon, name in ((BrokerSettings, "broker.conf"), (NamesrvSettings, "namesrv.conf")):
            text = (ROOT / "etc" / name).read_text()
            _, warnings = daemon.load(str(ROOT / "etc" / name))
            self.assertEqual(warnings, [])
            shown = [line.lstrip("#") for line in text.splitlines() if "=" in line and " " not in line]
            self.assertGreater(len(shown), 3)
            _, warnings = daemon.load(None, [tuple(line.split("=", 1)) for line in shown])
            self.assertEqual(warnings, [])

    def test_settings_page_is_up_to_date(self):
        self.assertEqual(
            (ROOT / "docs" / "settings.md").read_text(),
            page(),
            "regenerate it: python -m rocketd.tools.gen_docs.settings > docs/settings.md",
        )
