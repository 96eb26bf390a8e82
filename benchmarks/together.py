"""One load on several brokers at once: a generator for each, with a share of the connections, and their sum."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.figures import CPU, P999, RATE
from benchmarks.generator import Generator, MeasurementError
from benchmarks.measurement import Measurement, of_result
from benchmarks.targets import OVERHEAD


@dataclass(frozen=True)
class Brokers:
    """Brokers that get one load together: their addresses, and the processes whose CPU time counts."""

    addresses: tuple[str, ...]
    pids: tuple[int, ...]


def sum_of(results: Sequence[dict[str, Any]], cpu_seconds: float) -> Measurement:
    """The figures of all of these lines together: the sum of the rates, CPU of one operation, the worst latency.

    ``cpu_seconds`` are those of the servers. MeasurementError if nothing was done.
    """
    operations = sum(int(result["ops"]) for result in results)
    if not operations:
        raise MeasurementError("no operation succeeded")
    parts = [of_result(result) for result in results]
    figures = {
        CPU.key: cpu_seconds / operations * 1e6,
        RATE.key: sum(part.figures[RATE.key] for part in parts),
        P999.key: max(part.figures[P999.key] for part in parts),
    }
    return Measurement(figures, tuple(remark for part in parts for remark in part.remarks))


def drive(
    generator: Generator, brokers: Brokers, arguments: Sequence[str], connections: int, seconds: float
) -> Measurement:
    """Put a load on all of the brokers at once, with so many connections in total; MeasurementError if one fails."""
    mode, *flags = arguments
    shares = [connections // len(brokers.addresses)] * len(brokers.addresses)
    for number in range(connections % len(brokers.addresses)):
        shares[number] += 1
    limit = seconds + OVERHEAD
    with contextlib.ExitStack() as stack:
        runs = []
        for address, share in zip(brokers.addresses, shares, strict=True):
            if not share:
                continue
            given = [mode, "-addr", address, "-c", str(share), "-d", f"{seconds:.3f}s", *flags]
            if not runs:  # one of them watches all processes
                given += ["-pid", ",".join(map(str, brokers.pids))]
            runs.append(stack.enter_context(generator.running(given, limit)))
        results = [run.result() for run in runs]
    return sum_of(results, float(results[0]["server_cpu_s"]))
