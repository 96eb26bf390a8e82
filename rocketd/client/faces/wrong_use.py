"""Answers wrong calls of clients, and statements for another face, with the right ones."""

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any, TypeVar, cast

from rocketd.client.messages.message import Message
from rocketd.client.settings.option_names import OF_MESSAGES
from rocketd.client.settings.wrong_calls import NO_ANSWERS, check_call, class_name

F = TypeVar("F", bound=Callable[..., Any])


def explained(method: F) -> F:
    """Return a method that sends a message. In a wrong call, it tells the fields of messages from its own parameters."""

    def call(client: object, /, *arguments: object, **keywords: object) -> object:
        try:
            return method(client, *arguments, **keywords)
        except TypeError:
            check_method(client, method, arguments, keywords, _fields())
            raise

    async def call_coroutine(client: object, /, *arguments: object, **keywords: object) -> object:
        try:
            running: Any = method(client, *arguments, **keywords)
        except TypeError:
            check_method(client, method, arguments, keywords, _fields())
            raise
        return await running

    return cast("F", wraps(method)(call_coroutine if iscoroutinefunction(method) else call))


def check_method(
    client: object,
    method: Callable[..., Any],
    arguments: Sequence[object],
    keywords: Mapping[str, object],
    answers: Mapping[str, str] = NO_ANSWERS,
) -> None:
    """Raise TypeError, which names the client's class, if a method cannot be called so.

    The method is the client's own or its engine's. ``answers`` are those to unknown keywords.
    """
    check_call(f"{class_name(type(client))}.{method.__name__}", method, arguments, keywords, answers)


def refused(statement: str, advice: str) -> Callable[..., None]:
    """Return a special method that raises TypeError: a statement for another face."""

    def refuse(self: object, *_: object) -> None:
        raise TypeError(f"{statement!r} is not for a {class_name(type(self))}: {advice}")

    return refuse


def _fields() -> dict[str, str]:
    own = {name: f"it belongs to the message, Message(topic, body, {name}=)" for name in Message.__struct_fields__}
    return {name: f"for the message, {answer}" for name, answer in OF_MESSAGES.items()} | own
