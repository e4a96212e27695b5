from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any

import pytest

from blockx import Context, function
from blockx.sdk import function_of


def described(call: Callable[..., Any]) -> Any:
    found = function_of(call)
    assert found is not None
    return found


def test_a_marked_function_stays_an_ordinary_function() -> None:
    @function
    def double(n: int) -> int:
        return 2 * n

    @function(name="other")
    async def triple(ctx: Context, n: int) -> int:
        return 3 * n

    assert double(2) == 4
    assert (described(double).name, described(double).is_async, described(double).takes_ctx) == ("double", False, False)
    assert (described(triple).name, described(triple).is_async, described(triple).takes_ctx) == ("other", True, True)


def test_what_is_not_marked_is_no_function() -> None:
    assert function_of(len) is None
    assert function_of(Context) is None
    assert function_of(3) is None


def test_what_yields_cannot_be_marked() -> None:
    def numbers() -> Iterator[int]:
        yield 1

    async def later() -> AsyncIterator[int]:
        yield 1

    for call in (numbers, later):
        with pytest.raises(TypeError, match="yields; a function that tasks call returns one value"):
            function(call)
        with pytest.raises(TypeError, match="yields"):
            function(name="x")(call)


@pytest.mark.parametrize("thing", [len, int, partial(print), 5])
def test_only_functions_can_be_marked(thing: Any) -> None:
    with pytest.raises(TypeError, match="made by def or async def"):
        function(thing)


@pytest.mark.parametrize("name", ["", " x", "x\n"])
def test_a_name_must_be_a_name(name: str) -> None:
    with pytest.raises(ValueError, match="without spaces around it"):
        function(name=name)(lambda: None)


def no_arguments() -> None: ...
def optional(a: int, b: str = "it's") -> None: ...
def variable(a: Any, *rest: Any, k: int = 1, **more: Any) -> None: ...
def keyword_only(a: int, *, k: list[int]) -> None: ...
def positional_only(a: int, /, b: int = 1) -> None: ...
def with_context(ctx: Context, a: int) -> None: ...


@pytest.mark.parametrize(
    ("call", "args", "kwargs"),
    [
        (no_arguments, [], {}),
        (optional, [1], {}),
        (optional, [1, 2], {}),
        (optional, [], {"a": 1, "b": 2}),
        (variable, [1, 2, 3, 4], {}),
        (variable, [1], {"z": 1}),
        (keyword_only, [1], {"k": 2}),
        (positional_only, [1, 2], {}),
        (with_context, [1], {}),
        (with_context, [], {"a": 1}),
    ],
)
def test_arguments_that_fit(call: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> None:
    assert described(function(call)).mismatch(args, kwargs) is None


@pytest.mark.parametrize(
    ("call", "args", "kwargs", "reason"),
    [
        (no_arguments, [1], {}, "too many positional arguments; the signature is no_arguments() -> None"),
        (optional, [], {}, 'the signature is optional(a: int, b: str = "it\'s") -> None'),
        (optional, [1], {"a": 1}, "multiple values for argument 'a'"),
        (variable, [], {}, "missing a required argument: 'a'"),
        (keyword_only, [1], {}, "missing a required keyword-only argument: 'k'|missing a required argument: 'k'"),
        (keyword_only, [1, 2], {}, "too many positional arguments"),
        (positional_only, [], {"a": 1}, "'a'"),
        (with_context, [], {}, "the signature is with_context(a: int) -> None"),
    ],
)
def test_arguments_that_do_not_fit(
    call: Callable[..., Any], args: list[Any], kwargs: dict[str, Any], reason: str
) -> None:
    mismatch = described(function(call)).mismatch(args, kwargs)
    assert mismatch is not None
    assert any(alternative in mismatch for alternative in reason.split("|"))
