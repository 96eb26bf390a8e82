"""The requested schema, checked, and batches converted to the exact Arrow schema that Spark expects."""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from rocketd.common.suggest import did_you_mean
from rocketd.spark.columns import COLUMNS, check_columns
from rocketd.spark.errors import OptionError
from rocketd.spark.range_rows import RANGE, check_no_secret

if TYPE_CHECKING:
    import pyarrow as pa


def columns_of(schema: StructType, given: Mapping[str, str]) -> tuple[str, ...]:
    """Return the columns of a schema, or the range column alone.

    Raises OptionError for an unknown column, for a wrong type, and for secrets among the `given` options of a range
    read.
    """
    names = [field.name for field in schema.fields]
    if not names:
        raise OptionError(f"the schema has no columns; there are {', '.join(COLUMNS)}")
    if names == [RANGE] and schema.fields[0].dataType.simpleString() == "string":
        check_no_secret(given)
        return (RANGE,)
    for field in schema.fields:
        known = COLUMNS.get(field.name)
        if known is None:
            raise OptionError(
                f"messages have no column {field.name!r}{did_you_mean(field.name, COLUMNS)}; there are "
                f"{', '.join(COLUMNS)}"
            )
        kind = field.dataType.simpleString()
        if kind != known.ddl:
            raise OptionError(f"column {field.name} of messages is {known.ddl}, and the schema says {kind}")
    return check_columns(names)


def shaper(schema: StructType) -> Callable[[Iterator["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]:
    """Return a function that converts batches to the Arrow schema that Spark checks."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    wanted = to_arrow_schema(schema, timezone="UTC")

    def shaped(batches: Iterator["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
        for batch in batches:
            if batch.schema.equals(wanted):
                yield batch
                continue
            arrays = [
                column if column.type.equals(field.type) else column.cast(field.type)
                for column, field in zip(batch.columns, wanted, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=wanted)

    return shaped
