"""A function over the Arrow batches of a DataFrame, like `DataFrame.mapInArrow` but without pandas.

Spark checks for pandas because this path is shared with its pandas functions; nothing on it uses pandas. This code
skips the check, and depends on the PySpark versions named by the extra.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def map_batches(
    frame: "DataFrame", function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], schema: str
) -> "DataFrame":
    """Return the result of `function` for the batches of each partition, with the columns of `schema` (DDL)."""
    from pyspark.sql import DataFrame
    from pyspark.sql.udf import UserDefinedFunction
    from pyspark.util import PythonEvalType

    mapping = UserDefinedFunction(function, returnType=schema, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    called: Any = mapping(*[frame[column] for column in frame.columns])
    java: Any = frame
    return DataFrame(java._jdf.mapInArrow(called._jc, False, None), frame.sparkSession)
