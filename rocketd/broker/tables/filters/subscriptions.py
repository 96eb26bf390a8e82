"""Subscriptions built from the expression in a pull.

Pure functions.

Counterpart: `FilterAPI` (Apache).
"""

from typing import Final

from rocketd.common.java_hash import java_string_hash
from rocketd.remoting.bodies.tables import SubscriptionData

ANY_TAG: Final = "*"
TAG: Final = "TAG"

_JAVA_BLANKS: Final = "".join(map(chr, range(0x21)))


class SubscriptionError(ValueError):
    """An invalid expression; the text is Apache's."""


def is_tag_type(expression_type: str | None) -> bool:
    """Whether an expression lists tags. It does if its type is not given."""
    return expression_type in (None, "", TAG)


def build_subscription(topic: str, expression: str | None, expression_type: str | None = None) -> SubscriptionData:
    """Build a subscription from an expression.

    Tags are separated by ``||``; ``*`` and an empty expression mean all messages. An expression of another type is not
    validated. Raises SubscriptionError if it is empty.
    """
    if is_tag_type(expression_type):
        return _build_tags(topic, expression)
    if not expression:
        raise SubscriptionError(f"Expression can't be null! {expression_type}")
    return SubscriptionData(topic=topic, sub_string=expression, expression_type=expression_type or TAG)


def _build_tags(topic: str, expression: str | None) -> SubscriptionData:
    if not expression or expression == ANY_TAG:
        return SubscriptionData(topic=topic, sub_string=ANY_TAG)
    parts = expression.split("||")
    if not any(parts):
        raise SubscriptionError("subString split error")
    tags = {tag for part in parts if (tag := part.strip(_JAVA_BLANKS))}
    return SubscriptionData(
        topic=topic, sub_string=expression, tags_set=tags, code_set={java_string_hash(tag) for tag in tags}
    )
