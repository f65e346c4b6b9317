"""Which latency targets an answer is judged by, and where they come from."""

from __future__ import annotations

from driftwatch.model import Slo
from driftwatch.recommend.advice import Question, SloSource

# Derived targets: so many times the pin's 95th percentiles. A user who has lived with the pin is
# taken to notice a doubling; recommendation.md asks only that a derived target says so.
DERIVED_TIMES = 2.0


def targets_of(question: Question) -> tuple[Slo | None, SloSource]:
    """Targets of a question.

    Those of the command line or the configuration; else twice the reference's p95 time to first
    token and time per output token, where the reference has measured them; else none.
    """
    said = question.slo
    if said is not None and (said.ttft_seconds is not None or said.tpot_seconds is not None):
        source = question.slo_source
        return said, source if source != "unknown" else "configuration"
    ttft = _twice(question, "reference_ttft_seconds_p95")
    tpot = _twice(question, "reference_tpot_seconds_p95")
    if ttft is None and tpot is None:
        return None, "unknown"
    return Slo(ttft, tpot, Slo().share if said is None else said.share), "derived from the pin"


def _twice(question: Question, name: str) -> float | None:
    value = question.reference.get(name)
    return DERIVED_TIMES * float(value) if value is not None and value > 0 else None
