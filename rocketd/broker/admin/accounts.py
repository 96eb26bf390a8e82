"""Reading and changing accounts: 50, 51, 52, 53, 54.

The remarks are Apache's. If access control is off, Apache's broker does not answer 52 and 54, and answers the others
with the text of an internal error. Here all of them are refused with the reason.

Counterpart: the account requests of `AdminBrokerProcessor` (Apache).
"""

import json
from collections.abc import Callable
from dataclasses import asdict

from twisted.logger import Logger
from zope.interface import implementer

from rocketd.acl.accounts import AccountConfig
from rocketd.acl.errors import AclError
from rocketd.acl.manager import PlainPermissionManager
from rocketd.broker.admin.parts import AdminParts
from rocketd.common.logs.throttle import event_log
from rocketd.remoting.bodies.admin import GetBrokerClusterAclConfigResponseBody, PlainAccessConfig
from rocketd.remoting.errors import RemotingCommandError, RequestError
from rocketd.remoting.headers.acl import (
    CreateAccessConfigRequestHeader,
    DeleteAccessConfigRequestHeader,
    GetBrokerAclConfigResponseHeader,
    UpdateGlobalWhiteAddrsConfigRequestHeader,
)
from rocketd.remoting.headers.client import HeaderT, read_header, write_header
from rocketd.remoting.interfaces import IRequestContext, IRequestProcessor
from rocketd.remoting.wire.codes import RequestCode, ResponseCode
from rocketd.remoting.wire.command import RemotingCommand

_FAILED = {
    RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED,
    RequestCode.DELETE_ACL_CONFIG: ResponseCode.DELETE_ACL_CONFIG_FAILED,
    RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED,
}


@implementer(IRequestProcessor)
class AclConfigProcessor:
    """Changes accounts. ``process`` belongs to the admin pool's thread, as does the manager of accounts."""

    _log = Logger()

    def __init__(self, broker: AdminParts) -> None:
        self._broker = broker
        self._events = event_log(self._log)
        self._methods: dict[int, Callable[[RemotingCommand, IRequestContext], RemotingCommand]] = {
            RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: self._update_account,
            RequestCode.DELETE_ACL_CONFIG: self._delete_account,
            RequestCode.GET_BROKER_CLUSTER_ACL_INFO: self._versions,
            RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: self._update_white_addresses,
            RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG: self._config,
        }

    def process(self, request: RemotingCommand, context: IRequestContext) -> RemotingCommand:
        """Handle one request; see IRequestProcessor. Errors never contain the request: it holds secrets."""
        failed = _FAILED.get(RequestCode(request.code), ResponseCode.SYSTEM_ERROR)
        if self._broker.access is None:
            raise RequestError(failed, "access control is off at this broker: aclEnable=false")
        try:
            return self._methods[request.code](request, context)
        except (AclError, OSError) as error:
            raise RequestError(failed, str(error)) from None
        except RequestError:
            raise
        except Exception as error:
            self._log.failure("request {code} about accounts failed", code=request.code)
            raise RequestError(failed, type(error).__name__) from None

    @property
    def _manager(self) -> PlainPermissionManager:
        access = self._broker.access
        assert access is not None
        return access.manager

    # ---------------------------------------------------------------- changes

    def _update_account(self, request: RemotingCommand, context: IRequestContext) -> RemotingCommand:
        header = _read(CreateAccessConfigRequestHeader, request)
        self._log_call("sets account", header.access_key, context)
        config = AccountConfig(
            access_key=header.access_key,
            secret_key=header.secret_key,
            white_remote_address=header.white_remote_address,
            admin=header.admin,
            default_topic_perm=header.default_topic_perm,
            default_group_perm=header.default_group_perm,
            topic_perms=_split(header.topic_perms),
            group_perms=_split(header.group_perms),
        )
        before = self._config_of(header.access_key)
        self._manager.set_account(config)
        action = "set account"
        if before is not None and before.secret_key != header.secret_key:
            action = "set account, with a new secret"
        self._broker.audit.note(
            request, context, action, header.access_key or "", _without_secret(before), _without_secret(config)
        )
        return RemotingCommand.response()

    def _delete_account(self, request: RemotingCommand, context: IRequestContext) -> RemotingCommand:
        access_key = _read(DeleteAccessConfigRequestHeader, request).access_key
        self._log_call("deletes account", access_key, context)
        before = self._config_of(access_key)
        if not self._manager.delete_account(access_key):
            raise AclError(f"The accesskey[{access_key}] corresponding to accessConfig has been deleted failed.")
        self._broker.audit.note(request, context, "delete account", access_key, _without_secret(before))
        return RemotingCommand.response()

    def _update_white_addresses(self, request: RemotingCommand, context: IRequestContext) -> RemotingCommand:
        header = _read(UpdateGlobalWhiteAddrsConfigRequestHeader, request)
        self._log_call("sets global white addresses", header.global_white_addrs, context)
        addresses = _split(header.global_white_addrs) or []
        before = self._manager.white_addresses()
        if not self._manager.set_white_addresses(addresses, header.acl_file_full_path):
            raise AclError(f"The globalWhiteAddresses[{header.global_white_addrs}] has been updated failed.")
        after = self._manager.white_addresses()
        self._broker.audit.note(
            request, context, "set global white addresses", header.acl_file_full_path or "", before, after
        )
        return RemotingCommand.response()

    def _config_of(self, access_key: str | None) -> AccountConfig | None:
        configs = (config for config in self._manager.account_configs() if config.access_key == access_key)
        return next(configs, None)

    # ---------------------------------------------------------------- answers

    def _versions(self, request: RemotingCommand, context: IRequestContext) -> RemotingCommand:
        settings = self._broker.settings.broker
        self._manager.reload()
        header = GetBrokerAclConfigResponseHeader(
            version=_compact(asdict(self._manager.version())),
            all_acl_file_version=_compact({path: asdict(of) for path, of in self._manager.versions().items()}),
            broker_name=settings.broker_name,
            broker_addr=self._broker.address,
            cluster_name=settings.broker_cluster_name,
        )
        return RemotingCommand.response(ext_fields=write_header(header))

    def _config(self, request: RemotingCommand, context: IRequestContext) -> RemotingCommand:
        self._log_call("reads all accounts", "", context)
        body = GetBrokerClusterAclConfigResponseBody(
            global_white_addrs=self._manager.white_addresses(),
            plain_access_configs=[PlainAccessConfig(**asdict(config)) for config in self._manager.account_configs()],
        )
        return RemotingCommand.response(ext_fields={}, body=body.encode())

    def _log_call(self, what: str, name: str, context: IRequestContext) -> None:
        self._events.info(what, "{address} {what} {name}", address=context.connection.address, what=what, name=name)


def _read(header_type: type[HeaderT], request: RemotingCommand) -> HeaderT:
    """Read a header. Raises RequestError: unlike other errors, it is not logged together with the request."""
    try:
        return read_header(header_type, request)
    except RemotingCommandError as error:
        raise RequestError(ResponseCode.SYSTEM_ERROR, str(error)) from None


def _without_secret(config: AccountConfig | None) -> dict[str, object] | None:
    return None if config is None else {name: value for name, value in asdict(config).items() if name != "secret_key"}


def _split(text: str | None) -> list[str] | None:
    """Split at commas as Java does: without empty parts at the end."""
    if text is None:
        return None
    parts = text.split(",")
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return parts


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
