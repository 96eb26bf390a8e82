"""Runs a function over items in Spark's tasks, and yields each result as soon as its task has ended.

Results come through an accumulator. Spark counts its update once for each successful task, even if the task was retried
or ran twice. The driver receives it at the end of the task, not of the whole job. One Spark job runs all items, so
Spark schedules, retries and places them.
"""

import contextlib
import pickle
import queue
import threading
import traceback
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark import InheritableThread, SparkContext, TaskContext
from pyspark.accumulators import AccumulatorParam, _accumulatorRegistry

from rocketd.spark.errors import ClusterError, SparkError
from rocketd.spark.jobs.running.progress import JobProgressBar
from rocketd.spark.sessions.confs import read_master
from rocketd.spark.sessions.unwrap import unwrapped

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
R = TypeVar("R")

MAX_TASKS = 10_000
"""With more items than this, a task takes several of them."""


@dataclass(frozen=True, slots=True)
class _Failure:
    """The failure of an item: the pickled error, and its trace for a log."""

    error: bytes
    trace: str


class _Results(AccumulatorParam[list[Any]]):
    """In a task: a list of results. On the driver: passes them on and keeps none."""

    def __init__(self, arrived: Callable[[list[Any]], None] | None = None) -> None:
        self._arrived = arrived

    def __reduce__(self) -> tuple[Any, ...]:
        return _Results, ()

    def zero(self, value: list[Any]) -> list[Any]:
        return []

    def addInPlace(self, value1: list[Any], value2: list[Any]) -> list[Any]:  # noqa: N802 - the name is Spark's
        if self._arrived is None:
            value1.extend(value2)
        else:
            self._arrived(value2)
        return value1


def run_tasks(
    spark: "SparkSession",
    items: Iterable[T],
    function: Callable[[T], R],
    progress: JobProgressBar | None = None,
    *,
    weigh: Callable[[R], int] | None = None,
    description: str = "rocketd",
) -> Iterator[R]:
    """Yield `function(item)` for each item, in the order in which the tasks end; one task for each item.

    `function` and its results are pickled. `progress` is advanced by `weigh(result)`, or by 1 for each. A SparkError in
    a task is raised here, and the other tasks are cancelled. Before that, Spark retries transient errors, and all
    errors other than SparkError, as often as its settings allow. Closing the iterator cancels the running tasks.
    """
    todo = list(items)
    if not todo:
        return
    context = spark.sparkContext
    arrived: queue.SimpleQueue[Any] = queue.SimpleQueue()
    results = context.accumulator([], _Results(arrived.put))
    group = f"rocketd-{uuid.uuid4().hex}"
    attempts = _attempts(context)
    rdd = context.parallelize(todo, min(len(todo), MAX_TASKS))
    ended = threading.Event()

    def run() -> None:
        try:
            context.setJobGroup(group, description, interruptOnCancel=True)
            task: Any = _Task(function, results, attempts)
            rdd.foreachPartition(task)
        except BaseException as error:
            arrived.put(error)
        else:
            arrived.put(None)
        finally:
            ended.set()

    thread = InheritableThread(target=run, name=group, daemon=True)
    thread.start()
    left = len(todo)
    try:
        while left:
            batch = arrived.get()
            if batch is None:
                raise SparkError(f"Spark ended its job, but {left} of {len(todo)} results have not come")
            if isinstance(batch, BaseException):
                raise unwrapped(batch) from batch
            for result in batch:
                if isinstance(result, _Failure):
                    raise _rebuilt(result)
                left -= 1
                if progress is not None:
                    progress.advance(1 if weigh is None else weigh(result))
                yield result
    finally:
        if not ended.is_set():
            with contextlib.suppress(Exception):
                context.cancelJobGroup(group)
        _accumulatorRegistry.pop(results.aid, None)


class _Task:
    """The body of a Spark task: the function over its items. It fails only if Spark is to try again."""

    def __init__(self, function: Callable[[Any], Any], results: Any, attempts: int) -> None:
        self._function = function
        self._results = results
        self._attempts = attempts

    def __call__(self, items: Iterator[Any]) -> None:
        import pyarrow

        # Spark has assigned one core to this task.
        pyarrow.set_cpu_count(1)
        task = TaskContext.get()
        last = task is None or task.attemptNumber() + 1 >= self._attempts
        for item in items:
            try:
                result = self._function(item)
            except Exception as error:
                if _may_pass(error) and not last:
                    raise
                self._results += [_Failure(_pickled(error), traceback.format_exc())]
                return
            self._results += [result]


def _may_pass(error: Exception) -> bool:
    return error.retriable if isinstance(error, ClusterError) else not isinstance(error, SparkError)


def _pickled(error: Exception) -> bytes:
    """Pickle the error if it is ours and survives pickling; else a SparkError with its class and text."""
    if isinstance(error, SparkError):
        try:
            content = pickle.dumps(error)
            pickle.loads(content)
        except Exception:
            return pickle.dumps(SparkError(str(error)))
        return content
    return pickle.dumps(SparkError(f"a task failed: {type(error).__name__}: {error}"))


def _rebuilt(failure: _Failure) -> SparkError:
    error: SparkError = pickle.loads(failure.error)
    error.add_note(failure.trace)
    return error


def _attempts(context: SparkContext) -> int:
    """Return how often Spark tries a task."""
    master = context.master or ""
    if not read_master(master).local:
        return int(context.getConf().get("spark.task.maxFailures", "4"))
    _, comma, attempts = master.rstrip("]").partition(",")
    return int(attempts) if comma else 1


def need_files_everywhere(spark: "SparkSession", paths: Sequence[str]) -> None:
    """Check that every executor sees these files and directories.

    Raises SparkError naming the hosts that do not. If all executors are on this machine, only this machine is checked.
    """
    context = spark.sparkContext
    wanted = list(paths)
    if read_master(str(context.master)).local:
        seen = [_look(wanted)]
    else:
        # A barrier stage takes all cores at once, so each executor is asked; otherwise most of them are.
        cores = max(1, context.defaultParallelism)
        seeds = context.parallelize(range(cores), cores)
        try:
            seen = seeds.barrier().mapPartitions(lambda _: [_look(wanted)]).collect()
        except Exception:
            seen = context.parallelize(range(cores * 4), cores * 4).mapPartitions(lambda _: [_look(wanted)]).collect()
    hosts: dict[str, set[str]] = {}
    for host, missing in seen:
        for path in missing:
            hosts.setdefault(path, set()).add(host)
    if hosts:
        path, lacking = next(iter(hosts.items()))
        raise SparkError(
            f"{path} is not there or not readable on {', '.join(sorted(lacking))}, where Spark's executors run: "
            "mount it there under the same path, run with --master local[*] on the machine that has it, "
            "or read through the broker (--namesrv)"
        )


def _look(paths: Sequence[str]) -> tuple[str, list[str]]:
    import os
    import socket

    return socket.gethostname(), [path for path in paths if not os.access(path, os.R_OK)]
