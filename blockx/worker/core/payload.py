"""What a task says, checked without knowing any plugin, and its digest."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from blockx.errors import InvalidArgument
from blockx.model import PluginConfig, TaskInput, snake_case
from blockx.shown import shown
from blockx.strict_json import read_json

MAX_CONFIG_BYTES = 1024 * 1024
MAX_CONFIG_DEPTH = 64

# A string that is never closed matches up to the end of the text: were the closing quote required, each quote inside
# would start another search to the end.
_BRACKET_OR_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[\]{}]', re.DOTALL)


def check_payload(task: TaskInput) -> bytes:
    """Check builder and handler as far as it goes without their plugins; returns the digest of what they mean.

    The digest is SHA-256 over canonical JSON: order of keys, white space and the spelling (camelCase or snake_case) of
    a config's own keys do not matter, and neither do task id and timeout.

    Raises InvalidArgument for a missing type, and a config that is no JSON object as `read_json` takes it, above 1 MiB,
    or above 64 levels deep.
    """
    meaning = [_checked(task.function_call_config, "functionCallConfig", "a call builder")]
    if task.result_handler is not None:
        meaning.append(_checked(task.result_handler, "resultHandler", "a writer plugin"))
    canonical = json.dumps(meaning, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode("ascii")).digest()


def _checked(plugin: PluginConfig, where: str, kind: str) -> list[Any]:
    if not plugin.type:
        raise InvalidArgument(f"{where}.type is missing; name {kind}")
    return [plugin.type, _canonical(_parsed(plugin.config or "{}", where), where)]


def _parsed(text: str, where: str) -> dict[str, Any]:
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > MAX_CONFIG_BYTES:
        raise InvalidArgument(f"{where}.config has {size} bytes; at most {MAX_CONFIG_BYTES} are allowed")
    depth = nesting_depth(text)
    if depth > MAX_CONFIG_DEPTH:
        raise InvalidArgument(f"{where}.config is nested {depth} levels deep; at most {MAX_CONFIG_DEPTH} are allowed")
    try:
        value = read_json(text)
    except ValueError as error:
        raise InvalidArgument(f"{where}.config is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidArgument(f"{where}.config must be a JSON object, not {text[:40]}")
    return value


def _canonical(config: dict[str, Any], where: str) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in config.items():
        name = snake_case(key)
        if name in out:
            raise InvalidArgument(f"{where}.config has {shown(name)} in both spellings; keep one")
        out[name] = value
    return out


def nesting_depth(text: str) -> int:
    """How deep the arrays and objects of a JSON text are nested, counted without parsing, at linear cost.

    Parsers recurse, so text from outside is measured first. Of text that is not JSON the answer means little.
    """
    depth = deepest = 0
    for token in _BRACKET_OR_STRING.finditer(text):
        match token.group():
            case "[" | "{":
                depth += 1
                deepest = max(deepest, depth)
            case "]" | "}":
                depth -= 1
    return deepest
