"""A job as a command: its options under headings, and its run, which ends with a report or with one line."""

import inspect
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence

import click

from rocketd.common.command_line.commands import RocketdCommand
from rocketd.common.command_line.errors import CommandError, OutputClosedError
from rocketd.common.command_line.output import complain, show
from rocketd.spark.errors import OptionError, SparkError
from rocketd.spark.jobs.running.arguments import output_section, spark_section
from rocketd.spark.jobs.running.context import JobContext
from rocketd.spark.jobs.running.interrupts import STATUS, Interrupts
from rocketd.spark.jobs.running.options import Arguments, Section
from rocketd.spark.jobs.running.progress import JobProgressBar
from rocketd.spark.jobs.running.report import Report
from rocketd.spark.sessions.unwrap import unwrapped

_FAILED, _WRONG = 1, 2

JobFunction = Callable[[JobContext, Arguments], Report]


class JobCommand(RocketdCommand):
    """A command of ``rocketd spark``."""

    def __init__(
        self, name: str, run: JobFunction, sections: Sequence[Section], arguments: Sequence[click.Argument]
    ) -> None:
        options = [each for section in sections for each in section.options]
        super().__init__(name, params=[*arguments, *options], help=inspect.getdoc(run))
        self.run = run
        """Runs the job. Raises SparkError with a one-sentence message."""
        self._sections = sections

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments into the context. Raises UsageError."""
        rest = super().parse_args(ctx, args)
        for section in self._sections:
            for alternatives in section.alternatives:
                alternatives.check(ctx)
        return rest

    def read(self, words: Sequence[str]) -> Arguments:
        """Return the values of a command line. Raises UsageError."""
        with self.make_context(self.name, list(words)) as context:
            return _arguments(context)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, each under the heading of its section."""
        left = [each for each in self.get_params(ctx) if isinstance(each, click.Option)]
        for section in self._sections:
            with formatter.section(section.title):
                formatter.write_dl(list(_records(ctx, section.options)))
            left = [each for each in left if each not in section.options]
        with formatter.section("other"):
            formatter.write_dl(list(_records(ctx, left)))

    def invoke(self, ctx: click.Context) -> int:
        """Run the job, print its report and return the exit status. A failure becomes a line on standard error."""
        args = _arguments(ctx)
        progress = JobProgressBar(quiet=args.quiet)
        context = JobContext(
            self.name or "",
            master=args.master,
            conf=dict(args.conf),
            driver_memory=args.driver_memory,
            py_files=tuple(args.py_files),
            progress=progress,
            interrupts=ctx.find_object(Interrupts),
        )
        try:
            try:
                report = self.run(context, args)
            finally:
                progress.end()
            _publish(report, args)
            return report.status
        except KeyboardInterrupt:
            complain("interrupted", ctx.command_path)
            context.cancel()
            return STATUS
        except (BrokenPipeError, OutputClosedError):
            raise
        except Exception as error:
            return complain_of(error, ctx.command_path, debug=args.debug)
        finally:
            context.close()


def job(name: str, *sections: Section, arguments: Sequence[click.Argument] = ()) -> Callable[[JobFunction], JobCommand]:
    """Make a command from a function. Its docstring is the help: one sentence, then guarantees and limits.

    The options about Spark and the output follow those of `sections`.
    """
    return lambda run: JobCommand(name, run, [*sections, spark_section(), output_section()], arguments)


def complain_of(error: Exception, command: str, *, debug: bool) -> int:
    """Print the cause of a failure in one line, with the trace before it if `debug`. Return the exit status."""
    if debug:
        traceback.print_exc()
    sentence = _sentence(error)
    complain(str(sentence), command)
    return _WRONG if isinstance(sentence, OptionError) else _FAILED


def _arguments(context: click.Context) -> Arguments:
    values = context.params.items()
    return Arguments(**{name: list(value) if isinstance(value, tuple) else value for name, value in values})


def _records(context: click.Context, options: Iterable[click.Option]) -> Iterator[tuple[str, str]]:
    for each in options:
        if (record := each.get_help_record(context)) is not None:
            yield record


def _publish(report: Report, args: Arguments) -> None:
    try:
        if args.report:
            with open(args.report, "w", encoding="utf-8") as file:
                file.write(report.as_json() + "\n")
    finally:
        # The work is done: an unwritable report file must not suppress the output.
        text = report.as_json() if args.json else report.as_text()
        if text:
            show(text)


def _sentence(error: Exception) -> Exception | str:
    """Return the message to print: our errors as they are, Spark's unwrapped, any other with its class."""
    if isinstance(error, (SparkError, CommandError)):
        return error
    if type(error).__module__.startswith(("py4j", "pyspark")) or isinstance(error, ConnectionError):
        return unwrapped(error)
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return f"{type(error).__name__}: {error} (--debug prints where)"
