"""Bodies and records as they travel: packed, and unpacked into messages of the application.

Answers to the Compressor family and to MessageDecoder of Apache's client. Pure functions.
"""

import zlib
from collections.abc import Callable

from rocketd.client.codec import Codec
from rocketd.client.errors import IllegalMessageError
from rocketd.client.message import ReceivedMessage, T
from rocketd.client.namespace import without_namespace
from rocketd.common import properties as names
from rocketd.common.properties import decode_properties
from rocketd.common.record_host import host_text, offset_message_id
from rocketd.common.sysflag import (
    COMPRESSED,
    COMPRESSION_LZ4,
    COMPRESSION_MASK,
    COMPRESSION_ZLIB,
    COMPRESSION_ZSTD,
)
from rocketd.remoting.bodies import MessageQueue
from rocketd.store.record import MessageExt

_ZLIB_LEVEL = 5


def pack(body: bytes, from_size: int) -> tuple[bytes, int]:
    """Return a body as it is sent, and the bits of sysFlag that say how: with zlib if it has ``from_size`` bytes or more."""
    if len(body) < from_size:
        return body, 0
    return zlib.compress(body, _ZLIB_LEVEL), COMPRESSED | COMPRESSION_ZLIB


def unpack(body: bytes, sys_flag: int) -> bytes:
    """Return the body that was sent. Raises IllegalMessageError when it cannot be unpacked."""
    if not sys_flag & COMPRESSED:
        return body
    kind = sys_flag & COMPRESSION_MASK or COMPRESSION_ZLIB
    if kind not in _DECOMPRESSORS:
        raise IllegalMessageError(f"the body is compressed in a way that is not known here (sysFlag {sys_flag:#x})")
    try:
        return _DECOMPRESSORS[kind](body)
    except ImportError as error:
        raise IllegalMessageError(
            f"the body is compressed with {error.name}, which is not installed: pip install 'rocketd[compression]'"
        ) from error
    except Exception as error:  # each library has its own
        raise IllegalMessageError(f"the body cannot be unpacked: {error}") from error


def _lz4(body: bytes) -> bytes:
    from lz4 import frame

    return bytes(frame.decompress(body))


def _zstd(body: bytes) -> bytes:
    from zstandard import ZstdDecompressor

    return bytes(ZstdDecompressor().decompressobj().decompress(body))


_DECOMPRESSORS: dict[int, Callable[[bytes], bytes]] = {
    COMPRESSION_ZLIB: zlib.decompress,
    COMPRESSION_LZ4: _lz4,
    COMPRESSION_ZSTD: _zstd,
}


def received_message(
    record: MessageExt, queue: MessageQueue, codec: Codec[T], namespace: str = ""
) -> ReceivedMessage[T]:
    """Make the application's message of a pulled record.

    Raises IllegalMessageError when its body cannot be unpacked, or ``codec`` cannot make a value of it.
    """
    table = decode_properties(record.properties.decode("utf-8", "replace"))
    offset_msg_id = offset_message_id(record.store_host, record.physical_offset)
    try:
        body = codec.decode(unpack(record.body, record.sys_flag))
    except ValueError as error:
        raise IllegalMessageError(f"message {offset_msg_id} of {queue}: {error}") from error
    return ReceivedMessage(
        topic=without_namespace(namespace, table.get(names.RETRY_TOPIC, record.topic)),
        body=body,
        properties=table,
        msg_id=table.get(names.UNIQ_KEY, offset_msg_id),
        offset_msg_id=offset_msg_id,
        queue=queue,
        queue_offset=record.queue_offset,
        physical_offset=record.physical_offset,
        flag=record.flag,
        sys_flag=record.sys_flag,
        born_timestamp=record.born_timestamp,
        store_timestamp=record.store_timestamp,
        born_host=host_text(record.born_host),
        store_host=host_text(record.store_host),
        store_size=record.store_size,
        reconsume_times=record.reconsume_times,
    )
