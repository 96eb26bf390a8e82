"""All requests of a name server except routes: registrations, lists, KV configuration, its settings.

Counterpart: `DefaultRequestProcessor` (Apache), with the same codes, remarks and bodies. Runs in the name server's
pool. Unknown codes are answered by the dispatcher (Apache's name server ignores them).
"""

from collections.abc import Callable
from typing import Final
from zlib import crc32

from twisted.logger import Logger
from zope.interface import implementer

from rocketd.common.logs.throttle import ThrottledLog, event_log
from rocketd.common.names import ORDER_TOPIC_NAMESPACE, SELF_TEST_TOPIC
from rocketd.common.settings import properties_file
from rocketd.common.settings.daemon_settings import changes_of, update_remark
from rocketd.common.table_writer import Written
from rocketd.namesrv.address_rules import AddressView, address_rules
from rocketd.namesrv.interfaces import INameServer
from rocketd.namesrv.route_info import BrokerIdentity
from rocketd.remoting.bodies.tables import (
    DataVersion,
    KVTable,
    RegisterBrokerBody,
    TopicConfigSerializeWrapper,
    TopicList,
)
from rocketd.remoting.errors import RequestError
from rocketd.remoting.headers.client import (
    AddWritePermResponseHeader,
    BrokerIdentityRequestHeader,
    BrokerNameRequestHeader,
    ClusterRequestHeader,
    DeleteTopicInNamesrvRequestHeader,
    KVKeyRequestHeader,
    KVNamespaceRequestHeader,
    PutKVConfigRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    WipeWritePermResponseHeader,
    read_header,
    write_header,
)
from rocketd.remoting.interfaces import IRequestContext, IRequestProcessor
from rocketd.remoting.wire.codes import V5_0_0, RequestCode, ResponseCode
from rocketd.remoting.wire.command import RemotingCommand

V3_0_11: Final = 37
"""First version whose registrations have filter servers beside the topics."""

UNCHANGEABLE: Final = ("kvConfigPath", "configStorePath")


@implementer(IRequestProcessor)
class NamesrvProcessor:
    """One method per request code. Pool threads. Shared state is in the tables, and these have locks."""

    _log = Logger()

    def __init__(self, name_server: INameServer) -> None:
        self._name_server = name_server
        self._peer_log = ThrottledLog(self._log)
        self._events = event_log(self._log)
        self._routes = name_server.routes
        self._kv_config = name_server.kv_config
        self._settings = name_server.settings
        self._audit = name_server.audit
        routes = self._routes
        self._methods: dict[int, Callable[[RemotingCommand, IRequestContext], RemotingCommand | None]] = {
            RequestCode.PUT_KV_CONFIG: self._put_kv_config,
            RequestCode.GET_KV_CONFIG: self._get_kv_config,
            RequestCode.DELETE_KV_CONFIG: self._delete_kv_config,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self._get_kv_list,
            RequestCode.REGISTER_BROKER: self._register_broker,
            RequestCode.UNREGISTER_BROKER: self._unregister_broker,
            RequestCode.QUERY_DATA_VERSION: self._query_data_version,
            RequestCode.GET_BROKER_CLUSTER_INFO: self._get_cluster_info,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self._wipe_write_perm,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self._add_write_perm,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self._delete_topic,
            RequestCode.GET_TOPICS_BY_CLUSTER: self._get_topics_by_cluster,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: _lister(routes.all_topics),
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: _lister(routes.system_topics),
            RequestCode.GET_UNIT_TOPIC_LIST: _lister(routes.unit_topics),
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: _lister(routes.unit_sub_topics),
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: _lister(routes.unit_sub_ununit_topics),
            RequestCode.UPDATE_NAMESRV_CONFIG: self._update_config,
            RequestCode.GET_NAMESRV_CONFIG: self._get_config,
            RequestCode.GET_ADMIN_CHANGES: self._admin_changes,
        }

    def process(self, request: RemotingCommand, context: IRequestContext) -> RemotingCommand | None:
        """Handle one request, see IRequestProcessor."""
        return self._methods[request.code](request, context)

    # ------------------------------------------------------------ brokers

    def _register_broker(self, request: RemotingCommand, context: IRequestContext) -> RemotingCommand:
        header = read_header(RegisterBrokerRequestHeader, request)
        body = request.body or b""
        # Java keeps the checksum as a positive int.
        if header.body_crc32 and header.body_crc32 != crc32(body) & 0x7FFFFFFF:
            self._peer_log.warn(
                "damaged registration",
                "{address}: the registration of {broker} was damaged in transit: CRC {found}, sent was {sent}",
                address=context.connection.address,
                broker=header.broker_name,
                found=crc32(body) & 0x7FFFFFFF,
                sent=header.body_crc32,
            )
            raise RequestError(ResponseCode.SYSTEM_ERROR, "crc32 not match")
        filter_servers: list[str] | None = []
        if not body:
            topics = TopicConfigSerializeWrapper()
        elif request.version < V3_0_11:
            topics, filter_servers = TopicConfigSerializeWrapper.decode(body), None
        else:
            registration = RegisterBrokerBody.inflate(body) if header.compressed else RegisterBrokerBody.decode(body)
            topics, filter_servers = registration.topic_config_serialize_wrapper, registration.filter_server_list
        # Brokers register a new topic by itself, and from time to time all of theirs, with those of the system.
        is_part = SELF_TEST_TOPIC not in topics.topic_config_table
        master = self._routes.register(
            _identity(header),
            header.ha_server_addr,
            topics.data_version,
            topics.topic_config_table,
            filter_servers,
            context.connection,
            context.received_ms,
            has_all_topics=request.version < V5_0_0 and not is_part,
            is_part=is_part,
        )
        view = self._view_of(context)
        addresses = (master.ha_server_address, master.master_address)
        answer = RegisterBrokerResponseHeader(*(a if view is None or a is None else view.told(a) for a in addresses))
        ordered = self._kv_config.of_namespace(ORDER_TOPIC_NAMESPACE)
        return RemotingCommand.response(
            ext_fields=write_header(answer), body=None if ordered is None else KVTable(ordered).encode()
        )

    def _unregister_broker(self, request: RemotingCommand, context: IRequestContext) -> RemotingCommand:
        self._routes.unregister(_identity(read_header(BrokerIdentityRequestHeader, request)))
        return RemotingCommand.response()

    def _query_data_version(self, request: RemotingCommand, context: IRequestContext) -> RemotingCommand:
        header = read_header(BrokerIdentityRequestHeader, request)
        asked = DataVersion.decode(request.body)
        changed, known = self._routes.query_data_version(header.broker_addr, asked, context.received_ms)
        fields = write_header(QueryDataVersionResponseHeader(changed))
        return RemotingCommand.response(ext_fields=fields, body=None if known is None else known.encode())

    def _get_cluster_info(self, request: RemotingCommand, context: IRequestContext) -> RemotingCommand:
        info, view = self._routes.cluster_info(), self._view_of(context)
        if view is not None:
            info.broker_addr_table = {name: view.broker(broker) for name, broker in info.broker_addr_table.items()}
        return RemotingCommand.response(body=info.encode())

    def _view_of(self, context: IRequestContext) -> AddressView | None:
        return address_rules(self._settings.namesrv.addresses_by_network).view_of(context.connection.address)

    def _wipe_write_perm(self, request: RemotingCommand, context: IRequestContext) -> RemotingCommand:
        name = read_header(BrokerNameRequestHeader, request).broker_name
        count = self._routes.wipe_write_perm(name)
        self._audit.note(request, context, "forbid writing to a broker", name, after={"topics": count})
        self._log_perms("wiped from", name, count, context)
        return RemotingCommand.response(ext_fields=write_header(WipeWritePermResponseHeader(count)))

    def _add_write_perm(self, request: RemotingCommand, context: IRequestContext) -> RemotingCommand:
        name = read_header(BrokerNameRequestHeader, request).broker_name
        count = self._routes.add_write_perm(name)
        self._audit.note(request, context, "permit writing to a broker", name, after={"topics": count})
        self._log_perms("given to", name, count, context)
        return RemotingCommand.response(ext_fields=write_header(AddWritePermResponseHeader(count)))

    def _log_perms(self, change: str, broker_name: str, count: int, context: IRequestContext) -> None:
        self._events.info(
            "write permissions",
            "write permission {change} {count} topics of {broker} by {address}",
            change=change,
            count=count,
            broker=broker_name,
            address=context.connection.address,
        )

    # ------------------------------------------------------------ topics

    def _delete_topic(self, request: RemotingCommand, context: IRequestContext) -> RemotingCommand:
        header = read_header(DeleteTopicInNamesrvRequestHeader, request)
        self._routes.delete_topic(header.topic, header.cluster_name)
        where = f" in {header.cluster_name}" if header.cluster_name else ""
        self._audit.note(request, context, f"delete topic{where}", header.topic)
        return RemotingCommand.response()

    def _get_topics_by_cluster(self, request: RemotingCommand, context: IRequestContext) -> RemotingCommand:
        cluster = read_header(ClusterRequestHeader, request).cluster
        return RemotingCommand.response(body=self._routes.topics_of_cluster(cluster).encode())

    # ------------------------------------------------------------ KV configuration

    def _put_kv_config(self, request: RemotingCommand, context: IRequestContext) -> None:
        header = read_header(PutKVConfigRequestHeader, request)
        before = self._kv_config.get(header.namespace, header.key)
        self._kv_config.put(
            header.namespace,
            header.key,
            header.value,
            _when_written(context, f"KV {header.namespace}/{header.key} is set"),
        )
        subject = f"{header.namespace}/{header.key}"
        self._audit.note(request, context, "set key-value entry", subject, before, header.value)

    def _get_kv_config(self, request: RemotingCommand, context: IRequestContext) -> RemotingCommand:
        header = read_header(KVKeyRequestHeader, request)
        value = self._kv_config.get(header.namespace, header.key)
        if value is None:
            raise RequestError(
                ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {header.namespace} Key: {header.key}"
            )
        return RemotingCommand.response(ext_fields={"value": value})

    def _delete_kv_config(self, request: RemotingCommand, context: IRequestContext) -> None:
        header = read_header(KVKeyRequestHeader, request)
        before = self._kv_config.get(header.namespace, header.key)
        self._kv_config.delete(
            header.namespace, header.key, _when_written(context, f"KV {header.namespace}/{header.key} is deleted")
        )
        self._audit.note(request, context, "delete key-value entry", f"{header.namespace}/{header.key}", before)

    def _get_kv_list(self, request: RemotingCommand, context: IRequestContext) -> RemotingCommand:
        namespace = read_header(KVNamespaceRequestHeader, request).namespace
        table = self._kv_config.of_namespace(namespace)
        if table is None:
            raise RequestError(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace}")
        return RemotingCommand.response(body=KVTable(table).encode())

    # ------------------------------------------------------------ the name server's own settings

    def _get_config(self, request: RemotingCommand, context: IRequestContext) -> RemotingCommand:
        return RemotingCommand.response(body=self._settings.properties_text().encode())

    def _update_config(self, request: RemotingCommand, context: IRequestContext) -> RemotingCommand:
        """Apply and store the accepted values. Refuse with the reasons if a key was not accepted.

        The remark of a success names values without immediate effect. Apache answers success for unknown keys and
        unreadable values.
        """
        text = (request.body or b"").decode("utf-8", "replace")
        try:
            keys = {entry.key for entry in properties_file.parse(text)}
        except ValueError as error:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"string2Properties error: {error}") from None
        if keys.intersection(UNCHANGEABLE):
            raise RequestError(ResponseCode.NO_PERMISSION, "Can not update config path")
        pending = dict(self._settings.pending)
        before = self._settings.shown_values() | pending
        results = self._settings.update(text)
        for result in results:
            self._events.info("sets", "{address} sets {result}", address=context.connection.address, result=str(result))
        self._audit.note_settings(request, context, before, results)
        refused = [str(result) for result in results if not result.accepted]
        try:
            self._name_server.store_settings(changes_of(results))
        except (OSError, ValueError) as error:
            self._log.error("settings cannot be stored: {error}", error=error)
            self._settings.pending = pending
            refused.append(f"the accepted values are lost at the next start: they cannot be stored: {error}")
        if refused:
            raise RequestError(ResponseCode.SYSTEM_ERROR, "; ".join(refused))
        return RemotingCommand.response(remark=update_remark(results))

    def _admin_changes(self, request: RemotingCommand, context: IRequestContext) -> RemotingCommand:
        return self._audit.answer(request)


def _identity(header: BrokerIdentityRequestHeader) -> BrokerIdentity:
    return BrokerIdentity(header.cluster_name, header.broker_name, header.broker_id, header.broker_addr)


def _when_written(context: IRequestContext, what: str) -> Written:
    """Return the callback of a write: it answers the administrator."""

    def written(error: Exception | None) -> None:
        if error is None:
            context.answer(RemotingCommand.response())
            return
        remark = (
            f"{what} in memory only: kvConfigPath could not be written: {error}. The name server tries again every second; "
            "if it stops before that succeeds, the change is lost. Make the disk writable"
        )
        context.answer(RemotingCommand.response(ResponseCode.SYSTEM_ERROR, remark))

    return written


def _lister(list_topics: Callable[[], TopicList]) -> Callable[[RemotingCommand, IRequestContext], RemotingCommand]:
    """Return the method of a code that answers a list of topics."""

    def answer(_request: RemotingCommand, _context: IRequestContext) -> RemotingCommand:
        return RemotingCommand.response(body=list_topics().encode())

    return answer
