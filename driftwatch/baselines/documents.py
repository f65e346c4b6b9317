"""Baselines as JSON, as the store keeps them and ``--json`` prints them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from math import inf
from typing import Any, Literal, Self

import polars as pl
from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    model_validator,
)

from driftwatch.detect.baselines import Baseline
from driftwatch.detect.reference import REFERENCE_SCHEMA, no_reference
from driftwatch.detect.speed.model import StepTimeModel
from driftwatch.model import Fingerprint

_WHEN = ("since", "until", "accepted_at")
_GROUPS = ("identity", "knobs", "release")
_TIMES = ("since", "until")  # of a reference
_TEXT = 1000
# JSON has no infinity, which every histogram's last edge is
_INF = "+Inf"
_Value = str | float | list[float | Literal["+Inf"]]


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
    load_model: StepTimeModel | None = None
    arming: str | None = Field(None, max_length=_TEXT)
    reference: dict[str, _Value] | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        named = self.instance is not None and self.engine is not None
        if (self.scope == "target") != named or (self.instance is None) != (self.engine is None):
            raise ValueError("one of a target names instance and engine, one of a pool neither")
        if self.since >= self.until:
            raise ValueError("its window ends before it begins")
        return self


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
