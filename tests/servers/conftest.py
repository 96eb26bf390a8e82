"""Lets the tests of this ring import what stands beside them and in benchmarks/: neither is installed with rocketd."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
for directory in (str(HERE.parents[1]), str(HERE)):
    if directory not in sys.path:
        sys.path.insert(0, directory)
