"""The console of ``rocketd up``: which one is started for which options."""

import builtins
from unittest import mock

from twisted.internet.error import CannotListenError
from twisted.trial.unittest import SynchronousTestCase

from rocketd.broker.base.settings import BrokerSettings
from rocketd.common.command_line.errors import CommandError
from rocketd.console import service
from rocketd.console.settings import DEFAULT_PORT
from rocketd.remoting.serving.server import ListenError
from rocketd.tools.servers.up_console import OFF, console_port, start_console


class FakeConsole:
    address = "http://127.0.0.1:1/"

    def __init__(self, config, taken):
        self.config = config
        self.taken = taken

    def startService(self):
        if self.config.console_port in self.taken:
            error = CannotListenError("127.0.0.1", self.config.console_port, OSError(98, "in use"))
            raise ListenError(self.config.console_port, error, "consolePort")


class StartTests(SynchronousTestCase):
    def start(self, port, *, taken=(), **options):
        made = []

        def make(settings, reactor):
            made.append(settings.console)
            return FakeConsole(settings.console, taken)

        settings, _ = BrokerSettings.load(None, options.items())
        self.patch(service, "make_console", make)
        console = start_console(None, port, "127.0.0.1:9876", settings)
        return console, made

    def test_console_gets_default_port_or_a_free_one(self):
        _, made = self.start(None)
        self.assertEqual([config.console_port for config in made], [DEFAULT_PORT])
        _, made = self.start(None, taken=[DEFAULT_PORT])
        self.assertEqual([config.console_port for config in made], [DEFAULT_PORT, 0])

    def test_console_uses_given_port_only(self):
        _, made = self.start(7777)
        self.assertEqual([config.console_port for config in made], [7777])
        error = self.assertRaises(CommandError, self.start, 7777, taken=[7777])
        self.assertIn("set another --console", str(error))

    def test_console_off_is_not_made(self):
        self.assertEqual(self.start(console_port("off")), (None, []))
        self.assertEqual((console_port("off"), console_port("0")), (OFF, 0))

    def test_console_asks_for_accounts_if_the_broker_does(self):
        _, (plain,) = self.start(None)
        _, (guarded,) = self.start(None, aclEnable="true", rocketmqHome="/nowhere")
        self.assertEqual((plain.console_login, guarded.console_login), ("none", "accounts"))
        self.assertEqual(plain.console_host, "127.0.0.1")

    def test_console_uses_tls_if_the_servers_demand_it(self):
        _, (plain,) = self.start(None)
        _, (encrypted,) = self.start(None, **{"tls.server.mode": "enforcing"})
        self.assertEqual((plain.console_cluster_tls, encrypted.console_cluster_tls), ("off", "unverified"))

    def test_console_without_its_packages_is_left_out_unless_asked_for(self):
        imported = builtins.__import__

        def without(name, *arguments, **keywords):
            if name == "rocketd.console.service":
                raise ModuleNotFoundError("No module named 'klein'", name="klein")
            return imported(name, *arguments, **keywords)

        with mock.patch("builtins.__import__", without):
            self.assertIsNone(start_console(None, None, "127.0.0.1:9876", BrokerSettings()))
            error = self.assertRaises(CommandError, start_console, None, 0, "127.0.0.1:9876", BrokerSettings())
        self.assertIn("pip install '.[console]'", str(error))
