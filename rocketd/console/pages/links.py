"""Links that several pages have."""

from rocketd.console.pages.elements import Link


def link_of_topic(topic: str) -> Link:
    """Return a link to the page of a topic."""
    return Link(topic, "/topic", {"name": topic})


def link_of_group(group: str) -> Link:
    """Return a link to the page of a consumer group."""
    return Link(group, "/group", {"name": group})


def link_of_message(topic: str, number: str, place: str) -> Link:
    """Return a link to the page of a message, by its unique id and the id of its place."""
    return Link(number, "/message", {"topic": topic, "id": number, "place": place})
