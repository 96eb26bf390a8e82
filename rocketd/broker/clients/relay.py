"""Requests of administrators relayed to consumers: 223 (221), 307, 309.

No thread waits for a consumer: the answer is sent after the consumer's has arrived. Unlike in Apache's broker, the
consumers of a group are asked at the same time, and the administrator's signature is not passed on.

Counterpart: `AdminBrokerProcessor.callConsumer`, `Broker2Client.getConsumeStatus` (Apache).
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred, DeferredList
from twisted.logger import Logger
from zope.interface import implementer

from rocketd.broker.base import problems
from rocketd.broker.clients.client import ClientChannelInfo
from rocketd.broker.clients.parts import ClientParts
from rocketd.common.logs.throttle import ThrottledLog
from rocketd.remoting.bodies.admin import GetConsumerStatusBody
from rocketd.remoting.errors import RemotingError, RemotingTimeoutError, RequestError
from rocketd.remoting.headers.admin import (
    ConsumeMessageDirectlyRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
)
from rocketd.remoting.headers.client import Header, read_header, write_header
from rocketd.remoting.interfaces import IRequestContext, IRequestProcessor
from rocketd.remoting.wire.codes import RequestCode, ResponseCode
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.remoting.wire.versions import V3_0_7_SNAPSHOT, V3_1_8_SNAPSHOT, version_name

STATUS_TIMEOUT_MS = 5000
_MESSAGE_ID_DIGITS = (32, 56)
"""The lengths of ids with an IPv4 and an IPv6 address; the last 16 digits are the physical offset."""

Answer = RemotingCommand | Deferred[RemotingCommand]


@implementer(IRequestProcessor)
class ClientRelayProcessor:
    """Asks consumers on behalf of administrators. ``process`` may run in several threads at once."""

    _log = Logger()

    def __init__(self, broker: ClientParts) -> None:
        self._broker = broker
        self._peer_log = ThrottledLog(self._log)
        self._methods: dict[int, Callable[[RemotingCommand], Answer]] = {
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: self._consumer_status,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self._running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self._consume_directly,
        }

    def process(self, request: RemotingCommand, context: IRequestContext) -> Answer:
        """Handle one request; see IRequestProcessor."""
        return self._methods[request.code](request)

    # ---------------------------------------------------------------- one consumer

    def _running_info(self, request: RemotingCommand) -> Answer:
        header = read_header(GetConsumerRunningInfoRequestHeader, request)
        return self._ask_one(request.code, header, header.consumer_group, header.client_id, None)

    def _consume_directly(self, request: RemotingCommand) -> Answer:
        header = read_header(ConsumeMessageDirectlyRequestHeader, request)
        header.broker_name = self._broker.settings.broker.broker_name
        record = self._broker.store.look_message(_offset_of(header.msg_id))
        if record is None:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"no message {header.msg_id} is stored here")
        return self._ask_one(request.code, header, header.consumer_group, header.client_id, bytes(record))

    def _ask_one(self, code: int, header: Header, group: str, client_id: str | None, body: bytes | None) -> Answer:
        info = self._broker.consumers.find(group)
        client = None if info is None or client_id is None else info.find_client(client_id)
        if client is None:
            name = "null" if client_id is None else client_id
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{name}> not online")
        if client.version < V3_1_8_SNAPSHOT:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"The Consumer <{client_id}> Version <{version_name(client.version)}> too low to finish, "
                "please upgrade it to V3_1_8_SNAPSHOT",
            )

        def finish(answer: RemotingCommand | RemotingError) -> RemotingCommand:
            if isinstance(answer, RemotingCommand):
                return RemotingCommand.response(answer.code, answer.remark, answer.ext_fields, answer.body)
            if isinstance(answer, RemotingTimeoutError):
                raise RequestError(
                    ResponseCode.CONSUME_MSG_TIMEOUT, f"consumer <{group}> <{client_id}> Timeout: {answer}"
                )
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, f"invoke consumer <{group}> <{client_id}> Exception: {answer}"
            )

        passed_on = RemotingCommand(code, write_header(header), body)
        result: Deferred[RemotingCommand] = self._broker.to_clients.call(client.connection, passed_on, finish)
        return result

    # ---------------------------------------------------------------- all consumers

    def _consumer_status(self, request: RemotingCommand) -> Answer:
        header = read_header(GetConsumerStatusRequestHeader, request)
        info = self._broker.consumers.find(header.group)
        clients = [] if info is None else info.clients()
        if not clients:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, f"No Any Consumer online in the consumer group: [{header.group}]"
            )
        wanted = (header.client_addr or "").strip()
        if wanted:
            clients = [client for client in clients if client.client_id == wanted]
        refuse_old_clients(clients)
        table: dict[str, dict[Any, int]] = {}
        fields = write_header(GetConsumerStatusRequestHeader(header.topic, header.group))
        asked = [
            self._broker.to_clients.call(
                client.connection,
                RemotingCommand(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, dict(fields)),
                partial(self._take_status, table, client),
                STATUS_TIMEOUT_MS,
            )
            for client in clients
        ]
        return answer_when_all(asked, lambda: GetConsumerStatusBody(consumer_table=table).encode())

    def _take_status(
        self, table: dict[str, dict[Any, int]], client: ClientChannelInfo, answer: RemotingCommand | RemotingError
    ) -> None:
        """Add a consumer's answer to the table. Consumers without an answer are left out."""
        try:
            if isinstance(answer, RemotingError):
                raise answer
            if answer.code != ResponseCode.SUCCESS:
                raise RequestError(answer.code, f"answered {answer.code}: {answer.remark}")
            if answer.body:
                table[client.client_id] = GetConsumerStatusBody.decode(answer.body).message_queue_table
        except RemotingError as error:
            self._peer_log.warn(
                "no offsets", "{client} did not send its offsets: {error}", client=str(client), error=error
            )


def answer_when_all(asked: Sequence[Deferred[Any]], encode: Callable[[], bytes]) -> Answer:
    """Answer with a body once all of these have fired."""
    result: Deferred[Any] = DeferredList(asked, consumeErrors=True)
    return result.addCallback(lambda _: RemotingCommand.response(remark=problems.NOT_SET_REMARK, body=encode()))


def refuse_old_clients(clients: list[ClientChannelInfo]) -> None:
    """Raise RequestError if a client is too old for offsets requested or sent by a broker."""
    for client in clients:
        if client.version < V3_0_7_SNAPSHOT:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"the client does not support this feature. version={version_name(client.version)}",
            )


def _offset_of(message_id: str | None) -> int:
    """Return the physical offset in an offset message id. Raises RequestError."""
    text = message_id or ""
    try:
        if len(text) not in _MESSAGE_ID_DIGITS:
            raise ValueError
        return int.from_bytes(bytes.fromhex(text)[-8:], "big", signed=True)
    except ValueError:
        raise RequestError(ResponseCode.SYSTEM_ERROR, f"{message_id!r:.100} is not a message id of a broker") from None
