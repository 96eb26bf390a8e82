"""A consumer's selection of a topic's messages: all, tags, or an SQL92 expression.

Counterpart: `FilterAPI` (Apache).
"""

from dataclasses import dataclass

from rocketd.client.errors import UsageError
from rocketd.common.java_hash import java_string_hash
from rocketd.protocol.pull import ANY_TAG
from rocketd.remoting.bodies.tables import SubscriptionData

SQL92 = "SQL92"


@dataclass(frozen=True)
class Sql:
    """An SQL92 expression over the properties of messages, such as ``Sql("price > 5 AND region = 'x'")``."""

    expression: str


def subscription_of(topic: str, wanted: str | Sql | None, version_ms: int) -> SubscriptionData:
    """Return the subscription to tags such as ``TagA || TagB``, to an Sql, or to all (``*``, an empty text or None).

    Raises UsageError if the Sql is empty. The broker checks whether it is SQL92.
    """
    if isinstance(wanted, Sql):
        if not wanted.expression.strip():
            raise UsageError("Sql needs an expression, such as Sql(\"price > 5 AND region = 'x'\")")
        return SubscriptionData(topic, wanted.expression, sub_version=version_ms, expression_type=SQL92)
    if wanted is None or wanted.strip() in ("", ANY_TAG):
        return SubscriptionData(topic, ANY_TAG, sub_version=version_ms)
    tags = {tag.strip() for tag in wanted.split("||")} - {""}
    return SubscriptionData(topic, wanted, tags, {java_string_hash(tag) for tag in tags}, version_ms)


def wants(subscription: SubscriptionData, tag: str | None) -> bool:
    """Whether a message matches. The broker compares only hashes of tags, so other tags may get through."""
    return not subscription.tags_set or tag in subscription.tags_set
