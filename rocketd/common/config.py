"""What a setting is: one declaration from which the reader, the options, the answers to mqadmin and the docs derive.

Answers to the reflection over bean fields in Apache's MixAll.properties2Object and object2Properties. A group of
settings is a dataclass, one for each of Apache's config classes, whose fields are declared with `setting`; the key of a
field is Apache's own: the field name in camel case unless `name` says otherwise. A value is refused or taken whole:
nothing is silently replaced by a default, as Apache does with a number it cannot read.
"""

import dataclasses
import functools
import os
import re
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import (
    Annotated,
    Any,
    TypedDict,
    TypeVar,
    Unpack,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

T = TypeVar("T")

Value = int | float | bool | str | None
"""What a setting holds once read; None only where its annotation allows it."""

Long = Annotated[int, "long"]
"""A whole number of 64 bits; a plain `int` annotation means 32 bits, as in Java."""

MAX_INT = 2**31 - 1
MAX_LONG = 2**63 - 1
HIDDEN = "******"
_NO_EFFECT = "No effect: "


class ConfigError(Exception):
    """A configuration that cannot be used. Its text is one line: where, which key, which value, what is accepted."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What defaults may depend on: CPU count, host name, home directory (a path) and the environment."""

    cpus: int = 1
    host_name: str = ""
    home: str = "/"
    environ: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def local(cls, environ: Mapping[str, str] | None = None, home: str | None = None) -> "Machine":
        """Describe this machine; the environment is empty unless given."""
        return cls(os.cpu_count() or 1, socket.gethostname(), home or os.path.expanduser("~"), environ or {})


@dataclass(frozen=True, slots=True)
class Setting:
    """One declared setting: everything that is known about it, apart from its value."""

    name: str
    """Apache's key, e.g. `listenPort`."""
    attribute: str
    """Name of the field in its group, e.g. `listen_port`."""
    kind: str
    """`int` (32 bits), `long` (64 bits), `float`, `bool` or `str`."""
    optional: bool
    """Whether it may be unset (None); an empty value in a file then means unset."""
    factory: Callable[[Machine], Any]
    """Computes the default."""
    formula: str | None
    """How the default is computed, in words, when it depends on the machine or on other settings."""
    doc: str
    unit: str | None
    hot: bool
    """Whether a change takes effect while the daemon runs."""
    important: bool
    """Whether `--print-important` shows it (Apache's ImportantField)."""
    remote: bool
    """Whether an administration request may change it: paths, class names and credentials may not be."""
    secret: bool
    """Whether its value is kept out of everything that is printed or sent."""
    system_property: bool
    """Whether Java takes it as a -D property: known to every reader, but no part of the answer to getBrokerConfig."""
    choices: tuple[str, ...]
    minimum: int | float | None
    maximum: int | float | None
    aliases: tuple[str, ...]
    """Other keys under which Apache takes the same value; the name itself wins over them."""
    check: Callable[[str], bool] | None
    """Tells of a text whether it is acceptable, where its kind alone does not."""
    accepted: str | None
    """What `check` accepts, in words."""
    environment: str | None
    """Environment variable that gives the value where neither file nor command line does."""
    no_effect: str | None
    """Why nothing reads the value; None for a setting that works."""

    def without_effect(self, reason: str) -> "Setting":
        """Return the same setting for a daemon that does not read it."""
        return dataclasses.replace(self, no_effect=reason, doc=_NO_EFFECT + reason)

    def parse(self, text: str) -> Value:
        """Read a value as written in a file or on a command line.

        Raises ValueError, whose text says what is accepted (without key and value).
        """
        text = text.strip()
        if self.optional and not text:
            return None
        if self.kind == "bool":
            if text.lower() not in ("true", "false"):
                raise ValueError(self.accepts())
            return text.lower() == "true"
        if self.kind == "str":
            return self._text(text)
        number = self._number(text)
        low, high = self.bounds()
        if not low <= number <= high:
            raise ValueError(self.accepts())
        return number

    def accepts(self) -> str:
        """Say in words which values are taken, e.g. `a whole number from 0 to 65535`."""
        if self.accepted:
            return self.accepted
        if self.choices:
            return "one of " + ", ".join(self.choices)
        if self.kind == "bool":
            return "true or false"
        if self.kind == "str":
            return "text"
        number = "a number" if self.kind == "float" else "a whole number"
        if self.minimum is None and self.maximum is None:
            return f"{number} of {64 if self.kind == 'long' else 32} bits"
        low, high = self.bounds()
        return f"{number} from {low} to {high}"

    def bounds(self) -> tuple[int | float, int | float]:
        """Return the least and the greatest value of a number."""
        if self.kind == "float":
            widest: tuple[int | float, int | float] = (float("-inf"), float("inf"))
        else:
            limit = MAX_LONG if self.kind == "long" else MAX_INT
            widest = (-limit - 1, limit)
        return (
            widest[0] if self.minimum is None else self.minimum,
            widest[1] if self.maximum is None else self.maximum,
        )

    def _number(self, text: str) -> int | float:
        pattern = r"[+-]?[0-9]+" if self.kind != "float" else r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"
        if not re.fullmatch(pattern, text, re.ASCII):
            raise ValueError(self.accepts())
        # int() of very many digits is refused by Python itself, as a ValueError with another text.
        if self.kind != "float" and len(text) > 20:
            raise ValueError(self.accepts())
        return float(text) if self.kind == "float" else int(text)

    def _text(self, text: str) -> str:
        if self.check is not None and not self.check(text):
            raise ValueError(self.accepts())
        if not self.choices:
            return text
        for choice in self.choices:
            if choice.lower() == text.lower():
                return choice
        raise ValueError(self.accepts())


def one_line(text: str) -> str:
    """Make a value fit into one line of a message: line ends and control characters become escapes."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text.strip())


def text_of(value: Value) -> str:
    """Write a value as Java does: true and false in lower case, nothing for an unset one."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


class About(TypedDict, total=False):
    """What a declaration may say beside default and doc; the meaning is that of the fields of `Setting`."""

    name: str
    unit: str
    hot: bool
    important: bool
    remote: bool
    secret: bool
    system_property: bool
    choices: tuple[str, ...]
    minimum: int | float
    maximum: int | float
    aliases: tuple[str, ...]
    check: Callable[[str], bool]
    accepted: str
    environment: str


@dataclass_transform(kw_only_default=True)
def settings_group(cls: type[T]) -> type[T]:
    """Make a class a group of settings: a dataclass whose values are given by keyword and may be assigned later."""
    return dataclass(kw_only=True, slots=True)(cls)


@overload
def setting(default: T, doc: str, *, formula: str | None = None, **about: Unpack[About]) -> T: ...
@overload
def setting(default: T, *, no_effect: str, **about: Unpack[About]) -> T: ...
@overload
def setting(*, factory: Callable[[Machine], T], formula: str, doc: str, **about: Unpack[About]) -> T: ...
@overload
def setting(*, factory: Callable[[Machine], T], formula: str, no_effect: str, **about: Unpack[About]) -> T: ...
def setting(
    default: Any = None,
    doc: str = "",
    *,
    factory: Callable[[Machine], Any] | None = None,
    formula: str | None = None,
    no_effect: str | None = None,
    **about: Unpack[About],
) -> Any:
    """Declare a field of a group of settings.

    Give either a `default`, or a `factory` that computes it for a Machine together with a `formula` that says how, for
    the docs; `formula` beside a plain default says how the default is derived from other settings later.

    A setting that is accepted, but that nothing reads, has a reason in `no_effect` instead of a `doc`. The start warns
    about it if a file or an option sets it. tests/unit/test_settings_readers.py holds declarations and code together.
    """

    def plain(_: Machine) -> Any:
        return default

    chosen = factory or plain
    if no_effect is not None:
        doc = _NO_EFFECT + no_effect
    return field(
        default_factory=lambda: chosen(Machine.local()),
        repr=not about.get("secret", False),
        metadata={"factory": chosen, "doc": doc, "formula": formula, "no_effect": no_effect, **about},
    )


@functools.cache
def settings_of(group: type) -> tuple[Setting, ...]:
    """Return the settings of a group in the order of their declaration."""
    hints = get_type_hints(group, include_extras=True)
    return tuple(
        _declared(f.name, hints[f.name], dict(f.metadata)) for f in dataclasses.fields(group) if "factory" in f.metadata
    )


def _declared(attribute: str, annotation: object, about: dict[str, Any]) -> Setting:
    kind, optional = _kind(annotation)
    head, *rest = attribute.split("_")
    known: dict[str, Any] = {
        "name": head + "".join(part[0].upper() + part[1:] for part in rest),
        "attribute": attribute,
        "kind": kind,
        "optional": optional,
        "unit": None,
        "hot": False,
        "important": False,
        "remote": True,
        "secret": False,
        "system_property": False,
        "choices": (),
        "minimum": None,
        "maximum": None,
        "aliases": (),
        "check": None,
        "accepted": None,
        "environment": None,
    }
    return Setting(**{**known, **about})


def _kind(annotation: object) -> tuple[str, bool]:
    """Tell the kind of an annotation and whether it allows None."""
    if get_origin(annotation) is Annotated:
        return get_args(annotation)[1], False
    members = get_args(annotation)
    if members:
        (inner,) = (member for member in members if member is not type(None))
        return _kind(inner)[0], True
    return getattr(annotation, "__name__", ""), False
