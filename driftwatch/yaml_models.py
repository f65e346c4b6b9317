"""YAML files → pydantic models; every problem of a file, at its place and in plain words.

No message of pydantic's that is passed on holds a value, as it may be a secret.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError, WithJsonSchema
from pydantic_core import PydanticCustomError

from driftwatch.durations import PATTERN, parse_duration
from driftwatch.errors import Problem
from driftwatch.yaml_positions import (
    Entries,
    Items,
    Node,
    Place,
    Scalar,
    YamlFile,
)

Location = tuple[int | str, ...]
Span = tuple[int, int, int]  # line, column and length inside a text
Found = tuple[str, str, str | None, Span | None]  # code, message, help, place of a fault

_KINDS = {
    "bool_type": "true or false is wanted here",
    "bool_parsing": "true or false is wanted here",
    "int_type": "a whole number is wanted here",
    "int_parsing": "a whole number is wanted here",
    "int_from_float": "a whole number is wanted here",
    "float_type": "a number is wanted here",
    "float_parsing": "a number is wanted here",
    "string_type": "text is wanted here",
    "tuple_type": "a list is wanted here",
    "dict_type": "keys and values are wanted here",
    "model_type": "keys and values are wanted here",
    "too_short": "at least one is wanted here",
    "finite_number": "a finite number is wanted here",
    "path_type": "the name of a file is wanted here",
}
# Patterns of the values in words.
_PATTERNS = {
    "^[A-Za-z0-9]": "a name has letters, digits, _, . and - and begins with a letter or a digit",
    "^\\S(": "text is wanted here that neither begins nor ends with a space",
    "^[A-Za-z_]": "a label's name has letters, digits and _ and does not begin with a digit",
}
_LIMITS = {"gt": "above", "ge": "at least", "lt": "below", "le": "at most"}
_LISTED = 20  # names in a help
_FAULT: Literal["fault"] = "fault"


class Part(BaseModel):
    """A mapping of a file: no unknown keys, and values never stand in errors.

    A class may have ``INSTEAD``: unknown key → the key that is meant, and what to write there; and
    ``MISSING``: required key → what it means that it is missing.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, hide_input_in_errors=True, allow_inf_nan=False
    )


def fault(
    code: str,
    message: str,
    help_text: str | None = None,
    *,
    inner: Location = (),
    span: Span | None = None,
    more: Sequence[Found] = (),
) -> PydanticCustomError:
    """The error with which a validator names a problem itself.

    ``inner``: the key or item inside the validated value that is meant; ``span``: line, column and
    length inside a text; ``more``: what else is wrong with the value.
    """
    found = [(code, message, help_text, span), *more]
    context = {"message": message, "inner": inner, "found": found}
    return PydanticCustomError(_FAULT, "{message}", context)


def _seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise fault("duration", "a duration such as 15s or 1h30m is wanted here")
    try:
        return parse_duration(str(value))
    except ValueError as error:
        raise fault("duration", str(error)) from None


# What an editor has of a duration: ``0``, or text.
DURATION = {
    "title": "duration",
    "anyOf": [{"type": "string", "pattern": f"^(0|(?=.){PATTERN})$"}, {"const": 0}],
    "examples": ["90s", "5m", "1h30m"],
}
Duration = Annotated[float, BeforeValidator(_seconds), WithJsonSchema(DURATION)]


# of Alertmanager's usual words
SEVERITIES = {"critical": "page", "warning": "ticket", "info": "notice", "none": "notice"}


def nearest(name: str, names: Collection[str]) -> str | None:
    """The name that a misspelt one is probably meant for, or None."""
    return next(iter(difflib.get_close_matches(name, sorted(names), n=1)), None)


def near(name: str, names: Collection[str]) -> str | None:
    """A did-you-mean, or None."""
    meant = nearest(name, names)
    return None if meant is None else f"did you mean {meant}?"


def near_or_all(name: str, names: Collection[str], noun: str) -> str | None:
    """A did-you-mean, else the names there are; None where there is none."""
    every = ", ".join(sorted(names)[:_LISTED]) + (", …" if len(names) > _LISTED else "")
    return near(name, names) or (f"{noun}: {every}" if names else None)


def note_errors(
    file: YamlFile,
    root: Entries,
    model: type[BaseModel],
    error: ValidationError,
    environment: Mapping[str, str] | None = None,
    *,
    place: Place | None = None,
) -> None:
    """Add every error of a validation to the file.

    ``root``: what was validated against ``model``; ``environment``: top-level key → variable, for
    values that did not come from the file.
    """
    errors = error.errors(include_url=False, include_input=False)
    missing = [one["loc"] for one in errors if one["type"] == "missing"]
    # with an unknown key for a required one, only the unknown key is a problem
    replaced = set[Location]()
    for key in (one["loc"] for one in errors if one["type"] == "extra_forbidden"):
        beside = [str(one[-1]) for one in missing if one[:-1] == key[:-1]]
        replaced.add((*key[:-1], _instead(model, key)[0] or nearest(str(key[-1]), beside) or ""))
    for one in errors:
        location, kind, context = one["loc"], one["type"], one.get("ctx", {})
        name, value = str(location[-1]) if location else "", node_at(root, location)
        if environment and location and (variable := environment.get(str(location[0]))):
            message, path = _message(kind, one["msg"], context), f"environment {variable}"
            file.problems.append(Problem(path, None, None, "value", message))
        elif kind == "extra_forbidden":
            at = place_of(root, location, to_key=True)
            file.add(at, "unknown-key", f"unknown key {name}", _key_hint(model, location))
        elif kind == "missing":
            if location not in replaced:
                message, hint = _missing(model, location)
                file.add(place_of(root, location, place), "missing-key", message, hint)
        elif kind == _FAULT:
            at = place_of(root, (*location, *context["inner"]), place)
            for code, message, help_text, span in context["found"]:
                if span is not None and isinstance(value, Scalar):
                    at = file.inside(value, *span)
                file.add(at, code, message, help_text)
        elif kind == "source_kind":
            at, hint = _misspelt(root, location, model)
            file.add(at, "value", _message(kind, one["msg"], context), hint)
        elif isinstance(value, Scalar) and value.value is None and isinstance(location[-1], str):
            help_text = f"write {name}: VALUE, or leave it out"
            file.add(
                place_of(root, location, to_key=True), "value", f"{name} has no value", help_text
            )
        elif kind != "too_short" or not isinstance(value, Items) or not value.items:
            # of a list with items that are wrong only those are problems
            code = "type" if kind.endswith(("_type", "_parsing")) else "value"
            message, hint = _message(kind, one["msg"], context), _hint(kind, name, value, context)
            file.add(place_of(root, location, place), code, message, hint)


def _message(kind: str, message: str, context: Mapping[str, Any]) -> str:
    """pydantic's message in this project's words; it never holds the value."""
    if kind in _KINDS:
        return _KINDS[kind]
    if kind == "string_pattern_mismatch":
        texts = (text for begin, text in _PATTERNS.items() if context["pattern"].startswith(begin))
        return next(texts, "it does not have the form that is wanted here")
    if kind == "string_too_long":
        return f"at most {context['max_length']} characters are allowed here"
    if kind == "literal_error":
        return f"one of {context['expected'].replace(' or ', ', ')} is wanted here".replace("'", "")
    bounds = [f"{word} {context[key]:,.10g}" for key, word in _LIMITS.items() if key in context]
    if bounds:
        return f"a number {' and '.join(bounds)} is wanted here"
    text = message.removeprefix("Value error, ")
    return text[:1].lower() + text[1:]


def _missing(model: type[BaseModel], location: Location) -> tuple[str, str | None]:
    """The message and the help of a missing key, in the model's words where it has some."""
    name = str(location[-1])
    for one in models_at(model, location[:-1]):
        if (text := getattr(one, "MISSING", {}).get(name)) is not None:
            return text, f"{name}: a node or leaf"
    return f"{name} is missing", None


def _hint(kind: str, name: str, node: Node | None, context: Mapping[str, Any]) -> str | None:
    """How to mend a value, where that is clear."""
    value = node.value if isinstance(node, Scalar) else None
    if kind in ("string_type", "path_type"):
        return "put it in quotes" if isinstance(node, Scalar) else None
    if kind == "less_than_equal" and name == "share":
        is_percent = isinstance(value, int | float) and 2 <= value <= 100
        return f"write {value / 100:g}" if is_percent else "a share is a number such as 0.95"  # type: ignore[operator]
    if kind == "tuple_type" and isinstance(value, str):
        if re.fullmatch(r"[A-Za-z][\w-]{0,59}", value):  # anything else may be a secret
            return f"write [{value}]"
        return f"put brackets around it: {name}: [http://…]" if "://" in value else None
    if kind == "literal_error" and isinstance(value, str):
        own = SEVERITIES.get(value.lower())
        if own is not None and f"'{own}'" in context["expected"]:
            return f"write {own}"
        return near(value, re.findall("'([^']*)'", context["expected"]))
    if kind in ("int_type", "int_from_float", "float_type"):
        return _number_hint(kind, str(value))
    return None


def _number_hint(kind: str, text: str) -> str | None:
    """How to write a number that stands as a text, with a unit, or as a fraction of a count."""
    match = re.fullmatch(r"(\d{1,12}(?:\.\d{1,6})?) ?(ms|s)?", text)
    if match is None:
        return None
    number, unit = match.groups()
    if unit is not None:
        return f"write {float(number) / (1000 if unit == 'ms' else 1):g}: seconds have no unit here"
    if kind != "float_type" and "." in number:
        return f"write {int(float(number))} or {int(float(number)) + 1}"
    return f"write {number}, without quotes"


def _keys(model: type[BaseModel], location: Location) -> list[str]:
    """The keys that a mapping there may have."""
    models = models_at(model, location)
    return sorted({f.alias or name for m in models for name, f in m.model_fields.items()})


def _instead(model: type[BaseModel], location: Location) -> tuple[str, str]:
    """The key that an unknown one stands for, and what its model says of it; "" if none."""
    for one in models_at(model, location[:-1]):
        if (meant := getattr(one, "INSTEAD", {}).get(location[-1])) is not None:
            return meant  # type: ignore[no-any-return]
    return "", ""


def _key_hint(model: type[BaseModel], location: Location) -> str:
    key, text = _instead(model, location)
    if key:
        return f"the key is `{key}`: {text}"
    if text:
        return text
    name, keys = str(location[-1]), _keys(model, location[:-1])
    longer = next((f"did you mean {key}?" for key in keys if key.startswith(f"{name}_")), None)
    return longer or near(name, keys) or f"known keys: {', '.join(keys)}"


def _misspelt(
    root: Entries, location: Location, model: type[BaseModel]
) -> tuple[Place, str | None]:
    """Of a mapping of no known kind the key that is close to a known one, and the known one."""
    node, keys = node_at(root, location), _keys(model, location)
    for key, (place, _) in node.entries.items() if isinstance(node, Entries) else ():
        if key not in keys and (hint := near(key, keys)) is not None:
            return place, hint
    return place_of(root, location), None


def node_at(root: Node, location: Location) -> Node | None:
    """The node at a location; None where the file has none."""
    node: Node | None = root
    for part in location:
        if isinstance(part, str) and part.startswith("("):
            continue  # the tag of a union, which no file holds
        if isinstance(node, Entries) and part in node.entries:
            node = node.entries[str(part)][1]
        elif isinstance(node, Items) and isinstance(part, int) and part < len(node.items):
            node = node.items[part]
        else:
            return None
    return node


def mappings_at(root: Node | None, *location: int | str) -> Iterator[Entries]:
    """The mappings of a list; the model of the list notes its other items."""
    node = None if root is None else node_at(root, location)
    for one in node.items if isinstance(node, Items) else ():
        if isinstance(one, Entries):
            yield one


def place_of(
    root: Entries, location: Location, begin: Place | None = None, *, to_key: bool = False
) -> Place:
    """The place of a location: its value, its key, or the nearest thing above it.

    ``begin``: of the whole mapping; its first key by default.
    """
    node: Node = root
    place = begin or _first(root)
    for index, part in enumerate(location):
        is_last = index == len(location) - 1
        of_key = location[index + 1 :] == ("[key]",)
        if isinstance(part, str) and part.startswith("("):
            continue
        if isinstance(node, Entries) and isinstance(part, str) and part in node.entries:
            key, node = node.entries[part]
            is_inner = isinstance(node, Scalar) or (is_last and isinstance(node, Items))
            place = node.place if is_inner and not (is_last and to_key) and not of_key else key
        elif isinstance(node, Items) and isinstance(part, int) and part < len(node.items):
            node = node.items[part]
            place = _first(node)
        else:
            break
    return place


def _first(node: Node) -> Place:
    """The first key of a mapping, which says more than its bracket."""
    if isinstance(node, Entries) and node.entries:
        return next(iter(node.entries.values()))[0]
    return node.place


def models_at(model: type[BaseModel], location: Location) -> list[type[BaseModel]]:
    """The models a location may lie in."""
    models = [model]
    for part in location:
        if isinstance(part, int):
            continue
        if part.startswith("("):
            models = [m for m in models if part.strip("()") in m.model_fields] or models
            continue
        models = [
            inner
            for m in models
            for name, field in m.model_fields.items()
            if part == (field.alias or name)
            for inner in _models(field.annotation)
        ]
    return models


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif get_origin(annotation) is not None:
        for argument in get_args(annotation):
            yield from _models(argument)


def note_duplicates(file: YamlFile, root: Entries, key: str) -> None:
    """Add every item of a list that has the name of one before."""
    first_lines: dict[object, int] = {}
    for item in mappings_at(root, key):
        if not isinstance(name := node_at(item, ("name",)), Scalar):
            continue
        text, place = name.value, name.place
        if text in first_lines:
            line = first_lines[text]
            message = f"two {key} are called {text}; the first is in line {line}"
            file.add(place, "duplicate", message)
        first_lines.setdefault(text, place.line)
