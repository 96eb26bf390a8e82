"""Each module of unit tests has a separate directory, and generated examples may take any time: a machine may be slow."""

from hypothesis import settings

from tests.support.examples import examples
from tests.support.module_directory import outside_the_work_tree

__all__ = ["outside_the_work_tree"]

settings.register_profile("rocketd", parent=settings(), deadline=None, max_examples=examples(100))
settings.load_profile("rocketd")
