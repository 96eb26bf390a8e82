"""Shared code of the tests of archives: the content of an archive, read by plain readers, and a job to be killed."""

import hashlib
import os
import random
import signal
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pyarrow.parquet as pq

import rocketd
from rocketd.spark.archive.reader import archive_files
from tests.spark.clusters import await_condition
from tests.support.store_directory import read_log

_LIMIT = 280.0  # seconds
_SOURCES = os.path.dirname(os.path.dirname(rocketd.__file__))


def rows_of(root, columns=("topic", "queue_id", "queue_offset")):
    """The rows of all files that count, read by pyarrow alone."""
    return [
        tuple(row[name] for name in columns)
        for path in archive_files(str(root))
        for row in pq.ParquetFile(path).read(list(columns)).to_pylist()
    ]


def raw_by_queue(records):
    """Of (topic, queue id, offset, record): a digest of the records of each queue by offset, and how many there are."""
    queues = defaultdict(dict)
    for topic, queue_id, offset, raw in records:
        assert offset not in queues[topic, queue_id], (topic, queue_id, offset)
        queues[topic, queue_id][offset] = raw
    found = {}
    for queue, by_offset in queues.items():
        assert sorted(by_offset) == list(range(len(by_offset))), queue
        found[queue] = (len(by_offset), hashlib.sha256(b"".join(by_offset[at] for at in sorted(by_offset))).hexdigest())
    return found


def archived_queues(root):
    """Return `raw_by_queue` of an archive."""
    return raw_by_queue(rows_of(root, ("topic", "queue_id", "queue_offset", "raw")))


def stored_queues(store):
    """Return `raw_by_queue` of the log of a store."""
    return raw_by_queue(
        (record.topic, record.queue_id, int.from_bytes(record.raw[20:28], "big"), record.raw)
        for record in read_log(Path(store))
        if not record.sys_flag & 4
    )


class JobProcess:
    """``rocketd spark …`` as a process that can be killed with its Java and its workers."""

    command: tuple = (sys.executable, "-m", "rocketd", "spark")

    def __init__(self, directory, *words):
        self._log = Path(directory, "job.log")
        path = os.pathsep.join(filter(None, (_SOURCES, os.environ.get("PYTHONPATH"))))
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*self.command, *map(str, words)],
                stdout=log,
                stderr=log,
                env=os.environ | {"PYTHONPATH": path},
                start_new_session=True,
            )

    def output(self):
        """Return the output so far."""
        return self._log.read_text()

    @property
    def status(self):
        """Its exit status; None while it runs."""
        return self._process.poll()

    def wait(self):
        """Return when it has ended; AssertionError unless it was successful."""
        try:
            status = self._process.wait(timeout=_LIMIT)
        finally:
            self.kill()
        assert status == 0, self.output()

    def await_that(self, what, condition):
        """Return when a condition holds; AssertionError when the process ends before."""
        self._await(what, condition)
        assert self._process.poll() is None, self.output()

    def _await(self, what, condition):
        try:
            await_condition(what, lambda: self._process.poll() is not None or condition(), _LIMIT)
        except BaseException:
            self.kill()
            raise

    def interrupt(self):
        """End it as Ctrl-C does; AssertionError unless it ends well."""
        self._process.send_signal(signal.SIGINT)
        self.wait()

    def kill_when(self, what, condition):
        """Kill it at the first moment at which a condition holds; returns whether it still ran then."""
        self._await(what, condition)
        ended = self._process.poll()
        assert ended in (None, 0), self.output()
        self.kill()
        return ended is None

    def kill(self):
        """Kill all of it."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def moments(root, seed):
    """Return the name of a stage of a job, and a condition on the archive for it: another one for each seed."""
    commits = len(list(Path(root, "manifest").glob("*.json")))
    more = 0 if seed % 3 == 0 else 1 if seed % 3 == 1 else random.Random(seed).randint(2, 5)

    def come():
        if not more:
            return any(Path(root, "staging").rglob("*.parquet"))
        return len(list(Path(root, "manifest").glob("*.json"))) >= commits + more

    return (f"{more} commits are made" if more else "something is staged"), come
