"""Checks of texts in settings: addresses, hours, delays.

Apache finds such errors late or never (`RemotingUtil.string2SocketAddress`, `UtilAll.isItTimeToDo`, delay levels). Pure
functions.
"""

import re
from ipaddress import ip_address

HOST_PORT = re.compile(r"(?:\[[0-9A-Fa-f:.]+(?:%\w+)?\]|[^\s:;,\[\]/]+):([0-9]{1,5})", re.ASCII)
_LABEL = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)", re.ASCII)
ADDRESSES = "host:port, several separated by semicolons, like 127.0.0.1:9876;[::1]:9876"
HOST = "an IPv4 or IPv6 address without port and brackets, or a host name"
ADDRESS = "host:port, like 127.0.0.1:10912 or [::1]:10912"
HOURS = "hours from 0 to 23, separated by semicolons, like 04;16"
DELAYS = "numbers with s, m, h or d, separated by single blanks, like 1s 5s 1m 2h"


def is_address(text: str) -> bool:
    """Return whether a text is `host:port` with a port from 1 to 65535. IPv6 addresses are in brackets."""
    match = HOST_PORT.fullmatch(text.strip())
    return match is not None and 0 < int(match[1]) <= 65535


def is_address_list(text: str) -> bool:
    """Return whether a text is addresses separated by semicolons. Semicolons at its end are ignored, as in Java."""
    return all(is_address(part) for part in text.rstrip("; ").split(";"))


def is_ip_address(text: str) -> bool:
    """Return whether a text is an IPv4 or IPv6 address."""
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def is_host(text: str) -> bool:
    """Return whether a text is an IP address or a possible host name, resolvable or not. Underscores are accepted."""
    try:
        ip_address(text)
    except ValueError:
        name = text.removesuffix(".")
        labels = name.split(".")
        # If the last part were a number, every resolver would take it for an IPv4 address and fail.
        return len(name) <= 253 and all(map(_LABEL.fullmatch, labels)) and not labels[-1].isdigit()
    return True


def is_hours(text: str) -> bool:
    """Return whether a text is hours of the day separated by semicolons."""
    return all(re.fullmatch("[01]?[0-9]|2[0-3]", part.strip()) for part in text.rstrip("; ").split(";"))


def is_delays(text: str) -> bool:
    """Return whether a text is delays of whole seconds, minutes, hours or days separated by single blanks."""
    return all(re.fullmatch("[0-9]{1,9}[smhd]", part) for part in text.split(" "))
