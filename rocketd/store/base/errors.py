"""Errors of the store. Each text names the file, the value found and the value expected.

Apache logs these conditions and returns false or null. Typed errors give a failed start one line to print.
"""

from collections.abc import Sequence


class StoreError(Exception):
    """The store could not do what was asked. The text is one line for the operator."""


class StoreLockedError(StoreError):
    """Another process has the store directory open."""

    def __init__(self, root: str) -> None:
        self.root = root
        super().__init__(
            f"store directory {root} is in use by another process (its file 'lock' is locked): "
            "stop that process, or set another storePathRootDir"
        )


class StoreFileSizeError(StoreError):
    """The length of a store file differs from the settings."""

    def __init__(self, path: str, size: int, expected: int) -> None:
        self.path = path
        self.size = size
        self.expected = expected
        super().__init__(
            f"{path} has {size} bytes, but the settings say {expected}: set the file size the store was written with; "
            "if 'rocketd store verify DIR' says that the file was cut, run 'rocketd store repair DIR --write'"
        )


class StoreFileTwiceError(StoreError):
    """Two directories of the log hold a file of the same name, and both files have content."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(
            f"{first} and {second} are the same part of the commit log; nothing was changed; find out which of the two is "
            "right, and move the other one out of the directories of storePathCommitLog and readOnlyCommitLogStorePaths"
        )


class StoreBeginLostError(StoreError):
    """The oldest files of the log are missing, and nothing shows that they were deleted as expired."""

    def __init__(self, root: str, known: int, sign: str, begin: int, looked_at: Sequence[tuple[str, int]]) -> None:
        """Describe the missing part of the log, which begins at `begin`.

        `known` is an offset before that, and `sign` says how it is known. `looked_at` names the directories of the
        settings and the number of log files in each.
        """
        self.known = known
        self.begin = begin
        where = ", ".join(f"{path} ({count or 'no'} {'file' if count == 1 else 'files'})" for path, count in looked_at)
        super().__init__(
            f"the oldest files of the commit log are missing: it begins at {begin}, but {sign}; looked in {where}; nothing "
            "was changed; mount the disk, put the files back, or correct storePathCommitLog and "
            "readOnlyCommitLogStorePaths; if they were deleted before their time, as by Apache's broker on a full disk, or "
            f"to give up the messages before {begin}, run 'rocketd store accept-begin {root} --write', with '-c FILE' if "
            "the settings name the log's directories"
        )


class StoreFileMissingError(StoreError):
    """A file in the middle of the log is missing."""

    def __init__(self, path: str, before: str, after: str) -> None:
        self.path = path
        super().__init__(
            f"{path} is missing between {before} and {after}: put it back, mount its disk, or run 'rocketd "
            "store repair DIR --write --replace-damaged' to put an empty file in its place; nothing was changed"
        )


class StoreDamagedError(StoreError):
    """A record of the log is damaged, although a whole record must be there or whole records follow."""

    def __init__(self, path: str, offset: int, following: int) -> None:
        self.path = path
        self.offset = offset
        self.following = following
        super().__init__(
            f"{path}: the record at offset {offset} of the log is damaged: the log must be whole up to the record at "
            f"{following}; nothing was changed; 'rocketd store verify DIR' shows the details, 'rocketd store repair "
            "DIR --write --replace-damaged' repairs it and keeps the bytes that it replaces"
        )


class StoreEndMissingError(StoreError):
    """The log ends before records that were there."""

    def __init__(self, path: str, end: int, known: int) -> None:
        self.path = path
        self.end = end
        self.known = known
        super().__init__(
            f"{path}: the log ends at {end}, but it reached {known}: its last file is missing or empty; nothing of "
            "it was changed; put the file back, or run 'rocketd store repair DIR --write' to go on without it"
        )


class StoreLogMissingError(StoreError):
    """The commit log is missing, although other files show that the store had messages."""

    def __init__(self, root: str, looked_at: Sequence[tuple[str, bool]], signs: Sequence[str]) -> None:
        """Describe the search: `looked_at` has (log directory, whether it exists). `signs` are files below `root` that
        a store without messages does not have.
        """
        self.root = root
        self.signs = tuple(signs)
        where = ", ".join(
            f"{path} ({'without a log file' if there else 'does not exist'})" for path, there in looked_at
        )
        super().__init__(
            f"the commit log is missing: looked in {where}; but the store in {root} had messages, as these files show: "
            f"{', '.join(signs)}; nothing was changed; mount the disk of the log, put its files back or correct "
            "storePathCommitLog; to start without the messages, move the files named above away"
        )


class StoreStateError(StoreError):
    """The state of the store does not allow the call, such as a second start."""


class CreateMappedFileError(StoreError):
    """The next file of the log or of a queue could not be created."""

    def __init__(self, path: str, cause: str) -> None:
        self.path = path
        super().__init__(f"cannot create {path}: {cause}")


class RecordSoughtError(StoreError):
    """The log is still searched for the record of a damaged queue entry. Each further read searches another part."""

    def __init__(self, topic: str, queue_id: int, index: int, reached: int, end: int) -> None:
        super().__init__(
            f"the log is searched for the record with number {index} of queue {topic}-{queue_id}, whose entry is damaged: "
            f"now at {reached} of {end}"
        )


class RecordError(StoreError):
    """Bytes that are not a whole commit-log record."""
