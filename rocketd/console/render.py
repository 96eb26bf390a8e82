"""Makes HTML of views. The only place where a text becomes HTML: the template escapes each one."""

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from urllib.parse import urlencode

from jinja2 import DictLoader, Environment, StrictUndefined

from rocketd.console.pages.elements import Link, Redirect, View

MENU: tuple[Link, ...] = (
    Link("Overview", "/"),
    Link("Topics", "/topics"),
    Link("Groups", "/groups"),
    Link("Messages", "/messages"),
    Link("Dead letters", "/dead-letters"),
    Link("Changes", "/audit"),
)
UNKNOWN = "\N{EN DASH}"


@dataclass(frozen=True, slots=True)
class Frame:
    """What surrounds a view: the base path, the token of the session, the account, and how the console runs."""

    base: str
    token: str
    account: str | None = None
    read_only: bool = False
    done: str = ""
    signed_in: bool = True
    path: str = "/"


@cache
def style_sheet() -> bytes:
    """Return the CSS."""
    return files("rocketd.console").joinpath("static", "console.css").read_bytes()


def address_of(base: str, target: Link | Redirect) -> str:
    """Return the path and query of a page for the browser."""
    query = {**target.query, "done": target.done} if isinstance(target, Redirect) and target.done else target.query
    # Characters that are not UTF-8 come from foreign servers.
    return base + target.path + ("?" + urlencode(query, errors="replace") if query else "")


def page(view: View, frame: Frame) -> bytes:
    """Return the HTML of a page."""
    template = _environment().get_template("page.html")
    text = template.render(view=view, frame=frame, menu=MENU, href=lambda link: address_of(frame.base, link))
    return text.encode("utf-8", "replace")


@cache
def _environment() -> Environment:
    source = files("rocketd.console").joinpath("templates", "page.html").read_text("utf-8")
    environment = Environment(
        loader=DictLoader({"page.html": source}),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.tests["link"] = lambda cell: isinstance(cell, Link)
    environment.filters["shown"] = _shown
    return environment


def _shown(cell: str | int | float | None) -> str:
    """Return the text of a cell. Digits of whole numbers are grouped; control characters are made visible."""
    if cell is None:
        return UNKNOWN
    if isinstance(cell, str):
        return visible(cell)
    if isinstance(cell, float):
        return f"{cell:,.1f}"
    return f"{cell:,}"


def visible(text: str) -> str:
    """Return a text without characters that change the direction or the place of those around them."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else f"\\u{ord(c):04x}" for c in text)
