"""Output of a job: reports as text and JSON, the progress line, the one sentence within Spark's exceptions."""

import datetime
import io
import json

from twisted.trial.unittest import TestCase

from rocketd.spark.errors import ClusterError, DataLossError, SparkError
from rocketd.spark.jobs.running.progress import JobProgressBar, clock_time, progress_line, short
from rocketd.spark.jobs.running.report import Report
from rocketd.spark.sessions.unwrap import unwrapped


class ReportTest(TestCase):
    facts = {
        "messages": 12,
        "took_seconds": 1.5,
        "whole": True,
        "since": datetime.datetime(2024, 5, 1, 12, tzinfo=datetime.UTC),
        "nothing": None,
        "by_topic": [
            {"topic": "orders", "messages": 10, "last_tag": "A"},
            {"topic": "%DLQ%group", "messages": 2, "last_tag": None},
        ],
        "sizes": {"my_topic": 7, "%RETRY%x": 8},
    }

    def test_text(self):
        self.assertEqual(
            Report(self.facts, ["queue 3 has a hole"]).as_text().split("\n"),
            [
                "messages      12",
                "took seconds  1.5",
                "whole         yes",
                "since         2024-05-01T12:00:00.000+00:00",
                "nothing       -",
                "",
                "by topic:",
                "  topic       messages  last tag",
                "  orders            10  A",
                "  %DLQ%group         2  -",
                "",
                "sizes:",
                "  my topic  7",
                "  %RETRY%x  8",
                "problem: queue 3 has a hole",
            ],
        )

    def test_json(self):
        report = json.loads(Report(self.facts, ["one"]).as_json())
        self.assertEqual(report["tookSeconds"], 1.5)
        self.assertEqual(report["since"], "2024-05-01T12:00:00.000+00:00")
        self.assertIsNone(report["nothing"])
        self.assertEqual(report["byTopic"][1], {"topic": "%DLQ%group", "messages": 2, "lastTag": None})
        self.assertEqual(report["sizes"]["%RETRY%x"], 8)
        self.assertEqual(report["problems"], ["one"])

    def test_problems_are_the_exit_status(self):
        self.assertEqual((Report().status, Report({}, ["x"]).status), (0, 1))
        self.assertEqual(json.loads(Report().as_json()), {"problems": []})
        self.assertEqual(Report().as_text(), "")


class Terminal(io.StringIO):
    def isatty(self):
        return True


class ProgressTest(TestCase):
    def test_line(self):
        self.assertEqual(
            progress_line("archive", 5_000, 20_000, "messages", 10),
            "archive [######                  ]  25% 500 messages/s, 0:30 left",
        )
        self.assertEqual(progress_line("read", 1500, None, "rows", 0.5), "read 1.5k rows")
        self.assertEqual(progress_line("starting", 0, None, "rows", 5), "starting ...")
        self.assertEqual(progress_line("read", 0, 10, "rows", 0), "read [                        ]   0%")
        self.assertEqual(progress_line("read", 11, 10, "rows", 2), f"read [{'#' * 24}] 100% 5.5 rows/s")

    def test_numbers(self):
        numbers = {
            0: "0",
            7: "7",
            7.25: "7.2",
            950: "950",
            999.9: "1.0k",
            1500: "1.5k",
            12_300: "12k",
            3_400_000: "3.4M",
        }
        self.assertEqual({number: short(number) for number in numbers}, numbers)
        self.assertEqual([clock_time(at) for at in (0, 59.6, 61, 3661)], ["0:00", "1:00", "1:01", "1:01:01"])

    def test_terminal_shows_bar_and_clears_it(self):
        now = [0.0]
        file = Terminal()
        progress = JobProgressBar(file, clock=lambda: now[0])
        progress.begin("verify", 4, "files")
        for _ in range(3):
            now[0] += 1
            progress.advance()
        self.assertIn("\rverify [##################      ]  75% 1 files/s, 0:01 left", file.getvalue())
        progress.note("a hole")
        self.assertIn("\ra hole\n\rverify", file.getvalue().replace("  ", ""))
        progress.end()
        self.assertTrue(file.getvalue().endswith(" \r"))
        self.assertEqual(progress.done, 3)

    def test_elsewhere_only_notes_are_shown(self):
        file = io.StringIO()
        progress = JobProgressBar(file)
        progress.begin("verify", 4)
        progress.advance(4)
        progress.note("a hole")
        progress.end()
        self.assertEqual(file.getvalue(), "a hole\n")

    def test_quiet(self):
        file = Terminal()
        progress = JobProgressBar(file, quiet=True)
        progress.begin("verify", 4)
        progress.advance(4)
        progress.note("a hole")
        progress.end()
        self.assertEqual(file.getvalue(), "")


WORKER = """[PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent call last):
  File "worker.py", line 4327, in invoke_udf
    run_process()
  File "tasks.py", line 10, in g
    raise DataLossError("lost")
{kind}: {text}
 SQLSTATE: 38000
\tat org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:1097)
"""


class UnwrapTest(TestCase):
    def test_rocketd_error_keeps_its_class(self):
        error = unwrapped(
            RuntimeError(WORKER.format(kind="rocketd.spark.errors.DataLossError", text="orders/b/0[1, 7) is lost"))
        )
        self.assertEqual((type(error), str(error)), (DataLossError, "orders/b/0[1, 7) is lost"))

    def test_rocketd_error_is_found_within_a_chain(self):
        try:
            try:
                raise ClusterError("no", 7)
            except ClusterError as inner:
                raise RuntimeError("outer") from inner
        except RuntimeError as outer:
            self.assertEqual(unwrapped(outer).code, 7)

    def test_other_python_error_is_named_with_its_class(self):
        error = unwrapped(RuntimeError(WORKER.format(kind="ValueError", text="17 is odd")))
        self.assertEqual((type(error), str(error)), (SparkError, "a task failed: ValueError: 17 is odd"))

    def test_a_lost_worker(self):
        error = unwrapped(
            RuntimeError("Job aborted: SparkException: Python worker exited unexpectedly (crashed): \n\tat x")
        )
        self.assertIn("want of memory", str(error))

    def test_a_lost_java(self):
        self.assertIn("Spark's Java has ended", str(unwrapped(ConnectionRefusedError(111, "Connection refused"))))

    def test_spark_error_is_reduced_to_its_first_line(self):
        error = unwrapped(RuntimeError("\n[TABLE_OR_VIEW_NOT_FOUND] The table `x` cannot be found.\n  at org.x\n"))
        self.assertEqual(str(error), "[TABLE_OR_VIEW_NOT_FOUND] The table `x` cannot be found.")
        java = "[VIEW_ALREADY_EXISTS] no.\norg.apache.spark.ViewExistsException: [VIEW_ALREADY_EXISTS] no.\n\tat org.x"
        self.assertEqual(str(unwrapped(RuntimeError(java))), "[VIEW_ALREADY_EXISTS] no.")
        self.assertEqual(str(unwrapped(RuntimeError())), "RuntimeError")

    def test_failed_serialization_is_told_with_its_innermost_cause(self):
        outer, middle, inner = (RuntimeError(f"{text}Task not serializable") for text in ("[STREAM_FAILED] ", "", ""))
        outer._cause, middle._cause, inner._origin = (
            middle,
            inner,
            _Java("java.lang.Some: why\n\t- object not serializable"),
        )
        expected = "[STREAM_FAILED] Task not serializable: java.lang.Some: why"
        self.assertEqual(str(unwrapped(outer)), expected)
        self.assertEqual(str(unwrapped(RuntimeError("Task not serializable"))), "Task not serializable")


class _Java:
    """Stands for a Java exception."""

    def __init__(self, text):
        self._text = text

    def toString(self):  # noqa: N802 - the name is Java's
        return self._text
