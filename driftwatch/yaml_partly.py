"""A mapping of a file as a model, or the part of it that is right, so that the rest is checked."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from driftwatch.yaml_models import Location, note_errors
from driftwatch.yaml_positions import MAX_DEPTH, Entries, Place, YamlFile, plain

M = TypeVar("M", bound=BaseModel)


def read_model(
    file: YamlFile, node: Entries, model: type[M], *, place: Place | None = None
) -> M | None:
    """A mapping of the file as a model; None where it has problems, which are added to the file.

    ``place``: of the mapping, where a key is missing; its first key by default.
    """
    try:
        return model.model_validate(plain(node))
    except ValidationError as error:
        note_errors(file, node, model, error, place=place)
    return None


def read_partly(
    file: YamlFile,
    entries: Entries,
    model: type[M],
    stand_ins: Mapping[str, object],
    place: Place | None = None,
) -> tuple[M | None, Entries]:
    """A mapping as a model, and the mapping without the keys that have problems.

    ``stand_ins``: for required keys that are wrong or missing; problems are added to the file.
    """
    right, added = entries, dict[str, object]()
    while True:
        values: Any = plain(right)
        try:
            return model.model_validate({**added, **values}), right
        except ValidationError as error:
            note_errors(file, entries, model, error, place=place)
            wrong = {location[0] for location in _locations(error) if location}
        left = {key: node for key, node in right.entries.items() if key not in wrong}
        if right is not entries and len(left) == len(right.entries):
            return None, right
        right, added = Entries(entries.place, left), {**stand_ins}


def read_right(
    file: YamlFile,
    root: Entries,
    model: type[M],
    values: Mapping[str, Any],
    *,
    context: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    stand_ins: Mapping[str, object] | None = None,
) -> M | None:
    """A mapping as a model without the keys that are wrong, at any depth; problems are added.

    Positions in lists stay: an item that is no use takes its list along. None where nothing is
    left that the model takes.

    ``values``: of the mapping; ``environment``: top-level key → variable that its value came from;
    ``stand_ins``: for keys that are missing.
    """
    left: Any = deepcopy(values)
    for attempt in range(MAX_DEPTH):
        try:
            return model.model_validate(left, context=context)
        except ValidationError as error:
            if attempt == 0:
                note_errors(file, root, model, error, environment)
            where = _locations(error)
            if not sum(_put(left, one, stand_ins or {}) or _without(left, one) for one in where):
                return None
    return None


def _locations(error: ValidationError) -> list[Location]:
    """Where a validation found something wrong; of a list with wrong items, at the items only."""
    errors = error.errors(include_url=False, include_input=False)
    every = [(*one["loc"], *one.get("ctx", {}).get("inner", ())) for one in errors]
    outer = {one[:end] for one in every for end in range(len(one))}
    return [one for one in every if one not in outer or not one]


def _put(values: Any, location: Location, stand_ins: Mapping[str, object]) -> bool:
    """Put the stand-in of a key where the key is missing; False where it is not, or has none."""
    for part in location[:-1]:
        is_there = part in values if isinstance(values, dict) else isinstance(values, list)
        if not is_there:
            return False
        values = values[part]
    key = str(location[-1]) if location else ""
    is_missing = isinstance(values, dict) and key not in values and key in stand_ins
    if is_missing:
        values[key] = stand_ins[key]
    return is_missing


def _without(values: Any, location: Location) -> bool:
    """Take away the last key of a location that there is; False where there is none."""
    holder, last = None, ""
    for part in location:
        if isinstance(part, str) and part.startswith("("):
            continue
        if isinstance(values, dict) and part in values:
            holder, last = values, str(part)
        elif not (isinstance(values, list) and isinstance(part, int) and part < len(values)):
            break
        values = values[part]
    if holder is not None:
        del holder[last]
    return holder is not None
