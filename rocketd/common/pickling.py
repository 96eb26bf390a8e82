"""Exceptions that survive pickling, for example if a worker of multiprocessing raises them.

Python unpickles an exception by calling its class with ``args``, the text. If the class takes other arguments, this
fails, and a pool of processes waits forever.
"""

from typing import Any, TypeVar

E = TypeVar("E", bound=BaseException)


class PickledWhole(BaseException):
    """Base of exceptions unpickled from their text and attributes, without a call of ``__init__``."""

    def __reduce__(self) -> tuple[Any, ...]:
        return restored, (type(self), self.args), self.__dict__


def restored(kind: type[E], arguments: tuple[Any, ...]) -> E:
    """Return an exception of a class, still without attributes."""
    error = kind.__new__(kind, *arguments)
    error.args = arguments
    return error
