"""Received bodies and records, made into messages of the application.

Counterpart: `MessageDecoder` (Apache). Pure functions.
"""

import zlib
from collections.abc import Callable
from typing import Final

from rocketd.client.errors import IllegalMessageError
from rocketd.client.messages.codec import CONTENT_TYPE, Codec, check_content_type
from rocketd.client.messages.message import ReceivedMessage, T
from rocketd.client.messages.namespace import without_namespace
from rocketd.common import message_properties as props
from rocketd.common.message_properties import decode_properties
from rocketd.common.record_host import host_text, offset_message_id
from rocketd.common.sysflag import (
    COMPRESSED,
    COMPRESSION_LZ4,
    COMPRESSION_ZLIB,
    COMPRESSION_ZSTD,
)
from rocketd.protocol.compression import algorithm_of
from rocketd.remoting.bodies.tables import MessageQueue
from rocketd.store.format.record import MessageExt

UNPACKED_LIMIT: Final = 64 << 20
"""Bytes of a decompressed body, at most: a small body may become any number of them. Brokers take 4 MiB by default."""

_ZSTD_PART: Final = 1024


def unpack(body: bytes, sys_flag: int) -> bytes:
    """Return the original body. Raises IllegalMessageError if it cannot be decompressed, or is longer than the limit."""
    if not sys_flag & COMPRESSED:
        return body
    kind = algorithm_of(sys_flag)
    if kind not in _DECOMPRESSORS:
        raise IllegalMessageError(f"the body is compressed in a way that is not known here (sysFlag {sys_flag:#x})")
    try:
        whole = _DECOMPRESSORS[kind](body)
    except ImportError as error:
        raise IllegalMessageError(
            f"the body is compressed with {error.name}, which is not installed: pip install 'rocketd[compression]'"
        ) from error
    except Exception as error:  # each library has a different one
        raise IllegalMessageError(f"the body cannot be unpacked: {error}") from error
    if len(whole) > UNPACKED_LIMIT:
        raise IllegalMessageError(f"the unpacked body has more than {UNPACKED_LIMIT} bytes")
    return whole


def _zlib(body: bytes) -> bytes:
    unpacker = zlib.decompressobj()
    whole = unpacker.decompress(body, UNPACKED_LIMIT + 1)
    if not unpacker.eof and len(whole) <= UNPACKED_LIMIT:
        raise ValueError("it is incomplete")
    return whole


def _lz4(body: bytes) -> bytes:
    from lz4.frame import LZ4FrameDecompressor

    unpacker = LZ4FrameDecompressor()
    whole = bytes(unpacker.decompress(body, UNPACKED_LIMIT + 1))
    if not unpacker.eof and len(whole) <= UNPACKED_LIMIT:
        raise ValueError("the frame is incomplete")
    return whole


def _zstd(body: bytes) -> bytes:
    from zstandard import ZstdDecompressor

    unpacker = ZstdDecompressor().decompressobj()
    whole = bytearray()
    # The library has no limit, but a part of this size becomes 44 MB at most.
    for begin in range(0, len(body), _ZSTD_PART):
        whole += unpacker.decompress(body[begin : begin + _ZSTD_PART])
        if unpacker.eof or len(whole) > UNPACKED_LIMIT:
            return bytes(whole)
    raise ValueError("the frame is incomplete")


_DECOMPRESSORS: dict[int, Callable[[bytes], bytes]] = {
    COMPRESSION_ZLIB: _zlib,
    COMPRESSION_LZ4: _lz4,
    COMPRESSION_ZSTD: _zstd,
}


def received_message(
    record: MessageExt, queue: MessageQueue, codec: Codec[T], namespace: str = ""
) -> ReceivedMessage[T]:
    """Return the application's message for a pulled record.

    Raises IllegalMessageError if its body cannot be decompressed, or ``codec`` cannot decode it or its content type.
    """
    table = decode_properties(record.properties.decode("utf-8", "replace"))
    offset_msg_id = offset_message_id(record.store_host, record.physical_offset)
    try:
        check_content_type(codec, table.get(CONTENT_TYPE))
        body = codec.decode(unpack(record.body, record.sys_flag))
    except ValueError as error:
        raise IllegalMessageError(f"message {offset_msg_id} of {queue}: {error}") from error
    except Exception as error:  # a faulty codec of the application
        raise IllegalMessageError(
            f"message {offset_msg_id} of {queue}: the codec raised {type(error).__name__}: {error}"
        ) from error
    return ReceivedMessage(
        topic=without_namespace(namespace, table.get(props.RETRY_TOPIC, record.topic)),
        body=body,
        properties=table,
        msg_id=table.get(props.UNIQ_KEY, offset_msg_id),
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
