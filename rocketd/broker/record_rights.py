"""Rights that a request needs because of the record that it names by its place in the log.

Apache's broker does not look at the record: an account that knows or guesses a place can give any message back to its own
group and read it there, or end a transaction of another topic. Runs in the storage thread, as these requests do.
"""

from collections.abc import Callable, Mapping

from rocketd.acl.permissions import Permission, retry_topic
from rocketd.broker import problems
from rocketd.common import properties as names
from rocketd.common.names import SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC
from rocketd.store.errors import StoreError
from rocketd.store.record import Buffer, MessageExt, decode_message

Resources = dict[str, Permission]
_WAITING = (SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC)

Look = Callable[[int], Buffer | None]
"""Returns the record at an offset of the log; None if there is none."""


class RecordRights:
    """Tells the topics of records. ``look`` reads the log."""

    def __init__(self, look: Look) -> None:
        self._look = look

    def given_back(self, fields: Mapping[str, str]) -> Resources:
        """List what a request to give a message back (36) touches: the group, and the topic of the message."""
        message = self._message_at(fields, "offset")
        resources = {} if message is None else dict.fromkeys(_topics_of(message), Permission.SUB)
        group = fields.get("group")
        if group is not None:
            resources[retry_topic(group)] = Permission.SUB
        return resources

    def ended(self, fields: Mapping[str, str]) -> Resources:
        """List what the end of a transaction (37) touches: the topic that its message is for."""
        message = self._message_at(fields, "commitLogOffset")
        if message is None or message.topic != TRANS_HALF_TOPIC:
            # The processor refuses it.
            return {}
        return dict.fromkeys(_topics_of(message)[1:], Permission.PUB)

    def _message_at(self, fields: Mapping[str, str], name: str) -> MessageExt | None:
        text = fields.get(name)
        if text is None or not text.isascii() or not text.isdigit() or len(text) > 19:
            raise problems.ACCESS_NOT_READABLE.error(found=f"{name} is not a place in the log")
        try:
            record = self._look(int(text))
            return None if record is None else decode_message(record)
        except StoreError:
            # The processor finds that out too.
            return None


def _topics_of(message: MessageExt) -> list[str]:
    """List the topic of a message and, if it waits there for another topic, that one."""
    # Elsewhere the property is what a sender has made it.
    real = message.properties_map().get(names.REAL_TOPIC) if message.topic in _WAITING else None
    return [message.topic] if real is None else [message.topic, real]
