"""Orders the rings: fast ones first, and trial's test cases, which run the reactor themselves, before pytest-twisted's,
which leave it running."""

from pathlib import Path

RINGS = ("unit", "servers", "crash", "fuzz", "interop", "spark")


def pytest_collection_modifyitems(items):
    here = Path(__file__).resolve().parent

    def ring(item):
        name = item.path.relative_to(here).parts[0] if item.path.is_relative_to(here) else ""
        return RINGS.index(name) if name in RINGS else len(RINGS)

    items.sort(key=ring)
