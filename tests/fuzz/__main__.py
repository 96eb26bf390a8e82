"""The fuzzers as a program: ``python -m tests.fuzz --seconds 3600``."""

import argparse
import shutil
import sys
import tempfile
from functools import partial
from pathlib import Path
from random import SystemRandom

from tests.fuzz.parsers import ParserFuzzer
from tests.fuzz.store_files import StoreFuzzer
from tests.fuzz.wire import WireFuzzer
from tests.support.process import ServerError

KINDS = ("parsers", "store", "wire")


def main() -> int:
    """Run the fuzzers one after the other; 1 if one of them found something; its files stay."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.partition(":")[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="of each, default 60")
    parser.add_argument("--frames", type=int, default=None, help="of the wire fuzzer, instead of a time")
    parser.add_argument("--seed", type=int, default=None, help="of an earlier run, to make the same inputs again")
    parser.add_argument("--only", choices=KINDS, action="append", help="default: all")
    options = parser.parse_args()
    seed = SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    say = partial(print, flush=True)
    for kind in options.only or KINDS:
        directory = Path(tempfile.mkdtemp(prefix="rocketd-fuzz-"))
        say(f"{kind}: --seed {seed}")
        try:
            say(f"{kind}: {run(kind, directory, seed, options.seconds, options.frames, say)}")
        except (AssertionError, ServerError) as error:
            print(f"{kind}: {error}\nfiles: {directory}\nagain: --only {kind} --seed {seed}", file=sys.stderr)
            return 1
        shutil.rmtree(directory)
    return 0


def run(kind, directory, seed, seconds, frames=None, say=lambda line: None):
    """Run one fuzzer and return a summary, in words. Raises AssertionError or ServerError for a finding."""
    if kind == "parsers":
        parsers = ParserFuzzer(seed)
        parsers.run(seconds)
        return f"{parsers.inputs} inputs, nothing found"
    if kind == "store":
        store = StoreFuzzer(directory, seed)
        store.run(seconds)
        return f"{store.stores} damaged stores, {store.refused_tables} with unreadable tables, nothing found"
    wire = WireFuzzer(directory, seed, say)
    try:
        wire.run(seconds, frames)
    finally:
        wire.kill()
    counts = f"{wire.frames} frames, {wire.reports} reports of slaves, {wire.closed} connections closed by the servers"
    return f"{counts}, nothing found"


if __name__ == "__main__":
    sys.exit(main())
