"""The context of a running job: Spark, progress, and a way to stop."""

import contextlib
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rocketd.spark.jobs.running.interrupts import Interrupts
from rocketd.spark.jobs.running.progress import JobProgressBar
from rocketd.spark.sessions.confs import DEFAULT_MASTER

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class JobContext:
    """The context of a running job: a Spark session, started on first use, and a progress bar.

    An existing session, as in a notebook, is used as it is. Neither the session nor the work of others in it is
    stopped.
    """

    def __init__(
        self,
        name: str,
        *,
        master: str = DEFAULT_MASTER,
        conf: Mapping[str, str] | None = None,
        driver_memory: str | None = None,
        py_files: tuple[str, ...] = (),
        progress: JobProgressBar | None = None,
        interrupts: Interrupts | None = None,
        spark: "SparkSession | None" = None,
    ) -> None:
        self.name = name
        self.master = master
        self.conf = dict(conf or {})
        self.driver_memory = driver_memory
        self.py_files = py_files
        self.progress = JobProgressBar(quiet=True) if progress is None else progress
        self._interrupts = interrupts
        self._own = False
        self._tag = f"rocketd-{uuid.uuid4().hex}"
        self._others: frozenset[str] = frozenset()
        self._spark = spark
        if spark is not None:
            self._share(spark)

    def spark(self) -> "SparkSession":
        """Return the session, started by the first call. Raises SparkError if it does not start."""
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
        """Tag everything that this thread and its child threads run from now on as the job's."""
        spark.sparkContext.addJobTag(self._tag)
        self._others = frozenset(query.runId for query in spark.streams.active)

    @property
    def started(self) -> bool:
        """Whether Spark was requested."""
        return self._spark is not None

    def cancel(self) -> None:
        """Stop the job's work in Spark, streams first. Never raises, since the job is ending."""
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
