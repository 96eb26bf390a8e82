"""The one name of the wheels' module ``ffi`` that applications import."""

from enum import IntEnum


class MessageModel(IntEnum):
    """Whether each consumer of a group gets all messages, or a share."""

    BROADCASTING = 0
    CLUSTERING = 1
