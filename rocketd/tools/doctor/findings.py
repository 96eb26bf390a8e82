"""A finding of the doctor, and the output of all of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rocketd.common.command_line.output import show
from rocketd.tools.base.rows import show_rows

WRONG: Final = "wrong"
"""Level of a finding to act upon. It makes the exit status 1."""
NOTE: Final = "note"
"""Level of a finding to know about."""

_COLUMNS = ("level", "subject", "finding", "remedy")


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """A fault or a fact worth knowing: its level, the thing it is about, the text, and the next step."""

    level: str
    subject: str
    text: str
    remedy: str


def show_findings(findings: Sequence[DoctorFinding], *, as_json: bool) -> int:
    """Print findings, the wrong ones first, and return the exit status: 1 if something is wrong. Raises as `show`."""
    if not findings and not as_json:
        show("no fault found")
        return 0
    ordered = sorted(findings, key=lambda finding: finding.level != WRONG)
    show_rows(_COLUMNS, [(each.level, each.subject, each.text, each.remedy) for each in ordered], as_json=as_json)
    return int(any(finding.level == WRONG for finding in findings))
