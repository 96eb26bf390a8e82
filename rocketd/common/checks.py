"""Checks of texts that settings take: addresses, hours, delays.

Answers to what Apache finds out late or never: RemotingUtil.string2SocketAddress, UtilAll.isItTimeToDo and the parsing of
delay levels. Pure.
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
    """Tell whether a text is `host:port` with a port from 1 to 65535, an IPv6 address in brackets."""
    match = HOST_PORT.fullmatch(text.strip())
    return match is not None and 0 < int(match[1]) <= 65535


def is_address_list(text: str) -> bool:
    """Tell whether a text is addresses separated by semicolons; semicolons at its end do no harm, as in Java."""
    return all(is_address(part) for part in text.rstrip("; ").split(";"))


def is_host(text: str) -> bool:
    """Tell whether a text is an IPv4 or IPv6 address or may be a host name, resolvable or not; underscores do no harm."""
    try:
        ip_address(text)
    except ValueError:
        name = text.removesuffix(".")
        labels = name.split(".")
        # Were its last part a number, every resolver would take it for an IPv4 address, and not find one.
        return len(name) <= 253 and all(map(_LABEL.fullmatch, labels)) and not labels[-1].isdigit()
    return True


def is_hours(text: str) -> bool:
    """Tell whether a text is hours of the day separated by semicolons."""
    return all(re.fullmatch("[01]?[0-9]|2[0-3]", part.strip()) for part in text.rstrip("; ").split(";"))


def is_delays(text: str) -> bool:
    """Tell whether a text is delays of whole seconds, minutes, hours or days separated by single blanks."""
    return all(re.fullmatch("[0-9]{1,9}[smhd]", part) for part in text.split(" "))
