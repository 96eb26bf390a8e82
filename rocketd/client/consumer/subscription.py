"""Tag expressions of consumers.

Answers to FilterAPI.
"""

from rocketd.common.java_hash import java_string_hash
from rocketd.remoting.bodies import SubscriptionData

ALL = "*"


def subscription_of(topic: str, expression: str | None, version_ms: int) -> SubscriptionData:
    """Make the subscription of an expression: ``TagA || TagB``, or ``*``, empty or None for all."""
    if expression is None or expression.strip() in ("", ALL):
        return SubscriptionData(topic, ALL, sub_version=version_ms)
    tags = {tag.strip() for tag in expression.split("||")} - {""}
    return SubscriptionData(topic, expression, tags, {java_string_hash(tag) for tag in tags}, version_ms)


def wants(subscription: SubscriptionData, tag: str | None) -> bool:
    """Whether a message is wanted: the broker compares hashes only, so other tags get through."""
    return not subscription.tags_set or tag in subscription.tags_set
