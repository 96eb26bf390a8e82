"""The framework of the commands: groups, errors and exit statuses, checks of values, tables."""

import io
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from types import ModuleType
from unittest import mock

import click
from twisted.trial.unittest import SynchronousTestCase

import rocketd
from rocketd import core
from rocketd.common.command_line import option_types
from rocketd.common.command_line.commands import LazyGroup, command, run_command_line
from rocketd.common.command_line.errors import CommandError, OutputClosedError
from rocketd.common.command_line.output import complain, show, show_line, show_table

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(rocketd.__file__)))
MODULE = "rocketd_given_command"


@command("given")
@click.argument("words", nargs=-1, metavar="[WORD...]")
@click.option("-c", "--count", type=option_types.POSITIVE, metavar="N", help="How often.")
@click.option("--pair", type=option_types.key_value, multiple=True)
@click.option("--needed", is_flag=True)
def given(words, count, pair, needed):
    """Do what the test says."""
    return given.does(words, count)


class RunTestCase(SynchronousTestCase):
    def setUp(self):
        module = ModuleType(MODULE)
        module.given = given
        sys.modules[MODULE] = module
        self.addCleanup(sys.modules.pop, MODULE)
        self.group = LazyGroup(
            "tool",
            {"given": (f"{MODULE}:given", "Given by the test."), "other": ("not_a_module:x", "Never imported.")},
            help="A tool.",
        )

    def call(self, *arguments, does=lambda words, count: 0, group=None):
        given.does = does
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            status = run_command_line(group or self.group, "tool", arguments)
        return status, out.getvalue(), err.getvalue()


class ParsingTests(RunTestCase):
    def test_options_before_and_behind_arguments_are_read(self):
        seen = []

        def does(words, count):
            seen.append((words, count))
            return 0

        for arguments in (("-c", "3", "a", "b"), ("a", "--count", "3", "b"), ("a", "b", "--count=3")):
            self.assertEqual(self.call("given", *arguments, does=does), (0, "", ""))
        self.call("given", "a", "--", "--count", "-x", does=does)
        self.assertEqual(seen, [(("a", "b"), 3)] * 3 + [(("a", "--count", "-x"), None)])

    def test_status_of_the_function_is_the_status_of_the_process(self):
        self.assertEqual(self.call("given", does=lambda words, count: 7), (7, "", ""))

    def test_wrong_command_line_prints_one_line_and_exits_2(self):
        for arguments, path, text in (
            ((), "tool", "a command is missing: given, other"),
            (("gven",), "tool", "there is no command 'gven'; did you mean given?"),
            (("--nothing",), "tool", "option --nothing not recognized"),
            (("given", "--cuont", "1"), "tool given", "option --cuont not recognized; did you mean --count?"),
            (("given", "--versoin"), "tool given", "option --versoin not recognized"),
            (("given", "--hepl"), "tool given", "option --hepl not recognized"),
            (("given", "-x"), "tool given", "option -x not recognized"),
            (("given", "-c", "0"), "tool given", "--count '0': accepted is a number from 1 on"),
            (("given", "--count"), "tool given", "option '--count' requires an argument"),
            (("given", "--needed=1"), "tool given", "option '--needed' does not take a value"),
            (("given", "--pair", "x"), "tool given", "--pair 'x': accepted is KEY=VALUE"),
        ):
            self.assertEqual(self.call(*arguments), (2, "", f"{path}: {text}; try {path} --help\n"))

    def test_missing_or_surplus_argument_prints_one_line_and_exits_2(self):
        @command("one")
        @click.argument("topic", metavar="TOPIC")
        @click.option("-s", "--store", required=True)
        def one(topic, store):
            return 0

        sys.modules[MODULE].given = one
        for arguments, text in (
            (("-s", "x"), "TOPIC is missing"),
            (("T",), "--store is missing"),
            (("T", "U", "-s", "x"), "got unexpected extra argument (U)"),
        ):
            self.assertEqual(
                self.call("given", *arguments), (2, "", f"tool given: {text}; try tool given --help\n"), arguments
            )


class HelpTests(RunTestCase):
    def test_help_of_a_group_lists_its_commands_and_imports_none(self):
        for name in ("--help", "-h"):
            status, out, err = self.call(name)
            self.assertEqual((status, err), (0, ""))
            self.assertTrue(out.startswith("Usage: tool COMMAND [options]\n"), out)
            self.assertIn("  given  Given by the test.\n", out)
            self.assertIn("  other  Never imported.\n", out)

    def test_help_of_a_command_has_its_docstring_and_options(self):
        status, out, _ = self.call("given", "--help")
        self.assertEqual((status, out.splitlines()[0]), (0, "Usage: tool given [options] [WORD...]"))
        for text in ("Do what the test says.", "-c, --count N", "How often.", "--version"):
            self.assertIn(text, out)

    def test_version_is_an_option_of_group_and_command(self):
        version = f"rocketd {rocketd.__version__} ({core.kind()})\n"
        for arguments in (("--version",), ("given", "--version"), ("given", "--count", "0", "--version")):
            self.assertEqual(self.call(*arguments), (0, version, ""))

    def test_noun_of_a_group_names_its_commands(self):
        group = LazyGroup("jobs", {"archive": ("x:y", "Write.")}, help="Jobs.", noun="job")
        self.assertIn("Usage: tool JOB [options]", self.call("--help", group=group)[1])
        self.assertIn("\nJobs:\n", self.call("--help", group=group)[1])
        self.assertEqual(
            self.call("arkive", group=group)[2],
            "tool: there is no job 'arkive'; did you mean archive?; try tool --help\n",
        )
        self.assertEqual(self.call(group=group)[2], "tool: a job is missing: archive; try tool --help\n")

    def test_framework_imports_neither_rich_nor_twisted(self):
        code = (
            "import sys\n"
            "import rocketd.common.command_line.commands, rocketd.common.command_line.option_types\n"
            "print(sorted({'rich', 'twisted', 'zope'} & set(sys.modules)))\n"
        )
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join([ROOT, *filter(None, sys.path)])}
        output = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, check=True, text=True)
        self.assertEqual(output.stdout.strip(), "[]")


class FailureTests(RunTestCase):
    def failing(self, error):
        def does(words, count):
            raise error

        return self.call("given", does=does)

    def test_command_error_prints_one_line_and_exits_with_its_status(self):
        self.assertEqual(self.failing(CommandError("it\n is full")), (1, "", "tool given: it is full\n"))
        self.assertEqual(self.failing(CommandError("no answer", 3)), (3, "", "tool given: no answer\n"))

    def test_usage_error_of_the_function_is_status_2(self):
        self.assertEqual(
            self.failing(click.UsageError("both exclude each other")),
            (2, "", "tool given: both exclude each other; try tool given --help\n"),
        )

    def test_closed_output_is_status_1_without_a_message(self):
        self.assertEqual(self.failing(OutputClosedError()), (1, "", ""))

    def test_unexpected_errors_and_interrupts_reach_caller(self):
        for error in (ValueError, KeyboardInterrupt):
            with self.assertRaises(error):
                self.failing(error())

    def test_complaint_begins_with_the_running_command(self):
        def does(words, count):
            complain("a\nwarning")
            complain("another", "tool")
            return 0

        self.assertEqual(self.call("given", does=does), (0, "", "tool given: a warning\ntool: another\n"))
        err = io.StringIO()
        with redirect_stderr(err):
            complain("outside")
        self.assertEqual(err.getvalue(), "rocketd: outside\n")

    def test_complaint_shows_control_characters_as_escapes(self):
        err = io.StringIO()
        with redirect_stderr(err):
            complain("b answers SYSTEM_ERROR (1): \x1b]0;title\x07 \x9b2J\r\n\u202etxet\u2069")
        self.assertEqual(
            err.getvalue(), "rocketd: b answers SYSTEM_ERROR (1): \\x1b]0;title\\x07 \\x9b2J \\u202etxet\\u2069\n"
        )


class OptionTypeTests(SynchronousTestCase):
    def refused(self, check, text):
        return self.assertRaises(click.BadParameter, check, text).message

    def test_whole_number_accepts_its_bounds(self):
        self.assertEqual([option_types.PORT(text) for text in ("0", "65535")], [0, 65535])
        self.assertEqual([option_types.POSITIVE(text) for text in ("1", "007")], [1, 7])

    def test_whole_number_refuses_other_texts(self):
        for text in ("-1", "65536", "", "x", "1.0", " 1", "٣", "1" * 5000):
            self.assertEqual(self.refused(option_types.PORT, text), f"{text!r}: accepted is a number from 0 to 65535")
        self.assertEqual(self.refused(option_types.POSITIVE, "0"), "'0': accepted is a number from 1 on")

    def test_seconds_accepts_positive_numbers_only(self):
        self.assertEqual([option_types.seconds(text) for text in ("0.5", "2")], [0.5, 2.0])
        for text in ("0", "-1", "nan", "inf", "x"):
            self.assertEqual(
                self.refused(option_types.seconds, text), f"{text!r}: accepted is a number of seconds above 0"
            )

    def test_name_servers_are_addresses_separated_by_semicolons(self):
        self.assertEqual(option_types.name_servers("h:1; [::1]:2;"), ["h:1", "[::1]:2"])
        self.assertIn("accepted is host:port", self.refused(option_types.name_servers, "nowhere"))

    def test_one_of_accepts_listed_words_only(self):
        start = option_types.one_of("earliest", "latest")
        self.assertEqual(start("latest"), "latest")
        self.assertEqual(self.refused(start, "here"), "'here': accepted is earliest or latest")

    def test_key_value_keeps_value_unchanged(self):
        self.assertEqual(option_types.key_value(" k = a=b"), ("k", " a=b"))
        for text in ("k", "=1", " =1"):
            self.assertEqual(self.refused(option_types.key_value, text), f"{text!r}: accepted is KEY=VALUE")


class Terminal(io.StringIO):
    def isatty(self):
        return True


class OutputTests(SynchronousTestCase):
    def table(self, out, rows, **more):
        with redirect_stdout(out), mock.patch.dict(os.environ, {"COLUMNS": "60"}):
            show_table(("queue", "behind"), rows, **more)
        return out.getvalue()

    def test_table_on_a_file_is_fields_separated_by_tabs(self):
        rows = [("a", "1"), ("[b]", "22")]
        self.assertEqual(self.table(io.StringIO(), rows), "queue\tbehind\na\t1\n[b]\t22\n")
        self.assertEqual(self.table(io.StringIO(), rows, plain_header=False), "a\t1\n[b]\t22\n")
        self.assertEqual(self.table(io.StringIO(), [], plain_header=False), "")

    def test_table_on_a_terminal_is_aligned_and_has_no_markup(self):
        with mock.patch.dict(os.environ, {"NO_COLOR": "1", "TERM": "dumb"}):
            lines = self.table(Terminal(), [("a", "1"), ("[b]", "22")], right=("behind",)).splitlines()
        self.assertEqual([line.split() for line in lines[2:]], [["a", "1"], ["[b]", "22"]])
        self.assertEqual(len({len(line) for line in lines[2:]}), 1)

    def test_table_without_rows_prints_nothing_on_terminal(self):
        self.assertEqual(self.table(Terminal(), []), "")

    def test_line_of_a_server_is_escaped_on_a_terminal_alone(self):
        for out, shown in ((Terminal(), "a\\x09b\\x0ac\\x1b\n"), (io.StringIO(), "a\tb\nc\x1b\n")):
            with redirect_stdout(out):
                show_line("a\tb\nc\x1b")
            self.assertEqual(out.getvalue(), shown)

    def test_line_escapes_characters_that_the_encoding_lacks(self):
        raw = io.BytesIO()
        out = io.TextIOWrapper(raw, encoding="ascii")
        with redirect_stdout(out):
            show("a", "ö")
        self.assertEqual(raw.getvalue(), b"a \\xf6\n")
