"""One declaration per setting, the source of reader, options, answers to mqadmin, and docs.

Counterpart: the reflection over bean fields in `MixAll.properties2Object` and `object2Properties` (Apache). A group of
settings is a dataclass, one for each of Apache's config classes. Its fields are declared with `setting`. The key of a
field is Apache's: the field name in camel case, unless `name` says otherwise. A bad value is refused. Apache silently
uses the default instead of a number it cannot read.
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

import msgspec

T = TypeVar("T")

Value = int | float | bool | str | None
"""Value of a setting. None only if its annotation allows it."""

Long = Annotated[int, "long"]
"""A whole number of 64 bits. A plain `int` annotation means 32 bits, as in Java."""

MAX_INT = 2**31 - 1
MAX_LONG = 2**63 - 1
HIDDEN = "******"
_NO_EFFECT = "No effect: "


class ConfigError(Exception):
    """An unusable configuration. The text is one line: place, key, value, accepted values."""


class Machine(msgspec.Struct, frozen=True):
    """Inputs of defaults: CPU count, host name, home directory (a path) and the environment."""

    cpus: int = 1
    host_name: str = ""
    home: str = "/"
    environ: Mapping[str, str] = msgspec.field(default_factory=dict)

    @classmethod
    def local(cls, environ: Mapping[str, str] | None = None, home: str | None = None) -> "Machine":
        """Describe this machine. The environment is empty unless given."""
        return cls(os.cpu_count() or 1, socket.gethostname(), home or os.path.expanduser("~"), environ or {})


class Setting(msgspec.Struct, frozen=True):
    """One declared setting: all facts about it except its value."""

    name: str
    """Apache's key, for example `listenPort`."""
    attribute: str
    """Name of the field in its group, for example `listen_port`."""
    kind: str
    """`int` (32 bits), `long` (64 bits), `float`, `bool` or `str`."""
    optional: bool
    """Whether it may be unset (None). An empty value in a file then means unset."""
    factory: Callable[[Machine], Any]
    """Computes the default."""
    formula: str | None
    """Description of a default computed from the machine or other settings."""
    doc: str
    unit: str | None
    hot: bool
    """Whether a change takes effect while the daemon runs."""
    important: bool
    """Whether `--print-important` shows it (Apache's ImportantField)."""
    remote: bool
    """Whether an administration request may change it. Paths, class names and credentials must not be remote."""
    secret: bool
    """Whether its value is hidden in everything printed or sent."""
    system_property: bool
    """Whether Java takes it as a -D property: known to every reader, but not part of the answer to getBrokerConfig."""
    choices: tuple[str, ...]
    minimum: int | float | None
    maximum: int | float | None
    aliases: tuple[str, ...]
    """Other keys for the same value in Apache. The name itself has precedence."""
    check: Callable[[str], bool] | None
    """Returns whether a text is acceptable, if its kind alone does not decide."""
    accepted: str | None
    """Description of the texts accepted by `check`."""
    environment: str | None
    """Environment variable used if neither file nor command line gives the value."""
    no_effect: str | None
    """Why the value is never read, None for a working setting."""

    def without_effect(self, reason: str) -> "Setting":
        """Return the same setting for a daemon that does not read it."""
        return msgspec.structs.replace(self, no_effect=reason, doc=_NO_EFFECT + reason)

    def parse(self, text: str) -> Value:
        """Parse a value from a file or a command line.

        Raises ValueError. Its text describes the accepted values, without key and value.
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
        """Return the accepted values in words, for example `a whole number from 0 to 65535`."""
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
        # int() refuses very long numbers with a ValueError of another text.
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
    """Return a value as text like Java: true and false in lower case, nothing for an unset one."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


class About(TypedDict, total=False):
    """Optional parts of a declaration. Their meaning is that of the fields of `Setting`."""

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
    """Make a class a group of settings: a dataclass with keyword arguments and assignable values."""
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

    Give either a `default`, or a `factory` that computes it for a Machine, with a `formula` for the docs. A `formula`
    beside a plain default describes how the default is later derived from other settings.

    An accepted setting without effect has a reason in `no_effect` instead of a `doc`. The start warns if a file or an
    option sets it. tests/project/code/test_settings_readers.py compares declarations with the code.
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
    """Return (kind, whether None is allowed) of an annotation."""
    if get_origin(annotation) is Annotated:
        return get_args(annotation)[1], False
    members = get_args(annotation)
    if members:
        (inner,) = (member for member in members if member is not type(None))
        return _kind(inner)[0], True
    return getattr(annotation, "__name__", ""), False
