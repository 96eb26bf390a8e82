"""Runs the unit tests in a directory of pytest's: trial's ``mktemp`` makes its directories in the current one."""

import pytest


@pytest.fixture(autouse=True, scope="module")
def _outside_the_work_tree(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("unit"))
        yield
