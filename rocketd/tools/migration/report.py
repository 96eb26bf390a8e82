"""The output of ``rocketd adopt`` and ``rocketd give-back``: findings, numbers, verdict and commands."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from rocketd.common.command_line.output import escape_cell, show, show_bytes, show_table
from rocketd.tools.base.json_lines import json_text
from rocketd.tools.doctor.findings import WRONG, DoctorFinding, show_findings
from rocketd.tools.migration.given_settings import GivenSetting
from rocketd.tools.migration.next_steps import NextStep
from rocketd.tools.migration.numbers import StoreNumbers

MAX_TOPICS = 20
"""Topics in the table, those with the most messages first."""


def is_ready(findings: Sequence[DoctorFinding]) -> bool:
    """Return whether no finding is wrong."""
    return all(finding.level != WRONG for finding in findings)


@dataclass(frozen=True, slots=True)
class MigrationReport:
    """All that one of the commands has found."""

    root: str
    settings: Sequence[GivenSetting]
    findings: Sequence[DoctorFinding]
    numbers: StoreNumbers
    accounts: int
    steps: Sequence[NextStep]
    partial: bool = False
    """Whether only a part of the store was read."""

    @property
    def is_ready(self) -> bool:
        """Whether no finding is wrong."""
        return is_ready(self.findings)

    @property
    def verdict(self) -> str:
        """The result in words."""
        if not self.is_ready:
            return "not ready, see the findings with the level wrong"
        return "ready as far as it was read" if self.partial else "ready"

    def print(self, *, as_json: bool) -> int:
        """Print it, and return the exit status: 0 if ready, else 1. Raises as `show`."""
        if as_json:
            show_bytes(json_text(self._object()).encode() + b"\n")
        else:
            self._print_text()
        return int(not self.is_ready)

    def _print_text(self) -> None:
        numbers = self.numbers
        if self.findings:
            show_findings(self.findings, as_json=False)
            show("")
        rows = [
            (name, str(numbers.queues[name]), str(count)) for name, count in numbers.messages.most_common(MAX_TOPICS)
        ]
        show_table(("topic", "queues", "messages"), rows, right=("queues", "messages"))
        more = len(numbers.messages) - MAX_TOPICS
        if more > 0:
            show(f"and {more} more topics")
        show("")
        show(
            f"{numbers.records} records read from {numbers.log_begin} to {numbers.log_end} of the log; "
            f"{numbers.topics} topics, {numbers.groups} groups, {numbers.offsets} offsets, "
            f"{numbers.delayed} delayed messages waiting, {self.accounts} accounts"
        )
        show(f"{escape_cell(self.root)}: {self.verdict}")
        show("")
        for count, step in enumerate(self.steps, 1):
            show(f"# {count}. {step.purpose}")
            show(escape_cell(step.command))

    def _object(self) -> dict[str, object]:
        numbers = self.numbers
        return {
            "root": self.root,
            "ready": self.is_ready,
            "partial": self.partial,
            "settings": [
                {"key": each.key, "value": each.shown, "effect": each.effect.value, "explanation": each.explanation}
                for each in self.settings
            ],
            "findings": [asdict(finding) for finding in self.findings],
            "numbers": {
                "records": numbers.records,
                "logBegin": numbers.log_begin,
                "logEnd": numbers.log_end,
                "topics": numbers.topics,
                "groups": numbers.groups,
                "offsets": numbers.offsets,
                "delayed": numbers.delayed,
                "accounts": self.accounts,
                "messages": dict(numbers.messages.most_common()),
            },
            "commands": [asdict(step) for step in self.steps],
        }
