"""Warnings of a broker at its start about open access."""

from twisted.trial.unittest import SynchronousTestCase

from rocketd.broker.access.open_doors import open_doors
from rocketd.broker.base.settings import BrokerSettings


class OpenDoorsTests(SynchronousTestCase):
    def doors(self, **given):
        return open_doors(BrokerSettings.load(None, given.items())[0])

    def test_default_settings_give_no_warning(self):
        self.assertEqual(self.doors(), [])

    def test_accounts_without_strictness_warn_with_open_codes(self):
        lines = self.doors(aclEnable="true", haAllowedAddresses="10.0.0.2")
        self.assertEqual(len(lines), 1)
        self.assertTrue(lines[0].startswith("aclEnable=true without aclStrict=true"), lines[0])
        for code in ("(54)", "(50)", "(51)", "(53)", "(33)", "(36)", "(320,", "(37)", "(222)"):
            self.assertIn(code, lines[0])
        self.assertTrue(lines[0].endswith("set aclStrict=true"), lines[0])

    def test_accounts_beside_replication_to_any_host_warn(self):
        strict = {"aclEnable": "true", "aclStrict": "true"}
        for given in ("any", "0.0.0.0/0", "loopback,::/0"):
            (line,) = self.doors(**strict, haAllowedAddresses=given)
            self.assertIn(f"haAllowedAddresses={given} gives the whole log to every host, unencrypted", line)
            self.assertEqual(self.doors(**strict, haAllowedAddresses=given, haTlsMode="enforcing"), [])
            self.assertEqual(len(self.doors(**strict, haAllowedAddresses=given, haTlsMode="permissive")), 1)
        for closed in ({}, {"haAllowedAddresses": "10.0.0.2"}):
            self.assertEqual(self.doors(**strict, **closed), [])

    def test_administration_open_to_any_address_warns(self):
        (line,) = self.doors(adminWithoutAcl="any")
        self.assertIn("any host that reaches this port can change settings", line)
        self.assertEqual(self.doors(adminWithoutAcl="10.0.0.0/8"), [])
