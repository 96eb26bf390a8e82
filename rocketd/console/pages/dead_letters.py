"""The pages of dead letters: by group and cause, one letter, and sending them again."""

from collections import Counter
from collections.abc import AsyncIterator

from rocketd.client.consumer.retries.dead_letter_reader import DeadLetter, DeadLetterFilter, DeadLetterReader
from rocketd.client.consumer.retries.redrive import RedriveOutcome, Redriver
from rocketd.client.errors import check_group
from rocketd.common.names import DLQ_PREFIX
from rocketd.console.cluster import ConsoleCluster
from rocketd.console.errors import ConsoleError, NotFoundError
from rocketd.console.pages.elements import Cell, Element, Facts, Form, Heading, Input, Link, Notice, Table, View
from rocketd.console.pages.links import link_of_group
from rocketd.console.pages.messages import described
from rocketd.console.pages.visit import MAX_ROWS, Visit, time_text

DEAD_LETTERS = Link("Dead letters", "/dead-letters")
MAX_AT_ONCE = 100
"""Dead letters sent again by one click."""
MAX_READ = 2000
"""Dead letters read by one page."""

_running: set[str] = set()
"""Groups whose dead letters are being sent. Two redrives of one group at a time could send a letter twice."""


async def dead_letter_list(visit: Visit) -> View:
    """Return the groups with dead letters, or those of one group by cause."""
    group, exception = visit.text("group"), visit.text("exception")
    if not group:
        return await _groups(visit)
    causes: Counter[str] = Counter()
    rows: list[list[Cell]] = []
    reader = Letters(visit.cluster, group, DeadLetterFilter(exception or None), MAX_READ)
    async for letter in reader:
        causes[letter.exception or ""] += 1
        if len(rows) < MAX_ROWS:
            rows.append(_row(letter))
    by_cause = Table(
        "Causes",
        [Heading("Exception"), Heading("Letters", True)],
        [
            [Link(cause, DEAD_LETTERS.path, {"group": group, "exception": cause}) if cause else "unknown", count]
            for cause, count in causes.most_common(MAX_ROWS)
        ],
        empty="The group has no dead letters." if not exception else "The group has no dead letters of this cause.",
        note="Only rocketd's Python client gives an exception and a reason." if "" in causes else "",
    )
    table = Table(
        "Dead letters",
        [
            Heading("Id"),
            Heading("Topic"),
            Heading("Died"),
            Heading("Attempts", True),
            Heading("Exception"),
            Heading("Reason"),
            Heading("Keys"),
        ],
        rows,
        empty="None.",
        note=_note(causes.total(), reader.more),
    )
    elements: list[Element] = [by_cause]
    if rows:
        elements.append(table)
    if rows and not visit.read_only:
        elements.append(_redrive_form(group, {"exception": exception}, "Send these letters again"))
    above = [DEAD_LETTERS, link_of_group(group)]
    title = f"Dead letters of {group}" + (f" by {exception}" if exception else "")
    return View(title, elements, above=above)


def _note(count: int, more: bool) -> str:
    if more:
        return f"The first {MAX_READ:,} letters are counted, and {MAX_ROWS} of them are shown."
    return f"{MAX_ROWS} of {count:,} letters are shown." if count > MAX_ROWS else ""


async def _groups(visit: Visit) -> View:
    names = [
        topic.removeprefix(DLQ_PREFIX) for topic in await visit.cluster.admin.topics() if topic.startswith(DLQ_PREFIX)
    ]
    form = Form("One group", DEAD_LETTERS.path, "Show", [Input("group", "Consumer group", required=True)])
    table = Table(
        "Groups with dead letters",
        [Heading("Group")],
        [[Link(name, DEAD_LETTERS.path, {"group": name})] for name in names[:MAX_ROWS]],
        empty="No group has dead letters.",
        note=f"{MAX_ROWS} of {len(names):,} groups are shown." if len(names) > MAX_ROWS else "",
    )
    return View("Dead letters", [table, form])


class Letters:
    """Iterates over the first dead letters of a group. Raises IllegalGroupError.

    Only one pull is in memory at a time, and bodies stay compressed, because all bodies together could fill the memory.
    """

    def __init__(self, cluster: ConsoleCluster, group: str, wanted: DeadLetterFilter, limit: int) -> None:
        check_group(group)
        self._reader = DeadLetterReader(cluster.client, group, wanted, packed=True)
        self._limit = limit
        self.more = False
        """Whether there are more dead letters, known at the end."""

    async def __aiter__(self) -> AsyncIterator[DeadLetter]:
        left = self._limit
        while (letters := await self._reader.next_page()) is not None:
            for letter in letters:
                if not left:
                    self.more = True
                    return
                left -= 1
                yield letter

    def unpacked(self, letter: DeadLetter) -> DeadLetter:
        """Return a dead letter with its decompressed body."""
        return self._reader.unpacked(letter)


def _row(letter: DeadLetter) -> list[Cell]:
    return [
        Link(letter.id, "/dead-letter", {"group": letter.group, "id": letter.id}),
        letter.topic if letter.has_origin else None,
        time_text(letter.message.store_timestamp),
        letter.attempts,
        letter.exception,
        letter.reason,
        " ".join(letter.message.keys),
    ]


async def dead_letter_page(visit: Visit) -> View:
    """Return the page of one dead letter."""
    group, number = visit.required("group"), visit.required("id")
    letters = Letters(visit.cluster, group, DeadLetterFilter(ids=[number]), 1)
    found = [letter async for letter in letters]
    if not found:
        raise NotFoundError(f"Group {group} has no dead letter with the id {number}. It may have expired.")
    letter = letters.unpacked(found[0])
    facts = Facts(
        "Death",
        [
            ("Exception", letter.exception),
            ("Reason", letter.reason),
            ("Consumer", letter.consumer),
            ("Attempts", letter.attempts),
            ("Died", time_text(letter.message.store_timestamp)),
        ],
    )
    elements: list[Element] = [facts]
    if letter.unreadable is not None:
        elements.append(Notice("warning", f"The body is shown as it is stored: {letter.unreadable}"))
    elements += described(letter.message, visit, {"group": group, "id": number}, "/dead-letter")
    if not visit.read_only:
        elements.append(_redrive_form(group, {"id": number}, "Send this letter again"))
    above = [DEAD_LETTERS, Link(group, DEAD_LETTERS.path, {"group": group})]
    return View(f"Dead letter {letter.id}", elements, above=above)


def _redrive_form(group: str, selected: dict[str, str], caption: str) -> Form:
    target = Input(
        "to",
        "To",
        "choice",
        choices=[("group", f"group {group} alone"), ("topic", "all groups of the original topics")],
    )
    return Form(caption, "/dead-letters/redrive", "Preview", [target], {"group": group, **selected})


def _selected(visit: Visit) -> DeadLetterFilter:
    number = visit.text("id")
    return DeadLetterFilter(visit.text("exception") or None, ids=[number] if number else None)


async def redrive_preview(visit: Visit) -> View:
    """Return what sending again would do, and the form that does it."""
    group, to = visit.required("group"), visit.one_of("to", "group", "topic")
    letters = Letters(visit.cluster, group, _selected(visit), MAX_AT_ONCE)
    redriver = Redriver(visit.cluster.client, "group" if to == "group" else "topic")
    outcomes = Counter([await redriver.foresee(letter) async for letter in letters])
    facts = Facts(
        f"Of {outcomes.total()} letters",
        [
            ("Will be sent", outcomes[RedriveOutcome.SENT]),
            ("Were sent before", outcomes[RedriveOutcome.SENT_BEFORE]),
            ("Have an unknown topic", outcomes[RedriveOutcome.UNKNOWN_TOPIC]),
        ],
    )
    target = f"group {group} alone" if to == "group" else "all groups of the original topics"
    elements: list[Element] = [facts]
    if letters.more:
        elements.append(
            Notice("warning", f"There are more letters. Each click sends the first {MAX_AT_ONCE} that were not sent.")
        )
    if outcomes:
        hidden = {"group": group, "to": to, "id": visit.text("id"), "exception": visit.text("exception")}
        caption = f"Send to {target}"
        elements.append(Form(caption, "/dead-letters/redrive", "Send again", hidden=hidden, change=True, danger=True))
    above = [DEAD_LETTERS, Link(group, DEAD_LETTERS.path, {"group": group})]
    return View("Preview of sending again", elements, above=above)


async def redrive(visit: Visit) -> View:
    """Send dead letters again, at most MAX_AT_ONCE, and tell their numbers."""
    group, to = visit.required("group"), visit.one_of("to", "group", "topic")
    if group in _running:
        raise ConsoleError(f"Dead letters of {group} are being sent already. Wait until that has ended.")
    _running.add(group)
    outcomes: Counter[RedriveOutcome] = Counter()
    try:
        reader = DeadLetterReader(visit.cluster.client, group, _selected(visit), packed=True)
        redriver = Redriver(visit.cluster.client, "group" if to == "group" else "topic")
        while outcomes[RedriveOutcome.SENT] < MAX_AT_ONCE and (letters := await reader.next_page()) is not None:
            for letter in letters:
                if outcomes[RedriveOutcome.SENT] < MAX_AT_ONCE:
                    outcomes[await redriver.redrive(letter)] += 1
    finally:
        _running.discard(group)
    sent, lost = outcomes[RedriveOutcome.SENT], outcomes[RedriveOutcome.UNKNOWN_TOPIC]
    elements: list[Element] = [Notice("good", f"{sent} letters are sent.")]
    if lost:
        elements.append(Notice("warning", f"{lost} were not sent: their topic is unknown, or no longer exists."))
    if sent >= MAX_AT_ONCE:
        elements.append(Notice("warning", "There may be more letters. Send again to go on."))
    above = [DEAD_LETTERS, Link(group, DEAD_LETTERS.path, {"group": group})]
    facts = Facts(
        "Dead letters", [("Sent", sent), ("Sent before", outcomes[RedriveOutcome.SENT_BEFORE]), ("Unknown topic", lost)]
    )
    return View("Sent again", [*elements, facts], above=above)
