"""The commit-log record: its layout, declared once, and its encoder and decoder.

Counterpart: `MessageDecoder` and `CommitLog.MessageExtEncoder` (Apache); the bytes are those of 4.9. Pure functions
over bytes: positions are arguments, clocks and files are not touched.

Layout: TOTALSIZE 4, MAGIC 4, BODYCRC 4, QUEUEID 4, FLAG 4, QUEUEOFFSET 8, PHYSICALOFFSET 8, SYSFLAG 4, BORNTIMESTAMP 8,
BORNHOST 8|20, STORETIMESTAMP 8, STOREHOST 8|20, RECONSUMETIMES 4, PREPAREDTRANSACTIONOFFSET 8, BODYLEN 4, BODY,
TOPICLEN 1, TOPIC, PROPLEN 2, PROPERTIES; all big-endian.
"""

import struct

import msgspec

from rocketd.common.message_properties import decode_properties
from rocketd.store.base.errors import RecordError
from rocketd.store.base.layout import MESSAGE_MAGIC
from rocketd.store.format.crc import crc32
from rocketd.store.format.message import SYS_FLAG_BORN_HOST_V6, SYS_FLAG_STORE_HOST_V6, MessageInner

CRC_MASK = 0x7FFFFFFF
"""The highest bit of a stored body CRC is dropped."""

HOST_V4 = 8
HOST_V6 = 20

MAGIC = MESSAGE_MAGIC.to_bytes(4, "big", signed=True)
MAGIC_POSITION = 4
MAGIC_END = MAGIC_POSITION + len(MAGIC)
QUEUE_ID_POSITION = 12
QUEUE_OFFSET_POSITION = 20
"""The offset in the queue and the offset in the log follow each other."""
SYS_FLAG_POSITION = 36
BORN_HOST_POSITION = 48

# The fixed fields from TOTALSIZE to BODYLEN, by the sizes of the two hosts.
HEAD_STRUCTS = {
    (born, store): struct.Struct(f">iiiiiqqiq{born}sq{store}siqi")
    for born in (HOST_V4, HOST_V6)
    for store in (HOST_V4, HOST_V6)
}

TOPIC_LENGTH_SIZE = 1
PROPERTIES_LENGTH_SIZE = 2
MIN_RECORD_SIZE = HEAD_STRUCTS[HOST_V4, HOST_V4].size + TOPIC_LENGTH_SIZE + PROPERTIES_LENGTH_SIZE

MAX_TOPIC_LENGTH = 127
MAX_PROPERTIES_LENGTH = 32767
RECORD_OVERHEAD_LIMIT = 64 * 1024
"""Most bytes of a record beyond the longest allowed body."""

_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")
_TWO_LONGS = struct.Struct(">qq")
_SHORT = struct.Struct(">H")

Buffer = bytes | bytearray | memoryview


class MessageExt(msgspec.Struct):
    """A stored message. Times are in ms. Hosts are address and 4-byte port. `properties` is the stored string in UTF-8."""

    topic: str
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    store_timestamp: int
    store_host: bytes
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes
    body_crc: int
    properties: bytes
    store_size: int

    def properties_map(self) -> dict[str, str]:
        """Return the properties by name."""
        return decode_properties(self.properties.decode("utf-8", "replace"))


def body_crc(body: bytes | memoryview) -> int:
    """Return the CRC of a stored body: CRC-32 without its highest bit."""
    return crc32(body) & CRC_MASK


def host_sizes(sys_flag: int) -> tuple[int, int]:
    """Return (size of born host, size of store host) in bytes for a record with this sysFlag."""
    return (
        HOST_V6 if sys_flag & SYS_FLAG_BORN_HOST_V6 else HOST_V4,
        HOST_V6 if sys_flag & SYS_FLAG_STORE_HOST_V6 else HOST_V4,
    )


def encode_topic(topic: str) -> bytes:
    """Encode a topic with its length, as in a record. Raises RecordError if it is longer than 127 bytes."""
    data = topic.encode("utf-8")
    if len(data) > MAX_TOPIC_LENGTH:
        raise RecordError(f"the topic has {len(data)} bytes, the limit is {MAX_TOPIC_LENGTH}")
    return bytes((len(data),)) + data


def encode_record(
    message: MessageInner, store_host: bytes, queue_offset: int, physical_offset: int, store_timestamp: int
) -> bytes:
    """Encode one record. `compose` does the same for many messages at once; this is the plain form.

    Raises RecordError if the topic or the properties are too long.
    """
    head = HEAD_STRUCTS[len(message.born_host), len(store_host)]
    topic = encode_topic(message.topic)
    if len(message.properties) > MAX_PROPERTIES_LENGTH:
        raise RecordError(f"the properties have {len(message.properties)} bytes, more than {MAX_PROPERTIES_LENGTH}")
    sys_flag = message.sys_flag & ~(SYS_FLAG_BORN_HOST_V6 | SYS_FLAG_STORE_HOST_V6)
    if len(message.born_host) == HOST_V6:
        sys_flag |= SYS_FLAG_BORN_HOST_V6
    if len(store_host) == HOST_V6:
        sys_flag |= SYS_FLAG_STORE_HOST_V6
    return b"".join(
        (
            head.pack(
                head.size + len(message.body) + len(topic) + PROPERTIES_LENGTH_SIZE + len(message.properties),
                MESSAGE_MAGIC,
                body_crc(message.body),
                message.queue_id,
                message.flag,
                queue_offset,
                physical_offset,
                sys_flag,
                message.born_timestamp,
                message.born_host,
                store_timestamp,
                store_host,
                message.reconsume_times,
                message.prepared_transaction_offset,
                len(message.body),
            ),
            message.body,
            topic,
            _SHORT.pack(len(message.properties)),
            message.properties,
        )
    )


def decode_message(buffer: Buffer, offset: int = 0, check_crc: bool = True) -> MessageExt:
    """Decode the record at `offset`. Raises RecordError if the record is not whole, or if its body does not match its
    CRC.
    """
    try:
        (sys_flag,) = _INT.unpack_from(buffer, offset + SYS_FLAG_POSITION)
        head = HEAD_STRUCTS[host_sizes(sys_flag)]
        (
            total_size,
            magic,
            crc,
            queue_id,
            flag,
            queue_offset,
            physical_offset,
            _,
            born_timestamp,
            born_host,
            store_timestamp,
            store_host,
            reconsume_times,
            prepared_transaction_offset,
            body_length,
        ) = head.unpack_from(buffer, offset)
        if magic != MESSAGE_MAGIC:
            raise RecordError(f"the magic is 0x{magic & 0xFFFFFFFF:08x}, not that of a record")
        if body_length < 0:
            raise RecordError(f"the length of the body is {body_length}")
        begin = offset + head.size
        topic_at = begin + body_length
        properties_at = topic_at + TOPIC_LENGTH_SIZE + buffer[topic_at]
        (properties_length,) = _SHORT.unpack_from(buffer, properties_at)
        end = properties_at + PROPERTIES_LENGTH_SIZE + properties_length
    except (struct.error, IndexError) as error:
        raise RecordError("the bytes end within the record") from error
    if end != offset + total_size:
        raise RecordError(f"the record claims {total_size} bytes, but its parts have {end - offset}")
    if end > len(buffer):
        raise RecordError("the bytes end within the record")
    body = bytes(buffer[begin:topic_at])
    if check_crc and body_crc(body) != crc:
        raise RecordError(f"the CRC of the body is {body_crc(body)}, the record says {crc}")
    return MessageExt(
        topic=bytes(buffer[topic_at + TOPIC_LENGTH_SIZE : properties_at]).decode("utf-8", "replace"),
        queue_id=queue_id,
        flag=flag,
        queue_offset=queue_offset,
        physical_offset=physical_offset,
        sys_flag=sys_flag,
        born_timestamp=born_timestamp,
        born_host=born_host,
        store_timestamp=store_timestamp,
        store_host=store_host,
        reconsume_times=reconsume_times,
        prepared_transaction_offset=prepared_transaction_offset,
        body=body,
        body_crc=crc,
        properties=bytes(buffer[properties_at + PROPERTIES_LENGTH_SIZE : end]),
        store_size=total_size,
    )


def decode_messages(buffer: Buffer, check_crc: bool = True) -> list[MessageExt]:
    """Decode all records of a buffer, such as the body of a pull answer. Raises RecordError."""
    messages = []
    offset = 0
    while offset < len(buffer):
        message = decode_message(buffer, offset, check_crc)
        messages.append(message)
        offset += message.store_size
    return messages


def decode_readable(buffer: Buffer) -> tuple[list[MessageExt], list[str]]:
    """Decode the records of a buffer, such as the body of a pull answer, without the damaged ones.

    Return the messages, and for each damage its place and its kind.
    """
    messages: list[MessageExt] = []
    damages: list[str] = []
    position = 0
    while position < len(buffer):
        try:
            message = decode_message(buffer, position)
        except RecordError as error:
            damages.append(f"{_place_of(buffer, position)}: {error}")
            position = _behind_damaged(buffer, position)
        else:
            messages.append(message)
            position += message.store_size
    return messages, damages


def _place_of(buffer: Buffer, position: int) -> str:
    """Return the place that a damaged record names. The damage may be there."""
    if len(buffer) < position + SYS_FLAG_POSITION:
        return "the last record"
    (queue_id,) = _INT.unpack_from(buffer, position + QUEUE_ID_POSITION)
    queue_offset, physical_offset = _TWO_LONGS.unpack_from(buffer, position + QUEUE_OFFSET_POSITION)
    return f"the record with offset {queue_offset} in queue {queue_id}, at {physical_offset} of the log"


def _behind_damaged(buffer: Buffer, position: int) -> int:
    """Return the position of the next record: by the size of the damaged one, or else by the next magic."""
    size = _INT.unpack_from(buffer, position)[0] if len(buffer) >= position + 4 else 0
    if size >= MIN_RECORD_SIZE:
        end = position + size
        if end == len(buffer) or buffer[end + MAGIC_POSITION : end + MAGIC_END] == MAGIC:
            return end
    magic = bytes(buffer).find(MAGIC, position + MAGIC_END)
    return len(buffer) if magic < 0 else magic - MAGIC_POSITION


def store_timestamp_of(record: Buffer, offset: int = 0) -> int:
    """Return the store time in ms of the record at `offset`. The caller knows that a whole record is there."""
    (sys_flag,) = _INT.unpack_from(record, offset + SYS_FLAG_POSITION)
    timestamp: int = _LONG.unpack_from(record, offset + BORN_HOST_POSITION + host_sizes(sys_flag)[0])[0]
    return timestamp


def stored_topic(topic: str) -> bytes:
    """Return a topic as records have it: its length in one byte, then its name. No record has one of over 127 bytes."""
    name = topic.encode("utf-8", "surrogateescape")
    return bytes((min(len(name), 255),)) + name


def topic_position(record: Buffer, offset: int = 0) -> int:
    """Return the position of the topic's length in the record at `offset`, by its body length. It may be damaged."""
    (sys_flag,) = _INT.unpack_from(record, offset + SYS_FLAG_POSITION)
    begin = offset + HEAD_STRUCTS[host_sizes(sys_flag)].size
    return begin + int.from_bytes(record[begin - 4 : begin], "big")


def properties_of(record: Buffer) -> bytes:
    """Return the property string of one whole record."""
    topic_at = topic_position(record)
    properties_at = topic_at + TOPIC_LENGTH_SIZE + record[topic_at]
    return bytes(record[properties_at + PROPERTIES_LENGTH_SIZE :])
