"""Typed headers of requests and responses, each declared once.

Counterpart: the `CommandCustomHeader` classes (Apache). A field's wire name is its camel-case form. A field without a
default is required. ``read_header`` builds a header from a command's fields, ``write_header`` does the reverse. The
short names of the send headers (310, 320, 325) are the same declaration with other names.
"""

import re
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, NamedTuple, TypeVar, cast

import msgspec
from msgspec.structs import fields as struct_fields

from rocketd.common.sysflag import TRANSACTION_COMMIT, TRANSACTION_NOT, TRANSACTION_ROLLBACK
from rocketd.remoting.errors import RemotingCommandError
from rocketd.remoting.wire.command import RemotingCommand

Int = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
"""A number in the range of Java's int."""
Long = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""A number in the range of Java's long."""


class Header(msgspec.Struct, rename="camel"):
    """Base of all headers. Subclasses list their fields."""

    def check_fields(self) -> None:
        """Raise RemotingCommandError if the fields contradict each other."""


HeaderT = TypeVar("HeaderT", bound=Header)


def read_header(header_type: type[HeaderT], command: RemotingCommand) -> HeaderT:
    """Return the typed header of a command. Unknown fields are ignored.

    Raises RemotingCommandError naming the first field that is missing or has the wrong type.
    """
    try:
        return _read(header_type, command.ext_fields or {})
    except RemotingCommandError as error:
        error.command = command
        raise


def _read(header_type: type[HeaderT], fields: Mapping[str, str]) -> HeaderT:
    try:
        header = msgspec.convert(fields, header_type, strict=False)
        for name in flag_names(header_type):
            if fields.get(name) == "1":  # true to msgspec, false to Java
                header = _read_leniently(header_type, fields)
                break
    except msgspec.ValidationError:
        header = _read_leniently(header_type, fields)
    header.check_fields()
    return header


class _Field(NamedTuple):
    """A field of a header class: its wire name, the type of its value, and whether it is required."""

    wire_name: str
    type: type
    required: bool


@cache
def _fields_of(header_type: type[Header]) -> tuple[_Field, ...]:
    """Return the fields of a header class. Cached."""
    return tuple(
        _Field(field.encode_name, _plain_type(field.type), field.required) for field in struct_fields(header_type)
    )


@cache
def flag_names(header_type: type[Header]) -> tuple[str, ...]:
    """Return the wire names of a header's booleans."""
    return tuple(field.wire_name for field in _fields_of(header_type) if field.type is bool)


def _read_leniently(header_type: type[HeaderT], texts: Mapping[str, str]) -> HeaderT:
    """Read field by field like Java's parsers: leading zeros and a plus are accepted, any text except ``true`` is
    false.
    """
    values: dict[str, Any] = {}
    for field in _fields_of(header_type):
        text = texts.get(field.wire_name)
        if text is None:
            if field.required:
                raise RemotingCommandError(f"the custom field <{field.wire_name}> is null")
            continue
        values[field.wire_name] = _parse(field.wire_name, field.type, text)
    try:
        return msgspec.convert(values, header_type)
    except msgspec.ValidationError as error:
        # Only the range of a number can still be wrong.
        limit, _, name = str(error).partition(" - at `$.")
        raise RemotingCommandError(f"the custom field <{name.rstrip('`')}> is out of range: {limit.lower()}") from None


def _plain_type(declared: object) -> type:
    """Strip ``| None`` and the range from a declared field type."""
    while hasattr(declared, "__args__"):
        declared = declared.__args__[0]
    return cast(type, declared)


def _parse(name: str, wanted: type, text: str) -> Any:
    if wanted is bool:
        return text.lower() == "true"
    if wanted is int and not _is_whole_number(text):
        raise RemotingCommandError(f"the custom field <{name}> should be a whole number, not {text!r:.100}")
    try:
        return wanted(text)
    except ValueError:
        raise RemotingCommandError(f"the custom field <{name}> should be a number, not {text!r:.100}") from None


_is_whole_number = re.compile(r"[-+]?[0-9]{1,20}").fullmatch


def write_header(header: Header) -> dict[str, str]:
    """Return the command fields of a typed header. None is left out."""
    texts = {}
    for name, wire_name in zip(header.__struct_fields__, header.__struct_encode_fields__, strict=True):
        value = getattr(header, name)
        if value is not None:
            texts[wire_name] = str(value).lower() if isinstance(value, bool) else str(value)
    return texts


# ---------------------------------------------------------------- messages: send, pull, query


class SendMessageRequestHeader(Header):
    """SEND_MESSAGE (10) and SEND_REPLY_MESSAGE (324). Times are Unix milliseconds."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int
    queue_id: Int
    sys_flag: Int
    born_timestamp: Long
    flag: Int
    properties: str | None = None
    reconsume_times: Int | None = None
    unit_mode: bool = False
    max_reconsume_times: Int | None = None
    batch: bool = False
    bname: str | None = None


_SHORT_NAMES = dict(zip(SendMessageRequestHeader.__struct_fields__, "abcdefghijklmn", strict=True))

SendMessageRequestHeaderV2 = cast(
    type[SendMessageRequestHeader],
    msgspec.defstruct(
        "SendMessageRequestHeaderV2",
        [
            (f.name, f.type) if f.required else (f.name, f.type, f.default)
            for f in struct_fields(SendMessageRequestHeader)
        ],
        bases=(SendMessageRequestHeader,),
        module=__name__,
        rename=_SHORT_NAMES,
    ),
)
"""SEND_MESSAGE_V2 (310), SEND_BATCH_MESSAGE (320), SEND_REPLY_MESSAGE_V2 (325): the same fields, named a to n."""


class ReplyMessageRequestHeader(Header):
    """PUSH_REPLY_MESSAGE_TO_CLIENT (326): a reply for the requesting client. Hosts are ``address:port``."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int
    queue_id: Int
    sys_flag: Int
    born_timestamp: Long
    flag: Int
    born_host: str
    store_host: str
    store_timestamp: Long
    properties: str | None = None
    reconsume_times: Int | None = None
    unit_mode: bool = False


class SendMessageResponseHeader(Header):
    """Answer to a send: the place of the message."""

    msg_id: str
    queue_id: Int
    queue_offset: Long
    transaction_id: str | None = None


class PullMessageRequestHeader(Header):
    """PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361)."""

    consumer_group: str
    topic: str
    queue_id: Int
    queue_offset: Long
    max_msg_nums: Int
    sys_flag: Int
    commit_offset: Long
    suspend_timeout_millis: Long
    sub_version: Long
    subscription: str | None = None
    expression_type: str | None = None
    bname: str | None = None


class PullMessageResponseHeader(Header):
    """Answer to a pull."""

    suggest_which_broker_id: Long
    next_begin_offset: Long
    min_offset: Long
    max_offset: Long


class QueryMessageRequestHeader(Header):
    """QUERY_MESSAGE (12): by key, between two store times in milliseconds."""

    topic: str
    key: str
    max_num: Int
    begin_timestamp: Long
    end_timestamp: Long


class QueryMessageResponseHeader(Header):
    """Answer to a query: the end of the index."""

    index_last_update_timestamp: Long
    index_last_update_phyoffset: Long


class ViewMessageRequestHeader(Header):
    """VIEW_MESSAGE_BY_ID (33): by physical offset."""

    offset: Long


class ConsumerSendMsgBackRequestHeader(Header):
    """CONSUMER_SEND_MSG_BACK (36): retry the record at this physical offset later."""

    offset: Long
    group: str
    delay_level: Int
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: Int | None = None
    bname: str | None = None


class EndTransactionRequestHeader(Header):
    """END_TRANSACTION (37)."""

    producer_group: str
    tran_state_table_offset: Long
    commit_log_offset: Long
    commit_or_rollback: Int
    msg_id: str
    from_transaction_check: bool = False
    transaction_id: str | None = None
    bname: str | None = None

    def check_fields(self) -> None:
        """Raise RemotingCommandError unless the value is commit, rollback or unknown."""
        if self.commit_or_rollback not in (TRANSACTION_NOT, TRANSACTION_COMMIT, TRANSACTION_ROLLBACK):
            raise RemotingCommandError("commitOrRollback field wrong")


class CheckTransactionStateRequestHeader(Header):
    """CHECK_TRANSACTION_STATE (39), sent by the broker to a producer. The body is the half message."""

    tran_state_table_offset: Long
    commit_log_offset: Long
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None


class ResumeCheckHalfMessageRequestHeader(Header):
    """RESUME_CHECK_HALF_MESSAGE (323): the message id given by the broker."""

    msg_id: str | None = None


# ---------------------------------------------------------------- queues and offsets


class QueryConsumerOffsetRequestHeader(Header):
    """QUERY_CONSUMER_OFFSET (14)."""

    consumer_group: str
    topic: str
    queue_id: Int
    bname: str | None = None


class UpdateConsumerOffsetRequestHeader(Header):
    """UPDATE_CONSUMER_OFFSET (15). ``reset`` is rocketd's own: an administrator moves the group, which is not online."""

    consumer_group: str
    topic: str
    queue_id: Int
    commit_offset: Long
    bname: str | None = None
    reset: bool | None = None


class SearchOffsetRequestHeader(Header):
    """SEARCH_OFFSET_BY_TIMESTAMP (29); milliseconds."""

    topic: str
    queue_id: Int
    timestamp: Long
    bname: str | None = None


class QueueRequestHeader(Header):
    """GET_MAX_OFFSET (30), GET_MIN_OFFSET (31), GET_EARLIEST_MSG_STORETIME (32)."""

    topic: str
    queue_id: Int
    bname: str | None = None


class OffsetResponseHeader(Header):
    """Answer with one queue offset (14, 29, 30, 31)."""

    offset: Long


class TimestampResponseHeader(Header):
    """Answer with one store time in milliseconds (32)."""

    timestamp: Long


# ---------------------------------------------------------------- clients and groups


class UnregisterClientRequestHeader(Header):
    """UNREGISTER_CLIENT (35)."""

    client_id: str = msgspec.field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


class ConsumerGroupRequestHeader(Header):
    """GET_CONSUMER_LIST_BY_GROUP (38), NOTIFY_CONSUMER_IDS_CHANGED (40), GET_CONSUMER_CONNECTION_LIST (203)."""

    consumer_group: str


class ProducerGroupRequestHeader(Header):
    """GET_PRODUCER_CONNECTION_LIST (204)."""

    producer_group: str


class DeleteSubscriptionGroupRequestHeader(Header):
    """DELETE_SUBSCRIPTIONGROUP (207)."""

    group_name: str
    remove_offset: bool = False


# ---------------------------------------------------------------- topics


class CreateTopicRequestHeader(Header):
    """UPDATE_AND_CREATE_TOPIC (17)."""

    topic: str
    default_topic: str
    read_queue_nums: Int
    write_queue_nums: Int
    perm: Int
    topic_filter_type: str
    topic_sys_flag: Int | None = None
    order: bool = False


class GroupRequestHeader(Header):
    """GET_SUBSCRIPTIONGROUP_CONFIG (352)."""

    group: str


class TopicRequestHeader(Header):
    """DELETE_TOPIC_IN_BROKER (215), GET_TOPIC_STATS_INFO (202), QUERY_TOPIC_CONSUME_BY_WHO (300), GET_TOPIC_CONFIG (351)."""

    topic: str


# ---------------------------------------------------------------- name server


class KVKeyRequestHeader(Header):
    """GET_KV_CONFIG (101), DELETE_KV_CONFIG (102)."""

    namespace: str
    key: str


class PutKVConfigRequestHeader(Header):
    """PUT_KV_CONFIG (100)."""

    namespace: str
    key: str
    value: str


class KVNamespaceRequestHeader(Header):
    """GET_KVLIST_BY_NAMESPACE (219)."""

    namespace: str


class BrokerIdentityRequestHeader(Header):
    """UNREGISTER_BROKER (104), QUERY_DATA_VERSION (322)."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Long


class RegisterBrokerRequestHeader(BrokerIdentityRequestHeader):
    """REGISTER_BROKER (103). ``body_crc32`` 0 means that the body is not checked."""

    ha_server_addr: str
    compressed: bool = False
    body_crc32: Int = 0


class RegisterBrokerResponseHeader(Header):
    """Answer to a registration. Both are set for slaves."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


class QueryDataVersionResponseHeader(Header):
    """Answer to QUERY_DATA_VERSION (322)."""

    changed: bool


class GetRouteInfoRequestHeader(Header):
    """GET_ROUTEINFO_BY_TOPIC (105)."""

    topic: str
    accept_standard_json_only: bool | None = None


class BrokerNameRequestHeader(Header):
    """WIPE_WRITE_PERM_OF_BROKER (205), ADD_WRITE_PERM_OF_BROKER (327)."""

    broker_name: str


class WipeWritePermResponseHeader(Header):
    """Answer to WIPE_WRITE_PERM_OF_BROKER (205)."""

    wipe_topic_count: Int


class AddWritePermResponseHeader(Header):
    """Answer to ADD_WRITE_PERM_OF_BROKER (327)."""

    add_topic_count: Int


class DeleteTopicInNamesrvRequestHeader(Header):
    """DELETE_TOPIC_IN_NAMESRV (216)."""

    topic: str
    cluster_name: str | None = None


class ClusterRequestHeader(Header):
    """GET_TOPICS_BY_CLUSTER (224)."""

    cluster: str
