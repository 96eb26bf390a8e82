"""The first page: the brokers with their rates and disks, and totals."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import isfinite
from typing import Final

from rocketd.client.errors import RocketMQError
from rocketd.client.instance.all_of import all_of
from rocketd.console.cluster import ConsoleCluster
from rocketd.console.pages.elements import Cell, Element, Facts, Heading, Link, Notice, Table, View
from rocketd.console.pages.topic_names import TopicNames, is_own_group
from rocketd.console.pages.visit import MAX_ROWS, Visit
from rocketd.protocol.cluster import MASTER, runtime_info

REFRESH_SECONDS: Final = 10
"""Interval of "Refresh every 10 seconds"."""


@dataclass(frozen=True, slots=True)
class BrokerState:
    """One broker of the cluster: its state as brokerStatus tells it, or why it does not answer."""

    cluster: str
    name: str
    broker_id: int
    address: str
    state: dict[str, str]
    failure: str | None = None

    @property
    def is_master(self) -> bool:
        """Whether it is a master."""
        return self.broker_id == MASTER

    def rate(self, key: str) -> float | None:
        """Return the average of the last ten seconds, the first of three; None if it is unknown."""
        return number_of(self.state.get(key, "").split(" ")[0])

    @property
    def disk_percent(self) -> float | None:
        """The used part of the disk that has the log."""
        ratio = number_of(self.state.get("commitLogDiskRatio", ""))
        return None if ratio is None else ratio * 100


async def broker_states(cluster: ConsoleCluster) -> list[BrokerState]:
    """Return the states of all registered brokers, at most MAX_ROWS, asked at the same time."""
    found = [
        (broker.cluster, broker.broker_name, broker_id, address)
        for broker in await cluster.admin.brokers()
        for broker_id, address in sorted(broker.broker_addrs.items())
    ]
    return await all_of(_state(cluster, *each) for each in found[:MAX_ROWS])


async def _state(cluster: ConsoleCluster, of_cluster: str, name: str, broker_id: int, address: str) -> BrokerState:
    request = runtime_info()
    try:
        answer = await cluster.client.ask(address, request.code, request.header)
        state = request.result(address, answer)
    except RocketMQError as error:
        return BrokerState(of_cluster, name, broker_id, address, {}, str(error))
    return BrokerState(of_cluster, name, broker_id, address, state)


async def overview(visit: Visit) -> View:
    """Return the page."""
    states = await broker_states(visit.cluster)
    names = await TopicNames.of(visit.cluster)
    groups: int | None = None
    problems: list[Element] = [
        Notice("error", f"The state of {each.name}:{each.broker_id} at {each.address} is unknown: {each.failure}")
        for each in states
        if each.failure is not None
    ]
    try:
        groups = sum(map(is_own_group, await visit.cluster.admin.groups()))
    except RocketMQError as error:
        if not problems:
            problems.append(Notice("warning", f"The groups are unknown: {error}"))
    if not states:
        problems.append(Notice("warning", "No broker is registered at the name servers."))
    masters = [each for each in states if each.is_master]
    facts = Facts(
        "Totals",
        [
            ("Brokers", len(states)),
            ("Masters", len(masters)),
            ("Topics of applications", Link(f"{len(names.own):,}", "/topics")),
            ("Consumer groups", None if groups is None else Link(f"{groups:,}", "/groups")),
            ("Messages in per second", total(each.rate("putTps") for each in masters)),
            ("Messages out per second", total(each.rate("getTransferedTps") for each in states)),
        ],
    )
    watched = visit.text("refresh") == "on"
    return View(
        "Overview",
        [*problems, facts, _table(states)],
        refresh=Link("Stop refreshing", "/") if watched else Link("Refresh every 10 seconds", "/", {"refresh": "on"}),
        reload_seconds=REFRESH_SECONDS if watched else 0,
    )


def _table(states: list[BrokerState]) -> Table:
    columns = [
        Heading("Broker"),
        Heading("Cluster"),
        Heading("Id", number=True),
        Heading("Role"),
        Heading("Address"),
        Heading("Version"),
        Heading("In/s", number=True),
        Heading("Out/s", number=True),
        Heading("Disk used", number=True),
    ]
    return Table("Brokers", columns, [_row(each) for each in states])


def _row(each: BrokerState) -> list[Cell]:
    disk = each.disk_percent
    return [
        Link(each.name, "/broker", {"name": each.name, "id": each.broker_id}),
        each.cluster,
        each.broker_id,
        "master" if each.is_master else "slave",
        each.address,
        each.state.get("brokerVersionDesc"),
        each.rate("putTps"),
        each.rate("getTransferedTps"),
        None if disk is None else f"{disk:.0f} %",
    ]


def number_of(text: str) -> float | None:
    """Return a number in a text of a broker, or None if it is none."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if isfinite(number) else None


def total(numbers: Iterable[float | None]) -> float | None:
    """Return the sum of the known numbers, or None if none is known."""
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None
