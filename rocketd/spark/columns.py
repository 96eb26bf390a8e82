"""The columns of a message, declared once. The Arrow schema and the Spark schema follow from this table.

Names are those of MessageExt (Apache) in snake_case. Numbers are signed, as in the record; times are UTC.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from rocketd.spark.errors import OptionError


@dataclass(frozen=True, slots=True)
class Column:
    """One column: the Arrow type, the same type in Spark's DDL, and a description."""

    arrow: pa.DataType
    ddl: str
    doc: str


_INT = pa.int32()
_LONG = pa.int64()
_TEXT = pa.string()
_BYTES = pa.binary()
_TIME = pa.timestamp("us", tz="UTC")

COLUMNS: dict[str, Column] = {
    "broker": Column(_TEXT, "string", "name of the broker"),
    "topic": Column(_TEXT, "string", "topic"),
    "queue_id": Column(_INT, "int", "queue id within broker and topic"),
    "queue_offset": Column(_LONG, "bigint", "offset in the queue"),
    "commit_log_offset": Column(_LONG, "bigint", "offset of the record in the broker's commit log, in bytes"),
    "store_size": Column(_INT, "int", "bytes of the whole record"),
    "body_crc": Column(_INT, "int", "CRC-32 of the stored body without its highest bit"),
    "flag": Column(_INT, "int", "the producer's flag"),
    "sys_flag": Column(_INT, "int", "system flag: compression, batch, transaction, IPv6"),
    "born_time": Column(_TIME, "timestamp", "creation time at the producer"),
    "born_host": Column(_TEXT, "string", "address and port of the producer"),
    "store_time": Column(_TIME, "timestamp", "storage time at the broker"),
    "store_host": Column(_TEXT, "string", "address and port of the broker"),
    "reconsume_times": Column(_INT, "int", "number of redeliveries"),
    "prepared_transaction_offset": Column(_LONG, "bigint", "commit-log offset of the half message"),
    "msg_id": Column(_TEXT, "string", "offset message id: store host and commit-log offset in hexadecimal digits"),
    "uniq_key": Column(_TEXT, "string", "unique id from the producer (property UNIQ_KEY)"),
    "tags": Column(_TEXT, "string", "tag (property TAGS)"),
    "keys": Column(_TEXT, "string", "keys, separated by spaces (property KEYS)"),
    "tag_hash": Column(_LONG, "bigint", "tags code: Java's hash of the tag, 0 without a tag"),
    "properties": Column(pa.map_(_TEXT, _TEXT), "map<string,string>", "all properties"),
    "properties_raw": Column(_BYTES, "binary", "the property string as stored"),
    "body": Column(_BYTES, "binary", "body, decompressed unless decompress is false"),
    "raw": Column(_BYTES, "binary", "the whole record, as in the commit log"),
}

DEFAULT_COLUMNS: tuple[str, ...] = tuple(name for name in COLUMNS if name not in ("raw", "properties_raw"))
"""The columns of a read without a schema. The two omitted columns repeat other columns byte for byte."""


def check_columns(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names as given. Raises OptionError for an unknown column, or one named twice."""
    for position, name in enumerate(names):
        if name not in COLUMNS:
            raise OptionError(f"{name!r} is not a column of rocketd messages; there are {', '.join(COLUMNS)}")
        if name in names[:position]:
            raise OptionError(f"column {name!r} is named twice")
    return tuple(names)


def arrow_schema(names: Sequence[str]) -> pa.Schema:
    """Return the Arrow schema of these columns, in this order; every column may be null."""
    return pa.schema([pa.field(name, COLUMNS[name].arrow) for name in names])


def ddl(names: Sequence[str]) -> str:
    """Return the same schema as a Spark DDL string."""
    return ", ".join(f"{name} {COLUMNS[name].ddl}" for name in names)
