"""Whether a broker works, and whether it should get requests.

A broker that cannot flush any more is not alive: only a restart makes it accept messages again. A full disk is different:
the broker still serves consumers, and accepts messages when there is space.
"""

from collections.abc import Callable

from rocketd.broker.admin.parts import AdminParts
from rocketd.broker.registration import Registration


class BrokerHealth:
    """Looks at a broker. Reactor thread. ``is_serving`` tells whether it has started and is not stopping."""

    def __init__(self, broker: AdminParts, registration: Registration, is_serving: Callable[[], bool]) -> None:
        self._broker = broker
        self._registration = registration
        self._is_serving = is_serving

    def alive(self) -> list[str]:
        """Return the problems that a restart may fix."""
        failed = self._broker.store.flush_failed
        return ["the log cannot be written any more, since a flush has failed: restart the broker"] if failed else []

    def ready(self) -> list[str]:
        """Return why the broker should get no requests now."""
        if not self._is_serving():
            return ["the broker is starting or stopping"]
        troubles = []
        refusal = self._broker.store.refusal()
        if refusal is not None and self._broker.settings.store.broker_role != "SLAVE":
            troubles.append(f"messages are refused: {refusal.cause}")
        if self._registration.reaches_nobody:
            troubles.append("no name server can be reached, so clients may not find this broker")
        return troubles
