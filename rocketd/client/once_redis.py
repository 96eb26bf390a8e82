"""A store of finished keys in Redis, for handlers in processes on several machines.

The work of a handler and its key are not written together. If a process is killed between the two, the message is handled
again after its lease.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from secrets import token_hex
from typing import Any, Protocol

from rocketd.client.consumer.retries.handler_results import Retry
from rocketd.client.settings.config import Duration, milliseconds

_DONE = "done"
_DELETE_OWN = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0"


class RedisClient(Protocol):
    """The required methods of ``redis.Redis``, which several threads may use."""

    def set(self, name: str, value: str, *, px: int, nx: bool = False) -> Any:
        """Set a key for ``px`` ms. With ``nx`` only a missing key is set, and the result tells whether it was."""

    def get(self, name: str) -> Any:
        """Return the value of a key."""

    def eval(self, script: str, numkeys: int, *keys_and_args: str) -> Any:
        """Run a script."""


class RedisStore:
    """Keeps keys for ``keep``, below ``prefix``.

    A handler has the key of its message for ``lease``, and must end in this time. Another handler of the same message
    gets it again later during the lease, and handles it after the lease.
    """

    blocks = True

    def __init__(
        self,
        client: RedisClient,
        *,
        prefix: str = "rocketd:done:",
        keep: Duration = 7 * 86_400.0,
        lease: Duration = 900.0,
    ) -> None:
        self._client = client
        self._prefix = prefix
        self._keep_ms = int(milliseconds("keep", keep))
        self._lease_ms = int(milliseconds("lease", lease))

    @contextmanager
    def transaction(self, key: str) -> Iterator[bool]:
        """See OnceStore. Raises the errors of the Redis client."""
        client, name, token = self._client, self._prefix + key, token_hex(16)
        if not client.set(name, token, px=self._lease_ms, nx=True):
            if client.get(name) not in (_DONE, _DONE.encode()):
                raise Retry(reason=f"{key} is under way")
            yield False
            return
        try:
            yield True
        except BaseException:
            client.eval(_DELETE_OWN, 1, name, token)
            raise
        client.set(name, _DONE, px=self._keep_ms)
