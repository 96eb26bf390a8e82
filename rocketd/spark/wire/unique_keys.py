"""The unique keys of messages sent by tasks, generated separately in each process.

Keys of `rocketd.client` begin with an address, which many workers on many machines share. These begin with random
bytes.
"""

import os
from time import time

from rocketd.protocol.unique_keys import UniqueKeys

_HEAD_SIZE = 10

_keys: UniqueKeys | None = None
_process = 0


def unique_keys(count: int) -> list[str]:
    """Return `count` new keys of 32 upper-case hexadecimal digits. They begin with random bytes of this process."""
    global _keys, _process
    if _keys is None or _process != os.getpid():
        _keys, _process = UniqueKeys(os.urandom(_HEAD_SIZE), lambda: time() * 1000), os.getpid()
    return _keys.next_keys(count)
