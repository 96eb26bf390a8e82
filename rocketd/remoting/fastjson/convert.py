"""Fits loosely typed JSON to the declared types of bodies.

Counterpart: the casts of FastJSON's `TypeUtils`. Names of members and enums match in any case. Enums may be ordinals.
Numbers and booleans may be text, and text may be a number. An unknown enum name or an empty number is null. A null
member gets its default. An item of a list or set must not be null unless its type allows it: Java peers never send one.
Only the types used by bodies are supported: structs, enums, dicts, lists, sets, tuples, scalars and ``X | None``.
"""

from collections.abc import Callable
from enum import Enum
from functools import cache
from typing import Any, TypeAlias

from msgspec import inspect as kinds

from rocketd.remoting.fastjson.reader import FastJSONError, loads
from rocketd.remoting.fastjson.writer import as_text

Converter: TypeAlias = Callable[[Any], Any]
"""Converts a parsed value. None stays None. Raises FastJSONError."""


@cache
def converter_for(type_: Any) -> Converter:
    """Return the cached converter of a type. Raises TypeError for an unsupported type."""
    return _compile(kinds.type_info(type_))


def _compile(info: kinds.Type) -> Converter:
    match info:
        case kinds.StructType():
            return _struct(info)
        case kinds.EnumType():
            return _enum(info.cls)
        case kinds.DictType():
            return _dict(_compile(info.key_type), _compile(info.value_type))
        case kinds.ListType():
            return _sequence(list, _item(info.item_type))
        case kinds.SetType():
            return _sequence(set, _item(info.item_type))
        case kinds.FrozenSetType():
            return _sequence(frozenset, _item(info.item_type))
        case kinds.VarTupleType():
            return _sequence(tuple, _item(info.item_type))
        case kinds.UnionType() if info.includes_none and len(info.types) == 2:
            return _compile(next(one for one in info.types if not isinstance(one, kinds.NoneType)))
    if type(info) not in _SCALARS:
        raise TypeError(f"{info} cannot be read leniently")
    return _SCALARS[type(info)]


def _misfit(wanted: str, value: object) -> FastJSONError:
    found = "null" if value is None else f"{value!r:.100}"
    return FastJSONError(f"expected {wanted}, found {found}")


def _within(error: FastJSONError, step: str) -> FastJSONError:
    error.path = step + error.path
    return error


def _int(value: object) -> int | None:
    if value is None or value == "":
        return None
    if isinstance(value, int | float | str):
        try:
            return int(value)
        except (ValueError, OverflowError):
            pass
    raise _misfit("a whole number", value)


def _float(value: object) -> float | None:
    if value is None or value == "":
        return None
    if isinstance(value, int | float | str):
        try:
            return float(value)
        except (ValueError, OverflowError):
            pass
    raise _misfit("a number", value)


_BOOLEANS = {"true": True, "1": True, "false": False, "0": False, "": None, "null": None}


def _bool(value: object) -> bool | None:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | str):
        text = str(value).lower()
        if text in _BOOLEANS:
            return _BOOLEANS[text]
    raise _misfit("true or false", value)


def _str(value: object) -> str | None:
    return None if value is None else as_text(value)


def _any(value: object) -> Any:
    return value


_SCALARS: dict[type[kinds.Type], Converter] = {
    kinds.IntType: _int,
    kinds.FloatType: _float,
    kinds.BoolType: _bool,
    kinds.StrType: _str,
    kinds.AnyType: _any,
}


def _enum(cls: type[Enum]) -> Converter:
    members = list(cls)
    names = {member.name.lower(): member for member in members}

    def convert(value: object) -> Enum | None:
        if isinstance(value, str):
            if not value.isdecimal():
                return names.get(value.lower())
            value = int(value)
        if value is None:
            return None
        if isinstance(value, int) and not isinstance(value, bool):
            return members[value] if 0 <= value < len(members) else None
        raise _misfit("an enum name", value)

    return convert


def _item(info: kinds.Type) -> Converter:
    """Return the converter of a list's items. It refuses items that are null or become null."""
    converter = _compile(info)
    if isinstance(info, kinds.AnyType) or (isinstance(info, kinds.UnionType) and info.includes_none):
        return converter

    def convert(value: object) -> Any:
        item = converter(value)
        if item is None:
            raise _misfit("a non-null item", value)
        return item

    return convert


def _sequence(make: Callable[[list[Any]], Any], item_converter: Converter) -> Converter:
    def convert(value: object) -> Any:
        if value is None:
            return None
        if not isinstance(value, list | tuple):
            raise _misfit("a list", value)
        items = []
        for index, item in enumerate(value):
            try:
                items.append(item_converter(item))
            except FastJSONError as error:
                raise _within(error, f"[{index}]") from None
        return make(items)

    return convert


def _dict(key_converter: Converter, value_converter: Converter) -> Converter:
    def convert(value: object) -> dict[Any, Any] | None:
        if value is None:
            return None
        if not isinstance(value, dict):
            raise _misfit("an object", value)
        converted = {}
        for key, item in value.items():
            try:
                member = value_converter(item)
                if member is not None:
                    converted[key_converter(key)] = member
            except FastJSONError as error:
                raise _within(error, f".{as_text(key)}") from None
        return converted

    return convert


def _struct(info: kinds.StructType) -> Converter:
    cls = info.cls
    fields = {field.encode_name.lower(): (field, _compile(field.type)) for field in info.fields}
    required = [field for field in info.fields if field.required]

    def convert(value: object) -> Any:
        if value is None:
            return None
        if isinstance(value, str):
            # An object used as a map key comes as text in the standard form.
            value = loads(value)
        if isinstance(value, tuple):
            value = dict(value)
        if not isinstance(value, dict):
            raise _misfit("an object", value)
        arguments = {}
        for name, given in value.items():
            field, converter = fields.get(as_text(name).lower(), (None, _any))
            if field is None:
                continue
            try:
                member = converter(given)
            except FastJSONError as error:
                raise _within(error, f".{field.encode_name}") from None
            if member is not None or field.default is None:
                arguments[field.name] = member
        for field in required:
            if field.name not in arguments:
                raise _within(FastJSONError("the member is missing"), f".{field.encode_name}")
        return cls(**arguments)

    return convert
