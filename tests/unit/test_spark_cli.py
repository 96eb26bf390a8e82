"""The command line of the jobs: finding one, its arguments, what is said and returned when they are wrong."""

import argparse
import contextlib
import io
import json
import os
import signal
import sys
import zipfile
from pathlib import Path
from types import ModuleType

from twisted.trial.unittest import TestCase

from rocketd.spark import cli
from rocketd.spark.errors import OptionError, SparkError, StoreFilesError
from rocketd.spark.jobs.arguments import add_source_arguments, check_archive_arguments, source_options
from rocketd.spark.jobs.job import Job as BaseJob
from rocketd.spark.jobs.job import JobContext
from rocketd.spark.jobs.report import Report
from rocketd.spark.options.texts import option_texts
from rocketd.spark.sessions import build
from rocketd.spark.sessions.gateway import is_noise, why
from rocketd.spark.sessions.ship import package_zip
from rocketd.spark.sessions.submit import conf_of, split, value_of
from rocketd.tools import cli as console


class Given(BaseJob):
    """A job that does what the test says."""

    does = staticmethod(lambda context, args: Report())

    def add_arguments(self, parser):
        parser.add_argument("--count", type=int)

    def run(self, context, args):
        return Given.does(context, args)


class CommandLineTest(TestCase):
    def setUp(self):
        module = ModuleType("rocketd_given_job")
        module.Job = Given
        self.patch(cli, "JOBS", {**cli.JOBS, "given": (module.__name__, "Given by the test.")})
        sys.modules[module.__name__] = module
        self.addCleanup(sys.modules.pop, module.__name__)
        self.addCleanup(signal.signal, signal.SIGTERM, signal.getsignal(signal.SIGTERM))

    def call(self, *arguments, does=None):
        """Status, output and errors of a command line."""
        if does is not None:
            self.patch(Given, "does", staticmethod(does))
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = cli.main(arguments)
        return status, out.getvalue(), err.getvalue()

    def test_help_lists_all_jobs(self):
        status, out, _ = self.call("--help")
        self.assertEqual(status, 0)
        for name in (
            "archive", "restore", "replay", "verify", "rebuild", "trace", "lag", "dlq", "compact", "sql", "anonymise",
            "doctor", "submit",
        ):  # fmt: skip
            self.assertIn(f"\n  {name} ", out)

    def test_no_job_and_an_unknown_one(self):
        status, _, err = self.call()
        self.assertEqual((status, err.count("\n")), (2, 1))
        self.assertIn("a job is missing: archive,", err)
        status, _, err = self.call("arkive", "--help")
        self.assertEqual(status, 2)
        self.assertEqual(
            err, "rocketd spark: there is no job 'arkive'; did you mean archive?; try rocketd spark --help\n"
        )

    def test_the_report_is_text_json_and_a_file(self):
        def does(context, args):
            return Report({"how_many": args.count})

        self.assertEqual(self.call("given", "--count", "3", does=does), (0, "how many  3\n", ""))
        path = os.path.join(self.mktemp())
        status, out, _ = self.call("given", "--json", "--report", path, does=does)
        self.assertEqual((status, out), (0, '{\n  "howMany": null,\n  "problems": []\n}\n'))
        with open(path) as file:
            self.assertEqual(file.read(), out)

    def test_found_problems_are_status_1(self):
        status, out, _ = self.call("given", does=lambda context, args: Report({}, ["a hole"]))
        self.assertEqual((status, out), (1, "problem: a hole\n"))

    def failure(self, error, *arguments):
        def does(context, args):
            raise error

        return self.call("given", *arguments, does=does)

    def test_failures_are_one_line(self):
        self.assertEqual(
            self.failure(StoreFilesError("/x is\n no store")), (1, "", "rocketd spark given: /x is no store\n")
        )
        self.assertEqual(
            self.failure(FileNotFoundError(2, "No such file", "/x")), (1, "", "rocketd spark given: /x: No such file\n")
        )
        self.assertEqual(self.failure(OptionError("wrong")), (2, "", "rocketd spark given: wrong\n"))
        status, _, err = self.failure(KeyError("x"))
        self.assertEqual((status, err), (1, "rocketd spark given: KeyError: 'x' (--debug prints where)\n"))

    def test_a_missing_package_is_one_line(self):
        import pyarrow

        sys.modules["pyarrow"] = None
        try:
            status, _, err = self.call("given")
        finally:
            sys.modules["pyarrow"] = pyarrow
        self.assertEqual((status, err.count("\n")), (1, 1))
        self.assertTrue(err.endswith("run: pip install 'rocketd[spark]'\n"), err)

    def test_debug_prints_where(self):
        status, _, err = self.failure(KeyError("x"), "--debug")
        self.assertEqual(status, 1)
        self.assertIn("in does", err)

    def test_wrong_arguments_are_one_line_and_status_2(self):
        for arguments, text in (
            (["--count", "x"], "argument --count: invalid int value: 'x'"),
            (["--cou", "1"], "unrecognized arguments: --cou 1"),
            (["--conf", "x"], "argument --conf: 'x' is not NAME=VALUE"),
        ):
            status, out, err = self.call("given", *arguments)
            self.assertEqual(
                (status, out, err), (2, "", f"rocketd spark given: {text}; try rocketd spark given --help\n")
            )

    def test_both_signals_interrupt(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            before = signal.getsignal(number)
            status, out, err = self.call(
                "given", does=lambda context, args, number=number: os.kill(os.getpid(), number)
            )
            self.assertEqual((status, out, err), (130, "", "rocketd spark given: interrupted\n"))
            self.assertIs(signal.getsignal(number), before)

    def test_the_console_script_hands_all_arguments_through(self):
        self.patch(Given, "does", staticmethod(lambda context, args: Report({"count": args.count})))
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            status = console.main(["spark", "given", "--count", "4", "--json"])
        self.assertEqual(status, 0)
        self.assertIn('"count": 4', out.getvalue())

    def test_spark_is_not_started_for_nothing(self):
        context = JobContext("given")
        self.assertFalse(context.started)
        context.cancel()
        context.close()

    def test_a_report_that_cannot_be_written_is_shown_all_the_same(self):
        path = os.path.join(self.mktemp(), "report.json")
        status, out, err = self.call("given", "--report", path, does=lambda context, args: Report({"messages": 7}))
        self.assertEqual(status, 1)
        self.assertIn("7", out)
        self.assertIn(path, err)

    def test_a_submit_that_cannot_start_is_one_line(self):
        def submit(arguments):
            raise FileNotFoundError(2, "No such file or directory", "/no/bin/spark-submit")

        self.patch(sys.modules["rocketd.spark.sessions.submit"], "submit", submit)
        self.assertEqual(
            self.call("submit", "lag"),
            (1, "", "rocketd spark submit: /no/bin/spark-submit: No such file or directory\n"),
        )


class EmptySourceTest(TestCase):
    """Sources without a topic, or without one that is wanted: one line, before Spark starts, and nothing is made."""

    JOBS = (
        ["archive"],
        ["archive", "--system-topics"],
        ["lag"],
        ["trace"],
        ["dlq"],
        ["compact", "--topic-pattern", "o.*"],
        ["anonymise", "--topic-pattern", "o.*"],
        ["sql"],
    )

    def setUp(self):
        self.patch(build, "build_session", lambda *given, **more: self.fail("Spark was started"))
        self.root = Path(self.mktemp())
        (self.root / "store" / "commitlog").mkdir(parents=True)
        (self.root / "secret").write_text("a secret of thirty-two bytes or so")
        (self.root / "q.sql").write_text("SELECT count(*) FROM orders")
        self.addCleanup(signal.signal, signal.SIGTERM, signal.getsignal(signal.SIGTERM))

    def call(self, name, *words):
        """Status, output and errors of a job over the store; AssertionError when it has made anything."""
        out, err = io.StringIO(), io.StringIO()
        made = ("--to-archive", self.root / "made")
        more = {
            "archive": ("--to", self.root / "made"),
            "compact": made,
            "anonymise": (*made, "--hash", "keys", "--secret", self.root / "secret"),
            "sql": (self.root / "q.sql",),
        }
        before = sorted(self.root.rglob("*"))
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = cli.main([name, *words, *map(str, more.get(name, ())), "--store", str(self.root / "store")])
        self.assertEqual(sorted(self.root.rglob("*")), before)
        return status, out.getvalue(), err.getvalue()

    def test_no_topic_at_all(self):
        for words in self.JOBS:
            status, out, err = self.call(*words)
            self.assertEqual((status, out, err.count("\n")), (2, "", 1), words)
            self.assertIn("the source has no topic at all", err)

    def test_a_pattern_that_matches_nothing(self):
        (self.root / "store" / "consumequeue" / "orders" / "0").mkdir(parents=True)
        for name in ("archive", "lag", "trace", "dlq", "compact", "anonymise"):
            self.assertEqual(
                self.call(name, "--topic-pattern", "x.*"),
                (
                    2,
                    "",
                    f"rocketd spark {name}: option subscribePattern is 'x.*', and no topic matches; there are orders\n",
                ),
            )
        status, _, err = self.call("sql", "--topic-pattern", "x.*")
        self.assertEqual(status, 2)
        self.assertIn("the statements name no topic that is there; there are none of those asked for", err)

    def test_the_brokers_own_topics_are_no_matches(self):
        (self.root / "store" / "consumequeue" / "SCHEDULE_TOPIC_XXXX" / "0").mkdir(parents=True)
        self.assertIn("; SCHEDULE_TOPIC_XXXX must be named, as the broker's own", self.call("archive")[2])

    def test_no_dead_letters_are_no_error(self):
        (self.root / "store" / "consumequeue" / "orders" / "0").mkdir(parents=True)
        for words in ([], ["--retried"]):
            status, out, err = self.call("dlq", "--json", *words)
            self.assertEqual((status, err), (0, ""))
            self.assertIn('"messages": 0', out)

    def test_lag_of_the_topics_that_a_pattern_matches(self):
        for topic in ("orders", "others"):
            (self.root / "store" / "consumequeue" / topic / "0").mkdir(parents=True)
        config = self.root / "store" / "config"
        config.mkdir()
        (config / "consumerOffset.json").write_text('{"offsetTable":{"orders@g":{0:0},"others@g":{0:0}}}')
        status, out, _ = self.call("lag", "--json", "--samples", "1", "--topic-pattern", "or.*")
        self.assertEqual(status, 0)
        self.assertEqual([row["topic"] for row in json.loads(out)["topics"]], ["orders"])

    def test_messages_without_a_body_are_not_sent(self):
        words = ("--topic", "orders", "--drop", "body", "--to-topic", "T", "--state", "s", "--secret", "none")
        err = io.StringIO()
        with contextlib.redirect_stderr(err):
            status = cli.main(["anonymise", "--store", str(self.root / "store"), *words])
        self.assertEqual((status, err.getvalue().count("\n")), (2, 1))
        self.assertIn(
            "--drop body leaves messages without a body, which brokers refuse: with --to-topic", err.getvalue()
        )


class SourceArgumentsTest(TestCase):
    def options(self, *arguments):
        parser = argparse.ArgumentParser()
        add_source_arguments(parser)
        return source_options(parser.parse_args(arguments))

    def test_arguments_are_options(self):
        self.assertEqual(
            self.options(
                "--store", "/s", "--commit-log", "/l", "--broker-name", "b", "--topic", "one", "--topic", "two",
                "--from", "earliest", "--until", "2024-05-01T00:00:00Z", "--option", "verifyCrc=true",
            ),
            {
                "store": "/s", "commitLog": "/l", "brokerName": "b", "subscribe": "one,two", "startingOffsets": "earliest",
                "endingTimestamp": "2024-05-01T00:00:00Z", "verifyCrc": "true",
            },
        )  # fmt: skip
        self.assertEqual(
            self.options(
                "--namesrv", "h:1;i:2", "--topic-pattern", "o.*", "--credentials", "c.yml", "--tls", "--tls-ca", "ca"
            ),
            {
                "namesrv": "h:1;i:2",
                "subscribePattern": "o.*",
                "credentialsFile": "c.yml",
                "tls": "true",
                "tlsCaFile": "ca",
            },
        )

    def test_positions(self):
        for text, name in (
            ("group:g", "startingOffsets"), ('{"t": {"0": 1}}', "startingOffsets"), ("1714564800000", "startingTimestamp"),
        ):  # fmt: skip
            self.assertEqual(self.options("--store", "/s", "--from", text), {"store": "/s", name: text})

    def test_an_option_given_twice_is_refused(self):
        error = self.assertRaises(OptionError, self.options, "--store", "/s", "--option", "store=/t")
        self.assertIn("option store was given twice", str(error))

    def test_options_of_programs(self):
        self.assertEqual(
            option_texts(
                {
                    "starting_offsets": {"t": {"0": 1}}, "verifyCrc": True, "max_rows": 5, "subscribe": ["b", "a"],
                    "namesrv": ("h:1", "i:2"), "sub_expression": {"B", "A"}, "sql92": None,
                }
            ),
            {
                "startingOffsets": '{"t": {"0": 1}}', "verifyCrc": "true", "maxRows": "5", "subscribe": "b,a",
                "namesrv": "h:1;i:2", "subExpression": "A || B",
            },
        )  # fmt: skip
        self.assertIn(
            "was given twice", str(self.assertRaises(OptionError, option_texts, {"max_rows": 1, "maxRows": 2}))
        )
        self.assertIn("is a bytes", str(self.assertRaises(OptionError, option_texts, {"topic": b"x"})))

    def test_what_says_nothing_of_an_archive_is_refused_with_one(self):
        parser = argparse.ArgumentParser()
        add_source_arguments(parser, archive=True)
        check_archive_arguments(parser.parse_args(["--archive", "a", "--topic", "T", "--tls"]))
        for given in (
            ["--from", "earliest"],
            ["--until", "latest"],
            ["--topic-pattern", "T"],
            ["--option", "keys=a"],
        ):
            args = parser.parse_args(["--archive", "a", *given])
            self.assertIn(given[0], str(self.assertRaises(OptionError, check_archive_arguments, args)))


class SubmitTest(TestCase):
    def test_options_of_spark_submit_end_where_the_job_begins(self):
        for options in (
            [], ["--master", "yarn"], ["--master=yarn", "-v", "--conf", "a=b"], ["-c", "spark.x=archive"], ["--supervise"],
        ):  # fmt: skip
            self.assertEqual(split([*options, "archive", "--to", "x"]), (options, ["archive", "--to", "x"]))
        self.assertEqual(split(["--master"]), (["--master"], []))

    def test_values(self):
        words = ["--master", "yarn", "--conf", "spark.a=1", "--conf=spark.b=2", "-c", "spark.c=3=4", "--name=--conf"]
        self.assertEqual(
            [value_of(words, name) for name in ("--master", "--name", "--queue")], ["yarn", "--conf", None]
        )
        self.assertEqual([conf_of(words, f"spark.{key}") for key in "abcd"], ["1", "2", "3=4", None])


class ShipTest(TestCase):
    def zip_of(self, **files):
        """Name and content of the zip of a tree with these files in the package."""
        root, directory = Path(self.mktemp()), self.mktemp()
        os.makedirs(directory)
        for name, text in files.items():
            path = root / "rocketd" / name.replace("__", "/").replace("_", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        path = Path(package_zip(directory, root))
        self.assertEqual(os.listdir(directory), [path.name])
        with zipfile.ZipFile(path) as archive:
            return path.name, path.read_bytes(), archive.namelist()

    def test_the_same_sources_make_the_same_zip(self):
        one = self.zip_of(b_py="1", spark__a_py="2", core_so="x", spark__log_properties="3")
        self.assertEqual(one, self.zip_of(spark__log_properties="3", spark__a_py="2", b_py="1"))
        self.assertEqual(one[2], ["rocketd/b.py", "rocketd/spark/a.py", "rocketd/spark/log.properties"])
        self.assertNotEqual(one[0], self.zip_of(b_py="1", spark__a_py="4", spark__log_properties="3")[0])

    def test_no_sources_are_an_error(self):
        self.assertIn("there are no sources", str(self.assertRaises(SparkError, self.zip_of)))


class GatewayTest(TestCase):
    def test_why_java_did_not_start(self):
        lines = ["x", "Error: Could not create the Java Virtual Machine.", "Error: no memory", "later"]
        self.assertEqual(why(lines), "Error: Could not create the Java Virtual Machine.: Error: no memory")
        self.assertEqual((why(["", "one", " two "]), why([])), ("two", ""))

    def test_noise(self):
        self.assertTrue(is_noise("WARNING: Using incubator modules: jdk.incubator.vector"))
        self.assertFalse(is_noise("WARNING: disk full"))
