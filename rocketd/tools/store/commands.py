"""``rocketd store``: inspect, check, print and repair the files of a stopped store.

In Apache, mqadmin's statistics of a running broker come nearest.
"""

import os
import sys
import time
from collections import Counter

import click
import msgspec

from rocketd.common.command_line.commands import LazyGroup, command
from rocketd.common.command_line.option_types import POSITIVE, whole_number
from rocketd.store.base.filesystem import RealFileSystem
from rocketd.store.base.findings import Severity, shortened
from rocketd.store.offline.examine import Examination, Progress
from rocketd.store.offline.repair import ASIDE_PREFIX, Repair
from rocketd.store.offline.summary import summarize
from rocketd.store.recovery.lost_log import refuse_lost_log
from rocketd.store.upkeep.log_begin import NotedBegin, read_log_begin, write_log_begin
from rocketd.tools.store.access import StoreAccess, store_options
from rocketd.tools.store.dump import dump
from rocketd.tools.store.text import ProgressBar, summary_lines

_json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")

store_group = LazyGroup(
    "store",
    {
        "inspect": (f"{__name__}:inspect_command", "Print a summary of a store."),
        "verify": (f"{__name__}:verify_command", "Check all files of a store."),
        "dump": (f"{__name__}:dump_command", "Print the records of a store."),
        "repair": (f"{__name__}:repair_command", "Repair the damage found by verify."),
        "accept-begin": (f"{__name__}:accept_begin_command", "Accept the loss of the oldest files of the log."),
    },
    help="Work on DIR, the store directory of a stopped broker.",
)


@command("inspect")
@_json_option
@store_options
def inspect_command(access: StoreAccess, as_json: bool) -> int:
    """Print a summary of the store directory DIR. It is quick, however large the store is."""
    with access.locked():
        summary = summarize(access.store())
        if as_json:
            print(msgspec.json.format(msgspec.json.encode(summary), indent=2).decode())
        else:
            for line in summary_lines(summary):
                print(line)
    return 0


@command("verify")
@_json_option
@store_options
def verify_command(access: StoreAccess, as_json: bool) -> int:
    """Compare everything in DIR with everything else.

    The exit status is 0 if the store is sound, and 1 if it is damaged.
    """
    with access.locked():
        access.refuse_lost_log()
        with ProgressBar(sys.stderr) as progress:
            examination = Examination(access.store(), access.delay_time_of, progress.show)
            return _print_findings(access, examination, as_json)


def _print_findings(access: StoreAccess, examination: Examination, as_json: bool) -> int:
    """Run an examination and print it; return 1 if there is damage, else 0."""
    root = access.root
    damaged = False
    shown = []
    for finding in shortened(examination.findings()):
        damaged = damaged or finding.severity is Severity.DAMAGE
        if as_json:
            advice = finding.remedy.advice(root, access.config)
            shown.append(msgspec.to_builtins(finding) | {"advice": advice})
        else:
            print(finding.line(root, access.config))
    if as_json:
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


def _queue(text: str) -> tuple[str, int]:
    topic, colon, number = text.rpartition(":")
    if not colon or not topic or not number.isascii() or not number.isdigit():
        raise click.BadParameter(f"{text!r}: accepted is TOPIC:ID")
    return topic, int(number)


@command("dump")
@click.option("-q", "--queue", type=_queue, metavar="TOPIC:ID", help="Print one queue.")
@click.option(
    "--from",
    "first",
    type=whole_number(0),
    metavar="OFFSET",
    help="First offset: of the log in bytes, or with --queue of the queue.",
)
@click.option("--count", type=POSITIVE, metavar="N", help="Maximum number of records.")
@click.option("-b", "--body", is_flag=True, help="Also print bodies: as body if they are UTF-8, else as bodyBase64.")
@store_options
def dump_command(
    access: StoreAccess, queue: tuple[str, int] | None, first: int | None, count: int | None, body: bool
) -> int:
    """Print the records of DIR as JSON, one a line, in the order of the log or of a queue.

    The exit status is 1 if a record cannot be read.
    """
    damaged = False
    with access.locked():
        for line, whole in dump(access.store(), queue, first, count, body):
            damaged = damaged or not whole
            print(line, file=sys.stdout if whole else sys.stderr)
    return int(damaged)


@command("repair")
@click.option("--dry-run", is_flag=True, help="Print the plan only. This is the default.")
@click.option("--write", is_flag=True, help="Do it.")
@click.option(
    "--replace-damaged",
    is_flag=True,
    help="Replace unreadable records in the middle of the log with placeholders.",
)
@click.option("--index", is_flag=True, help="Rebuild the index, even if it is intact.")
@click.option("--json", "as_json", is_flag=True, help="Print the remaining findings as one JSON object.")
@store_options
def repair_command(
    access: StoreAccess, dry_run: bool, write: bool, replace_damaged: bool, index: bool, as_json: bool
) -> int:
    """Print a plan for the repair of DIR; with --write, repair it. Nothing is deleted."""
    if dry_run and write:
        raise click.UsageError("--dry-run and --write exclude each other")
    with access.locked(writes=True):
        access.refuse_lost_log()
        with ProgressBar(sys.stderr) as progress:
            repair = _repair(access, replace_damaged, index, progress.show)
            if not write:
                return _show_plan(access, repair, as_json)
            repair.carry_out(lambda line: print(f"repair: {line}", file=sys.stderr if as_json else sys.stdout))
            return _print_findings(access, repair.examination(), as_json)


def _repair(access: StoreAccess, replace_damaged: bool, build_index: bool, progress: Progress) -> Repair:
    return Repair(
        access.root,
        RealFileSystem(),
        ASIDE_PREFIX + time.strftime("%Y%m%d-%H%M%S"),
        commit_log=access.commit_log,
        delay_time_of=access.delay_time_of,
        sizes=access.sizes,
        replace_damaged=replace_damaged,
        build_index=build_index,
        progress=progress,
        now_ms=lambda: time.time_ns() // 1_000_000,
    )


def _show_plan(access: StoreAccess, repair: Repair, as_json: bool) -> int:
    if as_json:
        return _print_findings(access, repair.examination(), as_json)
    root = access.root
    plan = repair.plan()
    for line in plan.lines(root):
        print(f"would: {line}")
    what = f"{plan.damages} damages" if plan.damages else "no damage"
    print(f"{root}: {what}; nothing was changed" + ("; --write does the above" if plan else ""))
    return int(plan.damages > 0)


@command("accept-begin")
@click.option("--write", is_flag=True, help="Do it.")
@store_options
def accept_begin_command(access: StoreAccess, write: bool) -> int:
    """Print the recorded and the present beginning of DIR's commit log; with --write, give up earlier messages.

    The broker then deletes their queue and index files.
    """
    with access.locked(writes=True):
        _accept_begin(access, write)
    return 0


def _accept_begin(access: StoreAccess, write: bool) -> None:
    fs = RealFileSystem()
    root = access.root
    refuse_lost_log(fs, root, access.commit_log)
    files = access.store().log.segments
    if not files:
        print(f"{root}: the commit log has no file; nothing was changed")
        return
    noted = read_log_begin(fs, root)
    known = "its begin was not recorded" if noted is None else f"it began at {noted.offset} or before"
    begin = files[0].offset
    print(f"{root}: the commit log begins at {begin}; {known}")
    used = Counter(os.path.dirname(file.path) for file in files)
    for directory in access.commit_log:
        print(f"{directory}: {used[directory]} log files")
    if write:
        write_log_begin(fs, root, NotedBegin(begin, tuple(sorted(used))))
        print(f"the messages before {begin} are given up")
    else:
        print(f"nothing was changed; --write gives up the messages before {begin}")
