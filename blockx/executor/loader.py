"""Imports the functions of a directory: a Python package, or modules and packages side by side."""

from __future__ import annotations

import importlib
import importlib.metadata
import pkgutil
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from blockx.errors import LoadFailed
from blockx.sdk import Function, function_of

REQUIREMENTS = "requirements.txt"
_LEFT_OUT = ("test", "conftest", "setup")
"""Modules whose names begin like this, or with an underscore, are imported only if another one imports them."""


def load_functions(code_path: str) -> dict[str, Function]:
    """Every function marked with `@function`, by name; the directory stays on `sys.path`.

    Raises LoadFailed if there is none, an import raises (with its stack), a name is taken twice, or a requirement is
    not installed.
    """
    root = Path(code_path).resolve()
    if not root.is_dir():
        raise LoadFailed(f"{code_path} is no directory")
    check_requirements(root)
    is_package = (root / "__init__.py").is_file()
    sys.path.insert(0, str(root.parent if is_package else root))
    importlib.invalidate_caches()
    for name in [root.name, *_names_below(root, f"{root.name}.")] if is_package else _names_below(root, ""):
        _import(name, root)
    functions = _collect(root)
    if not functions:
        raise LoadFailed(f"no function marked with @function was found in {code_path}")
    return functions


def _names_below(folder: Path, prefix: str) -> Iterator[str]:
    for module in pkgutil.iter_modules([str(folder)]):
        if module.name.startswith(("_", *_LEFT_OUT)):
            continue
        yield prefix + module.name
        if module.ispkg:
            yield from _names_below(folder / module.name, f"{prefix}{module.name}.")


def _import(name: str, root: Path) -> None:
    try:
        module = importlib.import_module(name)
    except BaseException as error:  # a module may raise anything, SystemExit too
        stack = "".join(traceback.format_exception(error))
        raise LoadFailed(f"importing {name} raised {type(error).__name__}: {error}\n{stack}") from None
    if not _is_inside(module, root):
        raise LoadFailed(f"the module {name} has the name of another one, {module!r}; rename the file")


def _collect(root: Path) -> dict[str, Function]:
    found: dict[str, tuple[Function, str]] = {}
    for module in _modules_of(root):
        for thing in list(vars(module).values()):
            function = function_of(thing)
            if function is None:
                continue
            first, where = found.setdefault(function.name, (function, module.__name__))
            if first is not function:
                raise LoadFailed(
                    f"two functions are named {function.name!r}: {_place(first, where)} and "
                    f"{_place(function, module.__name__)}; give one another name with @function(name=...)"
                )
    return {name: function for name, (function, _) in sorted(found.items())}


def _modules_of(root: Path) -> list[ModuleType]:
    return [module for module in list(sys.modules.values()) if _is_inside(module, root)]


def _is_inside(module: ModuleType, root: Path) -> bool:
    file = getattr(module, "__dict__", {}).get("__file__")
    return isinstance(file, str) and root in Path(file).parents


def _place(function: Function, module: str) -> str:
    return f"{function.call.__qualname__} in {module}, line {function.call.__code__.co_firstlineno}"


def check_requirements(root: Path) -> None:
    """Raises LoadFailed, naming each requirement in `requirements.txt` that this environment does not satisfy."""
    file = root / REQUIREMENTS
    if not file.is_file():
        return
    lines = [line.split(" #")[0].strip() for line in file.read_text(encoding="utf-8").splitlines()]
    wanted = [line for line in lines if line and not line.startswith("#")]
    missing = [reason for line in wanted if (reason := _unsatisfied(line)) is not None]
    if missing:
        raise LoadFailed(f"{REQUIREMENTS} is not satisfied by the worker's environment: {'; '.join(missing)}")


def _unsatisfied(line: str) -> str | None:
    # Imported here: few directories have requirements, and an executor is to stay small.
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        requirement = Requirement(line)
    except InvalidRequirement:
        return f"{line!r} is no requirement (a name, extras, versions, markers; options and files are not supported)"
    if requirement.marker is not None and not requirement.marker.evaluate():
        return None
    try:
        version = importlib.metadata.version(requirement.name)
    except importlib.metadata.PackageNotFoundError:
        return f"{line} is not installed"
    if not requirement.specifier.contains(version, prereleases=True):
        return f"{line} is wanted, {version} is installed"
    return None
