"""Long lists in pages of MAX_ROWS rows."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from rocketd.console.pages.elements import Link, Links
from rocketd.console.pages.visit import MAX_ROWS, Visit

T = TypeVar("T")
MAX_PAGES = 1_000_000


def page_of(visit: Visit, items: Sequence[T], path: str, query: Mapping[str, str]) -> tuple[Sequence[T], list[Links]]:
    """Return the items of the page in the parameter ``page``, and links to the pages beside it."""
    number = visit.number("page", 1, 1, MAX_PAGES)
    begin = (number - 1) * MAX_ROWS
    links = []
    if number > 1:
        links.append(Link("Previous page", path, {**query, "page": number - 1}))
    if begin + MAX_ROWS < len(items):
        links.append(Link("Next page", path, {**query, "page": number + 1}))
    return items[begin : begin + MAX_ROWS], [Links("Pages of this list", links)] if links else []
