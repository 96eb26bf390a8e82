"""Reads and writes YAML with every scalar as text, except null.

Apache gets the same from SnakeYAML and fastjson for plain_acl.yml: a secret of digits is a text. Here such a secret
also keeps its leading zeros.
"""

import re
from typing import Any

import yaml

try:
    from yaml import CSafeDumper as _SafeDumper
    from yaml import CSafeLoader as _SafeLoader
except ImportError:  # PyYAML was built without libyaml
    from yaml import SafeDumper as _SafeDumper  # type: ignore[assignment]
    from yaml import SafeLoader as _SafeLoader  # type: ignore[assignment]

_KEPT_TAGS = ("tag:yaml.org,2002:null", "tag:yaml.org,2002:merge")
_QUOTED = re.compile(r"""'[^'\s,]{2,}'|"[^"\s,]{2,}\"""")
_TRUE = ("true", "yes", "on", "1", "y", "t")


class TextLoader(_SafeLoader):
    """Reads null as None, ``<<`` as a merge, and every other scalar as text."""


TextLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag in _KEPT_TAGS]
    for first, resolvers in _SafeLoader.yaml_implicit_resolvers.items()
}


class TextDumper(_SafeDumper):
    """Writes texts so that every reader takes them for texts: readers differ in their numbers."""


def _represent_text(dumper: Any, text: str) -> Any:
    try:
        float(text)
    except ValueError:
        return dumper.represent_str(text)
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="'")


TextDumper.add_representer(str, _represent_text)


def is_true(text: object) -> bool:
    """Parse a flag like SnakeYAML and fastjson."""
    return isinstance(text, str) and text.lower() in _TRUE


def place_of(error: yaml.YAMLError) -> str:
    """Return the place and the error in one line, without quoting the file: it has secrets."""
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        problem = " ".join(part for part in (error.context, error.problem) if part)
        problem = _QUOTED.sub("...", problem)
        return f"line {mark.line + 1}, column {mark.column + 1}: {problem}" if mark else problem
    return "it is not a valid YAML text"


def dump(document: dict[str, Any]) -> str:
    """Return a document in the layout of SnakeYAML's dumpAsMap."""
    text: str = yaml.dump(
        document, Dumper=TextDumper, default_flow_style=False, sort_keys=False, allow_unicode=True, width=1 << 20
    )
    return text
