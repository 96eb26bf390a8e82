"""The parts of a page: plain values, made by the pages and rendered by ``render``. Texts are not escaped here."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal


@dataclass(frozen=True, slots=True)
class Link:
    """A link to another page of the console: its path, such as ``/topic``, and the parameters in its query."""

    text: str
    path: str
    query: Mapping[str, str | int] = field(default_factory=dict)


Cell = str | int | float | Link | None
"""One cell of a table. None is unknown, and shown as a dash."""


@dataclass(frozen=True, slots=True)
class Heading:
    """A column. Numbers are aligned at their right ends."""

    name: str
    number: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table. The first cell of a row is its header. ``empty`` is shown instead of a table without rows."""

    kind: ClassVar[str] = "table"
    caption: str
    columns: Sequence[Heading]
    rows: Sequence[Sequence[Cell]]
    empty: str = "None."
    note: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """A table of names and values."""

    kind: ClassVar[str] = "facts"
    caption: str
    rows: Sequence[tuple[str, Cell]]


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph."""

    kind: ClassVar[str] = "text"
    text: str


@dataclass(frozen=True, slots=True)
class Notice:
    """A paragraph that stands out."""

    kind: ClassVar[str] = "notice"
    level: Literal["good", "warning", "error"]
    text: str


@dataclass(frozen=True, slots=True)
class Verbatim:
    """A preformatted text with a heading."""

    kind: ClassVar[str] = "block"
    caption: str
    text: str


@dataclass(frozen=True, slots=True)
class Links:
    """A list of links."""

    kind: ClassVar[str] = "links"
    label: str
    links: Sequence[Link]


@dataclass(frozen=True, slots=True)
class Input:
    """An input of a form. ``choices`` are pairs of a value and its text, for ``choice`` only."""

    name: str
    label: str
    type: Literal["text", "number", "password", "area", "choice", "check"] = "text"
    value: str = ""
    help: str = ""
    required: bool = False
    choices: Sequence[tuple[str, str]] = ()
    complete: str = "off"
    """The value of the attribute ``autocomplete``."""


@dataclass(frozen=True, slots=True)
class Form:
    """A form. One with ``change`` is sent by POST with the token of the session, any other by GET."""

    kind: ClassVar[str] = "form"
    caption: str
    path: str
    button: str
    inputs: Sequence[Input] = ()
    hidden: Mapping[str, str] = field(default_factory=dict)
    change: bool = False
    danger: bool = False


Element = Table | Facts | Text | Notice | Verbatim | Links | Form


@dataclass(frozen=True, slots=True)
class View:
    """A page: its title, the links above it, and its elements in order."""

    title: str
    elements: Sequence[Element]
    above: Sequence[Link] = ()
    status: int = 200
    refresh: Link | None = None
    """A link to the same page with or without refreshing, for pages that are watched."""
    reload_seconds: int = 0
    """Seconds after which the browser asks for the page again; 0 for never."""


@dataclass(frozen=True, slots=True)
class Redirect:
    """The answer to a successful change: the browser asks for this page. ``done`` is a word of DONE."""

    path: str
    query: Mapping[str, str | int] = field(default_factory=dict)
    done: str = ""


DONE: Mapping[str, str] = {
    "created": "Created or changed.",
    "deleted": "Deleted.",
    "sent": "The message is sent.",
    "reset": "The offsets are reset.",
}
"""What a redirection says. The word alone is in the address, so that a link cannot put foreign words on a page."""
