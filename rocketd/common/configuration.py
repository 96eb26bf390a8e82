"""The settings of one daemon: loaded from file and options, shown, changed while running.

Answers to Configuration and to the option reading of NamesrvStartup and BrokerStartup. A daemon's settings are groups
(dataclasses, see `config`) held by a subclass of `DaemonSettings`. A load gives whole settings or a ConfigError; an
update tells for each key what became of it.
"""

import dataclasses
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self, TypeVar

from rocketd.common import properties_file
from rocketd.common.assignments import Assignment, from_environment, from_file, from_tls_file
from rocketd.common.config import (
    HIDDEN,
    ConfigError,
    Machine,
    Setting,
    Value,
    one_line,
    settings_group,
    settings_of,
    text_of,
)
from rocketd.common.suggest import did_you_mean

G = TypeVar("G")


def group(cls: type[G], *, no_effect: Mapping[str, str] | None = None, **defaults: Value) -> G:
    """Declare a group of settings in a DaemonSettings; `defaults` are this daemon's own, by attribute.

    ``no_effect`` names the attributes that this daemon does not read, each with the reason.
    """
    made: Any = field(
        default_factory=lambda: cls(**defaults),
        metadata={"group": cls, "defaults": defaults, "no_effect": no_effect or {}},
    )
    result: G = made
    return result


class Outcome(StrEnum):
    """What may become of one key of an update, in words for the answer."""

    APPLIED = "applied now"
    NO_EFFECT = "has no effect in rocketd"
    RESTART = "needs restart"
    UNKNOWN = "unknown key"
    BAD_VALUE = "bad value"
    REFUSED = "not changeable by request"


@dataclass(frozen=True, slots=True)
class KeyResult:
    """What became of one key of an update."""

    key: str
    text: str
    outcome: Outcome
    explanation: str = ""

    @property
    def accepted(self) -> bool:
        """Whether the value is good and belongs into the file."""
        return self.outcome in (Outcome.APPLIED, Outcome.NO_EFFECT, Outcome.RESTART)

    def __str__(self) -> str:
        return f"{one_line(self.key)}: {self.outcome}" + (f" ({self.explanation})" if self.explanation else "")


def restart_remark(results: Iterable[KeyResult], condition: str = "") -> str | None:
    """Say which keys of an update have no effect yet, for a remark; None when there are none.

    ``condition`` follows: under which they will have one, or why they never will.
    """
    keys = [result.key for result in results if result.outcome is Outcome.RESTART]
    if not keys:
        return None
    return f"{', '.join(keys)}: no effect before the next start{condition}"


@settings_group
class DaemonSettings:
    """Base of all settings of a daemon; the fields of a subclass are its groups.

    May be read by any thread. Belongs to the thread that loads it, afterwards to the one that calls `update`:
    attributes are assigned one by one, so a reader sees the old value or the new one.
    """

    config_file: str | None = None
    """Absolute path of the file that was read."""
    machine: Machine = field(default_factory=Machine.local, repr=False)
    pending: dict[str, str] = field(default_factory=dict)
    """Accepted values, by key, that take effect at the next start."""

    @classmethod
    def load(
        cls,
        path: str | None = None,
        overrides: Iterable[tuple[str, str]] = (),
        environ: Mapping[str, str] | None = None,
        home: str | None = None,
        namesrv_addr: str | None = None,
    ) -> tuple[Self, list[str]]:
        """Read the settings: defaults, then environment, file, overrides (-o), name server addresses (-n).

        `environ` is empty and `home` this user's unless given. Returns the settings and warnings, one line each:
        unknown keys and values that had to be changed. Raises ConfigError for anything that cannot be used.
        """
        machine = Machine.local(environ, home)
        options = [Assignment("-o", key, text) for key, text in overrides]
        if namesrv_addr is not None and "namesrvAddr" in cls.by_name():
            options.append(Assignment("-n", "namesrvAddr", namesrv_addr))
        file = from_file(path) if path is not None else []
        layers = [
            from_environment(cls.by_name().values(), machine.environ),
            from_tls_file([*file, *options]),
            file,
            options,
        ]
        warnings: list[str] = []
        given: dict[str, Assignment] = {}
        for layer in layers:
            given |= cls._resolve(layer, warnings)
        warnings += cls._without_effect(given)
        settings = cls._build(machine, given)
        settings.config_file = os.path.abspath(path) if path is not None else None
        warnings += settings.derive({name: assignment.where for name, assignment in given.items()})
        return settings, warnings

    def derive(self, given: Mapping[str, str]) -> list[str]:
        """Set what follows from other settings, and check what only holds together.

        `given` tells for each key that was set where it was. Returns warnings; raises ConfigError.
        """
        return []

    @classmethod
    def groups(cls) -> tuple[tuple[str, type, Mapping[str, Value]], ...]:
        """Return attribute, class and own defaults of each group."""
        return tuple(
            (f.name, f.metadata["group"], f.metadata["defaults"])
            for f in dataclasses.fields(cls)
            if "group" in f.metadata
        )

    @classmethod
    def declared(cls) -> Iterator[tuple[str, Setting]]:
        """Yield every setting with the attribute of its group; a key may occur in two groups."""
        for f in dataclasses.fields(cls):
            if "group" in f.metadata:
                unread: Mapping[str, str] = f.metadata["no_effect"]
                for setting in settings_of(f.metadata["group"]):
                    reason = unread.get(setting.attribute)
                    yield f.name, setting if reason is None else setting.without_effect(reason)

    @classmethod
    def by_name(cls) -> dict[str, Setting]:
        """Return the settings by key, aliases not included; of two with one key the first."""
        found: dict[str, Setting] = {}
        for _, setting in cls.declared():
            found.setdefault(setting.name, setting)
        return found

    @classmethod
    def _without_effect(cls, given: Mapping[str, Assignment]) -> list[str]:
        """Name the settings without effect that a file or an option sets, all on one line."""
        effective = {setting.name for _, setting in cls.declared() if setting.no_effect is None}
        unread = {
            name: assignment.place
            for name, assignment in given.items()
            if name not in effective and not assignment.from_environment
        }
        if not unread:
            return []
        places = ", ".join(dict.fromkeys(unread.values()))
        return [f"{places}: set, but without effect in rocketd (docs/settings.md says why): {', '.join(unread)}"]

    def effective(self) -> Iterator[tuple[Setting, Value]]:
        """Yield every setting once with the value in effect, in the order of declaration."""
        seen = set()
        for attribute, setting in self.declared():
            if setting.name not in seen:
                seen.add(setting.name)
                yield setting, getattr(getattr(self, attribute), setting.attribute)

    def get(self, key: str) -> Value:
        """Return the value in effect by Apache's key. Raises KeyError."""
        for setting, value in self.effective():
            if setting.name == key:
                return value
        raise KeyError(key)

    def update(self, text: str) -> list[KeyResult]:
        """Apply the `key=value` lines of an update request; each key stands for itself, good ones are taken.

        Accepted values that need a restart are kept in `pending` and change nothing now. Raises ValueError when the
        text is not properties syntax.
        """
        pairs = {entry.key: entry.value for entry in properties_file.parse(text)}
        return [self._update_one(key, value) for key, value in pairs.items()]

    def properties_text(self) -> str:
        """Write all values in effect as `key=value` lines, the body of the answers to codes 26 and 319.

        As in Apache's answer unset values and -D properties are left out and nothing is escaped; the order, which there
        is that of a hash table, is that of declaration.
        """
        return "".join(
            f"{setting.name}={text_of(value)}\n"
            for setting, value in self.effective()
            if value is not None and not setting.system_property and not setting.secret
        )

    def printed(self, important_only: bool = False) -> str:
        """Write all values in effect in properties syntax with their docs as comments, by group.

        Reading the text as a config file gives the same settings, passwords excepted, which it does not tell.
        """
        lines: list[str] = []
        seen: set[str] = set()
        for attribute, settings_class, _ in self.groups():
            shown = [
                s
                for where, s in self.declared()
                if where == attribute and s.name not in seen and (s.important or not important_only)
            ]
            if shown:
                lines += ["", f"# ---- {settings_class.__name__} ----"]
            for setting in shown:
                seen.add(setting.name)
                lines += [
                    f"# {describe(setting)}",
                    _printed(setting, getattr(getattr(self, attribute), setting.attribute)),
                ]
        return "\n".join(lines[1:]) + "\n"

    @classmethod
    def _resolve(cls, layer: Sequence[Assignment], warnings: list[str]) -> dict[str, Assignment]:
        """Keep the last assignment of each key in one layer, by name; unknown keys become warnings."""
        known = cls.by_name()
        by_alias: dict[str, list[str]] = {}
        for name, setting in known.items():
            for alias in setting.aliases:
                by_alias.setdefault(alias, []).append(name)
        found: dict[str, Assignment] = {}
        aliased: dict[str, Assignment] = {}
        for assignment in layer:
            if assignment.key in known:
                found[assignment.key] = assignment
            elif assignment.key in by_alias:
                aliased |= dict.fromkeys(by_alias[assignment.key], assignment)
            else:
                hint = did_you_mean(assignment.key, [*known, *by_alias])
                warnings.append(f"{assignment.where}: unknown key {one_line(assignment.key)} is ignored{hint}")
        return aliased | found

    @classmethod
    def _build(cls, machine: Machine, given: Mapping[str, Assignment]) -> Self:
        made: dict[str, Any] = {}
        for attribute, settings_class, defaults in cls.groups():
            values = {
                setting.attribute: _read(setting, given[setting.name])
                if setting.name in given
                else defaults.get(setting.attribute, setting.factory(machine))
                for setting in settings_of(settings_class)
            }
            made[attribute] = settings_class(**values)
        return cls(machine=machine, **made)

    def _update_one(self, key: str, text: str) -> KeyResult:
        places = [
            (attribute, setting) for attribute, setting in self.declared() if key in (setting.name, *setting.aliases)
        ]
        if not places:
            hint = did_you_mean(key, self.by_name())
            return KeyResult(key, text, Outcome.UNKNOWN, hint.removeprefix("; "))
        setting = places[0][1]
        if not setting.remote:
            return KeyResult(key, text, Outcome.REFUSED, "set it in the config file and restart")
        try:
            value = setting.parse(text)
        except ValueError as error:
            return KeyResult(key, text, Outcome.BAD_VALUE, f"{one_line(text)}: accepted is {error}")
        has_effect = any(place.no_effect is None for _, place in places)
        if has_effect and not setting.hot:
            self.pending[setting.name] = text_of(value)
            return KeyResult(key, text, Outcome.RESTART)
        for attribute, place in places:
            setattr(getattr(self, attribute), place.attribute, value)
        return KeyResult(key, text, Outcome.APPLIED if has_effect else Outcome.NO_EFFECT)


def describe(setting: Setting) -> str:
    """Say on one line what a setting means, with unit, accepted values and how its default is computed."""
    extras = []
    if setting.unit:
        extras.append(f"in {setting.unit}")
    if setting.choices:
        extras.append(setting.accepts())
    if setting.formula:
        extras.append(f"default: {setting.formula}")
    return setting.doc + (f" ({'; '.join(extras)})" if extras else "")


def _printed(setting: Setting, value: Value) -> str:
    if value is None:
        return f"# {setting.name} is not set"
    if setting.secret:
        return f"# {setting.name}={HIDDEN}"
    return properties_file.format_pair(setting.name, text_of(value))


def _read(setting: Setting, assignment: Assignment) -> Value:
    try:
        return setting.parse(assignment.text)
    except ValueError as error:
        shown = HIDDEN if setting.secret else one_line(assignment.text)
        raise ConfigError(f"{assignment.where}: {assignment.key} = {shown}: accepted is {error}") from None
