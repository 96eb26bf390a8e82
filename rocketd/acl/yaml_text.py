"""YAML whose values stay the texts that were written.

Answers to what Apache's SnakeYAML and fastjson make of plain_acl.yml: a secret of digits is a text there too. Here it also
keeps its leading zeros.
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
    """Writes texts so that every reader takes them for texts: some take more for numbers than others."""


def _represent_text(dumper: Any, text: str) -> Any:
    try:
        float(text)
    except ValueError:
        return dumper.represent_str(text)
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="'")


TextDumper.add_representer(str, _represent_text)


def is_true(text: Any) -> bool:
    """Read a flag as SnakeYAML and fastjson do."""
    return isinstance(text, str) and text.lower() in _TRUE


def place_of(error: yaml.YAMLError) -> str:
    """Say where and what is wrong in one line, without quoting the file: it holds secrets."""
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        problem = " ".join(part for part in (error.context, error.problem) if part)
        problem = _QUOTED.sub("...", problem)
        return f"line {mark.line + 1}, column {mark.column + 1}: {problem}" if mark else problem
    return "it is no text that YAML allows"


def dump(document: dict[str, Any]) -> str:
    """Write a document as SnakeYAML's dumpAsMap lays it out."""
    text: str = yaml.dump(
        document, Dumper=TextDumper, default_flow_style=False, sort_keys=False, allow_unicode=True, width=1 << 20
    )
    return text
