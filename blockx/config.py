"""Settings: defaults, then a TOML file, then the environment, then flags, into one frozen attrs object.

Knows no component's settings: a component declares an attrs class (with nested ones where it passes parts on), and
`load` fills it. A field's variable is `metadata["env"]`, or its name in capitals; `metadata={"env": None}` means none.
`metadata["default"]` is how a default is described that is not the same everywhere.
"""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import operator
import re
import textwrap
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import attrs
import cattrs
from attrs import frozen

from blockx.errors import ConfigError
from blockx.model import nearest

T = TypeVar("T")

_WORDS: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "a text",
    Path: "a path",
    tuple[str, ...]: "a list of texts",
    dict[str, str]: "a list of key=value pairs",
}
_UNITS = {
    "ms": "milliseconds",
    "us": "microseconds",
    "s": "seconds",
    "bytes": "bytes",
    "mb": "megabytes",
}


@frozen
class Setting:
    """One leaf of a settings class: what a table of settings shows. `env` is None where no variable sets it."""

    name: str
    env: str | None
    default: Any
    unit: str
    doc: str
    type: Any
    is_required: bool = False


@frozen
class _Given:
    value: Any
    source: str


def load(
    cls: type[T],
    *,
    file: Mapping[str, Any],
    environ: Mapping[str, str],
    flags: Mapping[str, Any],
    section: str,
    file_name: str = "the configuration file",
) -> T:
    """The settings of `cls`: each from the last source that has it, in the order defaults, file, environment, flags.

    `file` is the parsed TOML, of which the table `section` is read, and `file_name` what errors call it; a flag that
    is None and a variable that is empty count as not given. Raises ConfigError for an unknown key, a bad value and a
    missing one, naming where it came from.
    """
    settings = {setting.name: setting for setting in describe(cls)}
    given = (
        _from_file(settings, file, section, file_name) | _from_environ(settings, environ) | _from_flags(settings, flags)
    )
    for setting in settings.values():
        if setting.is_required and setting.name not in given:
            raise ConfigError(f"{setting.name} is not set; {_ways_to_set(setting, section)}")
    try:
        return _build(cls, given)
    except (ConfigError, ValueError, TypeError) as error:
        raise ConfigError(f"{error}{_origins(str(error), given)}") from None


def read_file(path: Path | str | None, *, sections: tuple[str, ...]) -> dict[str, Any]:
    """The TOML file as a dict of its tables (no path: empty).

    Raises ConfigError for a file that cannot be read or parsed, and for a table that is none of `sections`.
    """
    if path is None:
        return {}
    try:
        data = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"the configuration file {path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"the configuration file {path} is not valid TOML: {error}") from None
    for key in data:
        if key not in sections:
            raise ConfigError(f"the configuration file {path} has an unknown table [{key}]{nearest(key, sections)}")
    return data


def host_and_port(address: str) -> tuple[str, int]:
    """`127.0.0.1:7071` or `[::1]:7071` as host and port. Raises ConfigError for anything else."""
    host, separator, port = address.rpartition(":")
    if not separator or not port.isdecimal() or int(port) > 65_535:
        raise ConfigError(f"{address!r} is no HOST:PORT")
    return host.removeprefix("[").removesuffix("]"), int(port)


def describe(cls: type[Any]) -> list[Setting]:
    """Every setting of `cls`, those of nested classes in place, in the order of declaration."""
    settings = list(_leaves(cls))
    names = [setting.name for setting in settings]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise TypeError(f"{cls.__name__} has settings of the same name: {', '.join(twice)}")
    return settings


def _leaves(cls: type[Any]) -> Iterator[Setting]:
    hints, docs = get_type_hints(cls), _field_docs(cls)
    for field in attrs.fields(cls):
        if not field.init:
            continue
        kind = hints[field.name]
        if attrs.has(kind):
            yield from _leaves(kind)
            continue
        yield Setting(
            name=field.name,
            env=field.metadata.get("env", field.name.upper()),
            default=field.metadata.get("default", _default(field)),
            unit=_unit(field.name),
            doc=field.metadata.get("doc") or docs.get(field.name, ""),
            type=kind,
            is_required=field.default is attrs.NOTHING,
        )


def _default(field: attrs.Attribute[Any]) -> Any:
    factory_type: Any = attrs.Factory  # typed as a function, but a class
    if isinstance(field.default, factory_type):
        return field.default.factory()
    return None if field.default is attrs.NOTHING else field.default


def _unit(name: str) -> str:
    return _UNITS.get(name.rpartition("_")[2], "") if "_" in name else ""


def _field_docs(cls: type[Any]) -> dict[str, str]:
    """The string that stands below each field in the source of the class and its bases."""
    docs: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if attrs.has(base):
            docs |= _docs_in_source(base)
    return docs


def _docs_in_source(cls: type[Any]) -> dict[str, str]:
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    assert isinstance(tree, ast.ClassDef)
    docs: dict[str, str] = {}
    for node, below in itertools.pairwise(tree.body):
        match node, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                docs[name] = inspect.cleandoc(text)
    return docs


# --------------------------------------------------------------------------------------------------------------------
# Sources


def _from_file(
    settings: Mapping[str, Setting], file: Mapping[str, Any], section: str, file_name: str
) -> dict[str, _Given]:
    table = file.get(section, {})
    if not isinstance(table, Mapping):
        raise ConfigError(f"[{section}] in {file_name} must be a table, not {table!r}")
    given = {}
    for key, value in table.items():
        if key not in settings:
            raise ConfigError(f"[{section}] in {file_name} has an unknown key {key!r}{nearest(key, settings)}")
        source = f"{key} in [{section}] of {file_name}"
        given[key] = _Given(_structured(_TYPED, settings[key], value, source), source)
    return given


def _from_environ(settings: Mapping[str, Setting], environ: Mapping[str, str]) -> dict[str, _Given]:
    given = {}
    for setting in settings.values():
        text = environ.get(setting.env, "") if setting.env else ""
        if text:
            source = f"the variable {setting.env}"
            given[setting.name] = _Given(_structured(_TEXT, setting, text, source), source)
    return given


def _from_flags(settings: Mapping[str, Setting], flags: Mapping[str, Any]) -> dict[str, _Given]:
    given = {}
    for name, value in flags.items():
        if name not in settings:
            raise ConfigError(f"there is no setting {name!r}{nearest(name, settings)}")
        if value is not None:
            source = f"the flag {_flag(name)}"
            converter = _TEXT if isinstance(value, str) else _TYPED
            given[name] = _Given(_structured(converter, settings[name], value, source), source)
    return given


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _ways_to_set(setting: Setting, section: str) -> str:
    variable = f", the variable {setting.env}" if setting.env else ""
    return f"give it as {_flag(setting.name)}{variable}, or {setting.name} in [{section}] of the configuration file"


def _structured(converter: cattrs.Converter, setting: Setting, value: Any, source: str) -> Any:
    try:
        return converter.structure(value, setting.type)
    except Exception as error:  # cattrs raises whatever a hook raises, alone or in groups; all mean a bad value
        what = _expected(setting)
        raise ConfigError(f"{source} must be {what}, not {value!r}") from error


def _expected(setting: Setting) -> str:
    bare = [kind for kind in get_args(setting.type) if kind is not type(None)]
    is_optional = isinstance(setting.type, UnionType) and len(bare) == 1
    kind = bare[0] if is_optional else setting.type
    words = _WORDS.get(kind, str(kind))
    return f"{words} of {setting.unit}" if setting.unit and kind in (int, float) else words


def _build(cls: type[T], given: Mapping[str, _Given]) -> T:
    hints = get_type_hints(cls)
    values = {}
    for field in attrs.fields(cls):  # type: ignore[arg-type]  # describe() has established that it is an attrs class
        if attrs.has(hints[field.name]) and field.init:
            values[field.alias] = _build(hints[field.name], given)
        elif field.name in given:
            values[field.alias] = given[field.name].value
    return cls(**values)


def _origins(message: str, given: Mapping[str, _Given]) -> str:
    """Where the settings that a message names came from, as an appendix to it."""
    named = [entry.source for name, entry in given.items() if re.search(rf"\b{name}\b", message)]
    return f" (from {', '.join(named)})" if named else ""


# --------------------------------------------------------------------------------------------------------------------
# Conversion: TOML and typed flags are strict, texts are parsed


def _strictly(*kinds: type[Any]) -> Callable[[Any, Any], Any]:
    def check(value: Any, kind: Any) -> Any:
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise TypeError(f"not a {kind}")
        return kind(value)

    return check


def _parse_bool(text: Any, _: Any) -> bool:
    words = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
    return words[text.strip().lower()]


def _parse_list(text: Any, _: Any) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _parse_pairs(text: Any, _: Any) -> dict[str, str]:
    pairs = [part.partition("=") for part in _parse_list(text, None)]
    if not all(separator for _, separator, _ in pairs):
        raise ValueError("not key=value")
    return {key.strip(): value.strip() for key, _, value in pairs}


def _typed_list(value: Any, _: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise TypeError("not a list of texts")
    return tuple(value)


def _converter(hooks: Mapping[Any, Callable[[Any, Any], Any]]) -> cattrs.Converter:
    converter = cattrs.Converter(detailed_validation=False)
    for kind, hook in hooks.items():
        if get_origin(kind) is None:
            converter.register_structure_hook(kind, hook)
        else:
            converter.register_structure_hook_func(functools.partial(operator.eq, kind), hook)
    return converter


_TYPED = _converter(
    {
        int: _strictly(int),
        float: _strictly(int, float),
        bool: _strictly(bool),
        str: _strictly(str),
        Path: _strictly(str, Path),
        tuple[str, ...]: _typed_list,
    }
)
_TEXT = _converter(
    {
        int: lambda text, _: int(text),
        float: lambda text, _: float(text),
        bool: _parse_bool,
        str: lambda text, _: text,
        Path: lambda text, _: Path(text),
        tuple[str, ...]: _parse_list,
        dict[str, str]: _parse_pairs,
    }
)
