"""The page of changes by administrators at the servers of the cluster, the newest first."""

from typing import Final

import msgspec

from rocketd.client.errors import RocketMQError
from rocketd.console.pages.each_master import each_master
from rocketd.console.pages.elements import Cell, Element, Heading, Notice, Table, View
from rocketd.console.pages.paging import page_of
from rocketd.console.pages.visit import Visit
from rocketd.protocol.audit import admin_changes
from rocketd.remoting.bodies.audit import MAX_CHANGES, AdminChange

_COLUMNS: Final = ("Time (UTC)", "Server", "Address", "Account", "Action", "Subject", "Before", "After")


async def audit(visit: Visit) -> View:
    """Return the page of the last changes by administrators."""
    client = visit.cluster.client

    async def of_server(address: str) -> list[tuple[str, AdminChange]]:
        return [(address, change) for change in await client.answer_of(address, admin_changes(MAX_CHANGES))]

    found, notices = await each_master(visit.cluster, of_server)
    for address in client.remoting.name_servers.addresses:
        try:
            found.append(await of_server(address))
        except RocketMQError as error:
            notices.append(Notice("warning", f"The answer of {address} is missing: {error}"))
    changes = sorted((each for of_one in found for each in of_one), key=lambda each: each[1].time, reverse=True)
    shown, links = page_of(visit, changes, "/audit", {})
    columns = [Heading(name) for name in _COLUMNS]
    rows = [_row(server, change) for server, change in shown]
    elements: list[Element] = [*notices, Table("Changes by administrators", columns, rows), *links]
    return View("Changes", elements)


def _row(server: str, change: AdminChange) -> list[Cell]:
    values = (None if value is None else msgspec.json.encode(value).decode() for value in (change.before, change.after))
    return [change.time, server, change.address, change.account, change.action, change.subject, *values]
