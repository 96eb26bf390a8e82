"""Findings about this machine, a broker's settings and its store.

The store is looked at from outside, whether its broker runs or not. Nothing is changed or locked.
"""

import os
from collections.abc import Iterable, Iterator, Sequence

from rocketd import core
from rocketd.broker.base.settings import BrokerSettings
from rocketd.common.settings.declaration import ConfigError
from rocketd.store.base.layout import abort_path, checkpoint_path, consume_queue_dir, lock_path
from rocketd.store.log.log_paths import named_paths
from rocketd.tools.doctor.findings import NOTE, WRONG, DoctorFinding
from rocketd.tools.doctor.machine import LockOwner, MachineFacts, file_system_of, lock_owner, open_files_of

LEAST_OPEN_FILES = 65_536
USUAL_MAPPINGS = 65_530
TESTED_PYTHONS = ((3, 11), (3, 14))
"""The oldest and the newest tested version."""
CLOCK_TOLERANCE = 5.0
"""Seconds by which a file may be younger than now."""
_REMOTE = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "fuse.sshfs", "fuse.glusterfs")
_PASSING = ("tmpfs", "ramfs", "overlay", "aufs")
_OURS = ("rocketd",)


def load_settings(
    path: str | None, overrides: Iterable[tuple[str, str]]
) -> tuple[BrokerSettings | None, list[DoctorFinding]]:
    """Return a broker's settings, None if they are refused, and findings about them."""
    try:
        settings, warnings = BrokerSettings.load(path, overrides, os.environ)
    except ConfigError as error:
        return None, [
            DoctorFinding(WRONG, "settings", str(error), "correct the value; docs/settings.md has each setting")
        ]
    remedy = "remove or correct them; docs/settings.md has each setting"
    return settings, [DoctorFinding(WRONG, "settings", warning, remedy) for warning in warnings]


def judge_machine(facts: MachineFacts) -> Iterator[DoctorFinding]:
    """Yield findings about limits, Python and clock."""
    if facts.open_files < LEAST_OPEN_FILES:
        yield _few_open_files(f"a process may open {facts.open_files} files")
    if facts.mappings is not None and facts.mappings < USUAL_MAPPINGS:
        text = f"vm.max_map_count is {facts.mappings}: queues share mappings, which costs time"
        yield DoctorFinding(
            WRONG, "limits", text, f"sysctl -w vm.max_map_count={4 * USUAL_MAPPINGS}, and in /etc/sysctl.d"
        )
    version = ".".join(map(str, facts.python))
    if not TESTED_PYTHONS[0] <= facts.python <= TESTED_PYTHONS[1]:
        newest = ".".join(map(str, TESTED_PYTHONS[1]))
        yield DoctorFinding(NOTE, "python", f"Python {version} is not tested", f"use Python {newest} or older")
    if facts.core == core.STALE_KIND:
        yield DoctorFinding(WRONG, "python", facts.core, "install rocketd again, or run setup.py build_ext --inplace")
    elif facts.core != core.COMPILED_KIND:
        remedy = "install rocketd again where a C compiler and the headers of Python are"
        yield DoctorFinding(NOTE, "python", f"{facts.core}: each message costs more CPU time", remedy)
    if facts.clock_is_synchronized is False:
        text = "the kernel says that the clock is not synchronized: times of messages differ between machines"
        yield DoctorFinding(WRONG, "clock", text, "run an NTP client, such as chrony or systemd-timesyncd")


def judge_store(settings: BrokerSettings, facts: MachineFacts) -> Iterator[DoctorFinding]:
    """Yield findings about the disks and files of a store."""
    store = settings.store
    root = store.store_path_root_dir
    disks = {os.stat(_existing(path)).st_dev: path for path in reversed((root, *named_paths(store)))}
    for path in disks.values():
        yield from _judge_disk(path, settings)
    if not os.path.isdir(root):
        yield DoctorFinding(NOTE, "store", f"{root} does not exist", "the first start of the broker creates it")
        return
    denied = [path for path in _files_of(root) if os.path.exists(path) and not os.access(path, os.R_OK | os.W_OK)]
    if denied:
        text = f"user {os.geteuid()} may not read and write {', '.join(denied)}"
        yield DoctorFinding(
            WRONG, "store", text, "run the doctor as the broker's user, or give the files to this user: chown -R"
        )
        return
    yield from _judge_times(root, facts)
    try:
        owner = lock_owner(root)
    except OSError as error:
        text = f"the lock of {root} cannot be read: {error.strerror}"
        yield DoctorFinding(
            WRONG, "store", text, f"check the rights and the file system of {lock_path(root)}: the broker opens it, too"
        )
        return
    if owner is not None:
        yield from _judge_owner(root, owner)
    elif os.path.exists(abort_path(root)):
        text = f"{root} was not closed: its last broker was killed, or the machine stopped"
        yield DoctorFinding(NOTE, "store", text, "none: the next start checks the end of the log")
    files = sum(len(names) for _, _, names in os.walk(consume_queue_dir(root)))
    if facts.mappings is not None and files > facts.mappings // 2:
        text = f"{files} queue files, but only {facts.mappings // 2} of them are mapped at a time"
        yield DoctorFinding(WRONG, "limits", text, f"sysctl -w vm.max_map_count={4 * files}, and in /etc/sysctl.d")


def _judge_disk(path: str, settings: BrokerSettings) -> Iterator[DoctorFinding]:
    place = _existing(path)
    store = settings.store
    figures = os.statvfs(place)
    used = (figures.f_blocks - figures.f_bfree) * figures.f_frsize
    free = figures.f_bavail * figures.f_frsize
    percent = 100 * used / max(1, used + free)
    facts = f"the disk of {path} is {percent:.0f} % full"
    remedy = "make room, use a larger disk, or keep messages for less time: fileReservedTime"
    if percent / 100 >= store.disk_space_warning_level_ratio:
        limit = f"{100 * store.disk_space_warning_level_ratio:.0f} %"
        yield DoctorFinding(WRONG, "disk", f"{facts}: from {limit} on, messages are refused", remedy)
    elif percent >= store.disk_max_used_space_ratio:
        limit = f"diskMaxUsedSpaceRatio={store.disk_max_used_space_ratio}"
        yield DoctorFinding(WRONG, "disk", f"{facts}: from {limit} on, expired files are deleted at any hour", remedy)
    elif free < 2 * store.mapped_file_size_commit_log:
        text = f"the disk of {path} has room for less than two files of the log: {free >> 20} MiB"
        yield DoctorFinding(WRONG, "disk", text, remedy)
    kind = file_system_of(place)
    if kind in _REMOTE:
        text = f"{path} is on {kind}: a flush may not reach a disk, and a lock may not exclude another broker"
        yield DoctorFinding(WRONG, "disk", text, "use a disk of this machine, with ext4 or XFS")
    elif kind in _PASSING:
        text = f"{path} is on {kind}: its messages are lost with the machine or the container"
        yield DoctorFinding(WRONG, "disk", text, "use a disk or a volume, and name it in storePathRootDir")


def _judge_times(root: str, facts: MachineFacts) -> Iterator[DoctorFinding]:
    for path in (checkpoint_path(root), abort_path(root)):
        try:
            ahead = os.stat(path).st_mtime - facts.now
        except OSError:
            continue
        if ahead > CLOCK_TOLERANCE:
            text = f"{path} was written {ahead:.0f} s after now: the clock has gone back"
            yield DoctorFinding(
                WRONG, "clock", text, "set the clock, and run an NTP client; docs/howto/clock.md has the effects"
            )
            return


def _judge_owner(root: str, owner: LockOwner) -> Iterator[DoctorFinding]:
    if not owner.pid or not owner.command:
        text = f"{root} is open in a process of another container or user"
        yield DoctorFinding(NOTE, "store", text, "none, if it is the broker of this store")
        return
    if not any(word in owner.command for word in _OURS):
        text = f"{root} is open in process {owner.pid}, which is not rocketd: {owner.command[:200]}"
        yield DoctorFinding(WRONG, "store", text, "stop that process before you start the broker")
        return
    limit = open_files_of(owner.pid)
    if limit is not None and limit < LEAST_OPEN_FILES:
        yield _few_open_files(f"the broker (process {owner.pid}) may open {limit} files")


def _few_open_files(text: str) -> DoctorFinding:
    text += ": each connection and most files of the store need one"
    return DoctorFinding(
        WRONG, "limits", text, "LimitNOFILE=655350 in the unit, or nofile in /etc/security/limits.conf"
    )


def _files_of(root: str) -> Sequence[str]:
    return root, os.path.join(root, "commitlog"), os.path.join(root, "config"), checkpoint_path(root), lock_path(root)


def _existing(path: str) -> str:
    """Return a path, or the nearest directory above it that exists."""
    path = os.path.abspath(path)
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return path
