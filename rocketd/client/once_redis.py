"""Keys of messages that are done, kept in Redis: for handlers in processes of several machines.

No counterpart in Apache. What a handler does and its key are not written together: a process that is killed between both has
the message handled again, when its lease is over.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from secrets import token_hex
from typing import Any, Protocol

from rocketd.client.config import Duration, milliseconds
from rocketd.client.consumer.outcome import Retry

_DONE = "done"
_DELETE_OWN = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0"


class RedisClient(Protocol):
    """What is needed of ``redis.Redis``, which several threads may use."""

    def set(self, name: str, value: str, *, px: int, nx: bool = False) -> Any:
        """Set a key for ``px`` ms; with ``nx`` only where there is none, which the answer tells."""

    def get(self, name: str) -> Any:
        """Return the value of a key."""

    def eval(self, script: str, numkeys: int, *keys_and_args: str) -> Any:
        """Run a script."""


class RedisStore:
    """Keeps keys for ``keep``, below ``prefix``.

    Who handles a message has its key for ``lease``, in which the handler has to end: somebody else who gets the message
    meanwhile has it come again, afterwards he handles it.
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
        """See OnceStore. Raises what the client of Redis does."""
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
