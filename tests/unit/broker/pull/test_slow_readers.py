"""Groups that read too far behind are disabled, if configured."""

from twisted.trial.unittest import SynchronousTestCase

from rocketd.broker.pull.pull_check import PullCheck
from rocketd.common.sysflag import PULL_SUBSCRIPTION
from rocketd.remoting.bodies.tables import TopicConfig
from rocketd.remoting.errors import RequestError
from rocketd.remoting.headers.client import PullMessageRequestHeader
from rocketd.store.format.message import MessageInner
from tests.support.broker import SmallBroker


class SlowReadersTests(SynchronousTestCase):
    def setUp(self):
        self.broker = SmallBroker(
            self.mktemp(), disableConsumeIfConsumerReadSlowly="true", consumerFallbehindThreshold="1000"
        )
        self.broker.start()
        self.addCleanup(self.broker.stop)
        self.broker.topics.update(TopicConfig("T", 1, 1))
        self.check = PullCheck(self.broker)
        message = MessageInner("T", 0, 0, 0, self.broker.now_ms(), b"\x7f\0\0\1\0\0\0\1", 0, 0, b"x" * 400, b"", 0)
        self.broker.store.put_messages([message] * 4)
        self.broker.settle()

    def pull(self, offset, group="G"):
        header = PullMessageRequestHeader(group, "T", 0, offset, 32, PULL_SUBSCRIPTION, 0, 0, 0, "*")
        self.check.check(header, "10.0.0.1:1")

    def pass_seconds(self, seconds):
        self.broker.clock.advance(seconds)
        self.check.check_slow_readers()

    def enabled(self, group="G"):
        return self.broker.groups.find(group).consume_enable

    def test_slow_group_is_disabled(self):
        self.pull(1, "Slow")
        self.pull(2, "Quick")
        self.pass_seconds(179)
        self.assertTrue(self.enabled("Slow"))
        self.pass_seconds(1)
        self.assertFalse(self.enabled("Slow"))
        self.assertTrue(self.enabled("Quick"))
        error = self.assertRaises(RequestError, self.pull, 1, "Slow")
        self.assertEqual(error.code, 16)
        self.assertTrue(error.remark.startswith("subscription group no permission, Slow"))
        stored = self.broker.groups.snapshot().subscription_group_table["Slow"]
        self.assertFalse(stored.consume_enable)

    def test_last_read_offset_decides(self):
        self.pull(0)
        self.pull(3)
        self.pass_seconds(180)
        self.assertTrue(self.enabled())

    def test_offset_beyond_end_is_allowed_and_before_begin_is_not(self):
        self.pull(4)
        self.pull(-7, "Back")
        self.pass_seconds(180)
        self.assertTrue(self.enabled())
        self.assertFalse(self.enabled("Back"))

    def test_inactive_group_is_not_disabled_later(self):
        self.broker.settings.broker.consumer_fallbehind_threshold = 1 << 40
        self.pull(0)
        self.pass_seconds(180)
        self.broker.settings.broker.consumer_fallbehind_threshold = 1
        self.pass_seconds(180)
        self.assertTrue(self.enabled())

    def test_disabled_check_keeps_groups_enabled(self):
        self.pull(0)
        self.broker.settings.broker.disable_consume_if_consumer_read_slowly = False
        self.pull(0, "H")
        self.pass_seconds(180)
        self.assertTrue(self.enabled("G"))
        self.assertTrue(self.enabled("H"))
