"""The names of the wheels ``rocketmq`` 0.4.4 and ``rocketmq-client-python`` 2.0.0, which wrap Apache's C++ client.

``install`` makes this package importable as ``rocketmq``, so that a program runs unchanged. docs/howto/from-other-clients.md
has the differences. Nothing of the wheels is copied: `client` implements their interface on `rocketd.client.sync`.
"""

import importlib
import importlib.util
import sys

__all__ = ("install",)

_NAME = "rocketmq"
_MODULES = ("client", "consts", "exceptions", "ffi")


def install() -> None:
    """Let ``import rocketmq.client`` find this package. Raises ImportError if a package of this name is there already."""
    here = sys.modules[__name__]
    present = sys.modules.get(_NAME)
    if present is here:
        return
    if present is not None or importlib.util.find_spec(_NAME) is not None:
        raise ImportError(
            f"a package {_NAME!r} is installed, and stays in use: pip uninstall rocketmq rocketmq-client-python, or import "
            f"{__name__}.client instead of {_NAME}.client"
        )
    sys.modules[_NAME] = here
    for module in _MODULES:
        sys.modules[f"{_NAME}.{module}"] = importlib.import_module(f"{__name__}.{module}")
