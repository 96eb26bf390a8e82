"""How many examples the tests with generated data make: few by default, all with ``ROCKETD_EXAMPLES=all``.

Most changes break one of the first examples. The nox session
``trial`` makes all of them.
"""

import os

_PART = 5
_FEWEST = 10


def examples(number: int) -> int:
    """Return that number of examples, or by default a fifth of it, but at least 10."""
    return number if os.environ.get("ROCKETD_EXAMPLES") == "all" else max(_FEWEST, number // _PART)
