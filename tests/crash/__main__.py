"""The crash test as a program: ``python -m tests.crash --seconds 300 --mode power --flush SYNC_FLUSH``."""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path
from random import SystemRandom

from tests.crash.loop import FLUSHES, MODES, CrashLoop
from tests.support.process import ServerError


def main() -> int:
    """Run every chosen combination for the given time; 1 if one of them found a fault; its files stay."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__.partition(":")[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="of each combination, default 60")
    parser.add_argument("--kills", type=int, default=2, help="under load at least, of each combination, default 2")
    parser.add_argument("--seed", type=int, default=None, help="of an earlier run, to do the same again")
    parser.add_argument("--mode", choices=MODES, action="append", help="default: both")
    parser.add_argument("--flush", choices=FLUSHES, action="append", help="default: both")
    options = parser.parse_args()
    seed = SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    for mode in options.mode or MODES:
        for flush in options.flush or FLUSHES:
            again = f"--mode {mode} --flush {flush} --seed {seed}"
            print(f"{again} --seconds {options.seconds:g}", flush=True)
            directory = Path(tempfile.mkdtemp(prefix="rocketd-crash-"))
            loop = CrashLoop(directory, mode, flush, seed, lambda line: print(line, flush=True))
            try:
                loop.run(options.seconds, options.kills)
            except (AssertionError, ServerError) as error:
                print(f"round {loop.round} failed: {error}\nfiles: {directory}\nagain: {again}", file=sys.stderr)
                return 1
            shutil.rmtree(directory)
            print(f"{loop.kills} kills under load, {loop.checked} messages checked: nothing lost", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
