"""Rows of messages made one by one with the store's plain decoder: the reference for the pipeline's columns."""

import zlib

import pyarrow as pa

from rocketd.common.message_properties import decode_properties
from rocketd.common.record_host import host_text, offset_message_id
from rocketd.common.sysflag import COMPRESSED, COMPRESSION_LZ4, COMPRESSION_ZLIB, COMPRESSION_ZSTD
from rocketd.store.format.properties import dispatch_properties
from rocketd.store.format.record import decode_message


def micros(ms):
    return ms * 1000 if -62_135_596_800_000 <= ms <= 253_402_300_799_999 else None


def unpacked(message):
    kind = message.sys_flag & 0x701
    if not kind & COMPRESSED:
        return message.body
    if kind & 0x300 in (0, COMPRESSION_ZLIB):
        return zlib.decompress(message.body)
    codec = {COMPRESSION_LZ4: "lz4", COMPRESSION_ZSTD: "zstd"}[kind & 0x300]
    with pa.CompressedInputStream(pa.BufferReader(message.body), codec) as stream:
        return stream.read()


def plain_row(record, decompress=True, broker="b"):
    """The row of a record; times in microseconds."""
    message = decode_message(record)
    properties = decode_properties(message.properties.decode("utf-8", "replace"))
    return {
        "broker": broker,
        "topic": message.topic,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "commit_log_offset": message.physical_offset,
        "store_size": len(record),
        "body_crc": message.body_crc,
        "flag": message.flag,
        "sys_flag": message.sys_flag,
        "born_time": micros(message.born_timestamp),
        "born_host": host_text(message.born_host),
        "store_time": micros(message.store_timestamp),
        "store_host": host_text(message.store_host),
        "reconsume_times": message.reconsume_times,
        "prepared_transaction_offset": message.prepared_transaction_offset,
        "msg_id": offset_message_id(message.store_host, message.physical_offset % 2**64),
        "uniq_key": properties.get("UNIQ_KEY"),
        "tags": properties.get("TAGS"),
        "keys": properties.get("KEYS"),
        "tag_hash": dispatch_properties(message.properties)[0],
        "properties": properties,
        "properties_raw": message.properties,
        "body": unpacked(message) if decompress else message.body,
        "raw": record,
    }


def rows_of(batch):
    """A batch as dicts; times as numbers, since datetime knows no other zone's edges."""
    batch.validate(full=True)
    columns = {}
    for name in batch.schema.names:
        column = batch.column(name)
        columns[name] = (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()
    if "properties" in columns:
        assert all(len(dict(pairs)) == len(pairs) for pairs in columns["properties"])
        columns["properties"] = [dict(pairs) for pairs in columns["properties"]]
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
