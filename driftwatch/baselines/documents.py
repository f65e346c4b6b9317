"""Baselines as JSON, as the store keeps them and ``--json`` prints them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from math import inf
from typing import Any, Literal, Self

import polars as pl
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, model_validator

from driftwatch.detect.baselines import Baseline
from driftwatch.detect.reference import REFERENCE_SCHEMA, no_reference
from driftwatch.detect.speed.model import StepTimeModel
from driftwatch.model import Fingerprint

_WHEN = ("since", "until", "accepted_at")
_NAMES = ("instance", "engine")
_TEXT = 1000
# JSON has no infinity, which every histogram's last edge is
_INF = "+Inf"
_Value = str | float | list[float | Literal["+Inf"]]


class BaselineDocument(BaseModel):
    """One baseline, as JSON; times are ISO 8601 with a zone."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, hide_input_in_errors=True, allow_inf_nan=False
    )

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
    fingerprint: Fingerprint = Field(default_factory=Fingerprint)
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
    fields |= {name: fields[name].astimezone(UTC) for name in _WHEN}
    remembered = None
    if len(baseline.reference):
        row = baseline.reference.drop(_NAMES).row(0, named=True)
        remembered = {name: _json_value(one) for name, one in row.items() if one is not None}
    fields |= {"load_model": baseline.model, "reference": remembered}
    return BaselineDocument.model_construct(**fields).model_dump(mode="json")


def from_document(document: BaselineDocument) -> Baseline:
    """The baseline that a checked document describes.

    Raises ValueError: its reference has an unknown column.
    """
    fields = {name: getattr(document, name) for name in _SAME}
    fields |= {name: fields[name].astimezone(UTC) for name in _WHEN}
    reference = no_reference()
    if document.reference is not None:
        row = _reference_row(document.reference)
        row |= {"instance": document.instance or document.pool, "engine": document.engine or ""}
        reference = pl.DataFrame([row], schema=REFERENCE_SCHEMA, orient="row")
    return Baseline(**fields | {"model": document.load_model, "reference": reference})


def _json_value(value: object) -> object:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, list):
        return [_INF if one == inf else one for one in value]
    return value


def _reference_row(values: Mapping[str, _Value]) -> dict[str, Any]:
    """A reference without names."""
    row: dict[str, Any] = dict(values)
    if unknown := sorted(row.keys() - REFERENCE_SCHEMA.keys()):
        raise ValueError(f"unknown column {unknown[0]} in the reference")
    for name, value in values.items():
        if isinstance(value, list):
            row[name] = [inf if one == _INF else float(one) for one in value]
        elif name in ("since", "until"):
            row[name] = datetime.fromisoformat(str(value))
    return row
