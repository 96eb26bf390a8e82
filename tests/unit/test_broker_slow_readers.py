"""Groups that read too far behind lose their permission, where that is wanted."""

from twisted.trial.unittest import SynchronousTestCase

from rocketd.broker.pull_check import PullCheck
from rocketd.broker.testing import SmallBroker
from rocketd.common.sysflag import PULL_SUBSCRIPTION
from rocketd.remoting.bodies import TopicConfig
from rocketd.remoting.errors import RequestError
from rocketd.remoting.headers import PullMessageRequestHeader
from rocketd.store.message import MessageInner


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
        self.check.check(header, "h:1")

    def pass_seconds(self, seconds):
        self.broker.clock.advance(seconds)
        for check in self.broker.held_pull_checks:
            check()

    def enabled(self, group="G"):
        return self.broker.groups.find(group).consume_enable

    def test_the_slow_one_is_disabled(self):
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

    def test_what_counts_is_where_it_read_last(self):
        self.pull(0)
        self.pull(3)
        self.pass_seconds(180)
        self.assertTrue(self.enabled())

    def test_offsets_that_are_gone_or_not_there_yet(self):
        self.pull(4)
        self.pull(-7, "Back")
        self.pass_seconds(180)
        self.assertTrue(self.enabled())
        self.assertFalse(self.enabled("Back"))

    def test_one_that_stopped_reading_is_not_judged_again(self):
        self.broker.settings.broker.consumer_fallbehind_threshold = 1 << 40
        self.pull(0)
        self.pass_seconds(180)
        self.broker.settings.broker.consumer_fallbehind_threshold = 1
        self.pass_seconds(180)
        self.assertTrue(self.enabled())

    def test_turned_off(self):
        self.pull(0)
        self.broker.settings.broker.disable_consume_if_consumer_read_slowly = False
        self.pull(0, "H")
        self.pass_seconds(180)
        self.assertTrue(self.enabled("G"))
        self.assertTrue(self.enabled("H"))
