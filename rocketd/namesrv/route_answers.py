"""Encoded route answers, kept until the tables change.

Answers to the encoding in Apache's DefaultRequestProcessor.getRouteInfoByTopic, which encodes every time. Clients ask for
their topics' routes every 30 s, while routes change seldom.
"""

from dataclasses import dataclass, field
from struct import Struct
from typing import Final

import msgspec

from rocketd.common.names import ORDER_TOPIC_NAMESPACE
from rocketd.namesrv.kv_config import KVConfigManager
from rocketd.namesrv.route_info import RouteInfoManager
from rocketd.namesrv.settings import NamesrvConfig
from rocketd.remoting.bodies import TopicRouteData
from rocketd.remoting.command import RemotingCommand

_PREFIX = Struct(">II").pack
_OPAQUE: Final = b'"opaque":0'


class Answer:
    """A route in one dialect: its body, and the whole JSON answer around an opaque that is filled in."""

    __slots__ = ("_head", "_header_length", "_length", "_tail", "body")

    def __init__(self, body: bytes) -> None:
        self.body = body
        frame = RemotingCommand.response(body=body).encode()
        self._length = int.from_bytes(frame[:4], "big") - 1
        self._header_length = int.from_bytes(frame[5:8], "big") - 1
        head, mark, self._tail = frame[8:].partition(_OPAQUE)
        self._head = head + mark[:-1]

    def frame(self, opaque: int) -> bytes:
        """Return the answer to a JSON request: what RemotingCommand would encode, for a fraction of its time."""
        number = b"%d" % opaque
        more = len(number)
        return b"".join((_PREFIX(self._length + more, self._header_length + more), self._head, number, self._tail))


@dataclass(frozen=True, slots=True)
class _Generation:
    """Answers of one state of the tables. ``state`` is read before the answers are made, so they are never older."""

    state: tuple[int, int, bool]
    answers: dict[tuple[str, bool, bool], Answer] = field(default_factory=dict)


class RouteAnswers:
    """Makes and keeps the answers. Any thread: a generation is filled only with answers that are at least as new as it."""

    def __init__(self, routes: RouteInfoManager, kv_config: KVConfigManager, config: NamesrvConfig) -> None:
        self._routes = routes
        self._kv_config = kv_config
        self._config = config
        self._generation = _Generation((-1, -1, False))

    def get(self, topic: str, standard: bool, acting_master: bool = False) -> Answer | None:
        """Return the answer for a topic; None when nobody has it.

        ``standard`` writes JSON that any parser reads, else broker ids are bare member names as FastJSON has them;
        ``acting_master`` adds the member enableActingMaster of 5.x, which the Rust client cannot do without.
        """
        state = (self._routes.revision, self._kv_config.revision, self._config.order_message_enable)
        generation = self._generation
        if generation.state != state:
            generation = self._generation = _Generation(state)
        key = (topic, standard, acting_master)
        answer = generation.answers.get(key)
        if answer is None:
            route = self._pick(topic, acting_master)
            if route is None:
                # Not kept: names of topics that do not exist are without number.
                return None
            answer = generation.answers[key] = Answer(route.encode(standard=standard))
        return answer

    def _pick(self, topic: str, acting_master: bool) -> TopicRouteData | None:
        route = self._routes.pick_topic_route(topic)
        if route is None:
            return None
        if self._config.order_message_enable:
            route.order_topic_conf = self._kv_config.get(ORDER_TOPIC_NAMESPACE, topic)
        if acting_master:
            route.broker_datas = [msgspec.structs.replace(b, enable_acting_master=False) for b in route.broker_datas]
        return route
