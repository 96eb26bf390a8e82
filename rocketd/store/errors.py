"""Errors of the store: each says which file, what was measured and what was expected.

Apache logs these and answers false or null; here they are typed, so that a start that fails has one line to show.
"""

from collections.abc import Sequence


class StoreError(Exception):
    """Anything that keeps the store from doing what it was asked; the text is one line for the operator."""


class StoreLockedError(StoreError):
    """Another process has the store directory open."""

    def __init__(self, root: str) -> None:
        self.root = root
        super().__init__(
            f"the store directory {root} is in use by another process (its file 'lock' is locked): "
            "stop that process or set another storePathRootDir"
        )


class StoreFileSizeError(StoreError):
    """A file of the store has another length than the settings say."""

    def __init__(self, path: str, size: int, expected: int) -> None:
        self.path = path
        self.size = size
        self.expected = expected
        super().__init__(
            f"{path} has {size} bytes where the settings say {expected}: set the file size the store was written with, "
            "or if the file was cut, which 'rocketd store verify DIR' tells, mend it with 'rocketd store repair DIR --write'"
        )


class StoreFileTwiceError(StoreError):
    """Two directories of the log have a file of one name, and both files have content."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(
            f"{first} and {second} are the same part of the commit log; nothing was changed; find out which of the two is "
            "right, and move the other one out of the directories of storePathCommitLog and readOnlyCommitLogStorePaths"
        )


class StoreDirectoryLostError(StoreError):
    """A directory of the log has no file, though it had some."""

    def __init__(self, path: str, first: int, last: int, count: int) -> None:
        self.path = path
        super().__init__(
            f"{path} has no file of the commit log, though it had {count}, at offsets {first} to {last}; nothing was "
            "changed; mount its disk or put the files back; to go on without their messages, take the directory out of "
            "storePathCommitLog and readOnlyCommitLogStorePaths"
        )


class StoreFileMissingError(StoreError):
    """A file in the middle of the log is not there."""

    def __init__(self, path: str, before: str, after: str) -> None:
        self.path = path
        super().__init__(
            f"{path} is missing between {before} and {after}: put it back, mount the disk that has it, or have 'rocketd "
            "store repair DIR --write --replace-damaged' put an empty one in its place; nothing was changed"
        )


class StoreDamagedError(StoreError):
    """The log holds something that is no record where one was, or before whole records."""

    def __init__(self, path: str, offset: int, following: int) -> None:
        self.path = path
        self.offset = offset
        self.following = following
        super().__init__(
            f"{path}: there is no whole record at offset {offset} of the log, though there must be, up to the one at "
            f"{following}: the file is damaged; nothing was changed; 'rocketd store verify DIR' tells more, 'rocketd "
            "store repair DIR --write --replace-damaged' mends it and keeps aside what it replaces"
        )


class StoreEndMissingError(StoreError):
    """The log ends before records that were there."""

    def __init__(self, path: str, end: int, known: int) -> None:
        self.path = path
        self.end = end
        self.known = known
        super().__init__(
            f"{path}: the log ends at {end}, though it went on to {known}: its last file is missing or empty; nothing of "
            "it was changed; put the file back, or have the store go on without it: 'rocketd store repair DIR "
            "--write'"
        )


class StoreLogMissingError(StoreError):
    """There is no commit log, though other files show that there were messages."""

    def __init__(self, root: str, looked_at: Sequence[tuple[str, bool]], signs: Sequence[str]) -> None:
        """`looked_at` names the log directories, each with whether it exists; `signs` the files below `root` that a
        store without messages does not have.
        """
        self.root = root
        self.signs = tuple(signs)
        where = ", ".join(
            f"{path} ({'without a log file' if there else 'does not exist'})" for path, there in looked_at
        )
        super().__init__(
            f"the commit log is missing: looked in {where}; but the store in {root} had messages, as these show: "
            f"{', '.join(signs)}; nothing was changed; mount the disk of the log, put its files back or correct "
            "storePathCommitLog; to start without the messages, move what shows them away"
        )


class StoreStateError(StoreError):
    """A call that the state of the store does not allow, such as starting twice."""


class CreateMappedFileError(StoreError):
    """The next file of the log or of a queue could not be made."""

    def __init__(self, path: str, cause: str) -> None:
        self.path = path
        super().__init__(f"cannot make {path}: {cause}")


class RecordError(StoreError):
    """Bytes that are not a whole commit-log record."""
