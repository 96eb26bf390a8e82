"""Each module of these tests has a separate directory."""

from tests.support.module_directory import outside_the_work_tree

__all__ = ["outside_the_work_tree"]
