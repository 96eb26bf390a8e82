"""Each fuzzer for some seconds; `python -m tests.fuzz` runs them for hours."""

import os
from random import SystemRandom

import pytest

from tests.fuzz.__main__ import KINDS, run

SECONDS = float(os.environ.get("ROCKETD_FUZZ_SECONDS", "15"))
SEED = int(os.environ.get("ROCKETD_FUZZ_SEED", "0")) or SystemRandom().randrange(1 << 32)


@pytest.mark.timeout(SECONDS * 2 + 300)
@pytest.mark.parametrize("kind", KINDS)
def test_fuzzer_finds_nothing(kind, tmp_path):
    print(f"python -m tests.fuzz --only {kind} --seed {SEED}")
    print(run(kind, tmp_path, SEED, SECONDS, say=print))
