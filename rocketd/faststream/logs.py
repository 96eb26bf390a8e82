"""The access log: a line for each message, with its topic, group, message id, keys and attempt."""

from functools import partial
from typing import TYPE_CHECKING, Any

from faststream._internal.logger import DefaultLoggerStorage, make_logger_state
from faststream._internal.logger.logging import get_broker_logger

if TYPE_CHECKING:
    from faststream._internal.basic_types import LoggerProto
    from faststream._internal.context import ContextRepo

MESSAGE_ID_WIDTH = 32
"""Length of a message's unique key, with an IPv4 address."""


class RocketLoggerStorage(DefaultLoggerStorage):
    """Creates the logger ``faststream.access.rocketmq``, with columns as wide as the subscribers need."""

    def __init__(self) -> None:
        super().__init__()
        self._widths = {"topic": 0, "group": 0}

    def register_subscriber(self, params: dict[str, Any]) -> None:
        """Widen the columns to the values of this subscriber."""
        for name, width in self._widths.items():
            self._widths[name] = max(width, len(params.get(name, "")))

    def get_logger(self, *, context: "ContextRepo") -> "LoggerProto":
        """Return the logger; it is created once."""
        logger = self._get_logger_ref()
        if logger is None:
            columns = " | ".join(f"%({name})-{width}s" for name, width in self._widths.items())
            logger = get_broker_logger(
                name="rocketmq",
                default_context=dict.fromkeys((*self._widths, "keys", "attempt"), ""),
                message_id_ln=MESSAGE_ID_WIDTH,
                fmt=(
                    f"%(asctime)s %(levelname)-8s - {columns} | %(message_id)-{MESSAGE_ID_WIDTH}s | %(keys)s | "
                    "%(attempt)s - %(message)s"
                ),
                context=context,
                log_level=self.logger_log_level,
            )
            self._logger_ref.add(logger)
        return logger


make_logger = partial(make_logger_state, default_storage_cls=RocketLoggerStorage)
"""Create the logging state of a broker from the caller's ``logger`` and ``log_level``."""
