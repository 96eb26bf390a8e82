"""Orders the rings and shares them out.

Fast rings come first, and trial's test cases, which run the reactor themselves, before pytest-twisted's, which leave it
running. With ``-n 2`` the files are shared between two processes; those that use the same servers stay together.
"""

from pathlib import Path

import pytest

RINGS = ("unit", "servers", "crash", "interop")
SHARED = ("both", "python_servers")
"""Fixtures of a session that take long to set up."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    here = Path(__file__).resolve().parent

    def ring(item):
        name = item.path.relative_to(here).parts[0] if item.path.is_relative_to(here) else ""
        return RINGS.index(name) if name in RINGS else len(RINGS)

    items.sort(key=ring)
    if config.pluginmanager.has_plugin("xdist"):
        for item in items:
            shared = [name for name in SHARED if name in getattr(item, "fixturenames", ())]
            item.add_marker(pytest.mark.xdist_group(shared[0] if shared else str(item.path.relative_to(here))))
