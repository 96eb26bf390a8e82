"""Findings about a cluster: its name servers, its brokers and its consumer groups, as they answer to this machine."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from time import time

from rocketd.client.errors import RocketMQError, check_response
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.queries import inspection
from rocketd.common.names import PRESET_GROUPS, is_system_group
from rocketd.protocol.cluster import MASTER, cluster_info, runtime_info
from rocketd.remoting.bodies.groups import GroupProblem, GroupProblems
from rocketd.remoting.errors import RemotingError
from rocketd.remoting.headers.admin import GroupProblemsRequestHeader
from rocketd.remoting.wire.codes import RequestCode, ResponseCode
from rocketd.tools.doctor.findings import NOTE, WRONG, DoctorFinding

CLOCK_DIFFERENCE = 5.0
"""Seconds by which the clock of a broker may differ. The brokers tell whole seconds."""
FULL_DISK, REFUSING_DISK = 0.75, 0.90
"""The defaults of diskMaxUsedSpaceRatio, and of rocketmq.broker.diskSpaceWarningLevelRatio."""
MAX_GROUPS = 500
"""Groups that are looked at. Each costs two requests to each master."""
_NO_ANSWER = (RocketMQError, RemotingError)
"""No answer, a refusal, or an answer that cannot be read."""
_RUNTIME = re.compile(r"\[ (\d+) days, (\d+) hours, (\d+) minutes, (\d+) seconds \]")


@dataclass(frozen=True, slots=True)
class ExaminedBroker:
    """A member of a cluster: its name and id, its address, its state or why it is unknown, and the time of the answer."""

    name: str
    broker_id: int
    address: str
    table: Mapping[str, str] = field(default_factory=dict)
    error: str | None = None
    asked_at: float = 0.0

    @property
    def label(self) -> str:
        """The words for the member in findings."""
        return _label(self.name, self.broker_id)


@dataclass(frozen=True, slots=True)
class ExaminedGroup:
    """A consumer group: its members that are online, and the messages that it has not consumed."""

    name: str
    members: int
    behind: int


async def look_at_cluster(client: ClientInstance, max_behind: int) -> tuple[list[DoctorFinding], list[ExaminedBroker]]:
    """Return the findings and the members. ``max_behind`` is the greatest lag of a sound group, in messages."""
    tables, findings = await _name_servers(client)
    findings += judge_name_servers(tables)
    members = await _members(client, tables.values())
    findings += judge_members(members, tables)
    if any(member.broker_id == MASTER and member.error is None for member in members):
        try:
            findings += await _look_at_groups(client, max_behind)
        except _NO_ANSWER as error:
            findings.append(
                DoctorFinding(NOTE, "groups", f"groups are unknown: {error}", "correct the faults of the brokers")
            )
    return findings, members


def judge_name_servers(tables: Mapping[str, Mapping[str, Mapping[int, str]]]) -> Iterator[DoctorFinding]:
    """Yield findings about name servers, from the addresses of the brokers at each of them."""
    if not tables:
        return
    everywhere = {(name, number) for table in tables.values() for name, members in table.items() for number in members}
    if not everywhere:
        remedy = "start a broker with namesrvAddr, and look into its log for the registration"
        yield DoctorFinding(WRONG, "name servers", "no broker is registered", remedy)
    for server, table in tables.items():
        here = {(name, number) for name, members in table.items() for number in members}
        missing = sorted(name if number == MASTER else f"{name} {number}" for name, number in everywhere - here)
        if missing:
            text = f"does not know {', '.join(missing)}, but another name server does"
            remedy = "name all name servers in namesrvAddr of each broker; check brokerAllowedAddresses of this one"
            yield DoctorFinding(WRONG, f"name server {server}", text, remedy)
    for name, number in sorted(everywhere):
        servers: dict[str, str] = {}
        for server, table in tables.items():
            address = table.get(name, {}).get(number)
            if address is not None:
                servers.setdefault(address, server)
        if len(servers) > 1:
            text = "has different addresses: " + ", ".join(
                f"{at} at {server}" for at, server in sorted(servers.items())
            )
            remedy = "if two brokers have this brokerName and brokerId, stop one, and give it others"
            yield DoctorFinding(WRONG, _label(name, number), text, remedy)


def judge_members(
    members: Iterable[ExaminedBroker], tables: Mapping[str, Mapping[str, Mapping[int, str]]]
) -> Iterator[DoctorFinding]:
    """Yield findings about brokers."""
    members = list(members)
    is_local = any(_is_loopback(server) for server in tables)
    masters = {member.name for member in members if member.broker_id == MASTER}
    for name in sorted({member.name for member in members} - masters):
        remedy = "start the master again, or make a slave the master: docs/howto/replication.md"
        yield DoctorFinding(
            WRONG, f"broker {name}", "no master is registered: messages are read, but not accepted", remedy
        )
    for member in members:
        if _is_loopback(member.address) and not is_local:
            text = f"is registered as {member.address}, which leads each client to its own machine"
            yield DoctorFinding(WRONG, member.label, text, "set brokerIP1 to an address that clients reach")
        elif member.error is not None:
            text = f"its address {member.address} does not answer: {member.error}"
            remedy = "start it; open the port in firewalls; set brokerIP1 to an address that clients reach"
            yield DoctorFinding(WRONG, member.label, text, remedy)
        else:
            yield from _judge_answer(member)
    versions = Counter(member.table["brokerVersionDesc"] for member in members if "brokerVersionDesc" in member.table)
    if len(versions) > 1:
        counts = ", ".join(f"{count} with {version}" for version, count in sorted(versions.items()))
        yield DoctorFinding(
            NOTE, "brokers", f"their versions differ: {counts}", "finish the upgrade: docs/howto/production.md"
        )


def judge_groups(groups: Iterable[ExaminedGroup], max_behind: int) -> Iterator[DoctorFinding]:
    """Yield findings about lags."""
    for group in groups:
        if not group.behind:
            continue
        if not group.members:
            level = WRONG if group.behind > max_behind else NOTE
            text = f"no member is online, and {group.behind} messages wait"
            yield DoctorFinding(
                level, f"group {group.name}", text, "start its consumers, or delete the group if it is unused"
            )
        elif group.behind > max_behind:
            text = f"{group.behind} messages behind, with {group.members} members online"
            remedy = (
                f"rocketd lag {group.name} shows the queues; add members, up to the number of queues, or speed them up"
            )
            yield DoctorFinding(WRONG, f"group {group.name}", text, remedy)


def judge_problems(problems: Iterable[GroupProblem]) -> Iterator[DoctorFinding]:
    """Yield findings about members that do not fit together."""
    for problem in dict.fromkeys((each.group, each.text) for each in problems):
        remedy = "docs/howto/consumer-groups.md explains each problem"
        yield DoctorFinding(WRONG, f"group {problem[0]}", problem[1], remedy)


def _judge_answer(member: ExaminedBroker) -> Iterator[DoctorFinding]:
    table = member.table
    full = _number(table.get("commitLogDiskRatio"))
    if full is not None and full >= FULL_DISK:
        effect = "messages are refused" if full >= REFUSING_DISK else "expired files are deleted at any hour"
        text = f"its disk is {100 * full:.0f} % full: by default {effect}"
        yield DoctorFinding(WRONG, member.label, text, "make room, or lower fileReservedTime: docs/howto/disk-space.md")
    ahead = _clock_ahead(member)
    if ahead is not None and abs(ahead) > CLOCK_DIFFERENCE:
        side = "ahead of" if ahead > 0 else "behind"
        text = f"its clock is {abs(ahead):.0f} s {side} that of this machine"
        yield DoctorFinding(WRONG, member.label, text, "run an NTP client on both machines: docs/howto/clock.md")
    if table.get("haMasterConnected") == "false":
        text = "it is not connected to its master"
        yield DoctorFinding(
            WRONG, member.label, text, "look into its replication.log: docs/howto/replication.md has the lines"
        )
    if table.get("haSlavesLagging") == "true":
        text = "sends do not wait for its slaves, because these are too far behind"
        yield DoctorFinding(WRONG, member.label, text, "look at the network and the disks of the slaves")


async def _name_servers(client: ClientInstance) -> tuple[dict[str, dict[str, dict[int, str]]], list[DoctorFinding]]:
    """Return the brokers' addresses at each name server, and findings about those without an answer."""
    tables: dict[str, dict[str, dict[int, str]]] = {}
    findings: list[DoctorFinding] = []
    request = cluster_info()
    for server in client.config.name_servers():
        try:
            answer = request.result(server, await client.ask(server, request.code, request.header))
        except _NO_ANSWER as error:
            remedy = "start it, open its port in firewalls, or correct --namesrv"
            findings.append(DoctorFinding(WRONG, f"name server {server}", f"does not answer: {error}", remedy))
        else:
            tables[server] = {name: data.broker_addrs for name, data in answer.broker_addr_table.items()}
    return tables, findings


async def _members(client: ClientInstance, tables: Iterable[Mapping[str, Mapping[int, str]]]) -> list[ExaminedBroker]:
    wanted = {
        (name, number, address) for table in tables for name, each in table.items() for number, address in each.items()
    }
    members = []
    request = runtime_info()
    for name, number, address in sorted(wanted):
        began = time()
        try:
            state = request.result(address, await client.ask(address, request.code, request.header))
        except _NO_ANSWER as error:
            members.append(ExaminedBroker(name, number, address, error=str(error)))
        else:
            members.append(ExaminedBroker(name, number, address, state, asked_at=(began + time()) / 2))
    return members


async def _look_at_groups(client: ClientInstance, max_behind: int) -> list[DoctorFinding]:
    findings: list[DoctorFinding] = []
    names = [name for name in await inspection.groups(client) if not (name in PRESET_GROUPS or is_system_group(name))]
    if len(names) > MAX_GROUPS:
        text = f"only the first {MAX_GROUPS} of {len(names)} groups were looked at"
        findings.append(DoctorFinding(NOTE, "groups", text, "rocketd lag shows a single group"))
    states = []
    for name in names[:MAX_GROUPS]:
        progress = await inspection.progress(client, name, None)
        behind = sum(queue.behind for queue in progress.values())
        members = len(await inspection.consumers(client, name)) if behind else 0
        states.append(ExaminedGroup(name, members, behind))
    findings += judge_groups(states, max_behind)
    for address in (await inspection.masters(client)).values():
        header = GroupProblemsRequestHeader(consumer_group=None)
        response = await client.ask(address, RequestCode.GET_GROUP_PROBLEMS, header)
        # Apache's brokers do not have the request.
        if response.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            findings += judge_problems(GroupProblems.decode(check_response(address, response).body).problems)
    return findings


def _clock_ahead(member: ExaminedBroker) -> float | None:
    """Return by how many seconds the clock of a broker is ahead; None if its state does not tell."""
    began = _number(member.table.get("bootTimestamp"))
    parts = _RUNTIME.fullmatch(member.table.get("runtime", ""))
    if began is None or parts is None:
        return None
    days, hours, minutes, seconds = map(int, parts.groups())
    # Half a second: the brokers cut off the fraction.
    there = began / 1000 + ((days * 24 + hours) * 60 + minutes) * 60 + seconds + 0.5
    return there - member.asked_at


def _label(name: str, broker_id: int) -> str:
    return f"broker {name}" if broker_id == MASTER else f"slave {broker_id} of {name}"


def _number(text: str | None) -> float | None:
    try:
        return float(text or "")
    except ValueError:
        return None


def _is_loopback(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]")
    try:
        return host == "localhost" or ip_address(host).is_loopback or ip_address(host).is_unspecified
    except ValueError:
        return False
