"""Numbers of one client since it was opened: snapshots for monitoring."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ProducerStats:
    """Numbers of a producer since it was opened. Messages refused before a send are not counted.

    Such are illegal and too large ones.
    """

    sent: int
    """Messages that a broker stored, and one-way messages handed to a connection."""

    failed: int
    """Messages whose send ended with an error, or was cancelled."""

    retries: int
    """Tries after the first one of a send."""

    in_flight: int
    """Sends under way now."""


@dataclass(frozen=True)
class ConsumerStats:
    """Numbers of a consumer since it was opened."""

    handled: int
    """Messages that were consumed. For a LitePullConsumer, messages that ``poll`` or the iteration returned."""

    failed: int
    """Messages whose handler failed, or asked for a retry or a rejection."""

    handler_seconds: float
    """Time spent in handlers, in seconds."""

    in_flight: int
    """Messages fetched and not yet handled, those in handlers included."""

    queues: int
    """Queues that the consumer has now."""
