"""Structures a plugin's JSON config into its attrs class; a mistake names its path and what was expected there."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

import attrs
from cattrs import ClassValidationError, Converter, IterableValidationError
from cattrs.cols import homogenous_tuple_structure_factory, mapping_structure_factory
from cattrs.errors import AttributeValidationNote, IterableValidationNote
from cattrs.gen import make_dict_structure_fn

from blockx.errors import BlockxError, PluginError
from blockx.model import camel_case, checked_keys, nearest
from blockx.shown import shown
from blockx.strict_json import read_json

T = TypeVar("T")
Hook = Callable[[Any, Any], Any]

MAX_PROBLEMS = 5
"""How many mistakes one message tells of; more would not be read."""


def read_config(text: str, config_type: type[T], *, plugin: str) -> T:
    """The config of the plugin named `plugin`, as an instance of its attrs class; empty text is `{}`.

    Keys may be spelled camelCase or snake_case; a field named `from_` is the key `from`. Field types may be str, int,
    bool, float, Any, Literal, list, tuple[x, ...], dict[str, x], attrs classes, and unions whose members differ in JSON
    shape.
    Raises PluginError (not retryable) for bad JSON, unknown or doubled keys, and values of another type.
    """
    parsed = _parse(text, plugin)
    try:
        return _CONVERTER.structure(parsed, config_type)
    except (ClassValidationError, IterableValidationError, ValueError, BlockxError) as error:
        problems = list(_problems(error, "config"))
    more = "; and more" if len(problems) > MAX_PROBLEMS else ""
    raise PluginError(f"the config of {plugin} is wrong: {'; '.join(problems[:MAX_PROBLEMS])}{more}")


def _parse(text: str, plugin: str) -> Any:
    try:
        return read_json(text or "{}")
    except ValueError as error:
        raise PluginError(f"the config of {plugin} is not valid JSON: {error}") from None


def _problems(error: BaseException, path: str) -> Iterator[str]:
    """One line for each leaf of cattrs' tree of errors."""
    if isinstance(error, (ClassValidationError, IterableValidationError)):
        for part in error.exceptions:
            yield from _problems(part, path + _step(part))
    elif isinstance(error, KeyError):
        yield f"{path} is missing"
    else:
        yield f"{path}: {error}"


def _step(error: Exception) -> str:
    for note in getattr(error, "__notes__", ()):
        if isinstance(note, AttributeValidationNote):
            return f".{camel_case(note.name.rstrip('_'))}"
        if isinstance(note, IterableValidationNote):
            return f"[{shown(note.index)}]"
    return ""


def _mismatch(expected: str, value: Any) -> ValueError:
    return ValueError(f"expected {expected}, got {shown(value)}")


def _shape(kind: Any) -> tuple[type, ...]:
    """Which types of parsed JSON may become this type; empty for those that cattrs alone knows."""
    if get_origin(kind) is Literal:
        return tuple({type(choice) for choice in get_args(kind)})
    if attrs.has(kind):
        return (dict,)
    origin = get_origin(kind) or kind
    return {float: (float, int), tuple: (list,)}.get(origin, (origin,) if origin in _SHAPE_NAMES else ())


_SHAPE_NAMES: dict[Any, str] = {
    str: "a text",
    int: "a whole number",
    bool: "true or false",
    float: "a number",
    list: "a list",
    tuple: "a list",
    dict: "an object",
    type(None): "null",
}


def _expected(kind: Any) -> str:
    if attrs.has(kind):
        return _SHAPE_NAMES[dict]
    if get_origin(kind) is Literal:
        return f"one of {', '.join(map(str, get_args(kind)))}"
    return _SHAPE_NAMES.get(get_origin(kind) or kind, str(kind))


def _guarded(kind: Any, structure: Hook) -> Hook:
    """`structure`, called only with JSON of the right shape (cattrs alone turns "12" into 12 and "ab" into a list)."""
    shape, expected = _shape(kind), _expected(kind)

    def hook(value: Any, _: Any) -> Any:
        if type(value) not in shape:
            raise _mismatch(expected, value)
        return structure(value, kind)

    return hook


def _container_hook(make: Callable[..., Hook]) -> Callable[[Any, Converter], Hook]:
    def factory(kind: Any, converter: Converter) -> Hook:
        return _guarded(kind, make(kind, converter))

    return factory


def _class_hook(kind: Any, converter: Converter) -> Hook:
    fields = {field.name.rstrip("_"): field.name for field in attrs.fields(kind)}
    base = make_dict_structure_fn(kind, converter)

    def structure(value: Any, _: Any) -> Any:
        known = checked_keys(value, fields, where="the object")
        return base({fields[name]: item for name, item in known.items()}, kind)

    return _guarded(kind, structure)


def _list_hook(kind: Any, converter: Converter) -> Hook:
    """As cattrs makes it, but a long list of mistakes is not gone through to its end: that takes seconds."""
    (item_kind,) = get_args(kind) or (Any,)

    def structure(value: list[Any], _: Any) -> list[Any]:
        made: list[Any] = []
        problems: list[Exception] = []
        for index, item in enumerate(value):
            try:
                made.append(converter.structure(item, item_kind))
            except Exception as error:  # a class of the config may raise anything; it is told with its place
                error.add_note(IterableValidationNote("", index, item_kind))
                problems.append(error)
                if len(problems) > MAX_PROBLEMS:
                    break
        if problems:
            raise IterableValidationError("", problems, kind)
        return made

    return _guarded(kind, (lambda value, _: value) if item_kind is Any else structure)


def _literal_hook(kind: Any) -> Hook:
    choices = get_args(kind)

    def hook(value: Any, _: Any) -> Any:
        if not any(value == choice and type(value) is type(choice) for choice in choices):
            hint = nearest(value, [c for c in choices if isinstance(c, str)])
            raise ValueError(f"{_mismatch(_expected(kind), value)}{hint}")
        return value

    return hook


def _union_hook(kind: Any, converter: Converter) -> Hook:
    members = get_args(kind)
    expected = " or ".join(dict.fromkeys(_expected(member) for member in members))

    def hook(value: Any, _: Any) -> Any:
        for member in members:
            if type(value) in _shape(member):
                return None if value is None else converter.structure(value, member)
        raise _mismatch(expected, value)

    return hook


def _is_union(kind: Any) -> bool:
    return isinstance(kind, types.UnionType) or _is(Union)(kind)


def _is(origin: Any) -> Callable[[Any], bool]:
    return lambda kind: (get_origin(kind) or kind) is origin


def _make_converter() -> Converter:
    converter = Converter()
    for scalar in (str, int, bool, float):
        converter.register_structure_hook(scalar, _guarded(scalar, lambda value, kind: kind(value)))
    converter.register_structure_hook_factory(_is(list), _list_hook)
    converter.register_structure_hook_factory(_is(tuple), _container_hook(homogenous_tuple_structure_factory))
    converter.register_structure_hook_factory(_is(dict), _container_hook(mapping_structure_factory))
    converter.register_structure_hook_factory(attrs.has, _class_hook)
    converter.register_structure_hook_factory(_is(Literal), _literal_hook)
    converter.register_structure_hook_factory(_is_union, _union_hook)
    return converter


_CONVERTER = _make_converter()
