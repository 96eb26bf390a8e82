"""What a test does where a tool is missing that it needs."""

import os

import pytest


def end_test_lacking(reason: str) -> None:
    """Skip; where CI says that everything must be there, fail."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
