"""``rocketd store``: look at, check, print and repair the files of a stopped store.

Answers to nothing of Apache's; its nearest are mqadmin's statistics of a running broker. The store is locked meanwhile, as
a broker locks it, so that none can start.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import msgspec
from twisted.python import usage

from rocketd.broker.delay_levels import DelayLevels
from rocketd.broker.settings import BrokerSettings
from rocketd.common.command_line import CommandLine
from rocketd.common.config import ConfigError
from rocketd.store.errors import StoreError, StoreLockedError
from rocketd.store.examine import Examination, Progress
from rocketd.store.filesystem import RealFileSystem
from rocketd.store.findings import Severity, shortened
from rocketd.store.layout import CONSUME_QUEUE_UNIT, LOCK_CONTENT, lock_path
from rocketd.store.log_paths import log_paths
from rocketd.store.lost_log import refuse_lost_log
from rocketd.store.repair import ASIDE_PREFIX, Repair
from rocketd.store.stopped_store import FileSizes, StoppedStore
from rocketd.store.summary import summarize
from rocketd.tools.options import CommandOptions, positive
from rocketd.tools.store_dump import dump
from rocketd.tools.store_text import ProgressBar, summary_lines

_LOCKED = 2
_INTERRUPTED = 130


class StoreCommand(CommandOptions):
    """What the four commands have in common: the directory, the settings it was written with, the lock."""

    optParameters: ClassVar[list[list[Any]]] = [
        ["config", "c", None, "Configuration file of the broker: delay levels, sizes of files, directory of the log."],
    ]

    def __init__(self) -> None:
        super().__init__()
        self.root = ""
        self.settings: BrokerSettings

    def parseArgs(self, directory: str | None = None) -> None:
        """Take the directory."""
        if directory is None:
            raise usage.UsageError("DIR is missing")
        self.root = os.path.abspath(directory)

    def postOptions(self) -> None:
        """Read the settings."""
        try:
            options = [("storePathRootDir", self.root)]
            if self["config"] is None:
                # What another broker's environment or file says has no meaning here.
                self.settings = BrokerSettings.load(None, options)[0]
            else:
                self.settings = BrokerSettings.load(self["config"], options)[0]
        except ConfigError as error:
            raise usage.UsageError(str(error)) from None

    @property
    def commit_log(self) -> tuple[str, ...]:
        """Directories of the log."""
        return log_paths(self.settings.store).all

    @property
    def sizes(self) -> FileSizes | None:
        """Sizes of the files, None where no settings were given."""
        store = self.settings.store
        return (
            None
            if self["config"] is None
            else FileSizes(
                store.mapped_file_size_commit_log,
                -(-store.mapped_file_size_consume_queue // CONSUME_QUEUE_UNIT) * CONSUME_QUEUE_UNIT,
                store.max_hash_slot_num,
                store.max_index_num,
            )
        )

    def store(self) -> StoppedStore:
        """The store, as it is now."""
        return StoppedStore(self.root, self.commit_log, self.sizes)

    def refuse_lost_log(self) -> None:
        """Raise StoreLogMissingError if the log lies somewhere else: everything would look as if it led to nothing."""
        refuse_lost_log(RealFileSystem(), self.root, self.commit_log)

    @property
    def delay_time_of(self) -> Callable[[int, int], int]:
        """Delivery time of delayed messages."""
        return DelayLevels(self.settings.store.message_delay_level).deliver_ms

    def run(self) -> int:
        """Do it while nobody else can; return the exit status."""
        try:
            if not self.store().is_store():
                raise usage.UsageError(f"{self.root} is no store: it has no commitlog, consumequeue or index")
            with self._locked():
                return self.work()
        except StoreLockedError as error:
            print(f"rocketd store: {error}", file=sys.stderr)
            return _LOCKED
        except BrokenPipeError:
            # Whoever reads the output has seen enough. What is still buffered has nowhere to go.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 1
        except KeyboardInterrupt:
            return _INTERRUPTED
        except (OSError, StoreError) as error:
            print(f"rocketd store: {error}", file=sys.stderr)
            return 1

    def work(self) -> int:
        """Do what the command is for, with the store locked; return the exit status."""
        raise NotImplementedError

    @contextmanager
    def _locked(self) -> Iterator[None]:
        fs = RealFileSystem()
        try:
            lock = fs.lock(lock_path(self.root), LOCK_CONTENT)
        except OSError as error:
            if self.writes:
                raise
            print(f"rocketd store: not locked, since the directory cannot be written: {error}", file=sys.stderr)
            yield
            return
        try:
            yield
        finally:
            fs.unlock(lock)

    writes: ClassVar[bool] = False
    """Whether the command cannot do without the lock."""


class InspectOptions(StoreCommand):
    """Options of ``rocketd store inspect``."""

    synopsis = "Usage: rocketd store inspect [options] DIR"
    longdesc = "Say what is in the store directory DIR: quick, however large it is."
    optFlags: ClassVar[list[list[Any]]] = [["json", None, "Print one JSON object."]]  # noqa: N815 - Twisted's name

    def work(self) -> int:
        """Print the summary."""
        summary = summarize(self.store())
        if self["json"]:
            print(msgspec.json.format(msgspec.json.encode(summary), indent=2).decode())
        else:
            for line in summary_lines(summary):
                print(line)
        return 0


class VerifyOptions(StoreCommand):
    """Options of ``rocketd store verify``."""

    synopsis = "Usage: rocketd store verify [options] DIR"
    longdesc = "Compare everything in DIR with everything else. Exit status 1 means damage, 0 that there is none."
    optFlags: ClassVar[list[list[Any]]] = [["json", None, "Print one JSON object."]]  # noqa: N815 - Twisted's name

    def work(self) -> int:
        """Print the findings."""
        self.refuse_lost_log()
        with ProgressBar(sys.stderr) as progress:
            return print_findings(self, Examination(self.store(), self.delay_time_of, progress.show))


def print_findings(command: StoreCommand, examination: Examination) -> int:
    """Run an examination and print it; return 1 if there is damage, else 0."""
    root = command.root
    json = bool(command["json"])
    damaged = False
    shown = []
    for finding in shortened(examination.findings()):
        damaged = damaged or finding.severity is Severity.DAMAGE
        if json:
            advice = finding.remedy.advice(root)
            shown.append(msgspec.to_builtins(finding) | {"advice": advice})
        else:
            print(finding.line(root))
    if json:
        result = {
            "root": root,
            "damaged": damaged,
            "records": examination.records,
            "endOffset": examination.log_end,
            "findings": shown,
        }
        print(msgspec.json.format(msgspec.json.encode(result), indent=2).decode())
    else:
        verdict = "damaged" if damaged else "no damage"
        print(f"{root}: {verdict}; {examination.records} records, the log ends at {examination.log_end}")
    return int(damaged)


class DumpOptions(StoreCommand):
    """Options of ``rocketd store dump``."""

    synopsis = "Usage: rocketd store dump [options] DIR"
    longdesc = "Print the records of DIR as JSON, one a line, in the order of the log or of a queue."
    optParameters: ClassVar[list[list[Any]]] = [
        ["queue", "q", None, "TOPIC:ID, to print one queue."],
        ["from", None, None, "Offset to begin at: of the log, or with --queue of the queue."],
        ["count", None, None, "Print so many records at most.", positive],
    ]
    optFlags: ClassVar[list[list[Any]]] = [  # noqa: N815 - the name is Twisted's
        ["body", "b", "With bodies: as body where they are UTF-8, else as bodyBase64."]
    ]

    def postOptions(self) -> None:
        """Check what belongs together."""
        super().postOptions()
        self.queue: tuple[str, int] | None = None
        if self["queue"] is not None:
            topic, colon, number = self["queue"].rpartition(":")
            if not colon or not topic or not number.isascii() or not number.isdigit():
                raise usage.UsageError(f"--queue {self['queue']}: accepted is TOPIC:ID")
            self.queue = topic, int(number)
        first = self["from"]
        if first is not None and not (first.isascii() and first.isdigit()):
            raise usage.UsageError(f"--from {first}: accepted is a number from 0 on")

    def work(self) -> int:
        """Print the records."""
        first = None if self["from"] is None else int(self["from"])
        damaged = False
        for line, whole in dump(self.store(), self.queue, first, self["count"], bool(self["body"])):
            damaged = damaged or not whole
            print(line, file=sys.stdout if whole else sys.stderr)
        return int(damaged)


class RepairOptions(StoreCommand):
    """Options of ``rocketd store repair``."""

    synopsis = "Usage: rocketd store repair [options] DIR"
    longdesc = "Say what would be done about the damage in DIR; with --write, do it. Nothing is deleted."
    writes = True
    optFlags: ClassVar[list[list[Any]]] = [  # noqa: N815 - the name is Twisted's
        ["dry-run", None, "Change nothing, which is what happens without --write too."],
        ["write", None, "Do it."],
        ["replace-damaged", None, "Put placeholders over records in the middle of the log that cannot be read."],
        ["index", None, "Build the index anew in any case."],
        ["json", None, "Print the findings that remain as one JSON object."],
    ]

    def postOptions(self) -> None:
        """Refuse both of two opposites."""
        super().postOptions()
        if self["dry-run"] and self["write"]:
            raise usage.UsageError("--dry-run and --write exclude each other")

    def work(self) -> int:
        """Plan, or repair and examine again."""
        self.refuse_lost_log()
        with ProgressBar(sys.stderr) as progress:
            repair = self._repair(progress.show)
            if not self["write"]:
                return self._show_plan(repair)
            repair.carry_out(lambda line: print(f"repair: {line}", file=sys.stderr if self["json"] else sys.stdout))
            return print_findings(self, repair.examination())

    def _repair(self, progress: Progress) -> Repair:
        return Repair(
            self.root,
            RealFileSystem(),
            ASIDE_PREFIX + time.strftime("%Y%m%d-%H%M%S"),
            commit_log=self.commit_log,
            delay_time_of=self.delay_time_of,
            sizes=self.sizes,
            replace_damaged=bool(self["replace-damaged"]),
            build_index=bool(self["index"]),
            progress=progress,
            now_ms=lambda: time.time_ns() // 1_000_000,
        )

    def _show_plan(self, repair: Repair) -> int:
        if self["json"]:
            return print_findings(self, repair.examination())
        plan = repair.plan()
        for line in plan.lines(self.root):
            print(f"would: {line}")
        what = f"{plan.damages} damages" if plan.damages else "no damage"
        print(f"{self.root}: {what}; nothing was changed" + ("; --write does the above" if plan else ""))
        return int(plan.damages > 0)


class StoreOptions(CommandLine):
    """Options of ``rocketd store``: its commands."""

    synopsis = "Usage: rocketd store COMMAND [options] DIR"
    longdesc = "DIR is the store directory of a broker that does not run."
    subCommands: ClassVar[list[Any]] = [
        ["inspect", None, InspectOptions, "Say what is there."],
        ["verify", None, VerifyOptions, "Check everything."],
        ["dump", None, DumpOptions, "Print records."],
        ["repair", None, RepairOptions, "Put right what verify finds."],
    ]

    def postOptions(self) -> None:
        """Refuse a command line without a command."""
        if self.subCommand is None:
            raise usage.UsageError(f"a command is missing: {', '.join(command[0] for command in self.subCommands)}")

    def run(self) -> int:
        """Run the command; return its exit status."""
        status: int = self.subOptions.run()
        return status
