"""The arithmetic of the growth table, and the loads of its dimensions."""

import json
from pathlib import Path

from twisted.trial import unittest

from benchmarks.figures import ANONYMOUS, CPU, P999, RATE, Goal
from benchmarks.growth import dimensions
from benchmarks.growth.dimensions import Dimension, Load
from benchmarks.growth.results import GrowthResults, table
from benchmarks.measurement import Measurement
from benchmarks.outcome import APACHE, ROCKETD
from benchmarks.rows import Kind, Row
from rocketd.remoting.bodies.tables import TopicConfig, TopicConfigSerializeWrapper


def row(name: str) -> Row:
    return Row(name, Kind.LOAD, ("send",), (Goal(CPU), Goal(RATE), Goal(P999)))


SEND = Load("send", (row("send"), row("send")))
BULK = Load("bulk", (row("bulk"), row("bulk")), (1.0, 4.0))
TOPICS = Dimension("topics", ("10", "20,000"), (SEND, BULK))
FLUSH = Dimension("flush", ("off", "on"), (SEND,), more_work=True)


def measured(cpu: float, rate: float = 1_000.0) -> Measurement:
    return Measurement({"cpu_us": cpu, "rate": rate, "p999_us": 10 * cpu}, ("a remark",))


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


class GrowthTests(unittest.SynchronousTestCase):
    def results(self, low: float, high: float, dimension: Dimension = TOPICS, load: Load = SEND) -> GrowthResults:
        results = GrowthResults((ROCKETD, APACHE))
        results.add(dimension, load, ROCKETD, 0, measured(low))
        results.add(dimension, load, ROCKETD, 1, measured(high))
        return results

    def test_growth_is_upper_end_over_lower_end(self) -> None:
        results = self.results(10.0, 15.0)
        self.assertEqual(results.growth(TOPICS, SEND, ROCKETD, CPU), 1.5)
        self.assertIs(results.bends(TOPICS, SEND, ROCKETD), False)

    def test_growth_above_half_bends(self) -> None:
        self.assertIs(self.results(10.0, 15.1).bends(TOPICS, SEND, ROCKETD), True)

    def test_growth_with_more_work_is_not_judged(self) -> None:
        self.assertIsNone(self.results(10.0, 90.0, FLUSH).bends(FLUSH, SEND, ROCKETD))

    def test_growth_without_measurements_is_missing(self) -> None:
        results = self.results(0.0, 5.0)
        self.assertIsNone(results.growth(TOPICS, SEND, ROCKETD, CPU))
        self.assertIsNone(results.growth(TOPICS, SEND, APACHE, CPU))
        self.assertIsNone(results.bends(TOPICS, SEND, ROCKETD))

    def test_sizes_of_operations_divide_cpu_and_multiply_rate(self) -> None:
        results = self.results(10.0, 40.0, TOPICS, BULK)
        self.assertEqual(results.ends(TOPICS, BULK, ROCKETD, CPU), (10.0, 10.0))
        self.assertEqual(results.ends(TOPICS, BULK, ROCKETD, RATE), (1_000.0, 4_000.0))
        self.assertEqual(results.ends(TOPICS, BULK, ROCKETD, P999), (100.0, 400.0))

    def test_ends_are_medians_of_rounds(self) -> None:
        results = self.results(10.0, 20.0)
        results.add(TOPICS, SEND, ROCKETD, 0, measured(30.0))
        results.add(TOPICS, SEND, ROCKETD, 0, measured(12.0))
        self.assertEqual(results.ends(TOPICS, SEND, ROCKETD, CPU), (12.0, 20.0))

    def test_table_shows_both_ends_and_the_verdict(self) -> None:
        lines = table(self.results(10.0, 20.0), (TOPICS,)).splitlines()
        values = ["10", "20", "2.00", "-", "-", "-", "YES"]
        self.assertEqual(cells(lines[2]), ["topics", "10", "20,000", "send", "server CPU, µs", *values])
        self.assertEqual(len({len(line) for line in lines}), 1)

    def test_json_holds_every_run_and_remark(self) -> None:
        form = json.loads(json.dumps(self.results(10.0, 20.0).as_json((TOPICS,))))
        self.assertEqual(
            form["growth"][0]["figures"]["cpu_us"][ROCKETD], {"runs": [[10], [20]], "medians": [10, 20], "growth": 2}
        )
        self.assertEqual(form["remarks"][1], "rocketd, topics 20,000, send: a remark")


class DimensionTests(unittest.SynchronousTestCase):
    def test_ends_are_those_of_the_goals(self) -> None:
        ends = {dimension.name: dimension.labels for dimension in dimensions.dimensions()}
        self.assertEqual(ends["topics"], ("10", "20,000"))
        self.assertEqual(ends["connections"], ("10", "10,000"))
        self.assertEqual(ends["groups"], ("1", "1,000"))
        self.assertEqual(ends["store"], ("1 GB", "100 GB"))
        self.assertEqual(ends["message size"], ("1 KB", "4 MB"))

    def test_limit_of_open_files_lowers_connections_and_queues(self) -> None:
        self.assertEqual(dimensions.possible_connections(20_000), 8_000)
        self.assertEqual(dimensions.possible_queues(20_000), 4_000)
        labels = {dimension.name: dimension.labels for dimension in dimensions.dimensions(20_000)}
        self.assertEqual((labels["connections"], labels["topics"]), (("10", "8,000"), ("10", "20,000")))

    def test_loads_show_p999_with_cpu(self) -> None:
        for dimension in dimensions.dimensions():
            for load in dimension.loads:
                shown = [goal.figure for goal in load.ends[0].goals]
                self.assertEqual(shown, [goal.figure for goal in load.ends[1].goals])
                self.assertTrue(CPU not in shown or P999 in shown, load.name)
                self.assertTrue(ANONYMOUS not in shown or len(shown) == 1, load.name)

    def test_names_of_loads_are_unique_in_a_dimension(self) -> None:
        for dimension in dimensions.dimensions():
            names = [load.name for load in dimension.loads]
            self.assertEqual(len(set(names)), len(names), dimension.name)

    def test_table_of_topics_is_the_brokers(self) -> None:
        store = Path(self.mktemp())
        dimensions.write_topics(store, 3)
        tables = TopicConfigSerializeWrapper.decode((store / "config" / "topics.json").read_bytes())
        self.assertEqual(sorted(tables.topic_config_table), ["Growth0", "Growth1", "Growth2"])
        self.assertEqual(tables.topic_config_table["Growth2"], TopicConfig("Growth2", 8, 8))
