"""Features of Apache's broker that are in use, but that rocketd lacks: from settings, from the store, from the jars."""

import json
import os
import re
import zipfile
from collections.abc import Collection, Iterator, Mapping
from glob import escape, glob
from typing import Final

from rocketd.broker.base.settings import BrokerSettings
from rocketd.common.names import TIMER_TOPIC
from rocketd.store.base.layout import config_dir
from rocketd.tools.doctor.findings import NOTE, WRONG, DoctorFinding
from rocketd.tools.migration.given_settings import ACCOUNT_FILE, DLEDGER, GivenSetting
from rocketd.tools.migration.place import MigrationPlace

TESTED_VERSION: Final = "4.9"
_DLEDGER = (
    "DLedger keeps the messages in a log of another format",
    "let consumers read all messages, then begin with an empty store: docs/decisions/0021-no-dledger.md",
)
_CONTROLLER = ("a controller chooses the master", "name master and slave by brokerRole: docs/howto/replication.md")
_ROCKSDB = (
    "RocksDB keeps queues or tables",
    "set storeType=default in Apache's broker, and let it write them as files",
)
_ACCOUNTS = (
    "accounts of RocketMQ 5 are kept in RocksDB",
    "write them into plain_acl.yml: docs/howto/access-control.md",
)
_SWITCHES: Final = {
    DLEDGER: _DLEDGER,
    "enableControllerMode": _CONTROLLER,
    "enableSlaveActingMaster": ("a slave acts as the master", "remove it; clients read from slaves in any case"),
    "authenticationEnabled": _ACCOUNTS,
    "authorizationEnabled": _ACCOUNTS,
}
"""Settings that switch on such a feature: the finding and its remedy."""
_TIERED = ("messages are in tiered storage", "read them with Apache's broker: rocketd has only the log on this disk")
_PARTS: Final = {
    "dledger-*": _DLEDGER,
    "batchconsumequeue": ("there are queues of batches", "delete their topics, or let consumers read all messages"),
    "compaction": ("there are compacted topics", "read their messages with Apache's broker, and send them again"),
    "config/tieredStoreMetadata.json": _TIERED,
    "tieredstore": _TIERED,
    "config/auth": _ACCOUNTS,
}
"""Paths in a store that exist, and are not empty, only if such a feature is in use."""
_TIMER_FILES = ("timerwheel", "timerlog")
_POP_TOPIC = "rmq_sys_REVIVE_LOG_"
_SERVICES = "META-INF/service/"
_ACCESS = "AccessValidator"
_JAVA_OPTION = re.compile(r"-D([\w.]+)=([^\s\"']*)")


def lacking_by_settings(given: Mapping[str, GivenSetting]) -> Iterator[DoctorFinding]:
    """Yield features that settings switch on."""
    for key, (text, remedy) in _SWITCHES.items():
        if key in given and given[key].text.strip().lower() == "true":
            yield DoctorFinding(WRONG, f"setting {key}", f"{given[key].where}: {text}", remedy)
    kind = given.get("storeType")
    if kind is not None and "rocksdb" in kind.text.lower():
        yield DoctorFinding(WRONG, "setting storeType", f"{kind.where}: {_ROCKSDB[0]}", _ROCKSDB[1])
    plugins = given.get("messageStorePlugIn")
    if plugins is not None and "." in plugins.text:
        text = f"{plugins.where}: {plugins.text} is a class in Java"
        remedy = "remove it, or write it in Python: docs/howto/extension-points.md"
        yield DoctorFinding(WRONG, "setting messageStorePlugIn", text, remedy)


def lacking_by_store(root: str, topics: Collection[str]) -> Iterator[DoctorFinding]:
    """Yield features whose files are in a store. ``topics`` are those with messages."""
    for name, (text, remedy) in _PARTS.items():
        for path in glob(os.path.join(escape(root), name)):
            if os.path.isfile(path) or any(os.scandir(path)):
                yield DoctorFinding(WRONG, "store", f"{path}: {text}", remedy)
    for path in (
        *glob(os.path.join(escape(root), "*", "CURRENT")),
        *glob(os.path.join(escape(root), "*", "*", "CURRENT")),
    ):
        yield DoctorFinding(WRONG, "store", f"{os.path.dirname(path)}: {_ROCKSDB[0]}", _ROCKSDB[1])
    if TIMER_TOPIC in topics and any(os.path.exists(os.path.join(root, name)) for name in _TIMER_FILES):
        text = "RocketMQ 5 has kept in its wheel which timer messages were delivered: rocketd would deliver all again"
        remedy = f"wait until Apache's broker has deleted the expired messages of {TIMER_TOPIC}"
        yield DoctorFinding(WRONG, "timer messages", text, remedy)
    popped = sorted(topic for topic in topics if topic.startswith(_POP_TOPIC))
    if popped:
        text = f"consumers of RocketMQ 5 use POP ({', '.join(popped)}): messages that they did not acknowledge get lost"
        yield DoctorFinding(WRONG, "consumers", text, "let them finish, and use consumers of the kind push or pull")
    yield from _attributes_of_topics(root)


def lacking_by_installation(place: MigrationPlace, given: Mapping[str, GivenSetting]) -> Iterator[DoctorFinding]:
    """Yield facts about an installation of Apache's: its version, its plugins, and settings of its start script."""
    if place.home is None:
        return
    jars = glob(os.path.join(escape(place.home), "lib", "*.jar"))
    for path in sorted(jars):
        name = os.path.basename(path)
        if name.startswith("rocketmq-broker-"):
            version = name.removeprefix("rocketmq-broker-").removesuffix(".jar")
            if not version.startswith(TESTED_VERSION):
                text = f"{place.home} has Apache RocketMQ {version}"
                yield DoctorFinding(NOTE, "version", text, f"the switch was tested with {TESTED_VERSION}.7")
        elif not name.startswith("rocketmq-"):
            yield from _services_of(path)
    yield from _options_of_script(os.path.join(place.home, "bin", "runbroker.sh"), given)


def _attributes_of_topics(root: str) -> Iterator[DoctorFinding]:
    try:
        with open(os.path.join(config_dir(root), "topics.json"), encoding="utf-8") as file:
            table = json.load(file)["topicConfigTable"]
        found = sorted(topic for topic, config in table.items() if "COMPACTION" in str(config.get("attributes")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return  # The proof reads the file as the broker does, and tells its faults.
    if found:
        text = f"compacted topics would be deleted as they expire: {', '.join(found)}"
        yield DoctorFinding(WRONG, "topics", text, _PARTS["compaction"][1])


def _services_of(path: str) -> Iterator[DoctorFinding]:
    try:
        with zipfile.ZipFile(path) as jar:
            names = [name.removeprefix(_SERVICES) for name in jar.namelist() if name.startswith(_SERVICES)]
    except (OSError, zipfile.BadZipFile):
        return
    for name in filter(None, names):
        level = WRONG if name.endswith(_ACCESS) else NOTE
        remedy = "write it in Python: docs/howto/extension-points.md"
        yield DoctorFinding(level, "plugins", f"{path} has a plugin in Java: {name}", remedy)


def _options_of_script(path: str, given: Mapping[str, GivenSetting]) -> Iterator[DoctorFinding]:
    """Yield settings that Java takes as -D options, but rocketd from the file."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = [line for line in file if not line.lstrip().startswith("#")]
    except OSError:
        return
    settings = [setting for setting in BrokerSettings.by_name().values() if setting.system_property]
    for key, value in _JAVA_OPTION.findall("".join(lines)):
        for setting in settings:
            if key in (setting.name, *setting.aliases) and setting.name not in given:
                text = f"{path} gives it as an option of Java, which rocketd does not see"
                shown = "VALUE" if setting.secret else value
                if setting.name == ACCOUNT_FILE:
                    shown = value.lstrip("/")  # Apache's broker looks below its installation.
                remedy = f"write {setting.name}={shown} into the configuration file"
                yield DoctorFinding(WRONG, f"setting {key}", text, remedy)
