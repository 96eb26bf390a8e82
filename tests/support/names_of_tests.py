"""Reads the names of tests from their files."""

import ast
from functools import cache


@cache
def names_in(path):
    """Return the names of the tests in a file, as in ``Class::test_x``; an empty set if the file is missing."""
    if not path.is_file():
        return frozenset()
    names = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef):
            names.update(f"{node.name}::{name}" for name in functions(node.body))
        names.update(functions([node]))
    return frozenset(names)


def functions(nodes):
    return [
        node.name
        for node in nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    ]
