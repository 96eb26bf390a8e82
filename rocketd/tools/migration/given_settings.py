"""The settings of a configuration file, each with its effect in rocketd."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from rocketd.broker.base.settings import BrokerSettings
from rocketd.common.settings.assignments import Assignment, from_file
from rocketd.common.settings.daemon_settings import OPTION
from rocketd.common.settings.declaration import HIDDEN, ConfigError, Setting
from rocketd.common.suggest import did_you_mean
from rocketd.tools.doctor.findings import NOTE, WRONG, DoctorFinding
from rocketd.tools.migration.place import MigrationPlace

DLEDGER = "enableDLegerCommitLog"
ACCOUNT_FILE = "rocketmq.acl.plain.file"
OF_THE_STORE = (
    "storePathRootDir",
    "storePathCommitLog",
    "readOnlyCommitLogStorePaths",
    "rocketmq.broker.multiPathSplitter",
    "mappedFileSizeCommitLog",
    "mappedFileSizeConsumeQueue",
    "maxHashSlotNum",
    "maxIndexNum",
    "messageDelayLevel",
    "enableLmq",
)
"""Settings that an examination of the store needs."""


class Effect(StrEnum):
    """The effect of a given setting in rocketd."""

    SAME = "same"
    NO_EFFECT = "no effect"
    UNKNOWN = "unknown"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class GivenSetting:
    """A setting as given, and its effect. ``explanation`` is the reason unless the effect is the same."""

    where: str
    key: str
    text: str = field(repr=False)
    effect: Effect
    explanation: str = ""
    setting: Setting | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """The key of the setting, if the given key is another name of it."""
        return self.key if self.setting is None else self.setting.name

    @property
    def shown(self) -> str:
        """The value for output. A secret is hidden."""
        return HIDDEN if self.setting is not None and self.setting.secret else self.text

    @property
    def is_option(self) -> bool:
        """Whether it comes from the command line, not from the file."""
        return self.where == OPTION


def read_given(place: MigrationPlace) -> dict[str, GivenSetting]:
    """Return the given settings by name; the last value of a key counts. Raises ConfigError for an unreadable file."""
    given = from_file(place.config) if place.config is not None else []
    given += [Assignment(OPTION, key, text) for key, text in place.overrides]
    judged = [_judge(assignment) for assignment in given]
    return {each.name: each for each in judged}


def _judge(given: Assignment) -> GivenSetting:
    where, key, text = given.where, given.key, given.text
    found = [setting for _, setting in BrokerSettings.declared() if key in (setting.name, *setting.aliases)]
    if not found:
        reason = f"Apache's 4.9.7 does not know it either{did_you_mean(key, BrokerSettings.by_name())}"
        return GivenSetting(where, key, text, Effect.UNKNOWN, reason)
    setting = found[0]
    try:
        setting.parse(text)
    except ValueError as error:
        return GivenSetting(where, key, text, Effect.REFUSED, f"accepted is {error}", setting)
    if setting.name == DLEDGER and text.strip().lower() == "true":
        return GivenSetting(where, key, text, Effect.REFUSED, "rocketd has no DLedger commit log", setting)
    if all(each.no_effect is not None for each in found):
        return GivenSetting(where, key, text, Effect.NO_EFFECT, setting.no_effect or "", setting)
    return GivenSetting(where, key, text, Effect.SAME, setting=setting)


def judge_faults(given: dict[str, GivenSetting]) -> Iterator[DoctorFinding]:
    """Yield findings about refused and unknown settings. DLedger has findings of its own."""
    for each in given.values():
        subject = f"setting {each.key}"
        if each.effect is Effect.REFUSED and each.name != DLEDGER:
            text = f"{each.where}: {each.shown or 'an empty value'} is refused: {each.explanation}"
            remedy = "correct it; Apache's broker uses its default if it cannot read a value"
            yield DoctorFinding(WRONG, subject, text, remedy)
        elif each.effect is Effect.UNKNOWN:
            yield DoctorFinding(NOTE, subject, f"unknown: {each.explanation}", "correct or remove it")


def judge_without_effect(given: dict[str, GivenSetting]) -> Iterator[DoctorFinding]:
    """Yield findings about settings without effect in rocketd."""
    for each in given.values():
        if each.effect is Effect.NO_EFFECT:
            text = f"no effect in rocketd: {each.explanation}"
            yield DoctorFinding(NOTE, f"setting {each.key}", text, "none; it may stay")


def load_usable(
    given: dict[str, GivenSetting], place: MigrationPlace
) -> tuple[BrokerSettings | None, list[DoctorFinding]]:
    """Load the settings without the refused ones.

    Return None if even the paths of the store are unusable, and findings about settings that contradict each other.
    """
    pairs = [(each.key, each.text) for each in given.values() if each.effect in (Effect.SAME, Effect.NO_EFFECT)]
    try:
        return _load(pairs, place), []
    except ConfigError as error:
        text = str(error).removeprefix(f"{OPTION}: ")
        finding = DoctorFinding(WRONG, "settings", text, "correct the value; docs/settings.md has each setting")
    try:
        return _load([(key, text) for key, text in pairs if key in OF_THE_STORE], place), [finding]
    except ConfigError:
        return None, [finding]


def _load(pairs: Sequence[tuple[str, str]], place: MigrationPlace) -> BrokerSettings:
    settings, _ = BrokerSettings.load(None, pairs, place.environ)
    return settings
