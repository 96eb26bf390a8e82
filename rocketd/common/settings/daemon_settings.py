"""The settings of one daemon: loaded from file and options, printed, changed at run time.

Counterpart: `Configuration`, and the option reading of `NamesrvStartup` and `BrokerStartup` (Apache). The groups of a
daemon (dataclasses, see `config`) are held by a subclass of `DaemonSettings`. A load gives complete settings or a
ConfigError. An update reports the result of each key.
"""

import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self, TypeVar

from twisted.logger import Logger

from rocketd.common.settings import properties_file
from rocketd.common.settings.assignments import Assignment, from_environment, from_file, from_tls_file
from rocketd.common.settings.declaration import (
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
from rocketd.common.settings.kept_changes import read_changes
from rocketd.common.suggest import did_you_mean

G = TypeVar("G")

_log = Logger()


def group(cls: type[G], *, no_effect: Mapping[str, str] | None = None, **defaults: Value) -> G:
    """Declare a group of settings in a DaemonSettings. `defaults` are the daemon's, by attribute.

    ``no_effect`` has the attributes not read by this daemon, each with the reason.
    """
    made: Any = field(
        default_factory=lambda: cls(**defaults),
        metadata={"group": cls, "defaults": defaults, "no_effect": no_effect or {}},
    )
    result: G = made
    return result


class UpdateResult(StrEnum):
    """Result of one key of an update, in words for the answer."""

    APPLIED = "applied now"
    NO_EFFECT = "has no effect in rocketd"
    RESTART = "needs restart"
    UNKNOWN = "unknown key"
    BAD_VALUE = "bad value"
    REFUSED = "not changeable by request"


@dataclass(frozen=True, slots=True)
class KeyResult:
    """Result of one key of an update, with details."""

    key: str
    text: str
    outcome: UpdateResult
    explanation: str = ""
    name: str = ""
    """Key of the setting (``key`` may be an alias), empty without one."""

    @property
    def accepted(self) -> bool:
        """Whether the value is valid and belongs into the file."""
        return self.outcome in (UpdateResult.APPLIED, UpdateResult.NO_EFFECT, UpdateResult.RESTART)

    def __str__(self) -> str:
        return f"{one_line(self.key)}: {self.outcome}" + (f" ({self.explanation})" if self.explanation else "")


def changes_of(results: Iterable[KeyResult]) -> dict[str, str]:
    """Return the accepted values of an update by the names of their settings, for the file."""
    return {result.name: result.text for result in results if result.accepted}


def update_remark(results: Iterable[KeyResult]) -> str | None:
    """Return in words the accepted keys of an update without immediate effect. None if all have effect."""
    remarks = [
        f"{result.key}: {_NOT_NOW.get(result.outcome, result.outcome)}"
        + (f" ({result.explanation})" if result.explanation else "")
        for result in results
        if result.accepted and (result.outcome is not UpdateResult.APPLIED or result.explanation)
    ]
    return "; ".join(remarks) or None


OPTION, NAMESRV_OPTION = OPTIONS = ("-o", "-n")
_NOT_NOW = {UpdateResult.RESTART: "no effect before the next start"}
_PENDING = "rocketd.pending."
"""Prefix of a pending value's key in the answers to codes 26 and 319."""


@settings_group
class DaemonSettings:
    """Base of all settings of a daemon. The fields of a subclass are its groups.

    May be read by any thread. Belongs to the loading thread, later to the thread that calls `update`. Attributes are
    assigned one by one, so a reader sees the old value or the new one.
    """

    config_file: str | None = None
    """Absolute path of the file that was read."""
    machine: Machine = field(default_factory=Machine.local, repr=False)
    pending: dict[str, str] = field(default_factory=dict)
    """Accepted values by key that take effect at the next start. If an option sets the key, the option wins and there
    is no entry.
    """
    changes_file: str | None = field(default=None, repr=False)
    """Path of the file of changes by request read at a start with the same options, with or without ``--config``."""
    start_hint: str = field(default="", repr=False)
    """A hint for start errors: the file of changed settings, if some are in effect."""
    start_fault: Callable[[Any], str | None] | None = field(default=None, repr=False, compare=False)
    """Returns why the daemon would not start with settings of this class, None if it would. Set by the daemon.

    Called by ``update`` for conditions outside the settings. It may block the thread of ``update``.
    """
    given: dict[str, str] = field(default_factory=dict, repr=False)
    """Keys set at loading, with their place: in a file, an option, a variable."""
    loaded: dict[str, Value] = field(default_factory=dict, repr=False, compare=False)
    """Values at loading by key. A daemon may have replaced some that cannot change while it runs."""

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

        Later sources win. The default of `environ` is empty, that of `home` the user's. Return the settings and
        warnings, one line each: unknown keys, adjusted values, settings without effect. Raises ConfigError for unusable
        values.
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
        # The path of the changes depends on settings that requests cannot change.
        kept = cls._build(machine, given).kept_changes_file()
        if kept is None or (path is not None and os.path.abspath(kept) == os.path.abspath(path)):
            return cls._load(machine, path, given, warnings)
        changes = cls._resolve(read_changes(kept, cls.by_name(), warnings, expected=path is None), warnings)
        in_effect = [name for name in changes if name not in in_file and name not in by_option]
        if not in_effect:
            settings, warnings = cls._load(machine, path, given, warnings)
            settings.changes_file = kept
            return settings, warnings
        warnings.append(f"{kept}: settings changed by request are in effect: {', '.join(in_effect)}")
        hint = f" (settings changed by request are in {kept}: correct or remove it)"
        try:
            settings, warnings = cls._load(
                machine, path, environment | tls_file | changes | in_file | by_option, warnings
            )
        except ConfigError as error:
            raise ConfigError(f"{error}{hint}") from None
        settings.start_hint, settings.changes_file = hint, kept
        return settings, warnings

    @classmethod
    def _load(
        cls, machine: Machine, path: str | None, given: Mapping[str, Assignment], warnings: list[str]
    ) -> tuple[Self, list[str]]:
        warnings += cls._without_effect(given)
        settings = cls._build(machine, given)
        settings.config_file = os.path.abspath(path) if path is not None else None
        settings.given = {name: assignment.where for name, assignment in given.items()}
        warnings += settings.derive(settings.given)
        settings.loaded = {setting.name: value for setting, value in settings.effective()}
        return settings, warnings

    def kept_changes_file(self) -> str | None:
        """Return the path of the file for settings changed by requests, used without a configuration file."""
        return None

    def derive(self, given: Mapping[str, str]) -> list[str]:
        """Set values derived from other settings, and check their combinations.

        `given` has the place of each key that was set. Return warnings. Raises ConfigError.
        """
        return []

    @classmethod
    def groups(cls) -> tuple[tuple[str, type, Mapping[str, Value]], ...]:
        """Return attribute, class and the daemon's defaults of each group."""
        return tuple(
            (f.name, f.metadata["group"], f.metadata["defaults"])
            for f in dataclasses.fields(cls)
            if "group" in f.metadata
        )

    @classmethod
    def declared(cls) -> Iterator[tuple[str, Setting]]:
        """Yield (attribute of the group, setting) for every setting. A key may occur in two groups."""
        for f in dataclasses.fields(cls):
            if "group" in f.metadata:
                unread: Mapping[str, str] = f.metadata["no_effect"]
                for setting in settings_of(f.metadata["group"]):
                    reason = unread.get(setting.attribute)
                    yield f.name, setting if reason is None else setting.without_effect(reason)

    @classmethod
    def by_name(cls) -> dict[str, Setting]:
        """Return the settings by key, without aliases. The first one wins if a key occurs twice."""
        found: dict[str, Setting] = {}
        for _, setting in cls.declared():
            found.setdefault(setting.name, setting)
        return found

    @classmethod
    def _without_effect(cls, given: Mapping[str, Assignment]) -> list[str]:
        """Name all settings without effect set by a file or an option, on one line, by their keys there."""
        effective = {setting.name for _, setting in cls.declared() if setting.no_effect is None}
        unread = {
            assignment.key: assignment.place
            for name, assignment in given.items()
            if name not in effective and not assignment.from_environment
        }
        if not unread:
            return []
        places = ", ".join(dict.fromkeys(unread.values()))
        return [f"{places}: set, but without effect in rocketd (docs/settings.md says why): {', '.join(unread)}"]

    def effective(self) -> Iterator[tuple[Setting, Value]]:
        """Yield every setting once with its value, in the order of declaration."""
        seen = set()
        for attribute, setting in self.declared():
            if setting.name not in seen:
                seen.add(setting.name)
                yield setting, getattr(getattr(self, attribute), setting.attribute)

    def get(self, key: str) -> Value:
        """Return the value by Apache's key. Raises KeyError."""
        for setting, value in self.effective():
            if setting.name == key:
                return value
        raise KeyError(key)

    def update(self, text: str) -> list[KeyResult]:
        """Apply the `key=value` lines of an update request. Keys are independent; valid ones are applied.

        Accepted values that need a restart are kept in `pending` and change nothing now. They are refused if the next
        start would fail with them. Raises ValueError if the text is not in properties syntax.
        """
        pairs = {entry.key: entry.value for entry in properties_file.parse(text)}
        before = dict(self.pending)
        results = [self._update_one(key, value) for key, value in pairs.items()]
        if self.pending == before or (fault := self._fault_at_next_start()) is None:
            return results
        self.pending = before
        return [
            KeyResult(result.key, result.text, UpdateResult.BAD_VALUE, f"the next start would fail: {fault}")
            if result.outcome is UpdateResult.RESTART
            else result
            for result in results
        ]

    def _fault_at_next_start(self) -> str | None:
        """Return why a start with the present and pending settings would fail, None if it would not."""
        groups = {attribute: dataclasses.replace(getattr(self, attribute)) for attribute, _, _ in self.groups()}
        tried = dataclasses.replace(self, **groups)
        for attribute, setting in self.declared():
            if setting.name in self.pending:
                setattr(groups[attribute], setting.attribute, setting.parse(self.pending[setting.name]))
        try:
            tried.derive(_Places(self.given | dict.fromkeys(self.pending, "with this change")))
        except ConfigError as error:
            return str(error)
        return None if self.start_fault is None else self.start_fault(tried)

    def take(self, fresh: Self) -> tuple[list[str], list[str]]:
        """Apply the values of freshly loaded settings that can change now. Called in the thread of ``update``.

        Return the keys of applied values, and the keys of values that need a restart.
        """
        applied: list[str] = []
        waiting: list[str] = []
        for attribute, setting in self.declared():
            value, now = (getattr(getattr(each, attribute), setting.attribute) for each in (fresh, self))
            before = now if setting.hot else self.loaded.get(setting.name, now)
            if setting.no_effect is not None or value == before:
                continue
            if setting.hot:
                setattr(getattr(self, attribute), setting.attribute, value)
                self.pending.pop(setting.name, None)
            names = applied if setting.hot else waiting
            if setting.name not in names:
                names.append(setting.name)
        return applied, waiting

    def reload(self, load: Callable[[], tuple[Self, list[str]]]) -> list[str]:
        """Load the settings again and take their live values. Return the applied keys. Called in the thread of ``update``.

        Log the applied keys, those that need a restart, and the warnings. With unusable settings nothing changes.
        """
        try:
            fresh, warnings = load()
        except ConfigError as error:
            _log.error("the settings stay as they are: {error}", error=error)
            return []
        for warning in warnings:
            _log.warn("{text}", text=warning)
        applied, waiting = self.take(fresh)
        _log.info("changed settings applied now: {keys}", keys=", ".join(applied) or "none")
        if waiting:
            _log.warn("changed settings that need a restart: {keys}", keys=", ".join(waiting))
        return applied

    def properties_text(self) -> str:
        """Return all values as `key=value` lines, the body of the answers to codes 26 and 319.

        As in Apache's answer, unset values and -D properties are left out, and nothing is escaped. The order is that of
        declaration; Apache's is that of a hash table. Pending values follow, with the prefix `rocketd.pending.` before
        their keys.
        """
        pending = {_PENDING + name: text for name, text in self.pending.items()}
        return "".join(f"{name}={text}\n" for name, text in (self.shown_values() | pending).items())

    def shown_values(self) -> dict[str, str]:
        """Return the set values by key, without -D properties and secrets."""
        return {
            setting.name: text_of(value)
            for setting, value in self.effective()
            if value is not None and not setting.system_property and not setting.secret
        }

    def printed(self, important_only: bool = False) -> str:
        """Return all values in properties syntax, by group, with their docs as comments.

        Read as a config file, the text gives the same settings, except for hidden passwords.
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
        """Keep the last assignment of each key in one layer, by name. Unknown keys become warnings."""
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
            return KeyResult(key, text, UpdateResult.UNKNOWN, hint.removeprefix("; "))
        setting = places[0][1]
        if not setting.remote:
            return KeyResult(key, text, UpdateResult.REFUSED, "set it in the config file and restart")
        try:
            value = setting.parse(text)
        except ValueError as error:
            return KeyResult(key, text, UpdateResult.BAD_VALUE, f"{one_line(text)}: accepted is {error}")
        by_option = self.given.get(setting.name) in OPTIONS
        wins = "an option of the command line sets it at each start and has precedence" if by_option else ""
        if all(place.no_effect is not None for _, place in places):
            outcome = UpdateResult.NO_EFFECT
        elif setting.hot or value == self.get(setting.name):
            outcome = UpdateResult.APPLIED
            self.pending.pop(setting.name, None)
        else:
            if not by_option:
                self.pending[setting.name] = text_of(value)
            return KeyResult(key, text, UpdateResult.RESTART, wins, setting.name)
        for attribute, place in places:
            setattr(getattr(self, attribute), place.attribute, value)
        return KeyResult(key, text, outcome, wins, setting.name)


class _Places(dict[str, str]):
    """Places of keys. A key that was not set is at its default."""

    def __missing__(self, key: str) -> str:
        return "default"


def describe(setting: Setting) -> str:
    """Return the meaning of a setting on one line, with unit, accepted values and computation of its default."""
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
