"""Message traces as rows: the records in the bodies of the trace topic's messages, one row each.

The format is that of `rocketd.client.trace.records`: records of versions from 4.4 on, with any number of fields. All
work is done in Spark's expressions, so that no record passes through Python, in streams too. Invalid records are kept
and marked.
"""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

READ_COLUMNS: Final = ("body", "store_time")

PUB, SUB_BEFORE, SUB_AFTER, END_TRANSACTION = "Pub", "SubBefore", "SubAfter", "EndTransaction"
_TYPES = (PUB, SUB_BEFORE, SUB_AFTER, END_TRANSACTION)

# Records for the cloud have no end mark: the next record begins in place of another field.
_CLOUD = rf"(SubAfter(?:\x01[^\x01\x02]*){{6}})\x01(?=(?:{'|'.join(_TYPES)})\x01|\x02|$)"

_LEAST_FIELDS: Final = {PUB: 12, SUB_BEFORE: 8, SUB_AFTER: 6, END_TRANSACTION: 13}

_PLACES: Final = {
    "time": ({PUB: 1, SUB_BEFORE: 1, SUB_AFTER: 7, END_TRANSACTION: 1}, "bigint"),
    "group": ({PUB: 3, SUB_BEFORE: 3, SUB_AFTER: 8, END_TRANSACTION: 3}, "string"),
    "topic": ({PUB: 4, END_TRANSACTION: 4}, "string"),
    "msg_id": ({PUB: 5, SUB_BEFORE: 5, SUB_AFTER: 2, END_TRANSACTION: 5}, "string"),
    "request_id": ({SUB_BEFORE: 4, SUB_AFTER: 1}, "string"),
    "cost": ({PUB: 10, SUB_AFTER: 3}, "bigint"),
    "retry_times": ({SUB_BEFORE: 6}, "int"),
    "message_type": ({PUB: 11, END_TRANSACTION: 9}, "int"),
    "context_code": ({SUB_AFTER: 6}, "int"),
    "state": ({END_TRANSACTION: 11}, "string"),
}
"""For each column: its field in each type of record, counted from 0, and its type."""

_NUMBERS: Final = {
    PUB: ("time", "cost", "message_type"),
    SUB_BEFORE: ("time", "retry_times"),
    SUB_AFTER: ("cost",),
    END_TRANSACTION: ("time", "message_type"),
}
"""Required numbers of each type of record."""


def _place(places: dict[str, int], kind: str) -> str:
    cases = " ".join(f"WHEN '{name}' THEN get(fields, {at})" for name, at in places.items())
    return f"try_cast(CASE fields[0] {cases} END AS {kind})"


def records(messages: "DataFrame") -> "DataFrame":
    """Return one row for each record of trace messages, which have the columns READ_COLUMNS.

    Times and costs are in ms. Columns are `type`, those of the table above, `success`, `good` and the message's
    `store_time`. `good` is false for a record that is too short or has a text in place of a number. Records of other
    types are left out.
    """
    from pyspark.sql import functions as f

    text = f.regexp_replace(f.make_valid_utf8(f.col("body").cast("string")), _CLOUD, "$1\x02")
    split = messages.select("store_time", f.explode(f.split(text, "\x02")).alias("record"))
    fields = split.select("store_time", f.split("record", "\x01", -1).alias("fields"))
    wanted = fields.where(f.col("fields")[0].isin(*_TYPES))
    success = (
        f"CASE fields[0] WHEN '{PUB}' THEN CASE WHEN size(fields) < 13 THEN 'true' WHEN size(fields) = 13 THEN fields[12] "
        f"ELSE get(fields, 13) END WHEN '{SUB_AFTER}' THEN get(fields, 4) END"
    )
    rows = wanted.select(
        "store_time",
        f.expr("fields[0]").alias("type"),
        f.expr("size(fields)").alias("size"),
        *(f.expr(_place(places, kind)).alias(name) for name, (places, kind) in _PLACES.items()),
        f.lower(f.expr(success)).eqNullSafe("true").alias("success"),
    )
    checks = [
        f"type = '{kind}' AND size >= {least} AND " + " AND ".join(f"`{name}` IS NOT NULL" for name in _NUMBERS[kind])
        for kind, least in _LEAST_FIELDS.items()
    ]
    good = " OR ".join(f"({check})" for check in checks)
    # A SubAfter with fewer than nine fields has neither time nor group.
    whole = f"type <> '{SUB_AFTER}' OR size >= 9"
    return rows.select(
        "type",
        *(
            f.expr(f"CASE WHEN {whole} THEN `{name}` END").alias(name) if name in ("time", "group") else f.col(name)
            for name in _PLACES
        ),
        "success",
        f.coalesce(f.expr(good), f.lit(False)).alias("good"),
        "store_time",
    )
