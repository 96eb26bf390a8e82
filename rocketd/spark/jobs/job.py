"""What a job is: a name, its arguments, and a run that ends with a report."""

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from rocketd.spark.jobs.arguments import source_options
from rocketd.spark.jobs.interrupts import Interrupts
from rocketd.spark.jobs.progress import Progress
from rocketd.spark.jobs.report import Report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Job:
    """One command of ``rocketd spark``. Each module of a job has a subclass named Job."""

    name: ClassVar[str]
    """As in the table of `rocketd.spark.cli`, which also has the one line that says what it does."""

    description: ClassVar[str] = ""
    """What its help says at the end: guarantees and limits."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the job's own arguments; `rocketd.spark.jobs.arguments` has those of a source."""

    def run(self, context: "JobContext", args: argparse.Namespace) -> Report:
        """Do it. Raises SparkError, one sentence, when it cannot be done."""
        raise NotImplementedError


class JobContext:
    """What a running job gets: a Spark that starts when it is first asked for, and a progress bar."""

    def __init__(
        self,
        name: str,
        *,
        master: str = "local[*]",
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
        self._spark = spark
        self._own = False

    def spark(self) -> "SparkSession":
        """The session, started when this is called first. Raises SparkError when it does not start."""
        if self._spark is None:
            from rocketd.spark.sessions.build import build_session

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
            self._own = True
            if self._interrupts is not None:
                self._interrupts.install()
        return self._spark

    @property
    def started(self) -> bool:
        """Whether Spark was asked for."""
        return self._spark is not None

    def source_options(self, args: argparse.Namespace) -> dict[str, str]:
        """The read options that the source's arguments stand for. Raises OptionError."""
        return source_options(args)

    def cancel(self) -> None:
        """Stop whatever runs in Spark, streams first. Never raises: this is the way out."""
        if self._spark is None:
            return
        from rocketd.spark.sessions.stop import cancel_all

        cancel_all(self._spark)

    def close(self) -> None:
        """Stop Spark, if it was started here."""
        if self._spark is not None and self._own:
            from rocketd.spark.sessions.stop import stop_session

            stop_session(self._spark)
            self._spark = None
