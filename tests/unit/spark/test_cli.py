"""The command line of the jobs: finding a job, its arguments, and messages and exit status for wrong ones."""

import contextlib
import io
import json
import os
import signal
import sys
import zipfile
from pathlib import Path
from types import ModuleType
from unittest import mock

from twisted.trial.unittest import TestCase

from rocketd.common.command_line.option_types import POSITIVE
from rocketd.spark import cli, submit
from rocketd.spark.errors import OptionError, SparkError, StoreFilesError
from rocketd.spark.jobs.running.arguments import check_archive_arguments, source_options, source_section
from rocketd.spark.jobs.running.command import job
from rocketd.spark.jobs.running.context import JobContext
from rocketd.spark.jobs.running.options import Section, option
from rocketd.spark.jobs.running.report import Report
from rocketd.spark.options.texts import option_texts
from rocketd.spark.sessions import build
from rocketd.spark.sessions.confs import DEFAULT_MASTER, read_master
from rocketd.spark.sessions.gateway import is_noise, why
from rocketd.spark.sessions.package_zip import package_zip
from rocketd.spark.submit import conf_of, ours, split, value_of
from rocketd.tools import cli as console
from tests.support.lacking import need_package


@job("given", Section("given", [option("--count", type=POSITIVE)]))
def given(context, args):
    """Given by the test."""
    return given.does(context, args)


class CommandLineTest(TestCase):
    def setUp(self):
        need_package("pyspark")
        module = ModuleType("rocketd_given_job")
        module.given = given
        given.does = lambda context, args: Report()
        jobs = mock.patch.dict(cli.JOBS, {"given": (f"{module.__name__}:given", "Given by the test.")})
        jobs.start()
        self.addCleanup(jobs.stop)
        sys.modules[module.__name__] = module
        self.addCleanup(sys.modules.pop, module.__name__)
        self.addCleanup(signal.signal, signal.SIGTERM, signal.getsignal(signal.SIGTERM))

    def call(self, *arguments, does=None):
        """Status, output and errors of a command line."""
        if does is not None:
            given.does = does
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

    def test_report_is_text_json_or_file(self):
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

    def test_debug_prints_traceback(self):
        status, _, err = self.failure(KeyError("x"), "--debug")
        self.assertEqual(status, 1)
        self.assertIn("in does", err)

    def test_wrong_arguments_are_one_line_and_status_2(self):
        for arguments, text in (
            (["--count", "x"], "--count 'x': accepted is a number from 1 on"),
            (["--cou", "1"], "option --cou not recognized; did you mean --count?"),
            (["--conf", "x"], "--conf 'x': accepted is KEY=VALUE"),
            (["surplus"], "got unexpected extra argument (surplus)"),
        ):
            status, out, err = self.call("given", *arguments)
            self.assertEqual(
                (status, out, err), (2, "", f"rocketd spark given: {text}; try rocketd spark given --help\n")
            )

    def test_alternatives_given_together_or_not_at_all_are_refused(self):
        for arguments, text in (
            ([], "--store or --namesrv is missing"),
            (["--store", "s", "--namesrv", "n"], "--namesrv is not allowed with --store"),
            (["--store", "s", "--topic", "T", "--topic-pattern", "T"], "--topic-pattern is not allowed with --topic"),
        ):
            self.assertEqual(
                self.call("dlq", *arguments), (2, "", f"rocketd spark dlq: {text}; try rocketd spark dlq --help\n")
            )

    def test_help_of_job_has_its_sentence_and_option_headings(self):
        for name, (_, sentence) in cli.JOBS.items():
            status, out, err = self.call(name, "--help")
            self.assertEqual((status, out.splitlines()[2], err), (0, f"  {sentence}", ""))
        _, out, _ = self.call("dlq", "--help")
        for text in (
            "\nsource:\n  --store DIR ",
            "\nredriving:\n  --redrive ",
            "\nSpark:\n  --master MASTER ",
            "  --json ",
        ):
            self.assertIn(text, out)

    def test_word_help_is_the_option(self):
        self.assertEqual(self.call("help"), self.call("--help"))

    def test_signal_during_the_import_of_a_job_interrupts(self):
        def interrupted():
            os.kill(os.getpid(), signal.SIGTERM)

        self.patch(cli, "require_pyspark", interrupted)
        self.assertEqual(self.call("given"), (130, "", "rocketd spark given: interrupted\n"))

    def test_repeated_option_is_a_list(self):
        # Spark's functions take a list for several values, and a tuple for one.
        self.assertEqual(cli.load_job("dlq").read(["--store", "s", "--tag", "a", "--tag", "b"]).tag, ["a", "b"])

    def test_both_signals_interrupt(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            before = signal.getsignal(number)
            status, out, err = self.call(
                "given", does=lambda context, args, number=number: os.kill(os.getpid(), number)
            )
            self.assertEqual((status, out, err), (130, "", "rocketd spark given: interrupted\n"))
            self.assertIs(signal.getsignal(number), before)

    def test_console_script_passes_all_arguments(self):
        given.does = lambda context, args: Report({"count": args.count})
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            status = console.main(["spark", "given", "--count", "4", "--json"])
        self.assertEqual(status, 0)
        self.assertIn('"count": 4', out.getvalue())

    def test_master_is_the_default_unless_it_is_given(self):
        masters = []

        def does(context, args):
            masters.append((args.master, context.master))
            return Report({})

        self.call("given", does=does)
        self.call("given", "--master", "local[2]", does=does)
        self.assertEqual(masters, [(DEFAULT_MASTER, DEFAULT_MASTER), ("local[2]", "local[2]")])

    def test_context_without_use_starts_no_spark(self):
        context = JobContext("given")
        self.assertEqual(context.master, DEFAULT_MASTER)
        self.assertFalse(context.started)
        context.cancel()
        context.close()

    def test_unwritable_report_is_printed(self):
        path = os.path.join(self.mktemp(), "report.json")
        status, out, err = self.call("given", "--report", path, does=lambda context, args: Report({"messages": 7}))
        self.assertEqual(status, 1)
        self.assertIn("7", out)
        self.assertIn(path, err)

    def test_submit_without_a_job_or_with_an_unknown_one_is_one_line(self):
        status, out, err = self.call("submit", "--master", "yarn")
        self.assertEqual((status, out, err.count("\n")), (2, "", 1))
        self.assertIn("rocketd spark submit: a job is missing behind spark-submit's options: archive,", err)
        self.assertNotIn("submit", err.partition(": archive,")[2])
        self.assertEqual(
            self.call("submit", "arkive", "--to", "x"),
            (2, "", "rocketd spark submit: there is no job 'arkive'; did you mean archive?\n"),
        )

    def test_submit_hands_all_words_through(self):
        seen = []
        self.patch(submit, "become_spark_submit", lambda arguments, jobs: seen.append(arguments) or 0)
        words = ["--master", "yarn", "lag", "--help", "--version", "--", "x"]
        self.assertEqual(self.call("submit", *words), (0, "", ""))
        self.assertEqual(seen, [words])

    def test_submit_without_spark_prints_one_line(self):
        def become(arguments, jobs):
            raise FileNotFoundError(2, "No such file or directory", "/no/bin/spark-submit")

        self.patch(submit, "become_spark_submit", become)
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
        need_package("pyspark")
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

    def test_pattern_without_match_is_status_2(self):
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

    def test_system_topics_do_not_match_a_pattern(self):
        (self.root / "store" / "consumequeue" / "SCHEDULE_TOPIC_XXXX" / "0").mkdir(parents=True)
        self.assertIn("; SCHEDULE_TOPIC_XXXX must be named, because system topics never match", self.call("archive")[2])

    def test_dlq_without_dead_letters_reports_zero(self):
        (self.root / "store" / "consumequeue" / "orders" / "0").mkdir(parents=True)
        for words in ([], ["--retried"]):
            status, out, err = self.call("dlq", "--json", *words)
            self.assertEqual((status, err), (0, ""))
            self.assertIn('"messages": 0', out)

    def test_lag_covers_topics_matching_a_pattern(self):
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


def _reports_nothing(context, args):
    """Read."""
    return Report()


READING = job("reading", source_section())(_reports_nothing)
READING_ARCHIVES = job("reading", source_section(archive=True))(_reports_nothing)


class SourceArgumentsTest(TestCase):
    def options(self, *arguments):
        return source_options(READING.read(arguments))

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

    def test_options_without_effect_on_archives_are_refused(self):
        check_archive_arguments(READING_ARCHIVES.read(["--archive", "a", "--topic", "T", "--tls"]))
        for given in (
            ["--from", "earliest"],
            ["--until", "latest"],
            ["--topic-pattern", "T"],
            ["--option", "keys=a"],
        ):
            args = READING_ARCHIVES.read(["--archive", "a", *given])
            self.assertIn(given[0], str(self.assertRaises(OptionError, check_archive_arguments, args)))


class SubmitTest(TestCase):
    def test_options_of_spark_submit_end_at_the_job(self):
        for options in (
            [], ["--master", "yarn"], ["--master=yarn", "-v", "--conf", "a=b"], ["-c", "spark.x=archive"], ["--supervise"],
        ):  # fmt: skip
            self.assertEqual(split([*options, "archive", "--to", "x"]), (options, ["archive", "--to", "x"]))
        self.assertEqual(split(["--master"]), (["--master"], []))

    def test_master_is_added_unless_options_or_the_machine_name_one(self):
        self.patch(submit, "package_zip", lambda: "package.zip")
        self.patch(submit, "machine_settings", lambda environment: {})

        def master_of(*options):
            return value_of(ours(options, read_master("yarn")), "--master")

        self.assertEqual(master_of(), DEFAULT_MASTER)
        self.assertEqual(master_of("--master", "yarn"), "yarn")
        self.assertIsNone(master_of("--conf", "spark.master=yarn"))
        self.patch(submit, "machine_settings", lambda environment: {"spark.master": "yarn"})
        self.assertIsNone(master_of())

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

    def test_same_sources_make_the_same_zip(self):
        one = self.zip_of(b_py="1", spark__a_py="2", core_so="x", spark__log_properties="3")
        self.assertEqual(one, self.zip_of(spark__log_properties="3", spark__a_py="2", b_py="1"))
        self.assertEqual(one[2], ["rocketd/b.py", "rocketd/spark/a.py", "rocketd/spark/log.properties"])
        self.assertNotEqual(one[0], self.zip_of(b_py="1", spark__a_py="4", spark__log_properties="3")[0])

    def test_zip_has_click_too_since_the_jobs_import_it(self):
        directory = self.mktemp()
        os.makedirs(directory)
        with zipfile.ZipFile(package_zip(directory)) as archive:
            names = archive.namelist()
        for name in ("rocketd/spark/cli.py", "pyspark_rocketd/__init__.py", "click/__init__.py"):
            self.assertIn(name, names)

    def test_no_sources_are_an_error(self):
        self.assertIn("has no sources of rocketd", str(self.assertRaises(SparkError, self.zip_of)))


class GatewayTest(TestCase):
    def test_why_java_did_not_start(self):
        lines = ["x", "Error: Could not create the Java Virtual Machine.", "Error: no memory", "later"]
        self.assertEqual(why(lines), "Error: Could not create the Java Virtual Machine.: Error: no memory")
        self.assertEqual((why(["", "one", " two "]), why([])), ("two", ""))

    def test_noise(self):
        self.assertTrue(is_noise("WARNING: Using incubator modules: jdk.incubator.vector"))
        self.assertFalse(is_noise("WARNING: disk full"))
