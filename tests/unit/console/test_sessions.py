"""Sessions, tokens of forms, and failed sign-ins."""

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from rocketd.console.sessions import (
    ADDRESS_FAILURES,
    FAILURE_SECONDS,
    FAILURES,
    LONGEST_SECONDS,
    FailedLogins,
    Sessions,
    Tokens,
)


class SessionsTests(SynchronousTestCase):
    def setUp(self):
        self.clock = Clock()
        self.ended = []
        self.sessions = Sessions(self.clock.seconds, 100.0, 2, self.ended.append)

    def test_unused_session_ends(self):
        number = self.sessions.begin("a")
        self.clock.advance(99)
        self.assertEqual(self.sessions.find(number), "a")
        self.clock.advance(99)
        self.assertEqual(self.sessions.find(number), "a")
        self.clock.advance(100)
        self.assertIsNone(self.sessions.find(number))
        self.assertEqual(self.ended, ["a"])

    def test_session_in_use_ends_after_longest_time(self):
        number = self.sessions.begin("a")
        for _ in range(int(LONGEST_SECONDS // 50)):
            self.assertEqual(self.sessions.find(number), "a")
            self.clock.advance(50)
        self.assertIsNone(self.sessions.find(number))

    def test_further_session_ends_the_least_recently_used(self):
        first, second = self.sessions.begin("a"), self.sessions.begin("b")
        self.assertEqual(self.sessions.find(first), "a")
        self.sessions.begin("c")
        self.assertEqual((self.ended, len(self.sessions)), (["b"], 2))
        self.assertIsNone(self.sessions.find(second))
        self.sessions.clear()
        self.assertEqual((sorted(self.ended), len(self.sessions)), (["a", "b", "c"], 0))

    def test_missing_or_unknown_id_has_no_session(self):
        self.assertIsNone(self.sessions.find(None))
        self.assertIsNone(self.sessions.find("x"))
        self.sessions.end("x")
        self.assertEqual(self.ended, [])


class TokensTests(SynchronousTestCase):
    def test_token_fits_its_id_only(self):
        tokens, others = Tokens(), Tokens()
        token = tokens.of("a")
        self.assertTrue(tokens.fits("a", token))
        for number, given in (("b", token), ("a", others.of("a")), ("a", None), ("a", ""), (None, token), ("a", "é")):
            self.assertFalse(tokens.fits(number, given))


class FailedLoginsTests(SynchronousTestCase):
    def test_account_is_refused_from_one_address_for_a_time(self):
        clock = Clock()
        failed = FailedLogins(clock.seconds)
        for _ in range(FAILURES):
            self.assertFalse(failed.are_many("a", "key"))
            failed.add("a", "key")
        self.assertTrue(failed.are_many("a", "key"))
        self.assertFalse(failed.are_many("b", "key"))
        self.assertFalse(failed.are_many("a", "other"))
        clock.advance(FAILURE_SECONDS)
        self.assertFalse(failed.are_many("a", "key"))

    def test_address_is_refused_after_failures_as_many_accounts(self):
        failed = FailedLogins(Clock().seconds)
        for number in range(ADDRESS_FAILURES):
            self.assertFalse(failed.are_many("a", "key"))
            failed.add("a", str(number))
        self.assertTrue(failed.are_many("a", "key"))
        self.assertFalse(failed.are_many("b", "key"))
