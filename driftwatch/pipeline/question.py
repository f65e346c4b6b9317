"""Questions about a server's settings; pages, ``explain`` and ``recommend`` ask the same one.

Servers of a pool with one configuration and similar loads share a traffic. A question for each
would give several answers to one cause. So they share one question, with the step times of the
busiest server that is not slow and the traffic of all.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import polars as pl

from driftwatch.collect.schema import KEY_COLUMNS
from driftwatch.errors import DriftwatchError, NoVerdict
from driftwatch.model import Advice, Reason, Slo, Target, TargetKey
from driftwatch.pipeline.engine import server_of
from driftwatch.pipeline.minutes import WINDOW, after_last_slow, is_slow
from driftwatch.pipeline.plan import Plan
from driftwatch.recommend.advice import Answer, Question, SloSource
from driftwatch.signals.minutes import MINUTE_SCHEMA
from driftwatch.simulate.requests import Requests
from driftwatch.store.history import TargetAdvice

_KEY = list(KEY_COLUMNS)
MOST_SERVERS = 8  # the first by name; each one's traffic is simulated
# Similar loads differ at most by this factor, as two halves of one traffic do.
_WITHIN = 1.25
RECENT = timedelta(minutes=10)
_LOAD = ("ttft_seconds_count", "prompt_tokens_total", "generation_tokens_total")


@dataclass(frozen=True, slots=True, eq=False)
class Moment:
    """A target at a time: the input of a question."""

    target: Target
    at: datetime
    # :data:`driftwatch.signals.minutes.MINUTE_SCHEMA`, or stored rows with more columns; other
    # targets and later minutes are ignored
    minutes: pl.DataFrame
    # the evidence row of the window that ends at ``at``, with ``reference_*`` columns; empty = none
    row: Mapping[str, Any] = field(default_factory=dict)
    # minutes of its peers, for one answer of the pool; None = about this target alone
    beside: pl.DataFrame | None = None
    replicas: int | None = None  # of its pool; None = unknown
    before: Advice | None = None  # the change that an open page advises

    def stored_answer(
        self, answer: Answer, incident_id: str | None, failed: str | None = None
    ) -> TargetAdvice:
        """The answer as stored, with its incident."""
        target = self.target
        return TargetAdvice(
            target.key, target.pool or "default", self.at, answer, incident_id, failed
        )


@dataclass(frozen=True, slots=True, eq=False)
class Options:
    """Options of the command line."""

    window: timedelta | None = None  # None = an hour
    slo: Slo | None = None  # None = the pool's
    what_if: Mapping[str, float] = field(default_factory=dict)  # knob → another value to simulate
    log: Requests | None = None  # recorded requests; None = rebuilt from the minutes
    # None = as configured, reported or read
    model: str | None = None
    gpu: str | None = None
    seed: int = 0


_NO_OPTIONS = Options()


def question_for(
    moment: Moment, plan: Plan, leaf: str | None = None, options: Options = _NO_OPTIONS
) -> Question:
    """A question about one target.

    Args:
        leaf: of the diagnosis; None without one.

    Raises:
        NoVerdict: the target has no minute before the moment.
    """
    target, at, row, log = moment.target, moment.at, moment.row, options.log
    key = target.key
    own = (pl.col("instance") == key.instance) & (pl.col("engine") == key.engine)
    inside = (pl.col("end") <= at) & (pl.col("end") > at - (options.window or WINDOW))
    mine = moment.minutes.filter(own & inside).sort("end")
    if mine.is_empty():
        raise NoVerdict(f"{key.text}: no minute before {at:%Y-%m-%d %H:%M} UTC is known")
    every = mine
    if moment.beside is not None and log is None:
        every = pl.concat([mine, moment.beside.filter(inside & ~own)], how="diagonal")
    frames = _shared(key, every, at)
    used, *others = (one.select(*MINUTE_SCHEMA) for one in frames.values())
    slow = sum(is_slow(one) for one in frames.values())
    beside = f" ({slow} {'is' if slow == 1 else 'are'} slower)" if 0 < slow < len(frames) else ""
    busiest = f"{next(iter(frames)).text}, the busiest of {len(frames)} servers{beside}"
    slo = options.slo
    source: SloSource = "command line"
    if slo is None:
        slo = plan.slo_of(target)
        source = "unknown" if slo is None else "configuration"
    return Question(
        at=at,
        minutes=used,
        beside=tuple(others),
        server=server_of(target, plan, mine, row=row, model=options.model, gpu=options.gpu),
        slo=slo,
        slo_source=source,
        reference=reference_in(row),
        evidence=row,
        leaf=leaf,
        what_if=options.what_if,
        before=moment.before,
        traffic_of=busiest if others else None,
        log=log,
        replicas=moment.replicas,
        seed=options.seed,
    )


def reference_in(row: Mapping[str, Any]) -> dict[str, Any]:
    """The known ``reference_*`` columns of a row."""
    return {k: v for k, v in row.items() if k.startswith("reference_") and v is not None}


def target_advice(
    moment: Moment,
    plan: Plan,
    *,
    leaf: str | None = None,
    incident_id: str | None = None,
) -> TargetAdvice:
    """The answer. An error becomes an answer without a verdict: the page must go out."""
    from driftwatch.recommend import advise  # loads the simulator

    at, failed = moment.at, None
    try:
        question = question_for(moment, plan, leaf)
        answer = _with_load(advise.advise(question, table=False))
        answer.text()  # an error here does not break the tick's commit
    except DriftwatchError as error:
        answer = Answer(
            at=at,
            advice=Advice(action="insufficient", reason=Reason("error", _one_line(error.message))),
        )
    except Exception as error:  # noqa: BLE001 - the page goes out and names the error
        failed = traceback.format_exc()
        text = f"the simulation failed ({type(error).__name__}: {_one_line(str(error))})"
        answer = Answer(at=at, advice=Advice(action="insufficient", reason=Reason("failed", text)))
    return moment.stored_answer(answer, incident_id, failed)


def _with_load(answer: Answer) -> Answer:
    """The answer; its advice, which a page keeps, gets the time and the load."""
    advice, today = answer.advice, answer.today
    load = {
        "offered_requests_per_second": answer.offered_requests_per_second,
        "capacity_requests_per_second": today and today.capacity_requests_per_second,
    }
    update = {**(load if advice.basis else {}), "at": answer.at}
    return answer.model_copy(update={"advice": advice.model_copy(update=update)})


def _one_line(text: str) -> str:
    return " ".join(text.split())[:200]


def peers_of(target: Target, targets: Mapping[TargetKey, Target]) -> tuple[TargetKey, ...]:
    """The other servers of its pool with the same model, among the first few by name."""
    if target.pool is None:
        return ()
    own = (target.pool, target.labels.get("model_name"))
    same_model = sorted(
        key for key, one in targets.items() if (one.pool, one.labels.get("model_name")) == own
    )
    return tuple(key for key in same_model[:MOST_SERVERS] if key != target.key)


def pool_size(targets: Mapping[TargetKey, Target], pool: str | None) -> int:
    """Number of a pool's servers, those that do not answer included."""
    return sum(one.pool == pool for one in targets.values())


def _shared(own: TargetKey, minutes: pl.DataFrame, at: datetime) -> dict[TargetKey, pl.DataFrame]:
    """Server → its minutes, for servers that share an answer: busiest first, slow ones last.

    Each of these servers gets the same frames. A server with another load gets its own alone.
    """
    frames = {
        TargetKey(*map(str, key)): after_last_slow(frame.sort("end"))
        for key, frame in minutes.partition_by(_KEY, as_dict=True, maintain_order=True).items()
    }
    loads = {key: load for key, frame in frames.items() if (load := _load(frame, at)) is not None}
    similar = _similar_loads(loads)
    if own not in similar:
        return {own: frames[own]} if own in frames else {}
    order = sorted(similar, key=lambda key: (is_slow(frames[key]), -loads[key][0], key))
    return {key: frames[key] for key in order}


def _load(frame: pl.DataFrame, at: datetime) -> tuple[float, float, float] | None:
    """Requests with a first token in the last ten minutes; prompt and generation tokens of each."""
    recent = frame.filter(pl.col("end") > at - RECENT).select(*_LOAD).drop_nulls()
    first, prompt, generation = recent.sum().row(0) if len(recent) else (0.0, 0.0, 0.0)
    if first <= 0:
        return None
    return float(first), float(prompt / first), float(generation / first)


def _similar_loads(loads: Mapping[TargetKey, Sequence[float]]) -> list[TargetKey]:
    """The servers with rate and lengths near the median; none if fewer than two."""
    if len(loads) < 2:
        return []
    middles = [sorted(values)[len(values) // 2] for values in zip(*loads.values(), strict=True)]
    similar = [
        key
        for key, values in loads.items()
        if all(m / _WITHIN <= v <= m * _WITHIN for v, m in zip(values, middles, strict=True))
    ]
    return similar if len(similar) > 1 else []
