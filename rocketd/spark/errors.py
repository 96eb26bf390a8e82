"""What goes wrong in the pipeline, each told in one sentence that a person can act on.

All of them cross from a Spark task to the driver, so each is rebuilt from its arguments alone.
"""


class SparkError(Exception):
    """Something that the user of the pipeline has to know: the text says what was wrong and what to do."""


class OptionError(SparkError):
    """An option is unknown, missing or wrong: the text names it and what is accepted."""


class StoreFilesError(SparkError):
    """The files of a store are not there, not readable from here, or damaged."""


class ArchiveError(SparkError):
    """An archive is not one, is damaged, or is in use by another job."""


class DataLossError(SparkError):
    """Messages of the asked range are no longer there: the text names the ranges."""


class BrokerError(SparkError):
    """A server refused a request, or gave an answer that makes no sense.

    `code` is the answer's code, None where there was no answer. `retriable` says that the same request may pass later;
    `doubtful` that it may have been carried out although no answer says so.
    """

    def __init__(self, text: str, code: int | None = None, *, retriable: bool = False, doubtful: bool = False) -> None:
        super().__init__(text)
        self.code = code
        self.retriable = retriable
        self.doubtful = doubtful

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuilt, (type(self), str(self), self.code, self.retriable, self.doubtful)


class UnreachableError(BrokerError):
    """No server could be reached, or it went away before it answered."""


def _rebuilt(kind: type[BrokerError], text: str, code: int | None, retriable: bool, doubtful: bool) -> BrokerError:
    return kind(text, code, retriable=retriable, doubtful=doubtful)
