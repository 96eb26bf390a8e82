"""The account of a run: what the journals say about every message. Pure: from events to figures."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from benchmarks.chaos.journal import (
    ANSWERED,
    BEGUN,
    CHECKED,
    CLOSED,
    DECIDED,
    DONE,
    FAILED,
    READY,
    SENT,
    UNANSWERED,
    UNSENT,
    WRONG,
    Event,
)
from benchmarks.chaos.topics import (
    BROADCAST,
    CONCURRENT,
    GROUPS,
    ITERATION,
    KEY_ORDER,
    POLL,
    QUEUE_ORDER,
    REST,
    key_of,
    number_of,
)

COMMIT, ROLLBACK = "COMMIT", "ROLLBACK"
COPIES = (CONCURRENT, QUEUE_ORDER, POLL, ITERATION, KEY_ORDER, REST)
"""The groups whose messages are counted that were handled again."""


@dataclass
class Handled:
    """The messages of one group, or of one member if members get all messages."""

    sent: set[str] = field(default_factory=set)
    """The acknowledged messages of its topics."""
    done: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How often the handler of a stored message has succeeded, by its id and the id of the copy."""
    dropped: set[str] = field(default_factory=set)
    """Messages that are not delivered again after a failure, as those of a broadcast."""

    @property
    def ids(self) -> set[str]:
        """The ids of all messages handled."""
        return {ident for ident, _ in self.done}

    @property
    def lost(self) -> set[str]:
        """Acknowledged messages that no handler has got."""
        return self.sent - self.ids - self.dropped

    @property
    def again(self) -> list[tuple[str, str]]:
        """Stored messages handled with success more than once."""
        return [copy for copy, times in self.done.items() if times > 1]

    @property
    def stored_twice(self) -> int:
        """The number of messages with several stored copies: the producer has repeated the send."""
        return sum(times > 1 for times in Counter(ident for ident, _ in self.done).values())


@dataclass
class Account:
    """The result of a run."""

    sent: dict[str, set[str]]
    """The ids of acknowledged messages by topic."""
    unsent: int
    groups: dict[str, Handled]
    """By group, and by worker for members of a broadcast."""
    skipped: int
    """First handlings out of the order of a queue, in the group with order by queue."""
    at_once: int
    """Handlers of this group that began while another one of the queue ran."""
    keys_skipped: int
    """First handlings out of the order of a key, in the group with order by key."""
    committed: set[str]
    rolled_back: set[str]
    asked_again: int
    """Questions of brokers about transactions whose end their producer had told."""
    wrong: Counter[str]
    answered: int
    unanswered: int
    threads: int
    """Threads that workers had after the close of their clients."""

    @property
    def lost(self) -> dict[str, set[str]]:
        """Acknowledged messages that no handler has got, by group."""
        return {name: handled.lost for name, handled in self.groups.items() if handled.lost}

    @property
    def undelivered(self) -> set[str]:
        """Committed transactions whose messages were not delivered."""
        return self.committed - self.groups[REST].ids

    @property
    def betrayed(self) -> set[str]:
        """Transactions that were rolled back, and delivered."""
        return self.rolled_back & self.groups[REST].ids

    @property
    def is_complete(self) -> bool:
        """Whether everything acknowledged or committed has arrived."""
        return not self.lost and not self.undelivered

    def failures(self) -> list[str]:
        """Return what must not happen."""
        found = [f"{name}: {len(lost)} lost: {_some(lost)}" for name, lost in self.lost.items()]
        counts = {
            "out of the order of a queue": self.skipped,
            "two at once in a queue": self.at_once,
            "out of the order of a key": self.keys_skipped,
            "wrong bodies": self.wrong["body"],
            "wrong replies": self.wrong["reply"],
            "threads left": self.threads,
        }
        found += [f"{what}: {count}" for what, count in counts.items() if count]
        if self.undelivered:
            found.append(f"committed, not delivered: {_some(self.undelivered)}")
        if self.betrayed:
            found.append(f"rolled back, delivered: {_some(self.betrayed)}")
        return found

    def rows(self) -> list[tuple[str, str]]:
        """Return the lines of the table, the same for every run."""
        lines = [
            ("acknowledged", f"{sum(map(len, self.sent.values())):,}"),
            ("sends with an error", f"{self.unsent:,}"),
            ("stored twice by a repeated send", f"{self.groups[CONCURRENT].stored_twice}"),
        ]
        for name in GROUPS:
            members = [handled for worker, handled in self.groups.items() if _is_of(worker, name)]
            lines.append((f"lost: {name}", " / ".join(str(len(handled.lost)) for handled in members) or "-"))
        for name in COPIES:
            handled = self.groups[name]
            share = len(handled.again) / len(handled.done) if handled.done else 0.0
            lines.append((f"handled again: {name}", f"{len(handled.again)} of {len(handled.done):,} ({share:.1%})"))
        return [
            *lines,
            ("order by queue: out of order / two at once", f"{self.skipped} / {self.at_once}"),
            ("order by key: out of order", f"{self.keys_skipped}"),
            ("committed, not delivered", f"{len(self.undelivered)} of {len(self.committed)}"),
            ("rolled back, delivered", f"{len(self.betrayed)} of {len(self.rolled_back)}"),
            ("asked about a transaction that had ended", f"{self.asked_again}"),
            ("wrong bodies / replies", f"{self.wrong['body']} / {self.wrong['reply']}"),
            ("requests answered / not", f"{self.answered} / {self.unanswered}"),
            ("threads left", f"{self.threads}"),
        ]


def account(events: Sequence[Event]) -> Account:
    """Return the account of events in the order of time."""
    sent = _sent(events)
    committed, rolled_back, asked_again = _transactions(events)
    by_kind = Counter(event.kind for event in events)
    in_order = [event for event in events if event.role == QUEUE_ORDER]
    return Account(
        sent=sent,
        unsent=by_kind[UNSENT],
        groups=_handled(events, sent),
        skipped=_out_of_order(_places(in_order)),
        at_once=_at_once(in_order),
        keys_skipped=_out_of_order(_numbers(event for event in events if event.role == KEY_ORDER)),
        committed=committed,
        rolled_back=rolled_back,
        asked_again=asked_again,
        wrong=Counter(event.words[0] for event in events if event.kind == WRONG),
        answered=by_kind[ANSWERED],
        unanswered=by_kind[UNANSWERED],
        threads=sum(int(event.words[0]) for event in events if event.kind == CLOSED),
    )


def handled_again(events: Iterable[Event], role: str) -> list[str]:
    """Return a line for each message of a group that was handled again: when, and by whom."""
    handlings: defaultdict[tuple[str, str], list[Event]] = defaultdict(list)
    for event in events:
        if event.role == role and event.kind == DONE:
            handlings[event.words[0], event.words[1]].append(event)
    return [
        f"{ident} in {found[0].words[2]}: " + ", ".join(f"{each.worker} at {each.seconds:.3f}" for each in found)
        for (ident, _), found in handlings.items()
        if len(found) > 1
    ]


def _is_of(worker: str, group: str) -> bool:
    return worker == group or (group == BROADCAST and worker.startswith(f"{BROADCAST}-"))


def _some(idents: Iterable[str]) -> str:
    first, *others = sorted(idents)
    return ", ".join([first, *others[:4], *(["..."] if len(others) > 4 else [])])


def _sent(events: Iterable[Event]) -> dict[str, set[str]]:
    sent: defaultdict[str, set[str]] = defaultdict(set)
    for event in events:
        if event.kind == SENT:
            topic, ident = event.words
            sent[topic].add(ident)
    return dict(sent)


def _handled(events: Iterable[Event], sent: dict[str, set[str]]) -> dict[str, Handled]:
    groups = {name: Handled() for name in GROUPS if name != BROADCAST}
    for event in events:
        if event.kind == READY and event.role == BROADCAST:
            groups.setdefault(event.worker, Handled())  # each gets all messages, or has lost them
        if event.role not in GROUPS or event.kind not in (BEGUN, DONE, FAILED):
            continue
        handled = groups.setdefault(event.worker if event.role == BROADCAST else event.role, Handled())
        ident, stored, *_ = event.words
        if event.kind == DONE:
            handled.done[ident, stored] += 1
        elif event.kind == FAILED and event.role == BROADCAST:
            handled.dropped.add(ident)
    for name, handled in groups.items():
        topics = GROUPS.get(name, GROUPS[BROADCAST])
        handled.sent = {ident for topic in topics for ident in sent.get(topic, ())}
    return groups


def _places(events: Iterable[Event]) -> list[tuple[str, int]]:
    """Return queues and offsets of handlings with success."""
    return [(event.words[2], int(event.words[3])) for event in events if event.kind == DONE]


def _numbers(events: Iterable[Event]) -> list[tuple[str, int]]:
    """Return keys and numbers of handlings with success."""
    return [(key_of(event.words[0]), number_of(event.words[0])) for event in events if event.kind == DONE]


def _out_of_order(handlings: Iterable[tuple[str, int]]) -> int:
    """Count first handlings of a number after a higher one of the same queue or key."""
    seen: defaultdict[str, set[int]] = defaultdict(set)
    highest: dict[str, int] = {}
    count = 0
    for name, number in handlings:
        count += number not in seen[name] and number < highest.get(name, -1)
        seen[name].add(number)
        highest[name] = max(number, highest.get(name, -1))
    return count


def _at_once(events: Iterable[Event]) -> int:
    """Count handlers that begin while another one of the same queue runs."""
    running: Counter[str] = Counter()
    count = 0
    for event in events:
        if event.kind == BEGUN:
            count += running[event.words[2]] > 0
            running[event.words[2]] += 1
        elif event.kind in (DONE, FAILED):
            running[event.words[2]] -= 1
    return count


def _transactions(events: Iterable[Event]) -> tuple[set[str], set[str], int]:
    """Return the ids of transactions that are committed and rolled back, and the number of needless questions."""
    ends: dict[str, str] = {}
    needless = 0
    for event in events:
        if event.kind == CHECKED:
            needless += event.words[0] in ends
        elif event.kind == DECIDED:
            ident, end = event.words
            ends[ident] = end
    committed = {ident for ident, end in ends.items() if end == COMMIT}
    rolled_back = {ident for ident, end in ends.items() if end == ROLLBACK}
    return committed, rolled_back, needless
