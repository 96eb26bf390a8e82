"""A function over the Arrow batches of a DataFrame, as `DataFrame.mapInArrow`, for which Spark wants pandas installed.

Nothing on that way uses pandas: Spark checks for it because it shares a path with its pandas functions. This leaves the
check out, and is bound to the versions of PySpark that the extra names.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def map_batches(
    frame: "DataFrame", function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], schema: str
) -> "DataFrame":
    """What `function` makes of the batches of each partition, with the columns that `schema` (DDL) says."""
    from pyspark.sql import DataFrame
    from pyspark.sql.udf import UserDefinedFunction
    from pyspark.util import PythonEvalType

    mapping = UserDefinedFunction(function, returnType=schema, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    called: Any = mapping(*[frame[column] for column in frame.columns])
    java: Any = frame
    return DataFrame(java._jdf.mapInArrow(called._jc, False, None), frame.sparkSession)
