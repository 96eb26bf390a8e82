"""The arithmetic and the tables of the benchmarks: printed figures must follow from the measurements."""

import json
import os
import subprocess
import sys
from pathlib import Path

from twisted.trial import unittest

from benchmarks import figures, machine, report, rows, run, usage
from benchmarks.figures import CLIENT_CPU, CPU, LOST, P50, P99, P999, RATE, START_WALL, Goal
from benchmarks.measurement import Measurement, of_result
from benchmarks.outcome import APACHE, ROCKETD, Results
from benchmarks.rows import Kind, Row
from tests.support import ports

SEND = Row("send", Kind.LOAD, ("send",), (Goal(CPU, 2.0), Goal(RATE, 1.5), Goal(P50), Goal(P99, 2.0), Goal(P999)))
START = Row("start", Kind.START, ("ready",), (Goal(START_WALL, limit=1.0), Goal(LOST, limit=0)))


def load(cpu: float, rate: float, p50: float) -> Measurement:
    latencies = {"p50_us": p50, "p99_us": 2 * p50, "p999_us": 3 * p50}
    return Measurement({"cpu_us": cpu, "rate": rate, **latencies})


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


class ArithmeticTests(unittest.SynchronousTestCase):
    def test_less_cpu_is_better(self) -> None:
        self.assertEqual(figures.ratio(CPU, 10.0, 25.0), 2.5)

    def test_more_rate_is_better(self) -> None:
        self.assertEqual(figures.ratio(RATE, 60_000, 40_000), 1.5)

    def test_ratio_of_zero_is_missing(self) -> None:
        for pair in ((None, 1.0), (1.0, None), (0.0, 1.0), (1.0, 0.0)):
            self.assertIsNone(figures.ratio(CPU, *pair))
            self.assertIsNone(figures.ratio(RATE, *pair))

    def test_medians(self) -> None:
        self.assertEqual(figures.median([5.0, 1.0, 2.0]), 2.0)
        self.assertEqual(figures.median([4.0, 2.0]), 3.0)
        self.assertIsNone(figures.median([]))

    def test_a_ratio_is_reached_at_its_value(self) -> None:
        self.assertIs(Goal(CPU, 2.0).reached(10.0, 20.0), True)
        self.assertIs(Goal(CPU, 2.0).reached(10.0, 19.9), False)
        self.assertIsNone(Goal(CPU, 2.0).reached(10.0, None))
        self.assertIsNone(Goal(CPU).reached(10.0, 20.0))

    def test_a_limit_is_held_against_rocketd_alone(self) -> None:
        self.assertIs(Goal(START_WALL, limit=1.0).reached(1.0, None), True)
        self.assertIs(Goal(START_WALL, limit=1.0).reached(1.1, 50.0), False)
        self.assertIs(Goal(LOST, limit=0).reached(0.0, 76.0), True)
        self.assertIs(Goal(LOST, limit=0).reached(1.0, 76.0), False)
        self.assertIsNone(Goal(LOST, limit=0).reached(None, 76.0))


class MeasurementTests(unittest.SynchronousTestCase):
    RESULT = {"requests": 100, "server_us_per_op": 8.5, "ops_per_s": 1000.5, "p50_us": 7, "p99_us": 9, "p999_us": 11}

    def test_figures_of_a_line(self) -> None:
        measured = of_result({**self.RESULT, "codes": {"0": 100}, "extra": {}})
        wanted = {"cpu_us": 8.5, "rate": 1000.5, "p50_us": 7.0, "p99_us": 9.0, "p999_us": 11.0, "lost": 0.0}
        self.assertEqual(measured, Measurement(wanted, ()))

    def test_losses_and_refusals_are_remarked(self) -> None:
        measured = of_result({**self.RESULT, "codes": {"0": 98, "2": 2}, "extra": {"not_stored": 5}})
        self.assertEqual(measured.figures["lost"], 5.0)
        lost, refused = measured.remarks
        self.assertEqual(lost, "lost 5 of 100 one-way messages")
        self.assertEqual(refused, "2 requests answered with code 2")

    def test_refused_sends_of_e2e_are_remarked(self) -> None:
        measured = of_result({**self.RESULT, "codes": {"0": 100}, "extra": {"send_codes": {"0": 90, "2": 10}}})
        self.assertEqual(measured.remarks, ("10 sends answered with code 2",))

    def test_cpu_of_a_program_with_brackets_in_its_name(self) -> None:
        stat = "7 (a) b (c)) S 1 7 7 0 -1 4194560 100 0 0 0 250 75 3 4 20 0 1 0 100 1 2"
        self.assertEqual(usage.cpu_of_stat(stat), 325)

    def test_usage_of_this_process(self) -> None:
        self.assertGreater(usage.cpu_seconds(os.getpid()), 0)
        self.assertGreater(usage.anonymous_mb(os.getpid()), 1)


class OrderTests(unittest.SynchronousTestCase):
    def test_sides_alternate_and_so_does_the_first_one(self) -> None:
        order = [(number, row.name, side) for number, row, side in run.in_turn((SEND, START), ("a", "b"), 2)]
        first = [(1, "send", "a"), (1, "send", "b"), (1, "start", "a"), (1, "start", "b")]
        second = [(2, "send", "b"), (2, "send", "a"), (2, "start", "b"), (2, "start", "a")]
        self.assertEqual(order, first + second)

    def test_latency_is_shown_up_to_p999(self) -> None:
        for row in rows.ROWS:
            shown = {goal.figure for goal in row.goals}
            if P50 in shown:
                self.assertLessEqual({P99, P999}, shown, row.name)

    def test_names_are_unique(self) -> None:
        self.assertEqual(len({row.name for row in rows.ROWS}), len(rows.ROWS))

    def test_patterns(self) -> None:
        self.assertEqual(rows.matching([]), rows.ROWS)
        self.assertEqual([row.name for row in rows.matching(["c=8 w=64"])], ["send 1 KB C=8 W=64"])
        self.assertEqual([row.name for row in rows.matching(["PULL of ? "])], ["pull of 1 C=8 W=1"])
        self.assertEqual(rows.matching(["no such row"]), ())


class QuietTests(unittest.SynchronousTestCase):
    MACHINE = {
        "commit": "abc", "core": "compiled core", "python": "3.11.7", "java": "17", "cpus": 2, "model": "M",
        "memory_gb": 8, "kernel": "6", "load_average": [0.4, 3.0, 3.0], "others": 0.03,
    }  # fmt: skip

    def test_memory_is_touched_except_for_a_rest(self) -> None:
        self.patch(machine, "_CHUNK_MB", 16)
        available = machine._available_mb()
        self.assertGreater(machine.touch_memory(available - 512), 0)
        self.assertEqual(machine.touch_memory(available + 8192), 0)

    def test_memory_of_a_container_ends_at_its_limit(self) -> None:
        cgroup = Path(self.mktemp())
        cgroup.mkdir()
        self.patch(machine, "_CGROUP", cgroup)
        (cgroup / "memory.max").write_text(f"{300 << 20}\n")
        (cgroup / "memory.current").write_text(f"{100 << 20}\n")
        self.assertEqual(machine._available_mb(), 200)

    def test_quiet_machine_is_described_without_warning(self) -> None:
        self.assertTrue(machine.quiet(self.MACHINE))
        text = machine.describe(self.MACHINE)
        self.assertIn("load average at the start 0.4 3 3; other processes took 3% of the cores", text)
        self.assertNotIn("NOT QUIET", text)

    def test_load_before_the_run_or_others_in_it_are_warned_of(self) -> None:
        for change in ({"load_average": [0.6, 0.1, 0.1]}, {"others": 0.06}):
            self.assertIn("THE MACHINE WAS NOT QUIET", machine.describe({**self.MACHINE, **change}))

    def test_share_of_others_leaves_out_this_run(self) -> None:
        self.assertEqual(machine.share_of_others(busy=15.0, own=10.0, total=20.0), 0.25)
        self.assertEqual(machine.share_of_others(busy=9.0, own=10.0, total=20.0), 0.0)  # the counters have ticks
        self.assertEqual(machine.share_of_others(busy=0.0, own=0.0, total=0.0), 0.0)

    def test_ended_children_are_this_runs(self) -> None:
        watch = machine.Watch()
        subprocess.run([sys.executable, "-c", "sum(range(10**6))"], check=True)
        self.assertLess(watch._counters.own, machine._counters().own)


class PortTests(unittest.SynchronousTestCase):
    def test_processes_share_no_block(self) -> None:
        directory = self.mktemp()
        os.mkdir(directory)
        one, other = ports.Blocks(directory), ports.Blocks(directory)  # a lock keeps two in one process apart, too
        taken = [one.one_more() for _ in range(20)]
        while (block := other.one_more()) is not None:
            taken.append(block)
        self.assertEqual(len(set(taken)), len(taken))
        self.assertGreater(len(taken), 40)
        self.assertEqual(len(one.first_ports()), 20)

    def test_process_takes_another_block_if_ports_run_out(self) -> None:
        self.assertGreater(len({ports.free_port() // 250 for _ in range(300)}), 1)


class ReportTests(unittest.SynchronousTestCase):
    def setUp(self) -> None:
        self.results = Results((SEND, START))
        for cpu, rate in ((10.0, 90_000.0), (30.0, 10_000.0), (12.0, 80_000.0)):
            self.results.add(SEND, ROCKETD, load(cpu, rate, 4_000))
            self.results.add(SEND, APACHE, load(2.5 * cpu, rate / 2, 6_000))
        self.results.add(START, ROCKETD, Measurement({"start_wall_s": 1.2, "lost": 0}))
        self.results.add(START, APACHE, Measurement({"start_wall_s": 6.0, "lost": 3}, ("lost 3",)))

    def test_load_line(self) -> None:
        line = next(line for line in report.tables(self.results).splitlines() if line.startswith("| send "))
        values = ["12", "80,000", "30", "40,000", "2.50", "2.00"]
        self.assertEqual(cells(line), ["send", *values, "CPU ≥ 2, rate ≥ 1.5", "yes, yes"])

    def test_latency_line(self) -> None:
        part = next(part for part in report.tables(self.results).split("\n\n") if part.startswith("| latency "))
        values = ["4,000", "8,000", "12,000", "6,000", "12,000", "18,000", "1.50", "1.50", "1.50"]
        self.assertEqual(cells(part.splitlines()[2]), ["send", *values, "p99 ≥ 2", "NO"])

    def test_client_rows_have_a_table(self) -> None:
        client = Row("blocking send", Kind.CLIENT, ("sync", "send"), (Goal(CLIENT_CPU, 1.5), Goal(RATE)))
        results = Results((client,))
        results.add(client, ROCKETD, Measurement({"client_cpu_us": 50.0, "rate": 4_000.0}))
        results.add(client, APACHE, Measurement({"client_cpu_us": 100.0, "rate": 5_000.0}))
        header, _, line = report.tables(results).splitlines()
        self.assertTrue(header.startswith("| client "))
        self.assertEqual(cells(line)[1:], ["50", "4,000", "100", "5,000", "2.00", "0.80", "CPU ≥ 1.5", "yes"])

    def test_summary_names_missed_goals(self) -> None:
        summary = report.summary(self.results)
        self.assertEqual(
            summary.splitlines(),
            [
                "Goals reached: 3 of 5.",
                "Not reached:",
                "- send: p99 1.50, goal ≥ 2",
                "- start: wall 1.20, goal ≤ 1 s",
            ],
        )

    def test_other_lines(self) -> None:
        lines = [cells(line) for line in report.tables(self.results).splitlines() if line.startswith("| start: ")]
        self.assertEqual(lines[0], ["start: wall", "s", "1.20", "6", "5.00", "≤ 1 s", "NO"])
        self.assertEqual(lines[1], ["start: lost", "messages", "0", "3", "-", "≤ 0 messages", "yes"])

    def test_columns_are_aligned(self) -> None:
        for part in report.tables(self.results).split("\n\n"):
            self.assertEqual(len({len(line) for line in part.splitlines()}), 1, part)

    def test_table_with_one_side_has_dashes(self) -> None:
        results = Results((SEND,))
        results.add(SEND, ROCKETD, load(12.0, 80_000, 4_000))
        values = ["12", "80,000", "-", "-", "-", "-"]
        line = cells(report.tables(results).splitlines()[2])
        self.assertEqual(line, ["send", *values, "CPU ≥ 2, rate ≥ 1.5", "-, -"])

    def test_json_holds_every_run(self) -> None:
        form = json.loads(json.dumps(self.results.as_json()))
        cpu = form["rows"][0]["figures"]["cpu_us"]
        self.assertEqual(cpu["rocketd"], {"median": 12.0, "runs": [10.0, 30.0, 12.0]})
        self.assertEqual((cpu["ratio"], cpu["goal"], cpu["reached"]), (2.5, "≥ 2", True))
        self.assertEqual(form["remarks"], ["Apache, start: lost 3"])
        self.assertEqual(form["failures"], [])

    def test_comparison_with_an_older_run(self) -> None:
        old = json.loads(json.dumps(self.results.as_json()))
        now = Results((SEND,))
        now.add(SEND, ROCKETD, load(6.0, 120_000, 8_000))
        now.add(SEND, APACHE, load(30.0, 40_000, 6_000))
        lines = [cells(line) for line in report.comparison(now, old).splitlines()[2:]]
        self.assertEqual(lines[0], ["send", "server CPU, µs", "12", "6", "2.00", "2.50", "5.00"])
        self.assertEqual(lines[1], ["send", "rate, /s", "80,000", "120,000", "1.50", "2.00", "3.00"])
        self.assertEqual(lines[2], ["send", "p50, µs", "4,000", "8,000", "0.50", "1.50", "0.75"])

    def test_rows_missing_in_the_older_run_are_left_out(self) -> None:
        self.assertEqual(len(report.comparison(self.results, {"rows": []}).splitlines()), 2)

    def test_numbers(self) -> None:
        shown = [report.number(value) for value in (None, 0, 8.214, 61.34, 61_000, 123.4, 48_300.7)]
        self.assertEqual(shown, ["-", "0", "8.21", "61.3", "61,000", "123", "48,301"])
