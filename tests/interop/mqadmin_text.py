"""Output of mqadmin, as fields that can be compared between two clusters in the same state.

Only values that must differ between them get a common name first; each of these names says here why.
"""

import re
import time
from collections.abc import Mapping
from pathlib import Path

from rocketd.common.settings import properties_file

_APACHES_SETTINGS = {
    entry.key
    for file in sorted((Path(__file__).parents[1] / "golden" / "config").glob("*-4.9.7.properties"))
    for entry in properties_file.parse(file.read_text())
}
_OTHER_DEFAULTS = {"slaveTimeout"}
"""Settings with another default than Apache's: docs/compatibility.md says why."""
_COMPARED = (_APACHES_SETTINGS | {"storePathCommitLog"}) - _OTHER_DEFAULTS

# Year 1970 stays: it is how mqadmin prints a time that is not there, and that has to be the same.
_TIME = re.compile(r"\b(?!1970)\d{4}-\d\d-\d\d[ #]\d\d:\d\d:\d\d(?:[:,]\d{3})?")
_COMPACT_TIME = re.compile(r"\b20\d{15}\b")
_MILLIS = re.compile(r"\b1\d{12}\b")
_ADDRESS = re.compile(r"127\.0\.0\.1:\d{2,5}\b")
_CLIENT_PROCESS = re.compile(r"@\d+#\d+")
# Of a machine that has an IPv4 address, and of one that has not.
_MESSAGE_ID = re.compile(r"\b(?:[0-9A-F]{56}|[0-9A-F]{32})")
_STACK_FRAME = re.compile(r"^\s+(at |\.\.\. \d+ (more|common frames))")

RUN_BEGAN_MS = int(time.time() * 1000)
_HOUR_MS = 3_600_000


class Names:
    """Common names for the output of one cluster. ``own`` are texts of this cluster: addresses, ports, directories."""

    def __init__(self, own: Mapping[str, str], broker: str) -> None:
        """``broker`` is host:port of an IPv4 broker; its messages' offset ids begin with it."""
        self._own: list[tuple[re.Pattern[str], str]] = []
        self.add(own)
        host, _, port = broker.rpartition(":")
        self._offset_id = "".join(f"{int(part):02X}" for part in host.split(".")) + f"{int(port):08X}"

    def add(self, own: Mapping[str, str]) -> None:
        """Give names to more texts of this cluster, before the present ones."""
        # The longest first: a port is also the end of an address.
        longest_first = sorted(own.items(), key=lambda item: -len(item[0]))
        self._own[:0] = [(re.compile(rf"(?<!\d){re.escape(text)}(?!\d)"), name) for text, name in longest_first]

    def given_to(self, text: str) -> str:
        """The text with common names."""
        for own, name in self._own:
            text = own.sub(name, text)
        # A client's end of a connection: the system chose the port.
        text = _ADDRESS.sub("CLIENT-ADDRESS", text)
        # In the id of a client that has no instance name: its process and when it began.
        text = _CLIENT_PROCESS.sub("@CLIENT-PROCESS", text)
        text = self._ids(text)
        # When something was done: the two clusters are not driven in the same instant.
        text = _COMPACT_TIME.sub("TIME", _TIME.sub("TIME", text))
        return _MILLIS.sub(_millis, text)

    def _ids(self, text: str) -> str:
        # An offset id is the broker's address and the place in its log: the place has to be the same.
        # A unique id has the client's process and the time in it: all there is to compare is which are the same.
        seen: dict[str, str] = {}

        def name(match: re.Match[str]) -> str:
            found = match[0]
            if found.startswith(self._offset_id):
                return f"OFFSET-ID({int(found[16:], 16)})"
            return seen.setdefault(found, f"UNIQUE-ID({len(seen) + 1})")

        return _MESSAGE_ID.sub(name, text)


def _millis(match: re.Match[str]) -> str:
    """Name a time of this run; any other long number stays."""
    known = RUN_BEGAN_MS - _HOUR_MS < int(match[0]) < time.time() * 1000 + _HOUR_MS
    return "MILLIS" if known else match[0]


def fields(text: str) -> list[list[str]]:
    """Return lines of words. The width of a column depends on its content, so blanks do not belong to a field."""
    return [line.split() for line in text.splitlines()]


def without_stack_frames(text: str) -> str:
    """Return the messages of exceptions without their stack frames: threads and caches change these."""
    return "\n".join(line for line in text.splitlines() if not _STACK_FRAME.match(line))


def without_rates(printed: str) -> str:
    """Hide the rates of the last seconds, and the use of the disk."""
    printed = re.sub(r"\d+\.\d\d\((\d+),\d+ms\)", r"RATE(\1)", printed)
    return re.sub(r"\d+ +\d+\.\d\d +\d\.\d{4}$", "WAIT HOURS SPACE", printed, flags=re.MULTILINE)


def without_moments(printed: str) -> str:
    """Hide figures of the moment and of the machine: durations, start times, bytes waiting for the disk, and rates.
    earliestMessageTimeStamp differs on purpose.
    """
    of_the_moment = "|".join(
        (
            r"earliestMessageTimeStamp|bootTimestamp|runtime|dispatchBehindBytes|remainHowManyDataToFlush",
            r"\w+EntireTimeMax|\w+Tps|putLatency\w+|putMessageDistributeTime|\w+HeadWaitTimeMills|pageCacheLockTimeMills",
            r"commitLogDirCapacity|\w+DiskRatio\S*",
        )
    )
    return re.sub(rf"\b({of_the_moment}) *: .*", r"\1 : MOMENT", printed)


def without_own_figures(printed: str) -> str:
    """As ``without_moments``, without figures of rocketd only: refused and lost messages, and its role in a pair."""
    of_pairs = r"ha(BrokerName|Instance|Role|SendsRefused|SlavesLagging|Refused)"
    of_ours = rf"(\S+ +)?({of_pairs}|adminWritesRefused|registrationsRefused|limit[A-Z]\w*) *:"
    return "\n".join(line for line in without_moments(printed).splitlines() if not re.match(of_ours, line))


def without_own_settings(printed: str) -> str:
    """Leave out the lines of settings only in rocketd, or with another default."""
    lines = [(line, re.match(r"(\S+) *= ", line)) for line in printed.splitlines()]
    return "\n".join(line for line, pair in lines if pair is None or pair[1] in _COMPARED)
