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
from rocketd.common.kept_changes import read_changes
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
    name: str = ""
    """Key of the setting, of which ``key`` may be an alias; empty if there is none."""

    @property
    def accepted(self) -> bool:
        """Whether the value is good and belongs into the file."""
        return self.outcome in (Outcome.APPLIED, Outcome.NO_EFFECT, Outcome.RESTART)

    def __str__(self) -> str:
        return f"{one_line(self.key)}: {self.outcome}" + (f" ({self.explanation})" if self.explanation else "")


def changes_of(results: Iterable[KeyResult]) -> dict[str, str]:
    """Return the accepted values of an update by the names of their settings, as they belong into the file."""
    return {result.name: result.text for result in results if result.accepted}


def update_remark(results: Iterable[KeyResult]) -> str | None:
    """Say in words which accepted keys of an update have no effect now; None if all have."""
    remarks = [
        f"{result.key}: {_NOT_NOW.get(result.outcome, result.outcome)}"
        + (f" ({result.explanation})" if result.explanation else "")
        for result in results
        if result.accepted and (result.outcome is not Outcome.APPLIED or result.explanation)
    ]
    return "; ".join(remarks) or None


OPTION, NAMESRV_OPTION = OPTIONS = ("-o", "-n")
_NOT_NOW = {Outcome.RESTART: "no effect before the next start"}
_PENDING = "rocketd.pending."
"""Before the key of a value that waits for the next start, in the answers to codes 26 and 319."""


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
    given: dict[str, str] = field(default_factory=dict, repr=False)
    """Keys that were set when the settings were loaded, and where: a place in a file, an option, a variable."""

    @classmethod
    def load(
        cls,
        path: str | None = None,
        overrides: Iterable[tuple[str, str]] = (),
        environ: Mapping[str, str] | None = None,
        home: str | None = None,
        namesrv_addr: str | None = None,
    ) -> tuple[Self, list[str]]:
        """Read the settings: defaults, environment, changes by request, file, overrides (-o), name servers (-n).

        Each wins over those before it. `environ` is empty and `home` this user's unless given. Returns the settings and
        warnings, one line each: unknown keys, values that had to be changed, settings without effect. Raises ConfigError
        for anything that cannot be used.
        """
        machine = Machine.local(environ, home)
        options = [Assignment(OPTION, key, text) for key, text in overrides]
        if namesrv_addr is not None and "namesrvAddr" in cls.by_name():
            options.append(Assignment(NAMESRV_OPTION, "namesrvAddr", namesrv_addr))
        file = from_file(path) if path is not None else []
        layers = [
            from_environment(cls.by_name().values(), machine.environ),
            from_tls_file([*file, *options]),
            file,
            options,
        ]
        warnings: list[str] = []
        environment, tls_file, in_file, by_option = (cls._resolve(layer, warnings) for layer in layers)
        given = environment | tls_file | in_file | by_option
        # Where changes are kept depends on settings that no request may change.
        kept = cls._build(machine, given).kept_changes_file()
        if kept is None or (path is not None and os.path.abspath(kept) == os.path.abspath(path)):
            return cls._load(machine, path, given, warnings)
        changes = cls._resolve(read_changes(kept, cls.by_name(), warnings, expected=path is None), warnings)
        in_effect = [name for name in changes if name not in in_file and name not in by_option]
        if not in_effect:
            return cls._load(machine, path, given, warnings)
        warnings.append(f"{kept}: settings changed by request are in effect: {', '.join(in_effect)}")
        try:
            return cls._load(machine, path, environment | tls_file | changes | in_file | by_option, warnings)
        except ConfigError as error:
            raise ConfigError(f"{error} (settings changed by request are in {kept}: correct or remove it)") from None

    @classmethod
    def _load(
        cls, machine: Machine, path: str | None, given: Mapping[str, Assignment], warnings: list[str]
    ) -> tuple[Self, list[str]]:
        warnings += cls._without_effect(given)
        settings = cls._build(machine, given)
        settings.config_file = os.path.abspath(path) if path is not None else None
        settings.given = {name: assignment.where for name, assignment in given.items()}
        warnings += settings.derive(settings.given)
        return settings, warnings

    def kept_changes_file(self) -> str | None:
        """Return the path of the file that keeps changes by request if there is no configuration file."""
        return None

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

        Accepted values that need a restart are kept in `pending` and change nothing now. They are refused if the next
        start would fail with them. Raises ValueError when the text is not properties syntax.
        """
        pairs = {entry.key: entry.value for entry in properties_file.parse(text)}
        before = dict(self.pending)
        results = [self._update_one(key, value) for key, value in pairs.items()]
        if self.pending == before or (fault := self._fault_at_next_start()) is None:
            return results
        self.pending = before
        return [
            KeyResult(result.key, result.text, Outcome.BAD_VALUE, f"the next start would fail: {fault}")
            if result.outcome is Outcome.RESTART
            else result
            for result in results
        ]

    def _fault_at_next_start(self) -> str | None:
        """Return what `derive` has against the settings in effect with those that are pending; None if nothing."""
        groups = {attribute: dataclasses.replace(getattr(self, attribute)) for attribute, _, _ in self.groups()}
        tried = dataclasses.replace(self, **groups)
        for attribute, setting in self.declared():
            if setting.name in self.pending:
                setattr(groups[attribute], setting.attribute, setting.parse(self.pending[setting.name]))
        try:
            tried.derive(_Places(self.given | dict.fromkeys(self.pending, "with this change")))
        except ConfigError as error:
            return str(error)
        return None

    def properties_text(self) -> str:
        """Write all values in effect as `key=value` lines, the body of the answers to codes 26 and 319.

        As in Apache's answer unset values and -D properties are left out and nothing is escaped; the order, which there
        is that of a hash table, is that of declaration. Values that wait for the next start follow, each under its key
        with `rocketd.pending.` before it.
        """
        values = [
            (setting.name, text_of(value))
            for setting, value in self.effective()
            if value is not None and not setting.system_property and not setting.secret
        ]
        values += [(_PENDING + name, text) for name, text in self.pending.items()]
        return "".join(f"{name}={text}\n" for name, text in values)

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
        by_option = self.given.get(setting.name) in OPTIONS
        wins = "an option of the command line sets it at each start, and wins" if by_option else ""
        if all(place.no_effect is not None for _, place in places):
            outcome = Outcome.NO_EFFECT
        elif setting.hot or value == self.get(setting.name):
            outcome = Outcome.APPLIED
            self.pending.pop(setting.name, None)
        else:
            self.pending[setting.name] = text_of(value)
            return KeyResult(key, text, Outcome.RESTART, wins, setting.name)
        for attribute, place in places:
            setattr(getattr(self, attribute), place.attribute, value)
        return KeyResult(key, text, outcome, wins, setting.name)


class _Places(dict[str, str]):
    """Where keys were set; a key that is asked for although it was not set is at its default."""

    def __missing__(self, key: str) -> str:
        return "default"


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
