"""Errors of the pipeline. Each has a one-sentence message with advice for the user.

All of them travel from a Spark task to the driver, so each is rebuilt from its arguments alone.
"""


class SparkError(Exception):
    """A problem that the user of the pipeline must know about: the text names the fault and the remedy."""


class OptionError(SparkError):
    """An option is unknown, missing or wrong: the text names the option and the accepted values."""


class StoreFilesError(SparkError):
    """The files of a store are missing, unreadable on this machine, or damaged."""


class ArchiveError(SparkError):
    """A directory is not an archive, or the archive is damaged or in use by another job."""


class DataLossError(SparkError):
    """Messages of the requested range are gone: the text names the ranges."""


class ClusterError(SparkError):
    """A server refused a request, or sent an invalid answer.

    `code` is the answer's code, or None without an answer. `retriable` means the same request may succeed later.
    `doubtful` means the request may have been executed although no answer confirms it.
    """

    def __init__(self, text: str, code: int | None = None, *, retriable: bool = False, doubtful: bool = False) -> None:
        super().__init__(text)
        self.code = code
        self.retriable = retriable
        self.doubtful = doubtful

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuilt, (type(self), str(self), self.code, self.retriable, self.doubtful)


class NoAnswerError(ClusterError):
    """No server was reachable, or the connection ended before the answer."""


def _rebuilt(kind: type[ClusterError], text: str, code: int | None, retriable: bool, doubtful: bool) -> ClusterError:
    return kind(text, code, retriable=retriable, doubtful=doubtful)
