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

# Keys whose values may be secret, and anything that looks like a URL.
_KEY = r"(?i)[\w-]*(?:password|passwd|secret|token|url|key|auth)[\w-]*[\"']?\s*:\s*"
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
}


def note_errors(
    file: YamlFile,
    root: Entries,
    model: type[BaseModel],
    error: ValidationError,
    environment: Mapping[str, str],
) -> None:
    """Note every error of a validation.

    Args:
        file: what was validated; the problems are added to it.
        root: its mapping.
        model: what it was validated against.
        error: from pydantic.
        environment: top-level key → variable, for values that did not come from the file.
    """
    for one in error.errors(include_url=False, include_input=False, include_context=False):
        location, kind = one["loc"], one["type"]
        top = str(location[0]) if location else ""
        message = _KINDS.get(kind) or _lower(one["msg"].removeprefix("Value error, "))
        if top in environment:
            path = f"environment {environment[top]}"
            file.problems.append(Problem(path, None, None, "value", message))
            continue
        place = place_of(root, location, to_key=kind == "extra_forbidden")
        name = str(location[-1]) if location else ""
        if kind == "extra_forbidden":
            known = sorted({f for m in _models_at(model, location[:-1]) for f in m.model_fields})
            close = [key for key in known if key.startswith(f"{name}_")]
            close = close or difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]}?" if close else f"known keys: {', '.join(known)}"
            file.add(place, "unknown-key", f"unknown key {name}", hint)
        elif kind == "too_short" and _has_items(root, location):
            continue  # its items are wrong, which was said
        elif kind == "missing":
            file.add(place, "missing-key", f"{name} is missing")
        else:
            file.add(place, "value", message, "put it in quotes" if kind == "string_type" else None)


def checked_names(file: YamlFile, root: Entries) -> None:
    """Note names that two pools or two receivers share."""
    for key in ("pools", "receivers"):
        found = root.entries.get(key)
        seen: dict[object, int] = {}
        for item in found[1].items if found and isinstance(found[1], Items) else ():
            entry = item.entries.get("name") if isinstance(item, Entries) else None
            if entry is None or not isinstance(entry[1], Scalar):
                continue
            name, place = entry[1].value, entry[1].place
            if name in seen:
                message = f"a second one of {key} is called {name}, first in line {seen[name]}"
                file.add(place, "duplicate", message)
            seen.setdefault(name, place.line)


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
    value = plain(root)
    for part in location:
        if isinstance(part, str) and part.startswith("("):
            continue
        try:
            value = value[part]  # type: ignore[index]
        except (KeyError, IndexError, TypeError):
            return False
    return isinstance(value, list) and bool(value)


def _models_at(model: type[BaseModel], location: tuple[int | str, ...]) -> list[type[BaseModel]]:
    """The models a location may lie in."""
    found = [model]
    for part in location:
        if isinstance(part, int):
            continue
        if part.startswith("("):
            found = [m for m in found if part.strip("()") in m.model_fields] or found
            continue
        found = [
            inner
            for m in found
            if part in m.model_fields
            for inner in _models(m.model_fields[part].annotation)
        ]
    return found


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif get_origin(annotation) is not None:
        for argument in get_args(annotation):
            yield from _models(argument)
