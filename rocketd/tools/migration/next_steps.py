"""The commands of the switch, in their order."""

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from rocketd.broker.base.settings import BrokerSettings
from rocketd.common.settings.checks import is_address_list
from rocketd.tools.doctor.machine import LockOwner
from rocketd.tools.migration.place import MigrationPlace

_NAME_SERVER_OPTIONS = ("-n", "--namesrvAddr", "--namesrv-addr")
_SIGNED = "with accounts, add --credentials FILE"


@dataclass(frozen=True, slots=True)
class NextStep:
    """One step: its purpose, and its command."""

    purpose: str
    command: str


def steps_to_rocketd(
    place: MigrationPlace, settings: BrokerSettings, owner: LockOwner | None, group: str, *, again: bool, ready: bool
) -> list[NextStep]:
    """Return the commands from Apache's broker to rocketd's. With ``again``, the proof has to be repeated.

    Without ``ready`` the last command is that proof. A store without a configuration file gets no start.
    """
    begin = _stop(owner, "Apache's broker", f"sh {_home(place)}/bin/mqshutdown broker")
    proof = NextStep("prove the stopped store", _quoted("rocketd", "adopt", *_arguments(place)))
    if not ready or place.config is None:
        return [*begin, _last_proof(place, proof)]
    servers = name_servers_of(owner)
    given = ("--namesrv-addr", servers) if servers and not settings.broker.namesrv_addr else ()
    start = _quoted("rocketd", "broker", "run", *_options(place), *given)
    return [
        *begin,
        *([proof] if again else []),
        NextStep("check this machine", _quoted("rocketd", "doctor", "--local", *_options(place))),
        NextStep("start rocketd's broker", _environment(place, settings) + start),
        *_checks(settings, servers, group),
        NextStep("to go back, after a stop by Ctrl-C", _quoted("rocketd", "give-back", *_arguments(place))),
    ]


def steps_to_apache(
    place: MigrationPlace,
    settings: BrokerSettings,
    owner: LockOwner | None,
    group: str,
    java: Sequence[str],
    *,
    again: bool,
    ready: bool,
) -> list[NextStep]:
    """Return the commands from rocketd's broker to Apache's. ``java`` are the options of Java.

    ``again`` and ``ready`` are those of `steps_to_rocketd`.
    """
    begin = _stop(owner, "rocketd's broker", "stop it by SIGTERM or its unit")
    proof = NextStep("prove the stopped store", _quoted("rocketd", "give-back", *_arguments(place)))
    if not ready or place.config is None:
        return [*begin, _last_proof(place, proof)]
    options = f"JAVA_OPT={shlex.quote(' '.join(java))} " if java else ""
    servers = name_servers_of(owner)
    given = f" -n {shlex.quote(servers)}" if servers and not settings.broker.namesrv_addr else ""
    return [
        *begin,
        *([proof] if again else []),
        NextStep(
            "start Apache's broker", f"{options}sh {_home(place)}/bin/mqbroker -c {shlex.quote(place.config)}{given}"
        ),
        *_checks(settings, servers, group),
        NextStep("to come again, after mqshutdown broker", _quoted("rocketd", "adopt", *_arguments(place))),
    ]


def name_servers_of(owner: LockOwner | None) -> str:
    """Return the name servers that the command line of a running broker gives, empty without any."""
    words = [] if owner is None else owner.command.split()
    for option, value in pairwise(words):
        if option in _NAME_SERVER_OPTIONS and is_address_list(value):
            return value
    return ""


def _last_proof(place: MigrationPlace, proof: NextStep) -> NextStep:
    """Return the proof as the last step: something is wrong, or the configuration file is unknown."""
    if place.config is None:
        program, command, *_ = proof.command.split()
        purpose = "give the configuration file: it has the sizes of files, names and accounts"
        return NextStep(purpose, f"{program} {command} FILE")
    return NextStep("correct what is wrong, and run this again on the stopped store", proof.command)


def _stop(owner: LockOwner | None, name: str, usual: str) -> list[NextStep]:
    if owner is None:
        return []
    return [NextStep(f"stop {name}, and wait for its end", f"kill {owner.pid}" if owner.pid else usual)]


def _checks(settings: BrokerSettings, given: str, group: str) -> list[NextStep]:
    servers = ("--namesrv", settings.broker.namesrv_addr or given or "127.0.0.1:9876")
    purpose = "see the broker" if not settings.broker.acl_enable else f"see the broker; {_SIGNED}"
    return [
        NextStep(purpose, _quoted("rocketd", "broker", "list", *servers)),
        NextStep("see the offsets of a group", _quoted("rocketd", "offset", "show", group or "GROUP", *servers)),
    ]


def _home(place: MigrationPlace) -> str:
    return "$ROCKETMQ_HOME" if place.home is None else shlex.quote(place.home)


def _environment(place: MigrationPlace, settings: BrokerSettings) -> str:
    """Return the variable that the broker needs to find account files."""
    home = settings.broker.rocketmq_home
    return f"ROCKETMQ_HOME={shlex.quote(home)} " if settings.broker.acl_enable and home and place.home == home else ""


def _options(place: MigrationPlace) -> list[str]:
    options = [] if place.config is None else ["--config", place.config]
    for key, text in place.overrides:
        options += ["--option", f"{key}={text}"]
    return options


def _arguments(place: MigrationPlace) -> list[str]:
    """Return the arguments of the same command again."""
    given = place.overrides[:-1] if place.store_given else place.overrides
    arguments = [os.path.abspath(place.argument)]
    for key, text in given:
        arguments += ["--option", f"{key}={text}"]
    return arguments


def _quoted(*words: str) -> str:
    return shlex.join(words)
