"""The page of one broker: its members with the state of replication, its runtime state and its settings."""

import re
from typing import Final

from rocketd.client.errors import RocketMQError, check_response
from rocketd.console.errors import NotFoundError
from rocketd.console.pages.elements import Cell, Element, Facts, Heading, Link, Notice, Table, View
from rocketd.console.pages.overview import BrokerState, broker_states, number_of
from rocketd.console.pages.visit import Visit
from rocketd.protocol.cluster import MASTER
from rocketd.remoting.wire.codes import RequestCode

MAX_LINES: Final = 1000
"""Facts and settings of a broker that are shown."""
_SECRET: Final = re.compile("password|secret|token", re.IGNORECASE)


async def broker_page(visit: Visit) -> View:
    """Return the page of a member of a broker, the master by default."""
    name, broker_id = visit.required("name"), visit.number("id", MASTER, 0, 2**31 - 1)
    members = [each for each in await broker_states(visit.cluster) if each.name == name]
    found = next((each for each in members if each.broker_id == broker_id), None)
    if found is None:
        raise NotFoundError(f"No broker {name} with the id {broker_id} is registered.")
    elements: list[Element] = [_members(members)]
    if found.failure is not None:
        elements.append(Notice("error", f"The state of {found.address} is unknown: {found.failure}"))
    else:
        elements.append(Facts("State", sorted(found.state.items())[:MAX_LINES]))
        elements.append(await _settings(visit, found))
    return View(
        f"Broker {name}, {'master' if found.is_master else f'slave {broker_id}'}",
        elements,
        above=[Link("Overview", "/")],
    )


def _members(members: list[BrokerState]) -> Table:
    end = next((_end(each) for each in members if each.is_master), None)
    rows: list[list[Cell]] = []
    for each in members:
        own = _end(each)
        behind = None if own is None or end is None or each.is_master else max(0, end - own)
        role = "master" if each.is_master else "slave"
        rows.append(
            [
                Link(each.address, "/broker", {"name": each.name, "id": each.broker_id}),
                role,
                each.broker_id,
                own,
                behind,
            ]
        )
    headings = [
        Heading("Address"),
        Heading("Role"),
        Heading("Id", True),
        Heading("End of the log", True),
        Heading("Bytes behind the master", True),
    ]
    return Table("Members", headings, rows)


def _end(broker: BrokerState) -> int | None:
    end = number_of(broker.state.get("commitLogMaxOffset", ""))
    return None if end is None else int(end)


async def _settings(visit: Visit, broker: BrokerState) -> Element:
    try:
        answer = await visit.cluster.client.ask(broker.address, RequestCode.GET_BROKER_CONFIG)
        text = (check_response(broker.address, answer).body or b"").decode("utf-8", "replace")
    except RocketMQError as error:
        return Notice("warning", f"The settings are unknown: {error}")
    return Facts("Settings", shown_settings(text)[:MAX_LINES])


def shown_settings(text: str) -> list[tuple[str, str]]:
    """Return the settings of a broker in order, without the values of passwords."""
    pairs = [
        (name, value) for name, separator, value in (line.partition("=") for line in text.splitlines()) if separator
    ]
    return sorted((name, "(hidden)" if _SECRET.search(name) and value else value) for name, value in pairs)
