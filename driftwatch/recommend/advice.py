"""A question about a server's knobs, the whole answer, and the targets it is judged by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

import polars as pl

from driftwatch.documents import Document
from driftwatch.model import Advice, Slo
from driftwatch.recommend.server import Server
from driftwatch.simulate.requests import Requests

SloSource = Literal["configuration", "command line", "derived from the baseline", "unknown"]


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """A question for advice: a server's minutes up to ``at``, in order, and its settings.

    ``beside``: minutes of its peers, a frame each; then ``minutes`` are those of the busiest of
    all, and ``traffic_of`` names it. ``slo`` None = derived from ``reference`` (``reference_*``
    columns of the evidence row, empty without one). ``leaf``: where the diagnosis ended.
    ``what_if``: knob, ``replicas`` or ``prefix_hit_ratio`` → value. ``before``: the change that an
    open page advises. ``log``: the requests themselves, on the window's clock; None = rebuilt from
    the metrics.
    """

    at: datetime
    minutes: pl.DataFrame
    server: Server
    slo: Slo | None = None
    slo_source: SloSource = "unknown"
    reference: Mapping[str, Any] = field(default_factory=dict)
    evidence: Mapping[str, Any] = field(default_factory=dict)
    leaf: str | None = None
    what_if: Mapping[str, float] = field(default_factory=dict)
    log: Requests | None = None
    replicas: int | None = None
    seed: int = 0
    beside: Sequence[pl.DataFrame] = ()
    traffic_of: str | None = None
    before: Advice | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """One configuration under today's traffic; None = unknown, ``reasons`` says why.

    ``knobs`` are those that differ from today. The share in target is the mean over the draws, its
    ``low`` and ``high`` hold 80 % of them; all else is of the likeliest draw. Capacity is the
    highest rate of one server at which the share is met. ``refused``: why vLLM would not run it.
    """

    knobs: Mapping[str, float]
    in_target_ratio: float | None = None
    in_target_low_ratio: float | None = None
    in_target_high_ratio: float | None = None
    capacity_requests_per_second: float | None = None
    ttft_p95_seconds: float | None = None
    ttft_seconds: float | None = None
    itl_seconds: float | None = None
    itl_p99_seconds: float | None = None
    tpot_p95_seconds: float | None = None
    generation_tokens_per_second: float | None = None
    running_requests: float | None = None
    kv_cache_peak_ratio: float | None = None
    kv_blocks: int | None = None
    preemptions: float | None = None
    refused: str | None = None
    reasons: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Gate:
    """One condition that an answer needs; ``said``: the number and its bound."""

    name: str
    passed: bool
    said: str


@dataclass(frozen=True, slots=True)
class StepTimeFit:
    """The step-time model of an answer; coefficients as ``--step-time`` takes them."""

    coefficients: str
    source: str
    is_known: bool  # from a datasheet
    minutes: int
    misfit_ratio: float  # robust sd of ln ITL around it


@dataclass(frozen=True, slots=True)
class GainRange:
    """What the advised change brings, as shares of the requests; 80 % lie between low and high."""

    mean: float
    low: float
    high: float
    chance_of_harm: float  # to lose 2 points or more


TOLERANCE = 0.10  # of ITL and running requests, beyond what the draws differ by: the check fails
# … and the answer is not the simulation's. Between the two it is, as its interval is wide there: a
# limit of 10 % refused 31 of 120 working cases, 2 points of gain with them, and no harm (decision
# 90).
REFUSED = 0.30
# figure → its name for people
FIGURES = {"itl_seconds": "ITL", "running_requests": "running requests"}


@dataclass(frozen=True, slots=True)
class Compared:
    """One figure: observed, and the lowest and the highest that the draws give."""

    observed: float
    low: float
    high: float

    @property
    def off_ratio(self) -> float:
        """By how much the nearest draw is off; 0 where the draws enclose it."""
        if self.low <= self.observed <= self.high:
            return 0.0
        nearest = self.low if self.observed < self.low else self.high
        return nearest / self.observed - 1.0

    @property
    def passed(self) -> bool:
        """Within :data:`TOLERANCE`."""
        return abs(self.off_ratio) <= TOLERANCE


@dataclass(frozen=True, slots=True)
class ModelCheck:
    """``itl_seconds`` and ``running_requests``, as far as they were observed."""

    compared: Mapping[str, Compared]

    @property
    def refused(self) -> bool:
        """Some figure is farther off than :data:`REFUSED`."""
        return any(abs(one.off_ratio) > REFUSED for one in self.compared.values())

    @property
    def failed(self) -> dict[str, Compared]:
        """The figures that are off."""
        return {name: one for name, one in self.compared.items() if not one.passed}


class Answer(Document):
    """The whole answer; None = not known, or the answer did not come so far.

    ``candidates`` were simulated, today first; ``what_ifs`` what was asked for besides;
    ``traffic_of``: the server whose minutes these are, where a pool shares one answer;
    ``settings``: knob → today's value as simulated; ``window_seconds``: length of the stretch that
    was simulated, which ends at ``at``; ``requests``: how many; ``notes``: what is not known and
    what was taken instead; ``contradiction``: a configured setting that the minutes contradict, and
    how to correct it.
    """

    schema_version: Literal[2] = 2
    at: datetime
    advice: Advice
    gates: tuple[Gate, ...] = ()
    slo: Slo | None = None
    slo_source: SloSource = "unknown"
    step_time: StepTimeFit | None = None
    check: ModelCheck | None = None
    today: Candidate | None = None
    candidates: tuple[Candidate, ...] = ()
    what_ifs: tuple[Candidate, ...] = ()
    advised: Candidate | None = None
    gain: GainRange | None = None
    traffic_of: str | None = None
    offered_requests_per_second: float | None = None
    settings: Mapping[str, float] = field(default_factory=dict)
    window_seconds: float | None = None
    source: str = "metrics"
    requests: int = 0
    notes: tuple[str, ...] = ()
    contradiction: str | None = None

    @property
    def utilization_ratio(self) -> float | None:
        """Offered rate over capacity."""
        now = self.today.capacity_requests_per_second if self.today else None
        offered = self.offered_requests_per_second
        return None if not now or offered is None else offered / now


# Derived targets: so many times the baseline's 95th percentiles. A user who has lived with it is
# taken to notice a doubling.
DERIVED_TIMES = 2.0


def targets_of(question: Question) -> tuple[Slo | None, SloSource]:
    """Targets of a question.

    Those of the command line or the configuration; else twice the reference's p95 time to first
    token and time per output token, where the reference has measured them; else none.
    """
    slo = question.slo
    if slo is not None and (slo.ttft_seconds is not None or slo.tpot_seconds is not None):
        source = question.slo_source
        return slo, source if source != "unknown" else "configuration"
    ttft = _twice(question, "reference_ttft_seconds_p95")
    tpot = _twice(question, "reference_tpot_seconds_p95")
    if ttft is None and tpot is None:
        return None, "unknown"
    return Slo(ttft, tpot, Slo().share if slo is None else slo.share), "derived from the baseline"


def _twice(question: Question, name: str) -> float | None:
    value = question.reference.get(name)
    return DERIVED_TIMES * float(value) if value is not None and value > 0 else None
