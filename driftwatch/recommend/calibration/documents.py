"""A calibration as JSON, and back."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any

from driftwatch.recommend.calibration.arrivals import Arrivals
from driftwatch.recommend.calibration.fitted import Calibration, Fit, LoadBand
from driftwatch.simulate.step_time import StepTime

SCHEMA_VERSION = 1
_LAWS = ("law", "slower", "faster")


def to_document(calibration: Calibration) -> dict[str, Any]:
    """As JSON takes it; ``schema_version`` says its form."""
    made = asdict(calibration)
    made["at"] = calibration.at.isoformat()
    for fit in made["fits"]:
        for name in _LAWS:
            if fit[name] is not None:
                fit[name]["capture_sizes"] = list(fit[name]["capture_sizes"])
        fit["bands"] = list(fit["bands"])
    made["fits"] = list(made["fits"])
    arrivals = made.pop("arrivals")
    return {"schema_version": SCHEMA_VERSION, **made, **arrivals}


def from_document(document: dict[str, Any]) -> Calibration:
    """What :func:`to_document` made.

    Raises:
        ValueError: it is of another form.
    """
    rest = dict(document)
    version = rest.pop("schema_version", None)
    if version != SCHEMA_VERSION:
        raise ValueError(f"calibration of schema_version {version!r}, known is {SCHEMA_VERSION}")
    try:
        fits = tuple(_fit(fit) for fit in rest.pop("fits"))
        arrivals = Arrivals(rest.pop("gap_cv", 1.0), rest.pop("on_rate_ratio", None))
        at = datetime.fromisoformat(rest["at"])
        return Calibration(**{**rest, "at": at, "fits": fits, "arrivals": arrivals})
    except (KeyError, TypeError) as error:
        raise ValueError(f"calibration cannot be read: {error}") from error


def _fit(values: dict[str, Any]) -> Fit:
    """Fields are only added."""
    bands = tuple(LoadBand(**band) for band in values.get("bands", ()))
    laws = {name: _law(values.get(name)) for name in _LAWS}
    return Fit(**{**values, **laws, "bands": bands})


def _law(values: dict[str, Any] | None) -> StepTime | None:
    if values is None:
        return None
    return StepTime(**{**values, "capture_sizes": tuple(values.get("capture_sizes", ()))})
