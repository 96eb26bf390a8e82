"""What a job is: a name, its arguments, and a run that ends with a report."""

import argparse
import contextlib
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from rocketd.spark.jobs.arguments import source_options
from rocketd.spark.jobs.interrupts import Interrupts
from rocketd.spark.jobs.progress import Progress
from rocketd.spark.jobs.report import Report
from rocketd.spark.sessions.confs import DEFAULT_MASTER

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Job:
    """One command of ``rocketd spark``. Each module of a job has a subclass named Job."""

    description: ClassVar[str] = ""
    """What its help says at the end: guarantees and limits."""

    def __init__(self, name: str) -> None:
        """`name` is that of the table of `rocketd.spark.cli`, which has all names."""
        self.name = name

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the job's own arguments; `rocketd.spark.jobs.arguments` has those of a source."""

    def run(self, context: "JobContext", args: argparse.Namespace) -> Report:
        """Do it. Raises SparkError, one sentence, when it cannot be done."""
        raise NotImplementedError


class JobContext:
    """What a running job gets: a Spark that starts when it is first asked for, and a progress bar.

    A session that was there before, as in a notebook, is taken as it is: neither it nor what others run in it is stopped.
    """

    def __init__(
        self,
        name: str,
        *,
        master: str = DEFAULT_MASTER,
        conf: Mapping[str, str] | None = None,
        driver_memory: str | None = None,
        py_files: tuple[str, ...] = (),
        progress: Progress | None = None,
        interrupts: Interrupts | None = None,
        spark: "SparkSession | None" = None,
    ) -> None:
        self.name = name
        self.master = master
        self.conf = dict(conf or {})
        self.driver_memory = driver_memory
        self.py_files = py_files
        self.progress = Progress(quiet=True) if progress is None else progress
        self._interrupts = interrupts
        self._own = False
        self._tag = f"rocketd-{uuid.uuid4().hex}"
        self._others: frozenset[str] = frozenset()
        self._spark = spark
        if spark is not None:
            self._share(spark)

    def spark(self) -> "SparkSession":
        """The session, started when this is called first. Raises SparkError when it does not start."""
        if self._spark is None:
            from rocketd.spark.sessions.build import active_session, build_session

            there = active_session()
            self.progress.begin("starting Spark")
            try:
                self._spark = build_session(
                    self.master,
                    f"rocketd {self.name}",
                    self.conf,
                    driver_memory=self.driver_memory,
                    py_files=self.py_files,
                    log_level="OFF",
                )
            finally:
                self.progress.end()
            self._own = there is None
            if there is not None:
                self._share(there)
            if self._interrupts is not None:
                self._interrupts.install()
        return self._spark

    def _share(self, spark: "SparkSession") -> None:
        """Mark what runs from now on in this thread, and those that it starts, as the job's."""
        spark.sparkContext.addJobTag(self._tag)
        self._others = frozenset(query.runId for query in spark.streams.active)

    @property
    def started(self) -> bool:
        """Whether Spark was asked for."""
        return self._spark is not None

    def source_options(self, args: argparse.Namespace) -> dict[str, str]:
        """The read options that the source's arguments stand for. Raises OptionError."""
        return source_options(args)

    def cancel(self) -> None:
        """Stop what the job runs in Spark, streams first. Never raises: this is the way out."""
        if self._spark is None:
            return
        from rocketd.spark.sessions.stop import cancel_all, cancel_ours

        if self._own:
            cancel_all(self._spark)
        else:
            cancel_ours(self._spark, self._tag, self._others)

    def close(self) -> None:
        """Stop Spark, if it was started here."""
        if self._spark is None:
            return
        if self._own:
            from rocketd.spark.sessions.stop import stop_session

            stop_session(self._spark)
        else:
            with contextlib.suppress(Exception):  # Java may have ended
                self._spark.sparkContext.removeJobTag(self._tag)
        self._spark = None
