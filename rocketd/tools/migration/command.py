"""``rocketd adopt`` and ``rocketd give-back``: check a store before its broker is exchanged, and print the commands."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import wraps

import click

from rocketd.broker.base.settings import BrokerSettings
from rocketd.common.command_line.commands import command
from rocketd.common.command_line.errors import CommandError
from rocketd.common.command_line.option_types import key_value
from rocketd.common.settings.declaration import ConfigError
from rocketd.store.base.errors import StoreError
from rocketd.store.base.layout import lock_path
from rocketd.tools.doctor.findings import NOTE, WRONG, DoctorFinding
from rocketd.tools.doctor.machine import LockOwner, lock_owner
from rocketd.tools.migration.accounts import accounts_for_apache, judge_accounts
from rocketd.tools.migration.given_settings import (
    OF_THE_STORE,
    GivenSetting,
    judge_faults,
    judge_without_effect,
    load_usable,
    read_given,
)
from rocketd.tools.migration.lacking import lacking_by_installation, lacking_by_settings, lacking_by_store
from rocketd.tools.migration.next_steps import NextStep, name_servers_of, steps_to_apache, steps_to_rocketd
from rocketd.tools.migration.numbers import StoreNumbers
from rocketd.tools.migration.own import (
    java_options,
    judge_defaults,
    judge_journals,
    judge_own_files,
    judge_own_settings,
    judge_timers,
)
from rocketd.tools.migration.place import MigrationPlace, find_place
from rocketd.tools.migration.proof import Scope, StoreProof
from rocketd.tools.migration.report import MigrationReport, is_ready
from rocketd.tools.store.access import StoreAccess
from rocketd.tools.store.text import ProgressBar

_LOCKED = 2
_COMMAND_LENGTH = 120


class Migration:
    """One run of a command: the place with its settings, and the proof of its store."""

    def __init__(self, place: MigrationPlace, scope: Scope) -> None:
        self.place = place
        self.scope = scope
        try:
            self.given: dict[str, GivenSetting] = read_given(place)
        except ConfigError as error:
            raise click.UsageError(str(error)) from None
        self.settings, self.faults = load_usable(self.given, place)
        self.numbers = StoreNumbers()

    @property
    def again(self) -> bool:
        """Whether the proof is incomplete."""
        return self.scope is not Scope.ALL

    @property
    def _by_file(self) -> bool:
        """Whether the configuration file describes the store, without options of the command line."""
        options = (each.name for each in self.given.values() if each.is_option)
        return self.place.config is not None and not any(
            name in OF_THE_STORE and name != "storePathRootDir" for name in options
        )

    def access(self, settings: BrokerSettings) -> StoreAccess:
        """Return the access to the store of these settings. Raises UsageError if there is none."""
        root = os.path.abspath(settings.store.store_path_root_dir)
        access = StoreAccess(root, settings, self.place.config)
        try:
            if not os.path.isdir(root):
                raise click.UsageError(f"storePathRootDir = {root}: there is no such directory")
            if not access.store().is_store():
                raise click.UsageError(f"{root} is not a store: it has no commitlog, consumequeue or index")
        except StoreError:
            pass  # Such a store exists. The proof tells its faults.
        except OSError as error:
            raise CommandError(str(error)) from None
        return access

    def prove(self, access: StoreAccess, also: Callable[[StoreAccess], Iterator[DoctorFinding]]) -> list[DoctorFinding]:
        """Read the store, and whatever ``also`` looks at, under the lock if the store is stopped."""
        findings: list[DoctorFinding] = []
        with ProgressBar(sys.stderr) as progress:
            proof = StoreProof(access, self.scope, progress.show, self.numbers, by_file=self._by_file)
            try:
                access.store()
                with self._locked(access):
                    try:
                        findings.extend(proof.run())
                        findings.extend(also(access))
                    except StoreError as error:
                        findings.append(_unreadable(error))
            except StoreError as error:
                findings.append(_unreadable(error))
            except FileNotFoundError as error:
                text = f"{error.filename} was deleted meanwhile, as an expired file: run this again"
                raise CommandError(text) from None
            except OSError as error:
                raise CommandError(str(error)) from None
        return findings

    def report(
        self, root: str, findings: Sequence[DoctorFinding], accounts: int, steps: Sequence[NextStep]
    ) -> MigrationReport:
        """Return the report of this run."""
        given = list(self.given.values())
        return MigrationReport(root, given, findings, self.numbers, accounts, steps, partial=self.again)

    def _locked(self, access: StoreAccess) -> AbstractContextManager[None]:
        """Return the lock of a stopped store. A copy may have no lock file; none is made, since nothing is written."""
        if self.scope is Scope.CLOSED or not os.path.exists(lock_path(access.root)):
            return nullcontext()
        return access.locked()


def _unreadable(error: StoreError) -> DoctorFinding:
    return DoctorFinding(WRONG, "store", str(error), "correct this first: a broker does not start with it")


def _options(function: Callable[..., int]) -> Callable[..., int]:
    """Add PLACE and the options of both commands; pass them as a Migration, and whether the output is JSON."""

    @click.argument("argument", metavar="PLACE")
    @click.option(
        "-o",
        "--option",
        "overrides",
        type=key_value,
        multiple=True,
        metavar="KEY=VALUE",
        help="Setting of the broker, before those of the file. May be repeated.",
    )
    @click.option("--quick", is_flag=True, help="Read only the newest files of the log.")
    @click.option(
        "--while-running",
        is_flag=True,
        help="Do not ask for a stopped broker. Then only settings, tables and finished log files are read.",
    )
    @click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
    @wraps(function)
    def with_migration(
        argument: str, overrides: Sequence[tuple[str, str]], quick: bool, while_running: bool, as_json: bool
    ) -> int:
        if quick and while_running:
            raise click.UsageError("--quick and --while-running exclude each other")
        scope = Scope.CLOSED if while_running else Scope.NEWEST if quick else Scope.ALL
        return function(Migration(find_place(argument, overrides), scope), as_json)

    return with_migration


@command("adopt")
@_options
def adopt_command(migration: Migration, as_json: bool) -> int:
    """Check whether rocketd can take over the store of a broker of Apache's, and print the commands for it.

    PLACE is a store directory, an installation with conf/broker.conf, or a configuration file. Every setting, account
    file, record, queue entry, index entry, table and consumer offset is read. Nothing is changed.

    The exit status is 0 if the store is ready, 1 if something is in the way, and 2 if the command line is wrong or a
    broker has the store open.
    """
    place, given, settings = migration.place, migration.given, migration.settings
    findings = [*judge_faults(given), *judge_without_effect(given), *lacking_by_settings(given), *migration.faults]
    findings += lacking_by_installation(place, given)
    if place.config is None:
        text = "no configuration file was given: settings and accounts were not looked at"
        findings.append(DoctorFinding(NOTE, "settings", text, "give the configuration file instead of the store"))
    if settings is None:
        return migration.report("?", findings, 0, ()).print(as_json=as_json)
    findings += judge_defaults(settings, given)
    faults, accounts = judge_accounts(settings, given)
    findings += faults
    access = migration.access(settings)
    owner = _owner(access.root, migration.scope)
    findings += _judge_name_servers(place, settings, owner)

    def also(_: StoreAccess) -> Iterator[DoctorFinding]:
        topics = [topic for topic, count in migration.numbers.messages.items() if count]
        return lacking_by_store(access.root, topics)

    findings += migration.prove(access, also)
    group, ready = migration.numbers.some_group, is_ready(findings)
    steps = steps_to_rocketd(place, settings, owner, group, again=migration.again, ready=ready)
    return migration.report(access.root, findings, accounts, steps).print(as_json=as_json)


@command("give-back")
@_options
def give_back_command(migration: Migration, as_json: bool) -> int:
    """Check whether Apache's broker 4.9.7 can take over a store of rocketd's, and print the commands for it.

    PLACE is a store directory, an installation with conf/broker.conf, or a configuration file. The store is read as by
    "rocketd adopt". Findings are settings and files without the same effect in Apache's broker. Nothing is changed.

    The exit status is 0 if the store is ready, 1 if something is in the way, and 2 if the command line is wrong or a
    broker has the store open.
    """
    place, given, settings = migration.place, migration.given, migration.settings
    own = {name: each for name, each in given.items() if not (place.store_given and name == "storePathRootDir")}
    findings = [*judge_faults(given), *judge_own_settings(own), *migration.faults]
    if place.config is None:
        text = f"{place.argument} is a store: Apache's broker needs a file with storePathRootDir, and with the settings"
        findings.append(DoctorFinding(WRONG, "settings", text, "give the configuration file instead of the directory"))
    if settings is None:
        return migration.report("?", findings, 0, ()).print(as_json=as_json)
    findings += judge_defaults(settings, given)
    faults, accounts = judge_accounts(settings, given)
    findings += [*faults, *accounts_for_apache(settings)]
    access = migration.access(settings)
    owner = _owner(access.root, migration.scope)
    findings += _judge_name_servers(place, settings, owner)

    def also(access: StoreAccess) -> Iterator[DoctorFinding]:
        yield from judge_own_files(access.root, given)
        if migration.scope is not Scope.CLOSED:
            yield from judge_journals(access.root)
        yield from judge_timers(access.store())

    findings += migration.prove(access, also)
    java, group = java_options(given), migration.numbers.some_group
    ready = is_ready(findings)
    steps = steps_to_apache(place, settings, owner, group, java, again=migration.again, ready=ready)
    return migration.report(access.root, findings, accounts, steps).print(as_json=as_json)


def _judge_name_servers(
    place: MigrationPlace, settings: BrokerSettings, owner: LockOwner | None
) -> Iterator[DoctorFinding]:
    """Yield a finding if the settings name no name server."""
    broker = settings.broker
    if place.config is None or broker.namesrv_addr or broker.fetch_namesrv_addr_by_address_server:
        return
    given = name_servers_of(owner)
    if given:
        text = f"not set: the running broker has {given} from its command line"
        remedy = f"write namesrvAddr={given} into the configuration file, or start with the printed command"
    else:
        text = "not set: the broker would register nowhere"
        remedy = "write namesrvAddr=HOST:PORT into the configuration file, or give -n at the start"
    yield DoctorFinding(NOTE, "setting namesrvAddr", text, remedy)


def _owner(root: str, scope: Scope) -> LockOwner | None:
    """Return the process that has the store open. Raises CommandError if it must not be open."""
    try:
        owner = lock_owner(root)
    except OSError as error:
        raise CommandError(
            f"the lock of {root} cannot be read: {error.strerror}; run this as the broker's user"
        ) from None
    if owner is not None and scope is not Scope.CLOSED:
        who = (
            f"process {owner.pid}: {owner.command[:_COMMAND_LENGTH]}" if owner.pid else "a process of another container"
        )
        raise CommandError(f"{root} is open in {who}; stop this broker, or add --while-running", _LOCKED)
    return owner
