"""Exceptions that survive pickling, as multiprocessing does it with what a worker raises.

No counterpart in Apache. Python makes an exception again by calling its class with ``args``, the text, which fails where
the class takes something else: a pool of processes then waits for ever.
"""

from typing import Any, TypeVar

E = TypeVar("E", bound=BaseException)


class PickledWhole(BaseException):
    """A base of exceptions that are made again from their text and attributes, without a call of ``__init__``."""

    def __reduce__(self) -> tuple[Any, ...]:
        return restored, (type(self), self.args), self.__dict__


def restored(kind: type[E], arguments: tuple[Any, ...]) -> E:
    """Make an exception of a class, without attributes yet."""
    error = kind.__new__(kind, *arguments)
    error.args = arguments
    return error
