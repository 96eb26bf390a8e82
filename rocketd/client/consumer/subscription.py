"""What a consumer wants of a topic: all of it, tags, or what an SQL92 text selects.

Answers to FilterAPI.
"""

from dataclasses import dataclass

from rocketd.client.errors import UsageError
from rocketd.common.java_hash import java_string_hash
from rocketd.remoting.bodies import SubscriptionData

ALL = "*"
SQL92 = "SQL92"


@dataclass(frozen=True, slots=True)
class Sql:
    """An SQL92 expression over the properties of messages, such as ``Sql("price > 5 AND region = 'x'")``."""

    expression: str


def subscription_of(topic: str, wanted: str | Sql | None, version_ms: int) -> SubscriptionData:
    """Make the subscription of tags such as ``TagA || TagB``, of an Sql, or with ``*``, nothing or None of all.

    Raises UsageError for an Sql without a text. Whether the text is SQL92, the broker says.
    """
    if isinstance(wanted, Sql):
        if not wanted.expression.strip():
            raise UsageError("Sql needs an expression, such as Sql(\"price > 5 AND region = 'x'\")")
        return SubscriptionData(topic, wanted.expression, sub_version=version_ms, expression_type=SQL92)
    if wanted is None or wanted.strip() in ("", ALL):
        return SubscriptionData(topic, ALL, sub_version=version_ms)
    tags = {tag.strip() for tag in wanted.split("||")} - {""}
    return SubscriptionData(topic, wanted, tags, {java_string_hash(tag) for tag in tags}, version_ms)


def wants(subscription: SubscriptionData, tag: str | None) -> bool:
    """Whether a message is wanted: the broker compares hashes only, so other tags get through."""
    return not subscription.tags_set or tag in subscription.tags_set
