"""Brokers driven together, variants side by side, their surroundings, and overload."""

import json
import os
from pathlib import Path

from twisted.trial import unittest

from benchmarks import affinity, brokers, overload
from benchmarks.figures import CPU, P999, RATE
from benchmarks.generator import Generator, MeasurementError
from benchmarks.measurement import Measurement
from benchmarks.side_by_side import Variants
from benchmarks.together import Brokers, drive, sum_of

LINE = {"ops_per_s": 1_000.0, "p50_us": 1, "p99_us": 2, "server_cpu_s": 0.3, "codes": {"0": 1}, "extra": {}}
GENERATOR = """#!/bin/sh
echo "$@" >> {log}
echo '{answer}'
"""


def line(ops: int, p999: int = 3, **more: object) -> dict[str, object]:
    return {**LINE, "ops": ops, "requests": ops, "p999_us": p999, **more}


class TogetherTests(unittest.SynchronousTestCase):
    def setUp(self) -> None:
        directory = Path(self.mktemp()).absolute()
        directory.mkdir()
        self.log = directory / "log"
        program = directory / "loadgen"
        program.write_text(GENERATOR.format(log=self.log, answer=json.dumps(line(100))))
        program.chmod(0o755)
        self.generator = Generator(program)

    def flags(self) -> dict[str, dict[str, str]]:
        """The flags of each run by its address."""
        runs = [text.split() for text in self.log.read_text().splitlines()]
        flags = [dict(zip(run[1::2], run[2::2], strict=True)) for run in runs]
        return {found["-addr"]: found for found in flags}

    def test_connections_are_shared_among_the_brokers(self) -> None:
        measured = drive(self.generator, Brokers(("a", "b", "c"), (7, 8)), ("send", "-w", "1"), 8, 1.0)
        flags = self.flags()
        self.assertEqual({address: found["-c"] for address, found in flags.items()}, {"a": "3", "b": "3", "c": "2"})
        self.assertEqual(measured.figures[RATE.key], 3_000.0)

    def test_cpu_of_all_processes_is_counted_once(self) -> None:
        measured = drive(self.generator, Brokers(("a", "b"), (7, 8)), ("send", "-w", "1"), 2, 1.0)
        watched = [found["-pid"] for found in self.flags().values() if "-pid" in found]
        self.assertEqual(watched, ["7,8"])
        self.assertAlmostEqual(measured.figures[CPU.key], 0.3 / 200 * 1e6)

    def test_broker_without_a_connection_is_not_driven(self) -> None:
        drive(self.generator, Brokers(("a", "b"), (7,)), ("send", "-w", "1"), 1, 1.0)
        self.assertEqual(list(self.flags()), ["a"])


class SumTests(unittest.SynchronousTestCase):
    def test_rates_are_added_and_the_worst_latency_counts(self) -> None:
        measured = sum_of([line(300, 5), line(100, 9)], 0.4)
        self.assertEqual(measured.figures, {CPU.key: 1_000.0, RATE.key: 2_000.0, P999.key: 9.0})

    def test_remarks_of_all_are_kept(self) -> None:
        measured = sum_of([line(300, codes={"2": 4}), line(100)], 0.4)
        self.assertEqual(measured.remarks, ("4 requests answered with code 2",))

    def test_sum_of_no_operations_is_refused(self) -> None:
        self.assertRaises(MeasurementError, sum_of, [line(0)], 0.4)


class VariantsTests(unittest.SynchronousTestCase):
    def setUp(self) -> None:
        self.results = Variants(("off", "auto"), "off")
        for cpu in (10.0, 40.0, 20.0):
            for name, factor in (("off", 2.0), ("auto", 1.0)):
                figures = {CPU.key: cpu * factor, RATE.key: 100.0 / factor, P999.key: 500.0}
                self.results.add("send", name, Measurement(figures))

    def test_ratio_says_how_many_times_better_a_variant_is(self) -> None:
        self.assertEqual(self.results.times_better("send", "auto", CPU), 2.0)
        self.assertEqual(self.results.times_better("send", "auto", RATE), 2.0)

    def test_table_has_both_variants_and_the_ratios_of_the_other(self) -> None:
        cells = [cell.strip() for cell in self.results.table(["send"]).splitlines()[2].strip("|").split("|")]
        self.assertEqual(cells, ["send", "40", "50", "500", "20", "100", "500", "2.00", "2.00", "1.00"])

    def test_json_holds_every_run(self) -> None:
        form = json.loads(json.dumps(self.results.as_json(["send"])))
        cpu = form["rows"][0]["figures"]["cpu_us"]
        self.assertEqual(cpu["auto"], {"median": 20.0, "runs": [10.0, 40.0, 20.0], "ratio": 2.0})
        self.assertEqual((form["against"], form["failures"]), ("off", []))


class OverloadTests(unittest.SynchronousTestCase):
    def test_parts_are_added_by_code(self) -> None:
        outcome = overload.Outcome(500.0)
        outcome.memory = [50.0, 90.0, 60.0]
        outcome.waits = {"pull": {"p50 ms": 1.0, "max ms": 1250.0, "answers": 20_000, "refused": 0}}
        outcome.add({"seconds": 30.0, "codes": {"0": 30_000, "2": 3_000}})
        outcome.add({"seconds": 30.0, "codes": {"0": 30_000, "2": 4_000}})
        self.assertEqual(outcome.codes, {"0": 60_000, "2": 7_000})
        self.assertEqual(
            outcome.lines("rocketd"),
            [
                "rocketd: sustainable 500/s; answered 1,117/s over 60 s, stored 1,000/s, refused by code {'2': '7,000'}",
                "  memory in MB: before 50, at most 90, after 60",
                "  pull       p50 ms 1.0, max ms 1,250.0, answers 20,000, refused 0",
            ],
        )

    def test_length_is_bounded(self) -> None:
        self.assertRaises(SystemExit, overload.main, ["--minutes", "1000"])


class SurroundingsTests(unittest.SynchronousTestCase):
    def test_busy_processes_end_with_the_block(self) -> None:
        with affinity.busy(2) as pids:
            self.assertEqual(len(pids), 2)
            for pid in pids:
                os.kill(pid, 0)
        for pid in pids:
            self.assertRaises(ProcessLookupError, os.kill, pid, 0)

    def test_number_of_busy_processes_is_bounded(self) -> None:
        self.assertRaises(SystemExit, affinity.main, ["--busy", "1000"])

    def test_every_load_is_measured_in_each_surroundings(self) -> None:
        rows = [affinity.row_name(*row) for row in affinity.all_rows()]
        self.assertEqual(len(set(rows)), 3 * len(affinity.LOADS))

    def test_family_has_the_children_of_a_process(self) -> None:
        with affinity.busy(2) as pids:
            self.assertLessEqual({os.getpid(), *pids}, set(brokers.family(os.getpid())))
            self.assertEqual(brokers.family(pids[0]), (pids[0],))
