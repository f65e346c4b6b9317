"""Baselines as JSON: what the store keeps, ``baseline export`` writes and ``import`` reads."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from math import inf, isfinite
from pathlib import Path
from typing import Any, Literal, Self

import orjson
import polars as pl
from pydantic import (
    AliasChoices,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from driftwatch import __version__
from driftwatch.detect.baselines import Baseline, Baselines
from driftwatch.detect.reference import REFERENCE_SCHEMA, no_reference
from driftwatch.detect.speed.model import StepTimeModel
from driftwatch.documents import problems_of
from driftwatch.errors import ConfigError, Problem
from driftwatch.model import Fingerprint
from driftwatch.yaml_models import note_errors
from driftwatch.yaml_positions import MAX_BYTES as MAX_PLACED_BYTES
from driftwatch.yaml_positions import Entries, read_yaml

SCHEMA_VERSION = 2  # 1: models of 0.13 and before, whose windows mean something else
# 10,000 baselines are about 30 MB
MAX_BYTES = 128 << 20
_WHEN = ("since", "until", "accepted_at")
_GROUPS = ("identity", "knobs", "release")
_TIMES = ("since", "until")  # of a reference
_TEXT = 1000
# JSON has no infinity, which every histogram's last edge is
_INF = "+Inf"
_Value = str | float | list[float | Literal["+Inf"]]
# Counts of stored minutes are rounded: cumulative ones may fall by so much.
_ROUNDED = 0.01
_KINDS = ("pin", "baseline")


class _Part(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, hide_input_in_errors=True, allow_inf_nan=False
    )


class _Fingerprint(_Part):
    identity: dict[str, str] = Field(default_factory=dict)
    knobs: dict[str, str] = Field(default_factory=dict)
    release: dict[str, str] = Field(default_factory=dict)


class BaselineDocument(_Part):
    """One baseline, as JSON; times are ISO 8601 with a zone."""

    id: str = Field(min_length=4, max_length=12)
    scope: Literal["target", "pool"]
    instance: str | None = None
    engine: str | None = None
    pool: str
    since: AwareDatetime
    until: AwareDatetime
    accepted_by: str = Field(min_length=1, max_length=100)
    accepted_at: AwareDatetime
    why: str = Field("", max_length=_TEXT)
    fingerprint: _Fingerprint = Field(default_factory=_Fingerprint)
    # "law" in exports and databases of 0.7 and before
    load_model: StepTimeModel | None = Field(
        None, validation_alias=AliasChoices("load_model", "law")
    )
    arming: str | None = Field(None, max_length=_TEXT)
    reference: dict[str, _Value] | None = None

    @field_validator("id")
    @classmethod
    def _check_id(cls, text: str) -> str:
        if not text.isascii() or not text.isalnum():
            raise ValueError("an id has letters and digits")
        return text

    @field_validator("reference")
    @classmethod
    def _check_reference(cls, value: dict[str, _Value] | None) -> dict[str, _Value] | None:
        if value is not None:
            row = _reference_of(value).row(0, named=True)
            if wrong := _wrong_with_reference(row):
                raise ValueError("; ".join(wrong))
        return value

    @model_validator(mode="after")
    def _check(self) -> Self:
        named = self.instance is not None and self.engine is not None
        if (self.scope == "target") != named or (self.instance is None) != (self.engine is None):
            raise ValueError("one of a target names instance and engine, one of a pool neither")
        if self.since >= self.until:
            raise ValueError("its window ends before it begins")
        return self


class _Export(_Part):
    schema_version: int
    driftwatch: str = ""
    baselines: tuple[BaselineDocument, ...] = Field(alias="pins")

    @field_validator("schema_version")
    @classmethod
    def _check_version(cls, value: int) -> int:
        if value != SCHEMA_VERSION:
            raise ValueError("of another version: driftwatch baseline propose finds them anew")
        return value


_SAME = tuple(name for name in BaselineDocument.model_fields if name != "load_model")


def document_of(baseline: Baseline) -> dict[str, Any]:
    """A baseline as JSON values."""
    fields = {name: getattr(baseline, name) for name in _SAME}
    return fields | {
        **{name: _iso(fields[name]) for name in _WHEN},
        "fingerprint": {name: dict(getattr(baseline.fingerprint, name)) for name in _GROUPS},
        "load_model": None if baseline.model is None else baseline.model.model_dump(mode="json"),
        "reference": _reference_document(baseline.reference),
    }


def from_document(document: BaselineDocument) -> Baseline:
    """The baseline that a checked document describes."""
    fields = {name: getattr(document, name) for name in _SAME}
    reference = no_reference()
    if document.reference is not None:
        names = (document.instance or document.pool, document.engine or "")
        reference = _reference_of(document.reference, *names)
    return Baseline(
        **fields
        | {
            **{name: fields[name].astimezone(UTC) for name in _WHEN},
            "fingerprint": Fingerprint(**document.fingerprint.model_dump()),
            "model": document.load_model,
            "reference": reference,
        }
    )


def exported(baselines: Sequence[Baseline]) -> str:
    """An export: JSON with sorted keys, a line each, the same bytes for the same baselines."""
    document = {
        "schema_version": SCHEMA_VERSION,
        "driftwatch": __version__,
        "pins": [document_of(baseline) for baseline in baselines],
    }
    return json.dumps(document, sort_keys=True, indent=1, allow_nan=False) + "\n"


def read_export(path: Path) -> tuple[Baseline, ...]:
    """The baselines of an export.

    Raises ConfigError: with every problem, and its line in files up to 1 MiB; then none is given.
    """
    name = str(path)
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise _unusable(name, "size", f"{size >> 20} MiB: at most {MAX_BYTES >> 20} are read")
        data = path.read_bytes()
    except OSError as error:
        raise _unusable(name, "unreadable", f"it cannot be read: {error.strerror}") from None
    try:
        values = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        problem = Problem(name, error.lineno, error.colno, "json", f"no JSON: {error.msg}")
        raise ConfigError((problem,)) from None
    if not isinstance(values, dict) or "pins" not in values:
        raise _unusable(name, "export", "this is no export of driftwatch baseline")
    try:
        export = _Export.model_validate_json(data)
    except ValidationError as error:
        raise ConfigError(_problems(path, error, len(data))) from None
    places: dict[str, int] = {}
    for number, baseline in enumerate(export.baselines):
        # a target has one baseline: which of two was meant, only a person knows
        place = (
            baseline.pool if baseline.instance is None else f"{baseline.instance}/{baseline.engine}"
        )
        for what in (f"the id {baseline.id}", f"the {baseline.scope} {place}"):
            if what in places:
                message = f"baselines {places[what]} and {number} have {what}"
                raise _unusable(name, "duplicate", message)
            places[what] = number
    return tuple(from_document(baseline) for baseline in export.baselines)


def baselines_of_file(path: Path) -> Baselines:
    """The baselines of an export, as a tick takes them; errors as of :func:`read_export`."""
    return Baselines(tuple(sorted(read_export(path), key=lambda p: (p.accepted_at, p.id))))


def _problems(path: Path, error: ValidationError, size: int) -> tuple[Problem, ...]:
    if size <= MAX_PLACED_BYTES:  # JSON is YAML, and there every value has its place
        file = read_yaml(path)
        if isinstance(file.root, Entries) and not file.problems:
            note_errors(file, file.root, _Export, error)
            return tuple(sorted(file.problems, key=lambda p: (p.line or 0, p.column or 0)))
    texts = problems_of(error).split("; ")
    return tuple(Problem(str(path), None, None, "value", text) for text in texts)


def _unusable(name: str, code: str, message: str) -> ConfigError:
    return ConfigError((Problem(name, None, None, code, message),))


def _reference_document(reference: pl.DataFrame) -> dict[str, Any] | None:
    if reference.is_empty():
        return None
    row = reference.row(0, named=True)
    return {
        name: _json_value(value)
        for name, value in row.items()
        if value is not None and name not in ("instance", "engine")
    }


def _json_value(value: object) -> object:
    if isinstance(value, datetime):
        return _iso(value)
    if isinstance(value, list):
        return [_INF if one == inf else one for one in value]
    return value


def _reference_of(
    values: Mapping[str, _Value], instance: str = "", engine: str = ""
) -> pl.DataFrame:
    """A reference row; ValueError for an unknown name or a value of another type."""
    row: dict[str, Any] = {"instance": instance, "engine": engine}
    for name, value in values.items():
        dtype = REFERENCE_SCHEMA.get(name)
        if dtype is None or name in ("instance", "engine"):
            raise ValueError(f"unknown column {name} in the reference")
        is_text = name == "kind" or name in _TIMES
        kind = str if is_text else (int | float if dtype == pl.Float64 else list)
        if not isinstance(value, kind):
            raise ValueError(f"{name} of the reference is not of its type")
        row[name] = value
        if isinstance(value, list):
            row[name] = [inf if one == _INF else float(one) for one in value]
        elif name in _TIMES:
            row[name] = datetime.fromisoformat(str(value))
            if row[name].tzinfo is None:
                raise ValueError(f"{name} of the reference has no zone")
    return pl.DataFrame([row], schema=REFERENCE_SCHEMA, orient="row")


def _iso(time: datetime) -> str:
    return time.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _wrong_with_reference(row: Mapping[str, object]) -> list[str]:
    """What is impossible of a reference row, in words."""
    problems = []
    if row.get("kind") not in _KINDS:
        problems.append(f"kind: pin is wanted, not {row.get('kind')!r:.40}")
    for name, value in row.items():
        if isinstance(value, int | float) and (not isfinite(value) or value < 0):
            problems.append(f"{name}: at least 0, not {value:g}")
        if name == "reference_prompt_tokens_mean" and value == 0:
            problems.append(f"{name}: above 0")
        if isinstance(value, list) and name.endswith("_buckets"):
            edges = row.get(name.removesuffix("_buckets") + "_edges")
            problems += _wrong_cells(name, value, edges if isinstance(edges, list) else [])
    return problems


def _wrong_cells(name: str, counts: Sequence[float], edges: Sequence[float]) -> list[str]:
    problems = []
    if len(counts) != len(edges):
        problems.append(f"{name}: {len(counts)} counts for {len(edges)} edges")
    if any(late <= early for early, late in pairwise(edges)) or (edges and edges[-1] != inf):
        problems.append(f"{name.removesuffix('_buckets')}_edges: rising ones up to +Inf are wanted")
    falls = any(late < early * (1 - _ROUNDED) for early, late in pairwise(counts))
    if falls or any(one < 0 for one in counts):
        problems.append(f"{name}: cumulative counts do not fall")
    return problems
