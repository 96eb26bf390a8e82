"""The account of a chaos run, its schedule, and its journals."""

from pathlib import Path

from twisted.trial import unittest

from benchmarks.chaos import compare, journal
from benchmarks.chaos.accounting import Account, account, handled_again
from benchmarks.chaos.journal import BEGUN, CHECKED, CLOSED, DECIDED, DONE, FAILED, READY, SENT, UNSENT, WRONG, Event
from benchmarks.chaos.schedule import CHURN_SECONDS, LASTING, MAX, Change, churn, faults
from benchmarks.chaos.topics import GROUPS, KEYED, ORDERED, PLAIN, TRANSACTIONS


def accounted(*lines: str) -> Account:
    """The account of lines such as "poll-1 done a x q/0 5", a second apart."""
    events = []
    for second, line in enumerate(lines):
        worker, kind, *words = line.split()
        events.append(Event(float(second), worker, kind, tuple(words)))
    return account(events)


class AccountTests(unittest.SynchronousTestCase):
    def test_message_that_no_handler_of_a_group_got_is_lost_there(self) -> None:
        found = accounted(f"threads-1 {SENT} {PLAIN} a", f"poll-1 {DONE} a x q/0 0", f"concurrent-1 {BEGUN} a x q/0 0")
        self.assertEqual(found.lost, {"concurrent": {"a"}, "iteration": {"a"}})
        self.assertFalse(found.is_complete)
        self.assertIn("concurrent: 1 lost: a", found.failures())

    def test_unacknowledged_message_is_not_lost(self) -> None:
        found = accounted(f"threads-1 {UNSENT} {PLAIN} a TimeoutError")
        self.assertEqual(found.lost, {})
        self.assertEqual(found.unsent, 1)

    def test_broadcast_counts_each_member_and_its_failures_apart(self) -> None:
        found = accounted(
            f"threads-1 {SENT} {PLAIN} a",
            f"threads-1 {SENT} {PLAIN} b",
            f"broadcast-1 {DONE} a x q/0 0",
            f"broadcast-1 {FAILED} b y q/0 1",
            f"broadcast-2 {DONE} a x q/0 0",
            f"broadcast-3 {READY}",
        )
        self.assertEqual(found.groups["broadcast-1"].lost, set())
        self.assertEqual(found.groups["broadcast-2"].lost, {"b"})
        self.assertEqual(found.groups["broadcast-3"].lost, {"a", "b"})

    def test_handled_again_counts_successes_of_one_stored_copy(self) -> None:
        found = accounted(
            f"concurrent-1 {FAILED} a x q/0 0",
            f"concurrent-1 {DONE} a x retry/0 0",  # not again: it had failed
            f"concurrent-1 {DONE} b y q/0 1",
            f"concurrent-2 {DONE} b y q/0 1",
            f"concurrent-2 {DONE} c z q/0 2",
            f"concurrent-2 {DONE} c w q/0 3",  # another copy
        )
        handled = found.groups["concurrent"]
        self.assertEqual(handled.again, [("b", "y")])
        self.assertEqual((len(handled.done), handled.stored_twice), (4, 1))
        self.assertEqual(dict(found.rows())["handled again: concurrent"], "1 of 4 (25.0%)")

    def test_first_handling_behind_a_higher_offset_is_out_of_order(self) -> None:
        found = accounted(
            *(f"ordered-1 {DONE} {ident} {ident} q/0 {at}" for ident, at in [("a", 0), ("c", 2), ("b", 1)])
        )
        self.assertEqual(found.skipped, 1)

    def test_repeated_handling_is_not_out_of_order(self) -> None:
        found = accounted(
            *(f"ordered-1 {DONE} {ident} {ident} q/0 {at}" for ident, at in [("a", 0), ("b", 1), ("a", 0)])
        )
        self.assertEqual(found.skipped, 0)
        self.assertEqual(found.groups["ordered"].again, [("a", "a")])

    def test_handlers_of_one_queue_at_once_are_counted(self) -> None:
        found = accounted(
            f"ordered-1 {BEGUN} a x q/0 0",
            f"ordered-2 {BEGUN} b y q/1 0",  # another queue
            f"ordered-2 {BEGUN} a x q/0 0",
            f"ordered-1 {FAILED} a x q/0 0",
            f"ordered-2 {DONE} a x q/0 0",
            f"ordered-1 {BEGUN} c z q/0 1",
        )
        self.assertEqual(found.at_once, 1)

    def test_order_of_keys_goes_by_the_numbers_of_the_messages(self) -> None:
        found = accounted(*(f"keyed-1 {DONE} {ident} {ident} q/0 0" for ident in ("k1:0", "k2:1", "k1:10", "k1:9")))
        self.assertEqual(found.keys_skipped, 1)

    def test_transactions_are_compared_with_what_was_delivered(self) -> None:
        found = accounted(
            f"transactions-1 {DECIDED} a COMMIT",
            f"transactions-1 {DECIDED} b COMMIT",
            f"transactions-1 {DECIDED} c ROLLBACK",
            f"transactions-1 {CHECKED} a",
            f"transactions-1 {CHECKED} d",  # nobody has decided
            f"transactions-1 {DECIDED} d COMMIT",
            *(f"rest-1 {DONE} {ident} {ident} {TRANSACTIONS}/0 0" for ident in "acd"),
        )
        self.assertEqual((found.undelivered, found.betrayed, found.asked_again), ({"b"}, {"c"}, 1))
        self.assertEqual(found.failures(), ["committed, not delivered: b", "rolled back, delivered: c"])

    def test_wrong_bodies_and_threads_are_failures(self) -> None:
        found = accounted(f"rest-1 {WRONG} body a", f"rest-1 {CLOSED} 2", f"poll-1 {CLOSED} 0")
        self.assertEqual(found.failures(), ["wrong bodies: 1", "threads left: 2"])

    def test_table_has_a_column_for_each_side(self) -> None:
        found = accounted(f"threads-1 {SENT} {ORDERED} a", f"keys-1 {SENT} {KEYED} k:0")
        lines = compare.table({"rocketd": found, "Apache": accounted()}).splitlines()
        self.assertEqual([cell.strip() for cell in lines[2].strip("|").split("|")], ["acknowledged", "2", "0"])
        self.assertTrue(all(any(f"lost: {group}" in line for line in lines) for group in GROUPS))

    def test_message_handled_again_is_named_with_its_handlers(self) -> None:
        events = [Event(float(at), f"ordered-{at}", DONE, ("a", "x", "q/0", "7")) for at in (1, 2)]
        self.assertEqual(handled_again(events, "ordered"), ["a in q/0: ordered-1 at 1.000, ordered-2 at 2.000"])


class ScheduleTests(unittest.SynchronousTestCase):
    def test_same_seed_gives_the_same_course(self) -> None:
        self.assertEqual(churn(110, 18), churn(110, 18))
        self.assertNotEqual(churn(110, 18), churn(110, 19))

    def test_members_leave_once_and_never_the_lasting_ones(self) -> None:
        present: set[int] = set()
        for number, move in enumerate(churn(600, 1), 1):
            self.assertEqual(move.at, number * CHURN_SECONDS)
            self.assertGreater(move.member, LASTING)
            if move.change is Change.JOIN:
                self.assertNotIn(move.member, present)
                present.add(move.member)
            else:
                present.remove(move.member)
            self.assertLessEqual(LASTING + len(present), MAX)
        changes = [move.change for move in churn(600, 1)]
        self.assertTrue(all(change in changes for change in Change))

    def test_short_run_has_only_the_first_faults(self) -> None:
        self.assertEqual(len(faults(30)), 1)
        self.assertEqual(len(faults(110)), 5)


class JournalTests(unittest.SynchronousTestCase):
    def test_journals_are_read_in_the_order_of_time_without_a_torn_line(self) -> None:
        directory = Path(self.mktemp())
        directory.mkdir()
        (directory / "poll-1").write_text(f"2.0 {DONE} a x q/0 5\n3.0 do")
        (directory / "threads-1").write_text(f"1.0 {SENT} {PLAIN} a\n")
        events = journal.read_journals(directory)
        self.assertEqual(
            events,
            [
                Event(1.0, "threads-1", SENT, (PLAIN, "a")),
                Event(2.0, "poll-1", DONE, ("a", "x", "q/0", "5")),
            ],
        )
        self.assertEqual(events[1].role, "poll")

    def test_written_lines_are_read_again(self) -> None:
        directory = Path(self.mktemp())
        directory.mkdir()
        journal.Journal(directory, "bulk-1").note(SENT, PLAIN, "bulk-1:0")
        (event,) = journal.read_journals(directory)
        self.assertEqual((event.worker, event.kind, event.words), ("bulk-1", SENT, (PLAIN, "bulk-1:0")))
