"""Message traces as a stream: each window of time is measured once, after its last records have come.

Time is that of the records. The watermark stays a delay behind the newest record. A step measures the records between
the old and the new watermark. Records older than the watermark are counted by type, and ignored. Records are kept for
some time after the watermark, so that late consumption can be matched. A step writes its results and its kept records
to separate files. So a step repeated after a crash replaces its earlier files.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rocketd.spark.archive.format.durable import make_dirs, replace
from rocketd.spark.jobs.trace.measures import (
    failed,
    failures,
    in_buckets,
    measured,
    never_consumed,
    unconsumed,
)
from rocketd.spark.jobs.trace.records import records

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_STEPS, _KEPT = "steps", "kept"


@dataclass(frozen=True, slots=True)
class Lengths:
    """Durations in ms: a window, the watermark's delay, the grace for consumers, and the extra time records are kept."""

    window: int
    delay: int
    grace: int
    keep: int


def watermark_after(before: int | None, newest: int | None, lengths: Lengths) -> int | None:
    """Return the watermark after a record of this time: the end of a window. It never moves back."""
    if newest is None:
        return before
    reached = (newest - lengths.delay) // lengths.window * lengths.window
    return reached if before is None else max(before, reached)


class TraceFollower:
    """Runs the steps of one stream, and keeps their results in a directory."""

    def __init__(self, directory: str, lengths: Lengths, ids: int, tell: Callable[[dict[str, Any]], None]) -> None:
        """`ids` limits the ids shown of unconsumed messages; `tell` is called with the results of each step."""
        self._directory = directory
        self._lengths = lengths
        self._ids = ids
        self._tell = tell
        make_dirs(os.path.join(directory, _STEPS))
        make_dirs(os.path.join(directory, _KEPT))

    def __call__(self, messages: "DataFrame", number: int) -> None:
        """Run one step: Spark calls this with the messages of a micro-batch, possibly again after a crash."""
        from pyspark.sql import functions as f

        before = self._before(number)
        rows = records(messages)
        late = f.col("good") & f.col("time").isNotNull() & (f.col("time") < (before["watermark"] or 0))
        rows = rows.withColumn("late", f.coalesce(late, f.lit(False))).cache()
        try:
            result = self._step(rows, number, before)
        finally:
            rows.unpersist()
        replace(self._step_path(number), json.dumps(result).encode())
        self._forget(number)
        self._tell(result)

    def _step(self, rows: "DataFrame", number: int, before: dict[str, Any]) -> dict[str, Any]:
        from pyspark.sql import functions as f

        counts = rows.groupBy("type").agg(
            f.count_if(f.col("good") & ~f.col("late")).alias("good"),
            f.count_if("late").alias("late"),
            f.count_if(~f.col("good")).alias("bad"),
            f.max(f.when(f.col("good"), f.col("time"))).alias("newest"),
        )
        by_type = sorted(counts.collect(), key=lambda row: str(row["type"]))
        newest = max((row["newest"] for row in by_type if row["newest"] is not None), default=None)
        begin, end = before["watermark"], watermark_after(before["watermark"], newest, self._lengths)
        known = rows.where("good AND NOT late").drop("late")
        if before["number"] is not None:
            known = known.unionByName(rows.sparkSession.read.parquet(self._kept_path(before["number"])))
        known = known.cache()
        try:
            result = {
                "number": number,
                "watermark": end,
                "records": {row["type"]: row["good"] for row in by_type},
                "late": {row["type"]: row["late"] for row in by_type if row["late"]},
                "unreadable": sum(row["bad"] for row in by_type),
                **self._measures(known, begin, end),
            }
            self._keep(known, number, end)
        finally:
            known.unpersist()
        return result

    def _measures(self, known: "DataFrame", begin: int | None, end: int | None) -> dict[str, Any]:
        """Return the measures of the records between both watermarks."""
        if end is None or begin == end:
            return {"buckets": [], "failures": [], "never_consumed": []}
        part = _between("time", begin, end)
        grace = self._lengths.grace
        stored = _between("stored", None if begin is None else begin - grace, end - grace)
        return {
            "buckets": _rows(in_buckets(measured(known).where(part), self._lengths.window)),
            "failures": _rows(failures(failed(known).where(part))),
            "never_consumed": _rows(never_consumed(unconsumed(known).where(stored), self._ids)),
        }

    def _keep(self, known: "DataFrame", number: int, watermark: int | None) -> None:
        least = 0 if watermark is None else watermark - self._lengths.grace - self._lengths.keep
        # A SubAfter of old clients has no time, but the trace message has a store time.
        age = f"coalesce(time, unix_millis(store_time)) >= {least}"
        known.where(age).coalesce(1).write.mode("overwrite").parquet(self._kept_path(number))

    def _before(self, number: int) -> dict[str, Any]:
        """Return the newest step before this one."""
        earlier = [one for one in self._numbers() if one < number]
        if not earlier:
            return {"number": None, "watermark": None}
        with open(self._step_path(max(earlier)), encoding="utf-8") as file:
            step: dict[str, Any] = json.load(file)
        return step

    def results(self) -> Iterator[dict[str, Any]]:
        """Yield the results of all steps so far, in order."""
        for number in self._numbers():
            with open(self._step_path(number), encoding="utf-8") as file:
                yield json.load(file)

    def _numbers(self) -> list[int]:
        names = os.listdir(os.path.join(self._directory, _STEPS))
        return sorted(int(name[: -len(".json")]) for name in names if name.endswith(".json") and name[0].isdigit())

    def _forget(self, number: int) -> None:
        """Remove the kept records of steps that can no longer be repeated."""
        for name in os.listdir(os.path.join(self._directory, _KEPT)):
            if name.isdigit() and int(name) < number - 1:
                shutil.rmtree(os.path.join(self._directory, _KEPT, name), ignore_errors=True)

    def _step_path(self, number: int) -> str:
        return os.path.join(self._directory, _STEPS, f"{number}.json")

    def _kept_path(self, number: int) -> str:
        return os.path.join(self._directory, _KEPT, str(number))


def _between(column: str, begin: int | None, end: int) -> str:
    return f"{column} < {end}" if begin is None else f"{column} >= {begin} AND {column} < {end}"


def _rows(frame: "DataFrame") -> list[dict[str, Any]]:
    return [row.asDict() for row in frame.collect()]


def summed(results: list[dict[str, Any]], ids: int) -> dict[str, Any]:
    """Combine the results of many steps."""
    total: dict[str, Any] = {"records": {}, "late": {}, "unreadable": 0, "watermark": None, "buckets": []}
    wrong: dict[tuple[Any, ...], int] = {}
    lost: dict[str, dict[str, Any]] = {}
    for result in results:
        total["watermark"] = result["watermark"]
        total["unreadable"] += result["unreadable"]
        total["buckets"] += result["buckets"]
        for name in ("records", "late"):
            for kind, count in result[name].items():
                total[name][kind] = total[name].get(kind, 0) + count
        for row in result["failures"]:
            key = (row["what"], row["topic"], row["group"], row["how"])
            wrong[key] = wrong.get(key, 0) + row["messages"]
        for row in result["never_consumed"]:
            known = lost.setdefault(row["topic"], {"topic": row["topic"], "messages": 0, "ids": []})
            known["messages"] += row["messages"]
            known["ids"] = (known["ids"] + row["ids"])[:ids]
    names = ("what", "topic", "group", "how")
    total["failures"] = [
        {**dict(zip(names, key, strict=True)), "messages": count}
        for key, count in sorted(wrong.items(), key=lambda item: tuple(map(str, item[0])))
    ]
    total["never_consumed"] = sorted(lost.values(), key=lambda row: (-row["messages"], str(row["topic"])))
    return total
