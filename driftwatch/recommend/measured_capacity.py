"""Where a backlog lasts and no replay can be trusted: what the server completes is its capacity.

While its queue is never empty a server completes all it can, whatever a model of it says. Beside
the arrivals (finished + change of waiting + change of running) that tells how many replicas the
demand needs at least: while the queue still grows, what it completes came before and was shorter.
Whether a knob would help it does not tell.
"""

from __future__ import annotations

import math
from dataclasses import replace

import polars as pl

from driftwatch.model import Reason, Recommendation
from driftwatch.recommend.advice import Advice, Question
from driftwatch.recommend.observed.traffic import Observed
from driftwatch.recommend.wording import digits

_QUEUED = 1.0  # mean of num_requests_waiting: no step lacked a request
_FEWEST_FINISHED = 100  # a rate known to ±20 % (Poisson, two standard deviations)
_FALLS_SHORT = 1.2  # times what it completes: as far as such a rate may be off


def by_measured_capacity(question: Question, refused: Advice, observed: Observed | None) -> Advice:
    """The refused answer with how many replicas serve the demand, where the window shows it."""
    if observed is None or not observed.saturated:
        return refused
    queued = observed.chunks.filter(pl.col("waiting_requests") >= _QUEUED)
    seconds = queued["end_seconds"] - queued["start_seconds"]
    finished = queued["finished_per_second"]
    if queued.is_empty() or finished.null_count():
        return refused
    completed = float((finished * seconds).sum())
    lasted = float(seconds.sum())
    arrived = observed.offered_requests_per_second
    if completed < _FEWEST_FINISHED or lasted <= 0:
        return refused
    capacity = completed / lasted
    if arrived < _FALLS_SHORT * capacity:
        return refused
    have = question.replicas or 1
    more = math.ceil(have * arrived / _most(finished, completed, lasted)) - have
    if more < 1:
        return refused  # it may complete all that arrive
    plural = "s" if more > 1 else ""
    each = "" if question.replicas else " for each"
    said = Recommendation(
        "none",
        Reason(
            "measured",
            f"it completes {digits(capacity)} of the {digits(arrived)} req/s that arrive, with its "
            "queue never empty; whether a knob helps is unknown: "
            f"{refused.recommendation.reason.text}",
        ),
        instead=(
            f"at least +{more} replica{plural}{each}: {digits(arrived)} req/s arrive, one "
            f"completes {digits(capacity)}",
        ),
        basis="measured",
    )
    return replace(refused, recommendation=said)


def _most(finished: pl.Series, completed: float, lasted: float) -> float:
    """Requests a second that it may complete: two standard errors above what it did.

    Of the count, and of the minutes: long and short requests come in turns.
    """
    minutes = finished.std()
    wander = float(minutes) / math.sqrt(len(finished)) if isinstance(minutes, float) else 0.0
    return completed / lasted + 2 * max(math.sqrt(completed) / lasted, wander)
