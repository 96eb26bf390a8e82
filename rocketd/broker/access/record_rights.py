"""The permissions needed for a record that a request names by its place in the log.

Apache's broker does not check the record. There, an account that knows or guesses a place can send any message back to
its group and read it there. It can also end a transaction of another topic. Runs in the storage thread, as these
requests do.
"""

from collections.abc import Callable, Mapping

from rocketd.acl.permissions import Permission, retry_topic
from rocketd.broker.base import problems
from rocketd.common import message_properties as props
from rocketd.common.names import SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC
from rocketd.store.base.errors import StoreError
from rocketd.store.format.record import Buffer, MessageExt, decode_message

Resources = dict[str, Permission]
_WAITING = (SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC)

Look = Callable[[int], Buffer | None]
"""Returns the record at an offset of the log; None if there is none."""


class RecordRights:
    """Returns the topics of records. ``look`` reads the log."""

    def __init__(self, look: Look) -> None:
        self._look = look

    def given_back(self, fields: Mapping[str, str]) -> Resources:
        """Return the resources of a CONSUMER_SEND_MSG_BACK (36): the group, and the topic of the message."""
        message = self._message_at(fields, "offset")
        resources = {} if message is None else dict.fromkeys(_topics_of(message), Permission.SUB)
        group = fields.get("group")
        if group is not None:
            resources[retry_topic(group)] = Permission.SUB
        return resources

    def ended(self, fields: Mapping[str, str]) -> Resources:
        """Return the resources of an END_TRANSACTION (37): the topic of its message."""
        message = self._message_at(fields, "commitLogOffset")
        if message is None or message.topic != TRANS_HALF_TOPIC:
            # The processor refuses it.
            return {}
        return dict.fromkeys(_topics_of(message)[1:], Permission.PUB)

    def _message_at(self, fields: Mapping[str, str], name: str) -> MessageExt | None:
        text = fields.get(name)
        if text is None or not text.isascii() or not text.isdigit() or len(text) > 19:
            raise problems.ACCESS_NOT_READABLE.error(found=f"{name} is not an offset of the log")
        try:
            record = self._look(int(text))
            return None if record is None else decode_message(record)
        except StoreError:
            # The processor finds that out too.
            return None


def _topics_of(message: MessageExt) -> list[str]:
    """Return the topic of a message and, if it waits there for another topic, that one."""
    # In other topics a sender may set this property to anything.
    real = message.properties_map().get(props.REAL_TOPIC) if message.topic in _WAITING else None
    return [message.topic] if real is None else [message.topic, real]
