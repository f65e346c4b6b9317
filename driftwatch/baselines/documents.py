"""Baselines as JSON, as the store keeps them and ``--json`` prints them; and those of a store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from math import inf
from typing import Any, Literal, Self

import polars as pl
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, model_validator

from driftwatch.collect.fingerprint import Difference, differences
from driftwatch.detect.baselines import Baseline, Baselines
from driftwatch.detect.reference import REFERENCE_SCHEMA, no_reference
from driftwatch.detect.speed.model import StepTimeModel
from driftwatch.documents import to_json
from driftwatch.errors import StoreError
from driftwatch.model import Fingerprint, Target, TargetKey
from driftwatch.store.baselines import BaselineRow
from driftwatch.store.store import Store

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


def baselines_from_store(store: Store) -> Baselines:
    """The baselines in force.

    Raises StoreError: one of them cannot be read; the others are no excuse.
    """
    return Baselines(tuple(baseline_of_row(row) for row in store.baselines()))


def baseline_of_row(row: BaselineRow) -> Baseline:
    """A stored baseline.

    Raises StoreError: its document is no baseline.
    """
    try:
        return from_document(BaselineDocument.model_validate_json(row.document))
    except ValueError as error:
        raise StoreError(
            f"pin {row.id} in the database cannot be read: {str(error).splitlines()[0]}",
            code="corrupt",
            help_text=f"pin {row.instance or row.pool} anew: driftwatch baseline propose",
        ) from error


def row_of(baseline: Baseline) -> BaselineRow:
    """A baseline as it is stored."""
    names = ("id", "scope", "instance", "engine", "pool", "accepted_at", "accepted_by")
    return BaselineRow(
        **{name: getattr(baseline, name) for name in names}, document=to_json(document_of(baseline))
    )


def changes_since(
    baselines: Baselines, targets: Mapping[TargetKey, Target], ran: Mapping[TargetKey, Fingerprint]
) -> Iterator[tuple[Baseline, TargetKey, tuple[Difference, ...]]]:
    """Each baseline that names a target on which something else runs now, and what differs."""
    for key, target in targets.items():
        for one in baselines.naming(key.instance, key.engine, target.pool or ""):
            if other := differences(one.fingerprint, ran.get(key, Fingerprint())):
                yield one, key, other


def notes_on(
    baselines: Baselines, targets: Mapping[TargetKey, Target], ran: Mapping[TargetKey, Fingerprint]
) -> dict[str, str]:
    """Id → what runs differently now: the baseline is not in force, or it is and says so."""
    notes: dict[str, str] = {}
    for one, key, other in changes_since(baselines, targets, ran):
        which = f" ({key.text})" if one.scope == "pool" else ""
        identity = any(part.group == "identity" for part in other)
        state = "not in force, another server now" if identity else "changed since"
        notes.setdefault(one.id, f"{state}{which}: {', '.join(part.text for part in other)}")
    return notes
