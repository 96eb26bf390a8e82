"""Settings and files that only rocketd has, and their fate in Apache's broker 4.9.7."""

import os
from collections.abc import Iterator, Mapping
from typing import Final

from rocketd.broker.base.settings import KEPT_CHANGES, BrokerSettings
from rocketd.broker.timer.records import Cancellation, Done, Wait, hash_of, read_event
from rocketd.common.logs.settings import LogConfig
from rocketd.common.names import TIMER_TOPIC
from rocketd.common.process.process_settings import ProcessConfig
from rocketd.common.settings.declaration import settings_of
from rocketd.common.settings.properties_file import decode, parse
from rocketd.metrics.settings import MetricsConfig
from rocketd.remoting.serving.settings import ServerLimits
from rocketd.store.base.errors import RecordError
from rocketd.store.base.filesystem import RealFileSystem
from rocketd.store.base.layout import config_dir
from rocketd.store.base.table_journal import SUFFIX, read_journal
from rocketd.store.offline.stopped_store import StoppedStore
from rocketd.tools.doctor.findings import NOTE, WRONG, DoctorFinding
from rocketd.tools.migration.given_settings import DLEDGER, Effect, GivenSetting

_NO_LIMIT: Final = "has no such limit"
_OPEN: Final = "accepts such requests from every address: let only the right networks reach its ports"
_HA_OPEN: Final = "lets every address copy the log: let only slaves reach haListenPort"
_HA_PLAIN: Final = "replicates without TLS: protect the network between master and slaves"
OWN_SETTINGS: Final[Mapping[str, str]] = {
    **{setting.name: _NO_LIMIT for setting in settings_of(ServerLimits)},
    **{setting.name: "writes logs as conf/logback_broker.xml says" for setting in settings_of(LogConfig)},
    **{setting.name: "has no page of metrics: run Apache's exporter" for setting in settings_of(MetricsConfig)},
    **{setting.name: "uses all cores" for setting in settings_of(ProcessConfig)},
    "serverAllowedAddresses": _OPEN,
    "adminWithoutAcl": _OPEN,
    "aclStrict": "leaves operations open to every account: docs/decisions/0016-accounts.md",
    "aclCredentialsFile": "signs with the account in conf/tools.yml of its installation",
    "bindAddress": "listens on all addresses",
    "connectionLanes": "has threads of Netty instead: serverSelectorThreads",
    "groupGuardGraceTime": "does not look for members of a group that do not fit together",
    "haAllowedAddresses": _HA_OPEN,
    "haIdentifyTimeout": _HA_OPEN,
    "haMaxSlaves": _HA_OPEN,
    "haMaxSlavesPerAddress": _HA_OPEN,
    "haMaxUnidentified": _HA_OPEN,
    "haTlsEnable": _HA_PLAIN,
    "haTlsMode": _HA_PLAIN,
    "haTlsTrustCertPath": _HA_PLAIN,
    "maxConsumerGroups": _NO_LIMIT,
    "maxGroupsPerConnection": _NO_LIMIT,
    "maxHeartbeatBytes": _NO_LIMIT,
    "maxHeldPulls": _NO_LIMIT,
    "maxHeldPullsPerConnection": _NO_LIMIT,
    "maxNewGroupsByOffsetsPerSecond": _NO_LIMIT,
    "maxNewGroupsPerHeartbeat": _NO_LIMIT,
    "maxNewGroupsPerSecond": _NO_LIMIT,
    "maxNewTopicsPerSecond": _NO_LIMIT,
    "maxQueueLocks": _NO_LIMIT,
    "maxQueuesPerLockRequest": _NO_LIMIT,
    "maxSubscriptionsPerConnection": _NO_LIMIT,
    "maxSuspendTimeoutMillis": _NO_LIMIT,
    "maxTopics": _NO_LIMIT,
    "pluginStopTimeout": "has no plugins in Python",
    "singleMasterCheck": "does not notice a second master of its name",
    "timerMaxDelaySec": "has no timer messages",
    "timerWheelEnable": "has no timer messages",
}
"""Settings of a broker that Apache's 4.9.7 does not know: the words behind "Apache's broker ignores it, and"."""

OTHER_DEFAULTS: Final[Mapping[str, str]] = {"slaveTimeout": "3000"}
"""Settings with another default than in Apache's 4.9.7, and the default there."""

_OWN_FILES: Final = (
    "rocketd-deletions",
    "rocketd-files",
    "rocketd-log-begin",
    "timer",
    os.path.join("config", "lastSubscription.json"),
)
_JAVA_OPTIONS: Final = "see the printed command: JAVA_OPT"


def judge_own_settings(given: Mapping[str, GivenSetting]) -> Iterator[DoctorFinding]:
    """Yield the given settings without the same effect in Apache's broker."""
    for name, each in given.items():
        subject = f"setting {each.key}"
        if name == DLEDGER:
            if each.effect is Effect.REFUSED:
                text = f"{each.where}: Apache's broker would begin with an empty DLedger log"
                yield DoctorFinding(WRONG, subject, text, "remove it")
        elif each.effect is Effect.NO_EFFECT:
            text = f"{each.shown or 'an empty value'} had no effect in rocketd, but has one in Apache's broker"
            yield DoctorFinding(NOTE, subject, text, "check the value")
        elif name in OWN_SETTINGS:
            text = f"Apache's broker ignores it, and {OWN_SETTINGS[name]}"
            yield DoctorFinding(NOTE, subject, text, "none; it may stay in the file")
        elif each.setting is not None and each.setting.system_property and len(each.text.split()) > 1:
            text = "Apache's broker reads it as an option of Java only, and its script splits a value with a blank"
            yield DoctorFinding(WRONG, subject, text, "use a value without a blank")
        elif each.setting is not None and each.setting.system_property:
            yield DoctorFinding(NOTE, subject, "Apache's broker reads it as an option of Java only", _JAVA_OPTIONS)
        elif each.is_option:
            text = "it is an option here, but Apache's broker reads the file only"
            yield DoctorFinding(WRONG, subject, text, f"write {each.key}={each.shown} into the configuration file")


def java_options(given: Mapping[str, GivenSetting]) -> list[str]:
    """Return the options of Java with the given settings that Apache's broker does not read from its file."""
    found = []
    for name, each in given.items():
        if name in OWN_SETTINGS or each.setting is None or not each.setting.system_property:
            continue
        if each.effect is Effect.SAME:
            dotted = [key for key in (each.setting.name, *each.setting.aliases) if "." in key]
            found.append(f"-D{(dotted or [each.key])[0]}={each.shown}")
    return found


def judge_defaults(settings: BrokerSettings, given: Mapping[str, GivenSetting]) -> Iterator[DoctorFinding]:
    """Yield the settings whose default is another one in Apache's broker."""
    for name, apaches in OTHER_DEFAULTS.items():
        if name not in given and settings.store.broker_role == "SYNC_MASTER":
            text = f"not set: the default is {settings.get(name)} in rocketd, and {apaches} in Apache's broker"
            yield DoctorFinding(NOTE, f"setting {name}", text, "set it to keep the present value")


def judge_own_files(root: str, given: Mapping[str, GivenSetting]) -> Iterator[DoctorFinding]:
    """Yield the files of a store that Apache's broker does not read."""
    found = [name for name in _OWN_FILES if os.path.exists(os.path.join(root, name))]
    if found:
        text = f"Apache's broker ignores the files of rocketd: {', '.join(found)}"
        yield DoctorFinding(NOTE, "store", text, "none; leave them for the way back")
    path = os.path.join(config_dir(root), KEPT_CHANGES)
    try:
        with open(path, "rb") as file:
            pairs = parse(decode(file.read()))
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        yield DoctorFinding(WRONG, "settings", f"{path}: {error}", "look at the file: Apache's broker does not read it")
        return
    changed = [f"{pair.key}={pair.value}" for pair in pairs if pair.key not in given]
    if changed:
        text = f"settings changed by request are in {path}, which Apache's broker does not read: {', '.join(changed)}"
        yield DoctorFinding(WRONG, "settings", text, "write them into the configuration file")


def judge_journals(root: str) -> Iterator[DoctorFinding]:
    """Yield the tables of a stopped store with changes that are only in their journal. Raises OSError."""
    file_system = RealFileSystem()
    for name in ("topics.json", "subscriptionGroup.json"):
        path = os.path.join(config_dir(root), name)
        if file_system.exists(path) and read_journal(file_system, path, file_system.read_file(path)):
            text = f"the last changes are only in {path}{SUFFIX}, which Apache's broker does not read"
            yield DoctorFinding(WRONG, "tables", text, "start rocketd's broker, and stop it by Ctrl-C or SIGTERM")


def judge_timers(store: StoppedStore) -> Iterator[DoctorFinding]:
    """Yield a finding if timer messages wait: Apache's 4.9.7 keeps them, but does not deliver them."""
    count = waiting_timers(store)
    if count:
        text = f"{count} messages wait for their delivery time: Apache's 4.9.7 keeps, but does not deliver them"
        remedy = "let rocketd deliver them before the switch: docs/howto/timer-messages.md"
        yield DoctorFinding(WRONG, "timer messages", text, remedy)


def waiting_timers(store: StoppedStore) -> int:
    """Return how many timer messages wait, as the records of the log say. Raises OSError."""
    queue = next((each for each in store.queues() if (each.topic, each.queue_id) == (TIMER_TOPIC, 0)), None)
    if queue is None:
        return 0
    queue.find_end()
    waiting: dict[int, int] = {}
    """Queue offset to the hash of the identity."""
    for index in range(queue.first_from(store.log.min_offset, queue.end), queue.end):
        entry = queue.entry(index)
        segment = None if entry is None else store.log.find(entry[0])
        if entry is None or segment is None:
            continue
        position = entry[0] - segment.offset
        record = memoryview(store.log.bytes_of(segment))[position : position + entry[1]]
        try:
            event = read_event(record, entry[0])
        except (RecordError, ValueError):
            continue
        match event:
            case Wait():
                waiting[index] = event.key_hash
            case Done():
                for done in event.queue_offsets:
                    waiting.pop(done, None)
            case Cancellation():
                cancelled = hash_of(event.identity)
                waiting = {index: identity for index, identity in waiting.items() if identity != cancelled}
    return len(waiting)
