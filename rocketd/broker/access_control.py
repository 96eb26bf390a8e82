"""Access control of a broker: which topics and groups a request touches, and the hook that refuses.

Answers to Apache's PlainAccessValidator and BrokerController.initialAcl. The hook runs in the pools' threads, before
processors; loading and changing accounts belongs to the admin pool's thread.
"""

import os
from collections.abc import Callable, Mapping
from time import monotonic

from twisted.logger import Logger
from zope.interface import implementer

from rocketd.acl.credentials import read_credentials
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
from rocketd.broker import problems
from rocketd.broker.settings import BrokerConfig
from rocketd.common.config import ConfigError
from rocketd.remoting.bodies import HeartbeatData
from rocketd.remoting.codes import RequestCode
from rocketd.remoting.command import RemotingCommand
from rocketd.remoting.errors import RemotingCommandError, RequestError
from rocketd.remoting.headers import (
    ConsumerGroupRequestHeader,
    UnregisterClientRequestHeader,
    UpdateConsumerOffsetRequestHeader,
    read_header,
)
from rocketd.remoting.interfaces import IRPCHook
from rocketd.remoting.signing import SigningHook

RELOAD_SECONDS = 5.0
"""How often files are looked at."""
QUIET_SECONDS = 60.0
"""For how long a refusal that was logged is not logged again."""

_QUIET_LIMIT = 1000
_DIRECTORY = "conf/acl"

Resources = dict[str, Permission]


# ---------------------------------------------------------------- what a request touches


def _send(request: RemotingCommand, topic_name: str, group_name: str) -> Resources:
    fields = request.ext_fields or {}
    topic = fields.get(topic_name)
    if topic is None:
        return {}
    if not topic.startswith(RETRY_PREFIX):
        return {topic: Permission.PUB}
    return _groups(fields.get(group_name))


def _groups(*groups: str | None) -> Resources:
    return {retry_topic(group): Permission.SUB for group in groups if group is not None}


def _topic(topic: str | None) -> Resources:
    return {} if topic is None else {topic: Permission.SUB}


def _pull(request: RemotingCommand) -> Resources:
    fields = request.ext_fields or {}
    return {**_topic(fields.get("topic")), **_groups(fields.get("consumerGroup"))}


def _heartbeat(request: RemotingCommand) -> Resources:
    resources: Resources = {}
    for consumer in HeartbeatData.decode(request.body).consumer_data_set:
        resources.update(_groups(consumer.group_name))
        for subscription in consumer.subscription_data_set:
            resources[subscription.topic] = Permission.SUB
    return resources


def _commit_offset(request: RemotingCommand) -> Resources:
    header = read_header(UpdateConsumerOffsetRequestHeader, request)
    return {**_groups(header.consumer_group), **_topic(header.topic)}


_TOUCHED: Mapping[int, Callable[[RemotingCommand], Resources]] = {
    RequestCode.SEND_MESSAGE: lambda request: _send(request, "topic", "group"),
    RequestCode.SEND_MESSAGE_V2: lambda request: _send(request, "b", "a"),
    RequestCode.CONSUMER_SEND_MSG_BACK: lambda request: _groups((request.ext_fields or {}).get("group")),
    RequestCode.PULL_MESSAGE: _pull,
    RequestCode.LITE_PULL_MESSAGE: _pull,
    RequestCode.QUERY_MESSAGE: lambda request: _topic((request.ext_fields or {}).get("topic")),
    RequestCode.HEART_BEAT: _heartbeat,
    RequestCode.UNREGISTER_CLIENT: lambda request: _groups(
        read_header(UnregisterClientRequestHeader, request).consumer_group
    ),
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: lambda request: _groups(
        read_header(ConsumerGroupRequestHeader, request).consumer_group
    ),
    RequestCode.UPDATE_CONSUMER_OFFSET: _commit_offset,
}
"""All other requests need a signature and nothing else."""

_TOUCHED_IF_STRICT = {**_TOUCHED, RequestCode.SEND_BATCH_MESSAGE: _TOUCHED[RequestCode.SEND_MESSAGE_V2]}


# ---------------------------------------------------------------- the hook


@implementer(IRPCHook)
class AccessControl:
    """Refuses what accounts may not do. ``manager`` holds the accounts; its methods belong to the admin pool's thread."""

    _log = Logger()

    def __init__(
        self, manager: PlainPermissionManager, *, strict: bool = False, seconds: Callable[[], float] = monotonic
    ) -> None:
        self.manager = manager
        self._touched = _TOUCHED_IF_STRICT if strict else _TOUCHED
        self._seconds = seconds
        self._logged: dict[str, float] = {}

    def before_request(self, address: str, request: RemotingCommand) -> None:
        """Let a request pass or raise RequestError. Any thread."""
        try:
            self.manager.rules.check(
                request.code,
                address.rpartition(":")[0],
                request.ext_fields,
                request.body,
                lambda: self.resources_of(request),
            )
        except AccessDeniedError as error:
            self._log_refusal(address, request.code, error)
            raise refusal(error) from None

    def after_response(self, address: str, request: RemotingCommand, response: RemotingCommand | None) -> None:
        """Do nothing."""

    def resources_of(self, request: RemotingCommand) -> Resources:
        """List what a request touches, and the right that it needs. Raises RequestError when that cannot be read."""
        touched = self._touched.get(request.code)
        if touched is None:
            return {}
        try:
            return touched(request)
        except RemotingCommandError as error:
            raise problems.ACCESS_NOT_READABLE.error(found=error) from None

    def _log_refusal(self, address: str, code: int, error: AccessDeniedError) -> None:
        now = self._seconds()
        what = f"{address.rpartition(':')[0]} {code} {error}"
        if self._logged.get(what, float("-inf")) + QUIET_SECONDS > now:
            return
        if len(self._logged) >= _QUIET_LIMIT:
            self._logged.clear()
        self._logged[what] = now
        self._log.warn(
            "{address}: request {code} refused: {why!r:.500}; the same is not logged again for {quiet:g} s",
            address=address,
            code=code,
            why=str(error),
            quiet=QUIET_SECONDS,
        )


def refusal(error: AccessDeniedError) -> RequestError:
    """Turn a decision into what the client is told."""
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


# ---------------------------------------------------------------- making it


def make_access_control(settings: BrokerConfig, now_ms: Callable[[], int]) -> AccessControl | None:
    """Load the accounts that the settings name; None when access control is off.

    Blocks. Raises ConfigError when they cannot be used: a broker does not run open to all whose owner wants it guarded.
    """
    if not settings.acl_enable:
        return None
    home = settings.rocketmq_home
    if not home and not os.path.isabs(settings.acl_plain_file):
        raise ConfigError(
            f"aclEnable = true: {settings.acl_plain_file} is looked for below rocketmqHome, which is not set; set it, or "
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
    return AccessControl(manager, strict=settings.acl_strict)


def signing_hooks(settings: BrokerConfig) -> list[SigningHook]:
    """Make the hooks that sign this broker's own requests, none unless it was given an account. Raises ConfigError."""
    path = settings.acl_credentials_file
    if not path:
        return []
    try:
        return [SigningHook(read_credentials(os.path.join(settings.rocketmq_home or "", path)))]
    except AclFileError as error:
        raise ConfigError(f"aclCredentialsFile: {error}") from error
