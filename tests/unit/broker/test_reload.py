"""A broker's part of SIGHUP: accounts, live settings, and the permission that name servers must know."""

from types import SimpleNamespace
from unittest.mock import Mock

from twisted.trial.unittest import SynchronousTestCase

from rocketd.broker.base.settings import BrokerConfig, BrokerSettings
from rocketd.broker.service import Broker
from rocketd.common.settings.declaration import ConfigError


class ReloadTests(SynchronousTestCase):
    def reload(self, load):
        """Run the reload of a broker made of stand-ins, and return it."""
        settings = BrokerSettings(broker=BrokerConfig(broker_permission=6))
        broker = SimpleNamespace(access=Mock(), settings=settings, topics=Mock(), register_with_name_servers=Mock())
        Broker._reload(broker, load)
        broker.access.manager.reload.assert_called_once_with()
        return broker

    def test_reload_with_new_permission_registers_again(self):
        fresh = BrokerSettings(broker=BrokerConfig(broker_permission=4))
        broker = self.reload(lambda: (fresh, ["a warning"]))
        self.assertEqual(broker.settings.broker.broker_permission, 4)
        broker.topics.next_version.assert_called_once_with()
        broker.register_with_name_servers.assert_called_once()

    def test_reload_with_unusable_settings_changes_accounts_only(self):
        def load():
            raise ConfigError("broker.conf line 1: brokerPermission = x")

        broker = self.reload(load)
        self.assertEqual(broker.settings.broker.broker_permission, 6)
        broker.register_with_name_servers.assert_not_called()
