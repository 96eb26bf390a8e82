"""Access control of a broker: the topics and groups of a request, and the hook that refuses.

The hook runs in the pools' threads, before processors. Loading and changing accounts belongs to the admin pool's
thread.

Counterpart: `PlainAccessValidator`, `BrokerController.initialAcl` (Apache).
"""

import os
from collections.abc import Callable, Mapping
from time import monotonic

from twisted.logger import Logger
from zope.interface import implementer

from rocketd.acl.credentials_file import read_credentials
from rocketd.acl.errors import (
    AccessDeniedError,
    AclFileError,
    NoAccessKeyError,
    NoPermissionError,
    NotAdminError,
    SignatureError,
    UnknownAccessKeyError,
)
from rocketd.acl.manager import PlainPermissionManager
from rocketd.acl.permissions import RETRY_PREFIX, Permission, retry_topic
from rocketd.broker.access.record_rights import Look, RecordRights
from rocketd.broker.base import problems
from rocketd.broker.base.settings import BrokerConfig
from rocketd.common.logs.throttle import LogThrottle, ThrottledLog
from rocketd.common.settings.declaration import ConfigError
from rocketd.remoting.bodies.tables import HeartbeatData, LockBatchRequestBody
from rocketd.remoting.calling.signing import SigningHook
from rocketd.remoting.errors import RemotingCommandError, RequestError
from rocketd.remoting.headers.client import (
    ConsumerGroupRequestHeader,
    UnregisterClientRequestHeader,
    UpdateConsumerOffsetRequestHeader,
    read_header,
)
from rocketd.remoting.interfaces import IFieldsHook
from rocketd.remoting.wire.codes import RequestCode
from rocketd.remoting.wire.command import RemotingCommand

RELOAD_SECONDS = 5.0
"""The interval between checks of the files for changes."""

_DIRECTORY = "conf/acl"

Resources = dict[str, Permission]


# ---------------------------------------------------------------- resources of a request


def _no_resources(_request: object) -> Resources:
    return {}


def _send(fields: Mapping[str, str], topic_name: str, group_name: str) -> Resources:
    topic = fields.get(topic_name)
    if topic is None:
        return {}
    if not topic.startswith(RETRY_PREFIX):
        return {topic: Permission.PUB}
    return _group(fields.get(group_name))


def _send_if_strict(fields: Mapping[str, str], topic_name: str) -> Resources:
    topic = fields.get(topic_name)
    if topic is None:
        return {}
    # Apache's broker asks for the group named by the sender, whichever group the retry topic belongs to.
    return {topic: Permission.SUB if topic.startswith(RETRY_PREFIX) else Permission.PUB}


def _group(group: str | None) -> Resources:
    return {} if group is None else {retry_topic(group): Permission.SUB}


def _topic(topic: str | None) -> Resources:
    return {} if topic is None else {topic: Permission.SUB}


def _pull(fields: Mapping[str, str]) -> Resources:
    return {**_topic(fields.get("topic")), **_group(fields.get("consumerGroup"))}


_FIELDS_TELL: Mapping[int, Callable[[Mapping[str, str]], Resources]] = {
    RequestCode.SEND_MESSAGE: lambda fields: _send(fields, "topic", "group"),
    RequestCode.SEND_MESSAGE_V2: lambda fields: _send(fields, "b", "a"),
    RequestCode.CONSUMER_SEND_MSG_BACK: lambda fields: _group(fields.get("group")),
    RequestCode.PULL_MESSAGE: _pull,
    RequestCode.LITE_PULL_MESSAGE: _pull,
    RequestCode.QUERY_MESSAGE: lambda fields: _topic(fields.get("topic")),
}
_FIELDS_TELL_IF_STRICT = {
    **_FIELDS_TELL,
    RequestCode.SEND_MESSAGE: lambda fields: _send_if_strict(fields, "topic"),
    RequestCode.SEND_MESSAGE_V2: lambda fields: _send_if_strict(fields, "b"),
    RequestCode.SEND_BATCH_MESSAGE: lambda fields: _send_if_strict(fields, "b"),
    RequestCode.SEND_REPLY_MESSAGE: lambda fields: _send_if_strict(fields, "topic"),
    RequestCode.SEND_REPLY_MESSAGE_V2: lambda fields: _send_if_strict(fields, "b"),
    RequestCode.QUERY_CONSUME_QUEUE: lambda fields: _topic(fields.get("topic")),
}


def _heartbeat(request: RemotingCommand) -> Resources:
    resources: Resources = {}
    for consumer in HeartbeatData.decode(request.body).consumer_data_set:
        resources.update(_group(consumer.group_name))
        for subscription in consumer.subscription_data_set:
            resources[subscription.topic] = Permission.SUB
    return resources


def _commit_offset(request: RemotingCommand) -> Resources:
    header = read_header(UpdateConsumerOffsetRequestHeader, request)
    return {**_group(header.consumer_group), **_topic(header.topic)}


def _lock_queues(request: RemotingCommand) -> Resources:
    body = LockBatchRequestBody.decode(request.body)
    return {**_group(body.consumer_group), **{queue.topic: Permission.SUB for queue in body.mq_set}}


_COMMAND_TELLS: Mapping[int, Callable[[RemotingCommand], Resources]] = {
    RequestCode.HEART_BEAT: _heartbeat,
    RequestCode.UNREGISTER_CLIENT: lambda request: _group(
        read_header(UnregisterClientRequestHeader, request).consumer_group
    ),
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: lambda request: _group(
        read_header(ConsumerGroupRequestHeader, request).consumer_group
    ),
    RequestCode.UPDATE_CONSUMER_OFFSET: _commit_offset,
}
"""Requests of other codes need a signature and nothing else.

That includes rocketd's codes: GET_GROUP_PROBLEMS reveals the same as GET_CONSUMER_CONNECTION_LIST, and GET_CONSUMER_LAG
the same as GET_CONSUME_STATS.
"""
_COMMAND_TELLS_IF_STRICT = {
    **_COMMAND_TELLS,
    RequestCode.LOCK_BATCH_MQ: _lock_queues,
    RequestCode.UNLOCK_BATCH_MQ: _lock_queues,
}


# ---------------------------------------------------------------- the hook


@implementer(IFieldsHook)
class AccessControl:
    """Refuses requests that accounts do not permit. ``manager`` holds the accounts, in the admin pool's thread."""

    _log = Logger()

    def __init__(
        self,
        manager: PlainPermissionManager,
        *,
        strict: bool = False,
        records: RecordRights | None = None,
        seconds: Callable[[], float] = monotonic,
    ) -> None:
        """``records`` returns the permissions needed for records; it is used only if ``strict``."""
        self.manager = manager
        self._fields_tell = dict(_FIELDS_TELL_IF_STRICT if strict else _FIELDS_TELL)
        if strict and records is not None:
            self._fields_tell[RequestCode.CONSUMER_SEND_MSG_BACK] = records.given_back
            self._fields_tell[RequestCode.END_TRANSACTION] = records.ended
        self._command_tells = _COMMAND_TELLS_IF_STRICT if strict else _COMMAND_TELLS
        self._refusals = ThrottledLog(self._log, LogThrottle(seconds))

    def before_request(self, address: str, request: RemotingCommand) -> None:
        """Let a request pass, or raise RequestError. Any thread."""
        fields = request.ext_fields
        self._check(address, request.code, fields, request.body, lambda: self.resources_of(request))

    def before_fields(
        self, address: str, code: int, fields: Mapping[str, str], body: bytes | memoryview | None
    ) -> None:
        """Let a request pass, or raise RequestError. Its fields suffice for the decision. Any thread."""
        tell = self._fields_tell.get(code, _no_resources)
        self._check(address, code, fields, body, lambda: tell(fields))

    def after_response(self, address: str, request: RemotingCommand, response: RemotingCommand | None) -> None:
        """Do nothing."""

    def signer(self, address: str, request: RemotingCommand) -> str | None:
        """Return the access key that signed an accepted request; None if its address needs no signature. Any thread."""
        return self.manager.rules.signer(address.rpartition(":")[0], request.ext_fields)

    def resources_of(self, request: RemotingCommand) -> Resources:
        """Return the resources of a request, and the permissions needed. Raises RequestError if they cannot be read."""
        tell = self._fields_tell.get(request.code)
        if tell is not None:
            return tell(request.ext_fields or {})
        try:
            return self._command_tells.get(request.code, _no_resources)(request)
        except RemotingCommandError as error:
            raise problems.ACCESS_NOT_READABLE.error(found=error) from None

    def _check(
        self,
        address: str,
        code: int,
        fields: Mapping[str, str] | None,
        body: bytes | memoryview | None,
        needed: Callable[[], Resources],
    ) -> None:
        try:
            self.manager.rules.check(code, address.rpartition(":")[0], fields, body, needed)
        except AccessDeniedError as error:
            self._log_refusal(address, code, error)
            raise refusal(error) from None

    def _log_refusal(self, address: str, code: int, error: AccessDeniedError) -> None:
        # The text contains data of the client, and may be as long as a frame.
        self._refusals.warn(
            f"{address.rpartition(':')[0]} {code} {error}",
            "{address}: request {code} refused: {why!r}",
            address=address,
            code=code,
            why=str(error),
        )


def refusal(error: AccessDeniedError) -> RequestError:
    """Return the refusal sent to the client."""
    match error:
        case NoAccessKeyError(host=host):
            return problems.NO_ACCESS_KEY.error(host=host)
        case UnknownAccessKeyError(access_key=key):
            return problems.UNKNOWN_ACCESS_KEY.error(access_key=key)
        case SignatureError(access_key=key):
            return problems.SIGNATURE_WRONG.error(access_key=key)
        case NotAdminError(code=code, access_key=key):
            return problems.ADMIN_NEEDED.error(code=code, access_key=key)
        case NoPermissionError(resource=resource, access_key=key, needed=needed, owned=owned):
            return problems.ACCESS_FORBIDDEN.error(resource=resource, access_key=key, needed=needed, owned=owned)
    raise error


# ---------------------------------------------------------------- construction


def make_access_control(
    settings: BrokerConfig, now_ms: Callable[[], int], look: Look | None = None
) -> AccessControl | None:
    """Load the accounts named by the settings; None if access control is off. ``look`` reads the log.

    Blocks. Raises ConfigError if they are unusable: a guarded broker must not run open.
    """
    if not settings.acl_enable:
        return None
    home = settings.rocketmq_home
    if not home and not os.path.isabs(settings.acl_plain_file):
        raise ConfigError(
            f"aclEnable = true: {settings.acl_plain_file} is relative to rocketmqHome, which is not set; set "
            "rocketmqHome, or "
            "give rocketmq.acl.plain.file an absolute path"
        )
    manager = PlainPermissionManager(
        os.path.join(home or "", settings.acl_plain_file),
        os.path.join(home, _DIRECTORY) if home else None,
        now_ms,
        strict=settings.acl_strict,
    )
    try:
        manager.load()
    except AclFileError as error:
        raise ConfigError(f"aclEnable = true: {error}") from error
    records = None if look is None else RecordRights(look)
    return AccessControl(manager, strict=settings.acl_strict, records=records)


def signing_hooks(settings: BrokerConfig) -> list[SigningHook]:
    """Return the hooks that sign this broker's requests; none without an account. Raises ConfigError."""
    path = settings.acl_credentials_file
    if not path:
        return []
    try:
        return [SigningHook(read_credentials(os.path.join(settings.rocketmq_home or "", path)))]
    except AclFileError as error:
        raise ConfigError(f"aclCredentialsFile: {error}") from error
