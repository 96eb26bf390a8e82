"""JVM options with which Spark starts in a third of the CPU time: a quick compiler and an archive of loaded classes.

The tests start Spark some sixty times, and most of these processes only live for seconds.
"""

import os
import subprocess
import sys
from pathlib import Path

from rocketd.spark.sessions.java import choose_java
from tests.support.quick_java import COMPILER, read_archive, write_archive

_LIMIT = 300.0  # seconds

_PROGRAM = """
import sys
import rocketd.spark
session = rocketd.spark.session("local[2]", "archive of classes", {"spark.local.dir": sys.argv[1]})
rows = session.range(100).selectExpr("id", "cast(id as string) as text", "encode(cast(id as string), 'UTF-8') as body")
rows.groupBy("text").count().collect()
rows.write.parquet(sys.argv[1] + "/rows")
read = session.read.parquet(sys.argv[1] + "/rows")
read.where("id > 3").orderBy("id").limit(5).collect()
java = session.sparkContext._gateway.proc
session.stop()
java.stdin.close()  # which ends it, after it has written the archive
java.wait()
"""


def quick_options(directory: Path) -> str:
    """Return the options, with an archive made in this directory by a run of Spark."""
    archive = directory / "classes.jsa"
    environment = {
        **os.environ,
        "JAVA_HOME": choose_java().home,
        "SPARK_SUBMIT_OPTS": " ".join((*COMPILER, *write_archive(archive))),
    }
    made = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(directory / "spark")],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_LIMIT,
    )
    assert made.returncode == 0, made.stderr
    return " ".join((*COMPILER, *read_archive(archive)))
