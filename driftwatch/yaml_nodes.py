"""What a YAML file becomes: mappings, sequences and scalars, each with its place."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

from ruamel.yaml import YAML
from ruamel.yaml.nodes import ScalarNode

Value = None | bool | int | float | str

_SCALAR_TAGS = {
    "tag:yaml.org,2002:" + name: name for name in ("null", "bool", "int", "float")
}  # the rest (timestamps too) stays text
_RESOLVER = YAML(typ="safe", pure=True).resolver
_FIRST = frozenset(_RESOLVER.versioned_resolver)  # first characters of what is not text


@dataclass(frozen=True, slots=True)
class Place:
    """Where something stands in its file: 1-based line and column, and its length there."""

    line: int
    column: int
    length: int = 1


@dataclass(frozen=True, slots=True)
class Scalar:
    """One value."""

    place: Place  # where it stands
    value: Value  # null, true/false, a number or text
    raw: str = ""  # its source text, quotes and indentation included


@dataclass(frozen=True, slots=True)
class Items:
    """A sequence."""

    place: Place
    items: tuple[Node, ...] = ()


@dataclass(frozen=True, slots=True)
class Entries:
    """A mapping: key → (place of the key, node)."""

    place: Place
    entries: dict[str, tuple[Place, Node]] = field(default_factory=dict)


Node = Scalar | Items | Entries


@lru_cache(maxsize=4096)
def plain_value(text: str) -> Value:
    """What a plain scalar stands for: null, true or false, a number, or its text."""
    if text[:1] not in _FIRST:
        return text
    return _convert(text, _SCALAR_TAGS.get(str(_RESOLVER.resolve(ScalarNode, text, (True, False)))))


def _convert(text: str, tag: str | None) -> Value:
    try:
        match tag:
            case "null":
                return None
            case "bool":
                return text.lower() == "true"
            case "int":
                digits = text.replace("_", "").lower()
                return int(digits, 0 if "x" in digits or "o" in digits else 10)
            case "float":
                return float(
                    text.replace("_", "").lower().replace(".inf", "inf").replace(".nan", "nan")
                )
    except ValueError:  # more digits than Python converts: a text that no check takes for a number
        return text
    return text
