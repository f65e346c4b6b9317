"""pydantic's errors → problems at their place in the file, none of which shows a secret."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

from driftwatch.errors import Problem
from driftwatch.yaml_positions import Entries, Items, Node, Place, Scalar, YamlFile, plain

# Keys whose values may be secret, and anything that looks like a URL. A count of tokens is none,
# nor is the name of a file.
_KEY = (
    r"(?i)(?<![\w-])(?![\w-]*(?:tokens|_file)[\"']?\s*:)"
    r"[\w-]*(?:password|passwd|secret|token|url|key|auth)[\w-]*[\"']?\s*:\s*"
)
_SECRET_KEY = re.compile(_KEY + r"[\"'\[]?$")
_SECRET_VALUE = re.compile(_KEY + r"[\"'\[]?[^\s\[{\"']")
_URL = re.compile(r"(?i)\w+://\S")
_KINDS = {
    "bool_type": "true or false is wanted here",
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
_HELP = {"string_type": "put it in quotes", "path_type": "put it in quotes"}
# Patterns of the values in words.
_PATTERNS = {
    "^[A-Za-z0-9]": "a name has letters, digits, _, . and - and begins with a letter or a digit",
    "^[^\\s\\d<": "a currency has 1 to 8 characters, no space and no digit",
    "^\\S(": "text is wanted here that neither begins nor ends with a space",
    "^[A-Za-z_]": "a label's name has letters, digits and _ and does not begin with a digit",
}
_LIMITS = {"gt": "above", "ge": "at least", "lt": "below", "le": "at most"}


def note_errors(
    file: YamlFile,
    root: Entries,
    model: type[BaseModel],
    error: ValidationError,
    environment: Mapping[str, str],
) -> None:
    """Note every error of a validation.

    ``file``: what was validated; the problems are added to it; ``root``: its mapping; ``model``:
    what it was validated against; ``error``: from pydantic; ``environment``: top-level key →
    variable, for values that did not come from the file.
    """
    for one in error.errors(include_url=False, include_input=False):
        location, kind = one["loc"], one["type"]
        top = str(location[0]) if location else ""
        context: Mapping[str, Any] = one.get("ctx", {})
        message = _KINDS.get(kind) or _message(kind, one["msg"], context)
        if top in environment:
            path = f"environment {environment[top]}"
            file.problems.append(Problem(path, None, None, "value", message))
            continue
        place = place_of(root, location, to_key=kind == "extra_forbidden")
        name = str(location[-1]) if location else ""
        if kind == "extra_forbidden":
            keys = sorted({f for m in _models_at(model, location[:-1]) for f in m.model_fields})
            close = [key for key in keys if key.startswith(f"{name}_")]
            close = close or difflib.get_close_matches(name, keys, n=1)
            hint = f"did you mean {close[0]}?" if close else f"known keys: {', '.join(keys)}"
            file.add(place, "unknown-key", f"unknown key {name}", hint)
        elif kind == "too_short" and _has_items(root, location):
            continue  # its items are wrong, which was said
        elif kind == "missing":
            file.add(place, "missing-key", f"{name} is missing")
        else:
            help_text = _HELP.get(kind)
            if kind == "source_kind":
                place, help_text = _meant(root, location, _models_at(model, location)) or (
                    place,
                    None,
                )
            elif kind == "less_than_equal" and name == "share":
                help_text = _as_share(root, location)
            elif kind in ("int_type", "float_type"):
                help_text = _unquoted(root, location)
            file.add(place, "value", message, help_text)


def _message(kind: str, message: str, context: Mapping[str, Any]) -> str:
    """pydantic's message in this project's words; it never holds the value."""
    if kind == "string_pattern_mismatch":
        texts = (text for begin, text in _PATTERNS.items() if context["pattern"].startswith(begin))
        return next(texts, "it does not have the form that is wanted here")
    if kind == "string_too_long":
        return f"at most {context['max_length']} characters are allowed here"
    if kind == "literal_error":
        return f"one of {context['expected'].replace(' or ', ', ')} is wanted here".replace("'", "")
    bounds = [f"{word} {context[key]:g}" for key, word in _LIMITS.items() if key in context]
    if bounds:
        return f"a number {' and '.join(bounds)} is wanted here"
    return _lower(message.removeprefix("Value error, "))


def _meant(
    root: Entries, location: tuple[int | str, ...], models: list[type[BaseModel]]
) -> tuple[Place, str] | None:
    """The key of a source that is close to a known one: its place, and the known one."""
    keys = sorted({name for model in models for name in model.model_fields})
    node: Node | None = root
    for part in location:
        if isinstance(node, Entries) and isinstance(part, str) and part in node.entries:
            node = node.entries[part][1]
        elif isinstance(node, Items) and isinstance(part, int) and part < len(node.items):
            node = node.items[part]
    for key, (place, _) in node.entries.items() if isinstance(node, Entries) else ():
        close = [] if key in keys else difflib.get_close_matches(str(key), keys, n=1)
        if close:
            return place, f"did you mean {close[0]}?"
    return None


def _as_share(root: Entries, location: tuple[int | str, ...]) -> str:
    """``write 0.95`` for 95."""
    value = _value(root, location)
    if isinstance(value, int | float) and 1 < value <= 100:
        return f"write {value / 100:g}"
    return "a share is a number such as 0.95"


def _unquoted(root: Entries, location: tuple[int | str, ...]) -> str | None:
    """How a number is written that stands in quotes."""
    value = _value(root, location)
    if not isinstance(value, str) or not re.fullmatch(r"\d{1,12}(\.\d{1,6})?", value):
        return None
    return f"write {value}, without quotes"


def checked_names(file: YamlFile, root: Entries) -> None:
    """Note names that two pools or two receivers share."""
    for key in ("pools", "receivers"):
        section = root.entries.get(key)
        first_lines: dict[object, int] = {}
        for item in section[1].items if section and isinstance(section[1], Items) else ():
            entry = item.entries.get("name") if isinstance(item, Entries) else None
            if entry is None or not isinstance(entry[1], Scalar):
                continue
            name, place = entry[1].value, entry[1].place
            if name in first_lines:
                message = (
                    f"a second one of {key} is called {name}, first in line {first_lines[name]}"
                )
                file.add(place, "duplicate", message)
            first_lines.setdefault(name, place.line)


def checked_receivers(file: YamlFile, root: Entries) -> None:
    """Note names under ``report.receivers`` that no receiver has."""
    report, there = root.entries.get("report"), root.entries.get("receivers")
    if report is None or not isinstance(report[1], Entries):
        return
    wanted = report[1].entries.get("receivers")
    if wanted is None or not isinstance(wanted[1], Items):
        return
    names = [
        entry[1].value
        for item in (there[1].items if there and isinstance(there[1], Items) else ())
        if isinstance(item, Entries)
        and (entry := item.entries.get("name")) is not None
        and isinstance(entry[1], Scalar)
    ]
    for item in wanted[1].items:
        if isinstance(item, Scalar) and item.value not in names:
            named = ", ".join(str(name) for name in names) or "there is none"
            file.add(item.place, "unknown-receiver", f"no receiver {item.value!r} ({named})")


def without_secrets(problem: Problem) -> Problem:
    """The problem with no more of its source line than is needed and no secret in it.

    The line ends behind the caret. A marked secret becomes ``<secret>``; where one stands before
    the caret, the line is left out.
    """
    line = problem.source_line
    if line is None:
        return problem
    start = (problem.column or 1) - 1
    end = start + problem.length
    before, marked, after = line[:start], line[start:end], line[end:]
    # Of a line that could not be parsed nobody knows which part is a value.
    unparsed = problem.code == "yaml" and ":" in before
    if unparsed or _SECRET_VALUE.search(before) or _URL.search(before):
        return replace(problem, source_line=None)
    if _SECRET_KEY.search(before) or _URL.search(marked):
        marked = "<secret>"
    tail = (": …" if after.startswith(":") else " …") if after.strip(" :,]}") else ""
    return replace(problem, source_line=before + marked + tail, length=len(marked))


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def place_of(root: Entries, location: tuple[int | str, ...], *, to_key: bool = False) -> Place:
    """The place of a location: its value, its key, or the nearest thing above it."""
    node: Node = root
    place = _first(root)
    for index, part in enumerate(location):
        last = index == len(location) - 1
        if isinstance(part, str) and part.startswith("("):
            continue  # the tag of a union, which no file holds
        if isinstance(node, Entries) and isinstance(part, str) and part in node.entries:
            key, node = node.entries[part]
            inner = isinstance(node, Scalar) or (last and isinstance(node, Items))
            place = node.place if inner and not (last and to_key) else key
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


def _has_items(root: Entries, location: tuple[int | str, ...]) -> bool:
    value = _value(root, location)
    return isinstance(value, list) and bool(value)


def _value(root: Entries, location: tuple[int | str, ...]) -> object:
    """What the file says at a location; None where it says nothing."""
    value: Any = plain(root)
    for part in location:
        if isinstance(part, str) and part.startswith("("):
            continue
        try:
            value = value[part]
        except (KeyError, IndexError, TypeError):
            return None
    result: object = value
    return result


def _models_at(model: type[BaseModel], location: tuple[int | str, ...]) -> list[type[BaseModel]]:
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
            if part in m.model_fields
            for inner in _models(m.model_fields[part].annotation)
        ]
    return models


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif get_origin(annotation) is not None:
        for argument in get_args(annotation):
            yield from _models(argument)
