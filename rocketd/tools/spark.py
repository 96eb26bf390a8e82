"""``rocketd spark``: hands its arguments to the jobs' own command line, which knows no Twisted.

Answers to nothing of Apache's.
"""

from collections.abc import Sequence

from twisted.python import usage


class SparkOptions(usage.Options):
    """All arguments, as they are: the jobs read them."""

    def parseOptions(self, options: Sequence[str] | None = None) -> None:
        """Keep the arguments."""
        self._arguments = list(options or ())

    def run(self) -> int:
        """Run the job; return the exit status."""
        from rocketd.spark.cli import main

        return main(self._arguments)
