"""The process of one side: a Spark session that runs the queries it is told to, one a line, and answers each with a line.

``python -m benchmarks.spark.driver SIDE …``; started by ``benchmarks.spark.sides``, which measures it from outside.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from pathlib import Path

from benchmarks.spark import queries
from rocketd.spark import session
from tests.support.kafka import connector_jars


def main() -> int:
    """Answer until standard input ends."""
    given = _arguments().parse_args()
    given.scratch.mkdir(parents=True, exist_ok=True)
    conf = {"spark.driver.memory": "3g", "spark.local.dir": str(given.scratch / "spark")}
    if given.side == "kafka":
        conf["spark.jars"] = ",".join(str(jar) for jar in connector_jars())
    spark = session(master=f"local[{given.cores}]", conf=conf)
    place = queries.Place(spark, given.scratch, given.rows, given.kafka, given.store, given.namesrv, given.broker)
    known = {**(queries.KAFKA if given.side == "kafka" else queries.ROCKETD), "load": queries.load_kafka}
    _answer({"ready": True})
    for line in sys.stdin:
        begin = time.monotonic()
        try:
            rows = known[line.strip()](place)
        except Exception:
            _answer({"error": traceback.format_exc()})
        else:
            _answer({"rows": rows, "wall": time.monotonic() - begin})
    spark.stop()
    return 0


def _arguments() -> argparse.ArgumentParser:
    """What the driver process is told on its command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark.driver")
    parser.add_argument("side", choices=["kafka", "rocketd"])
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--kafka", default="")
    parser.add_argument("--store", default="")
    parser.add_argument("--namesrv", default="")
    parser.add_argument("--broker", default="")
    parser.add_argument("--cores", type=int, default=2)
    return parser


def _answer(form: dict[str, object]) -> None:
    print("answer " + json.dumps(form), flush=True)


if __name__ == "__main__":
    sys.exit(main())
