"""The table of outstanding requests."""

from twisted.trial.unittest import SynchronousTestCase

from rocketd.remoting.calling.rpc import LATE_MEMORY, RequestTable, Unmatched


class RequestTableTests(SynchronousTestCase):
    def setUp(self):
        self.table = RequestTable()
        self.peer = object()

    def test_answers_in_any_order_find_their_requests(self):
        for opaque in (1, 2, 3):
            self.table.add(opaque, self.peer, 1000, f"waiter {opaque}")
        self.assertEqual(
            [self.table.answer(n, self.peer).waiter for n in (3, 1, 2)], ["waiter 3", "waiter 1", "waiter 2"]
        )
        self.assertEqual(len(self.table), 0)

    def test_second_answer_is_unknown(self):
        self.table.add(1, self.peer, 1000, None)
        self.table.answer(1, self.peer)
        self.assertIs(self.table.answer(1, self.peer), Unmatched.UNKNOWN)

    def test_answer_over_other_connection_is_unknown(self):
        entry = self.table.add(1, self.peer, 1000, None)
        self.assertIs(self.table.answer(1, object()), Unmatched.UNKNOWN)
        self.assertIs(self.table.answer(1, self.peer), entry)

    def test_opaque_in_use_is_refused(self):
        self.table.add(1, self.peer, 1000, None)
        self.assertRaises(ValueError, self.table.add, 1, object(), 1000, None)

    def test_answer_to_a_given_up_request_is_late_once(self):
        entry = self.table.add(1, self.peer, 1000, None)
        self.assertTrue(self.table.give_up(entry))
        self.assertFalse(self.table.give_up(entry))
        self.assertEqual(len(self.table), 0)
        self.assertIs(self.table.answer(1, self.peer), Unmatched.LATE)
        self.assertIs(self.table.answer(1, self.peer), Unmatched.UNKNOWN)

    def test_opaque_is_reusable_after_giving_up(self):
        self.table.give_up(self.table.add(1, self.peer, 1000, None))
        again = self.table.add(1, self.peer, 1000, None)
        self.assertIs(self.table.answer(1, self.peer), again)
        self.assertIs(self.table.answer(1, self.peer), Unmatched.UNKNOWN)

    def test_removing_a_stale_entry_leaves_its_successor(self):
        stale = self.table.add(1, self.peer, 1000, None)
        self.table.remove(stale)
        fresh = self.table.add(1, self.peer, 1000, None)
        self.assertFalse(self.table.remove(stale))
        self.assertIs(self.table.answer(1, self.peer), fresh)

    def test_forget_returns_entries_of_connection_only(self):
        other = object()
        mine = [self.table.add(n, self.peer, 1000, None) for n in (1, 2)]
        theirs = self.table.add(3, other, 1000, None)
        self.table.give_up(self.table.add(4, self.peer, 1000, None))
        self.assertEqual(self.table.forget(self.peer), mine)
        self.assertIs(self.table.answer(4, self.peer), Unmatched.UNKNOWN)
        self.assertIs(self.table.answer(3, other), theirs)

    def test_memory_of_given_up_requests_is_bounded(self):
        for opaque in range(LATE_MEMORY + 1):
            self.table.give_up(self.table.add(opaque, self.peer, 1000, None))
        self.assertIs(self.table.answer(0, self.peer), Unmatched.UNKNOWN)
        self.assertIs(self.table.answer(1, self.peer), Unmatched.LATE)

    def test_clear_empties_the_table(self):
        entry = self.table.add(1, self.peer, 1000, None)
        self.assertEqual(self.table.clear(), [entry])
        self.assertEqual(len(self.table), 0)
