"""The unique keys of messages that tasks send.

Answers to MessageClientIDSetter: tools read from a key when it was made, to search the index about that time.

The client's keys (`rocketd.client.instance.identity`) are not for here: what is below `rocketd.client` imports Twisted,
which must not get into tasks; its keys begin with an address that many workers on many machines would have to tell apart;
and it makes one key at a time, where a sink needs many thousands a second.
"""

import os
from datetime import datetime
from time import time

_head = b""
_process = 0
_counter = 0


def unique_keys(count: int) -> list[str]:
    """So many new keys: 32 upper-case hexadecimal digits. Ten random bytes for each process, milliseconds since the
    month began, and a counter.
    """
    global _head, _process, _counter
    if _process != os.getpid():
        _head, _process = os.urandom(10), os.getpid()
    head = _head.hex().upper()
    now = time()
    first = datetime.fromtimestamp(now).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    since = int((now - first.timestamp()) * 1000)
    numbers = range(_counter, _counter + count)
    _counter = (_counter + count) & 0xFFFF
    # Where the counter begins anew, the next millisecond keeps the keys apart.
    return [f"{head}{since + (number >> 16) & 0xFFFFFFFF:08X}{number & 0xFFFF:04X}" for number in numbers]
