"""Extension of griffe for the Python API: what a static analysis does not see in the clients, structs and settings.

- `lag = engines(PushConsumerEngine.lag)` looks like an attribute. It becomes a method with the signature and the docstring
  of the engine's method.
- A client gets the docstring of its face, which describes its parameters.
- A struct of msgspec gets a constructor with its fields as parameters. Griffe does that for dataclasses itself.
- A `setting(...)` of a group of settings becomes its default and its docstring.
"""

import ast
from collections.abc import Iterator

import griffe

MODULES = (
    "client.aio",
    "client.sync",
    "client.deferred",
    *(f"client.faces.{face}_admin" for face in ("aio", "sync", "twisted")),
)
COROUTINES = {"client.aio", "client.faces.aio_admin"}
SETTINGS = "remoting.settings"
MAKERS = {"engines", "in_thread", "soon"}
"""Functions of `rocketd/client/faces` that make a method. Their last argument is the original."""


class PublicNames(griffe.Extension):
    """Replaces such members, once the package is loaded."""

    def on_package(self, *, pkg: griffe.Module, **_: object) -> None:
        """Visit the modules of the clients, and then all classes."""
        if pkg.path != "rocketd":
            return
        for path in MODULES:
            for client in pkg[path].classes.values():
                if not client.is_alias:
                    _replace_attributes(client, coroutines=path in COROUTINES)
                    client.docstring = client.resolved_bases[0].docstring
        for group in pkg[SETTINGS].classes.values():
            _describe_settings(group)
        for found in _classes(pkg):
            if "__init__" not in found.members and _is_struct(found):
                found.set_member("__init__", _constructor(_fields(found)))


def _classes(parent: griffe.Module | griffe.Class) -> Iterator[griffe.Class]:
    """Return the classes of a module or a class, and those below, without imported ones."""
    for member in parent.members.values():
        if isinstance(member, griffe.Class):
            yield member
        if isinstance(member, griffe.Module | griffe.Class):
            yield from _classes(member)


def _replace_attributes(client: griffe.Class, *, coroutines: bool) -> None:
    for name, attribute in list(client.attributes.items()):
        made = attribute.value
        if not isinstance(made, griffe.ExprCall) or str(made.function) not in MAKERS:
            continue
        argument = made.arguments[-1]
        if not isinstance(argument, griffe.ExprAttribute):
            raise TypeError(f"{attribute.path} is made of {argument}, which is not the name of a method")
        original = client.modules_collection[argument.canonical_path]
        method = griffe.Function(
            name,
            lineno=attribute.lineno,
            endlineno=attribute.endlineno,
            parameters=original.parameters,
            returns=original.returns,
            docstring=original.docstring,
        )
        method.labels = {"async"} if coroutines else set()
        client.set_member(name, method)


def _is_struct(found: griffe.Class) -> bool:
    """Whether it derives from msgspec's Struct."""
    return any(
        isinstance(base, griffe.Expr) and base.canonical_path == "msgspec.Struct"
        for ancestor in (found, *found.mro())
        for base in ancestor.bases
    )


def _fields(struct: griffe.Class) -> list[griffe.Parameter]:
    """Return the fields of a struct and its bases as parameters, in the order of msgspec."""
    found: dict[str, griffe.Parameter] = {}
    for ancestor in (*reversed(struct.mro()), struct):
        kind = (
            griffe.ParameterKind.keyword_only
            if str(ancestor.keywords.get("kw_only")) == "True"
            else griffe.ParameterKind.positional_or_keyword
        )
        for name, field in ancestor.attributes.items():
            if field.annotation is not None and "property" not in field.labels:
                found[name] = griffe.Parameter(name, annotation=field.annotation, kind=kind, default=field.value)
    return sorted(found.values(), key=lambda parameter: parameter.kind is griffe.ParameterKind.keyword_only)


def _constructor(parameters: list[griffe.Parameter]) -> griffe.Function:
    own = griffe.Parameter("self", kind=griffe.ParameterKind.positional_or_keyword)
    return griffe.Function("__init__", parameters=griffe.Parameters(own, *parameters), returns="None")


def _describe_settings(group: griffe.Class) -> None:
    """Give each setting its default and its docstring, and the group its constructor."""
    parameters = []
    for name, field in group.attributes.items():
        if not isinstance(field.value, griffe.ExprCall):
            continue
        given = field.value.arguments
        named = {argument.name: argument.value for argument in given if isinstance(argument, griffe.ExprKeyword)}
        default, doc, *_ = (
            *(argument for argument in given if not isinstance(argument, griffe.ExprKeyword)),
            None,
            None,
        )
        if doc is None:
            doc = named.get("doc", named.get("no_effect"))
        field.value = default
        text = ast.literal_eval(doc) if isinstance(doc, str) else str(doc)
        field.docstring = griffe.Docstring("No effect: " * ("no_effect" in named) + text, parent=field)
        kind = griffe.ParameterKind.keyword_only
        parameters.append(griffe.Parameter(name, annotation=field.annotation, kind=kind, default=default or "..."))
    group.set_member("__init__", _constructor(parameters))
