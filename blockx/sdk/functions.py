"""`@function`: marks what can be called by tasks, and knows how."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, overload

from attrs import field, frozen

F = TypeVar("F", bound=Callable[..., Any])

_MARK = "__blockx_function__"


@frozen
class Function:
    """A function that tasks can call: under `name`, with a Context first if `takes_ctx`.

    `fewest` and `most` are how many positional arguments are certainly right when there are no keyword arguments.
    """

    name: str
    call: Callable[..., Any]
    is_async: bool
    takes_ctx: bool
    signature: inspect.Signature = field(repr=False)
    """Without `ctx`."""
    fewest: int
    most: int

    def mismatch(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
        """Why the function cannot be called like this, with its signature; None if it can."""
        if not kwargs and self.fewest <= len(args) <= self.most:
            return None
        try:
            self.signature.bind(*args, **kwargs)
        except TypeError as error:
            return f"{error}; the signature is {self.name}{self.signature}"
        return None


@overload
def function(call: F, /) -> F: ...


@overload
def function(*, name: str | None = None) -> Callable[[F], F]: ...


def function(call: F | None = None, /, *, name: str | None = None) -> F | Callable[[F], F]:
    """Let tasks call this function, by its own name or by `name`. It stays an ordinary function.

    `def` or `async def`; a first parameter named `ctx` receives the Context. Raises TypeError for anything that is
    no such function, ValueError for a name that is empty or has spaces around it.
    """

    def mark(call: F) -> F:
        setattr(call, _MARK, _describe(call, call.__name__ if name is None else name))
        return call

    if call is None:
        return mark
    _refuse_unless_function(call)
    return mark(call)


def function_of(thing: object) -> Function | None:
    """What `@function` knows of this object; None if it was not marked."""
    found = getattr(thing, "__dict__", {}).get(_MARK)
    return found if isinstance(found, Function) else None


def _refuse_unless_function(call: object) -> None:
    if not inspect.isfunction(call):
        raise TypeError(f"@function marks functions made by def or async def, not {type(call).__name__}")
    if inspect.isgeneratorfunction(call) or inspect.isasyncgenfunction(call):
        raise TypeError(
            f"{call.__qualname__} yields; a function that tasks call returns one value, for instance a list"
        )


def _describe(call: Callable[..., Any], name: str) -> Function:
    _refuse_unless_function(call)
    if not name or name != name.strip():
        raise ValueError(f"the name of a function must be a text without spaces around it, not {name!r}")
    signature = inspect.signature(call)
    parameters = list(signature.parameters.values())
    takes_ctx = bool(parameters) and parameters[0].name == "ctx"
    own = [_as_written(parameter) for parameter in (parameters[1:] if takes_ctx else parameters)]
    fewest, most = _arity(own)
    is_async = inspect.iscoroutinefunction(call)
    shown = signature.replace(parameters=own, return_annotation=_bare(signature.return_annotation))
    return Function(name, call, is_async, takes_ctx, shown, fewest, most)


class _Bare(str):
    """An annotation that was not evaluated; a signature shows it without quotes, as it was written."""

    __slots__ = ()
    __repr__ = str.__str__


def _bare(annotation: object) -> object:
    return _Bare(annotation) if isinstance(annotation, str) else annotation


def _as_written(parameter: inspect.Parameter) -> inspect.Parameter:
    return parameter.replace(annotation=_bare(parameter.annotation))


def _arity(parameters: Sequence[inspect.Parameter]) -> tuple[int, int]:
    kinds = [parameter.kind for parameter in parameters]
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if any(p.kind is p.KEYWORD_ONLY and p.default is p.empty for p in parameters):
        return 1, 0  # never right without keyword arguments
    most = 1 << 30 if inspect.Parameter.VAR_POSITIONAL in kinds else len(positional)
    return sum(p.default is p.empty for p in positional), most
