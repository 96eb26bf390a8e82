"""What a consumer wants of a topic: all of it, tags, or what an SQL92 text selects.

Answers to FilterAPI.
"""

from rocketd.client.errors import UsageError
from rocketd.common.java_hash import java_string_hash
from rocketd.remoting.bodies import SubscriptionData

ALL = "*"
SQL92 = "SQL92"


def subscription_of(topic: str, expression: str | None, version_ms: int, *, sql: bool = False) -> SubscriptionData:
    """Make the subscription of an expression: ``TagA || TagB``, or ``*``, empty or None for all; with ``sql`` of SQL92.

    Raises UsageError for sql without a text. Whether the text is SQL92, the broker says.
    """
    if sql:
        if expression is None or not expression.strip():
            raise UsageError("sql=True needs an expression, such as \"price > 5 AND region = 'x'\"")
        return SubscriptionData(topic, expression, sub_version=version_ms, expression_type=SQL92)
    if expression is None or expression.strip() in ("", ALL):
        return SubscriptionData(topic, ALL, sub_version=version_ms)
    tags = {tag.strip() for tag in expression.split("||")} - {""}
    return SubscriptionData(topic, expression, tags, {java_string_hash(tag) for tag in tags}, version_ms)


def wants(subscription: SubscriptionData, tag: str | None) -> bool:
    """Whether a message is wanted: the broker compares hashes only, so other tags get through."""
    return not subscription.tags_set or tag in subscription.tags_set
