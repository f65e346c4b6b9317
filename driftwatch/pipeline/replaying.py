"""Questions to the replay, asked so that a page never waits for an answer that does not come."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

import polars as pl

from driftwatch.documents import to_json
from driftwatch.errors import DriftwatchError
from driftwatch.model import Reason, Recommendation, Target
from driftwatch.pipeline.advising import question_for
from driftwatch.pipeline.plan import Plan

if TYPE_CHECKING:
    from driftwatch.recommend.advice import Advice, Question


@dataclass(frozen=True, slots=True, eq=False)
class Replayed:
    """One question, with its answer.

    Attributes:
        target: whose traffic was replayed.
        at: end of the window.
        advice: the answer; where there is none, why.
        incident_id: whose page carries it; None = nobody's.
        failed: the traceback of what must not happen; None = it did not.
    """

    target: Target
    at: datetime
    advice: Advice
    incident_id: str | None = None
    failed: str | None = None


def replayed(
    target: Target,
    at: datetime,
    minutes: pl.DataFrame,
    row: Mapping[str, Any],
    plan: Plan,
    *,
    leaf: str | None = None,
    replicas: int | None = None,
    ask: Literal["advise", "assess"] = "advise",
    gpus: pl.DataFrame | None = None,
    incident_id: str | None = None,
    beside: pl.DataFrame | None = None,
) -> Replayed:
    """Ask what a knob would bring; whatever goes wrong is an answer without a verdict.

    Args:
        target: whose.
        at: end of the window.
        minutes: :data:`driftwatch.signals.minutes.MINUTE_SCHEMA` of the target, in order.
        row: its evidence row, with the ``reference_*`` columns.
        plan: pools, settings, targets of latency.
        leaf: where the diagnosis ended.
        replicas: of the pool; None = unknown.
        ask: the whole answer, or today's capacity alone.
        gpus: GPU readings, for the names of their models.
        incident_id: whose page is to carry it.
        beside: minutes of its twins, for the answer of the pool; None = its own.
    """
    from driftwatch.recommend.advice import Advice

    failed = None
    try:
        question = question_for(
            target,
            plan,
            at,
            minutes,
            row=row,
            leaf=leaf,
            replicas=replicas,
            gpus=gpus,
            beside=beside,
        )
        advice = _answer(question, ask)
        _to_be_kept(advice)
    except DriftwatchError as error:
        advice = Advice(
            at, Recommendation("insufficient", Reason("error", _in_one_line(error.message)))
        )
    except Exception as error:  # noqa: BLE001 - the page goes out without it, and says so
        failed = traceback.format_exc()
        why = f"the replay failed ({type(error).__name__}: {_in_one_line(str(error))})"
        advice = Advice(at, Recommendation("insufficient", Reason("failed", why)))
    return Replayed(target, at, advice, incident_id, failed)


def _answer(question: Question, ask: Literal["advise", "assess"]) -> Advice:
    # what replays is not loaded before the first one
    from driftwatch.recommend.advise import advise, assess

    return advise(question, table=False) if ask == "advise" else assess(question)


def _to_be_kept(advice: Advice) -> None:
    """An answer that no store could keep would cost the tick; it is none."""
    from driftwatch.recommend.advice import advice_document

    to_json(advice_document(advice))


def _in_one_line(text: str) -> str:
    return " ".join(text.split())[:200]


CAPACITY = ("capacity_ratio", "utilization_ratio", "capacity_requests_per_second")


def capacity_of(advice: Advice) -> dict[str, float | None]:
    """The evidence columns that an answer fills; None = it does not know."""
    today = advice.today
    found = {
        "capacity_ratio": advice.capacity_ratio,
        "utilization_ratio": advice.utilization_ratio,
        "capacity_requests_per_second": None
        if today is None
        else today.capacity_requests_per_second,
    }
    return {name: None if value is None else float(value) for name, value in found.items()}


def why_no_capacity(advice: Advice) -> str:
    """Why an answer knows no capacity, or knows it and not against the reference's."""
    if advice.recommendation.action == "insufficient":
        return advice.recommendation.why
    if advice.today is not None:
        said = advice.today.reasons.get("capacity_requests_per_second")
        if said is not None:
            return said
    if capacity_of(advice)["capacity_requests_per_second"] is None:
        return "the replay gives no capacity"
    return "no reference with lengths to compare the capacity with"
