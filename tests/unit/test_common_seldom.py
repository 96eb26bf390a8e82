"""Log lines that come once in a while."""

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from rocketd.common.seldom import SECONDS, Seldom


class SeldomTests(SynchronousTestCase):
    def setUp(self):
        self.clock = Clock()
        self.seldom = Seldom(self.clock.seconds)

    def test_the_first_comes_and_then_one_in_a_while_with_a_count(self):
        self.assertEqual([self.seldom.admit("a") for _ in range(5)], ["", None, None, None, None])
        self.assertEqual(self.seldom.admit("b"), "")
        self.clock.advance(SECONDS)
        self.assertEqual(self.seldom.admit("a"), " (and 4 times more since it was last said)")
        self.assertIsNone(self.seldom.admit("a"))
        self.assertEqual(self.seldom.admit("b"), "")

    def test_what_was_over_is_said_at_once(self):
        self.seldom.admit("a")
        self.seldom.over("a")
        self.assertEqual(self.seldom.admit("a"), "")
        self.seldom.over("what was never said")
