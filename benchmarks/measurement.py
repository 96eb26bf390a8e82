"""One measurement: values by key and remarks, and how both follow from a line of the load generator."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from benchmarks.figures import CPU, LOST, P50, P99, P999, RATE

_SUCCESS = "0"


@dataclass(frozen=True)
class Settings:
    """How long and how much: seconds of a load, of the warm-up, messages to fill the topics with."""

    seconds: float = 2.5
    warm_up: float = 24.0
    pull_messages: int = 200_000
    recovery_messages: int = 200_000
    consumed_messages: int = 100_000


@dataclass(frozen=True)
class Measurement:
    """The result of one measurement: values by key, and remarks."""

    figures: dict[str, float] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()


def of_result(result: dict[str, Any]) -> Measurement:
    """The values and remarks that are in one line of the load generator."""
    extra = result.get("extra", {})
    lost = int(extra.get("not_stored", 0))
    figures = {
        CPU.key: result.get("server_us_per_op", 0.0),
        RATE.key: result["ops_per_s"],
        P50.key: float(result["p50_us"]),
        P99.key: float(result["p99_us"]),
        P999.key: float(result["p999_us"]),
        LOST.key: float(lost),
    }
    remarks = []
    if lost:
        remarks.append(f"lost {lost} of {result['requests']} one-way messages")
    # In e2e the codes are those of the pulls, and the sends have their own.
    for what, codes in (("requests", result.get("codes", {})), ("sends", extra.get("send_codes", {}))):
        refused = {code: count for code, count in sorted(codes.items()) if code != _SUCCESS}
        remarks += [f"{count} {what} answered with code {code}" for code, count in refused.items()]
    return Measurement(figures, tuple(remarks))
