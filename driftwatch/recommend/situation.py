"""What the answer to a question needs: window, demand, step times, draws, and a row a setting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from driftwatch.detect.speed.load import COMPLETE, LASTING, ONE_TOKEN, PREEMPTING, WHY_NOT, work_of
from driftwatch.errors import ImpossibleConfiguration, NoVerdict
from driftwatch.model import Slo
from driftwatch.numbers import times
from driftwatch.recommend.advice import Candidate, Compared, ModelCheck, Question, targets_of
from driftwatch.recommend.demand import Demand, hit_ratio, rebuild_demand
from driftwatch.recommend.forecast import (
    HORIZON_SECONDS,
    IMPOSSIBLE,
    Draw,
    Outlook,
    capacity,
    figures,
)
from driftwatch.recommend.log import demand_of_log
from driftwatch.recommend.server import Knobs, Settings, settings_of, with_knobs
from driftwatch.recommend.steps import StepTimes, prior_of, step_times, work_met
from driftwatch.recommend.window import Window, arrivals, rise, steady, undisturbed
from driftwatch.simulate.hardware import Hardware, shipped_hardware
from driftwatch.simulate.requests import NO_GROUP

DRAWS = 16
# times today's demand, in turn: the next hour's rate is within a fifth of the window's; where that
# still rises, the highest rises with it
DEMANDS = (1.0, 0.8, 1.0, 1.2)
_SWEEP = (0, 1, 3)  # draws that a sweep looks at: each demand once
_MOST_REQUESTS = 4000  # of a draw
_MOST_TOKENS = 3_000_000  # … of their prompts and generations: a simulation takes 10 to 50 ms
_FEWEST_DRAWN = 1000
_MOST_SWEPT = 1500  # requests of a draw of the sweep
_FEWEST_REQUESTS = 20
_FEWEST_MINUTES = 3
_MOST_OVERHEAD_SECONDS = 0.5
_CHECKED = 4  # draws at today's demand that the model check looks at
# a TTFT near capacity is a queue that any error of the rate makes another
NEAR_CAPACITY = 0.9
NEAR = "the load is above 90 % of capacity, where TTFT cannot be forecast"
GROWS = "the queue still grows when the simulation ends"


@dataclass(frozen=True, slots=True, eq=False)
class Situation:
    """All that an answer needs."""

    question: Question
    slo: Slo | None
    now: Window  # undisturbed minutes since rate and lengths are as they are
    demand: Demand
    settings: Settings
    step_times: StepTimes
    outlook: Outlook
    sweep: Outlook  # a few short draws
    notes: tuple[str, ...]

    @property
    def offered(self) -> float:
        """Requests a second of one replica."""
        return self.demand.requests_per_second

    @property
    def most(self) -> float:
        """The highest rate of one replica that is simulated, requests a second."""
        return self.offered * max(draw.demand for draw in self.outlook.draws)


class Insufficient(NoVerdict):
    """No situation can be made of a question; ``gate``: the check that failed."""

    def __init__(self, gate: str, message: str) -> None:
        super().__init__(message)
        self.gate = gate


def situation_of(question: Question, hardware: Hardware | None = None) -> Situation:
    """The situation of a question.

    Raises Insufficient: naming the check that failed; WorkloadError: the request log contradicts
    the metrics.
    """
    server, tables = question.server, hardware or shipped_hardware()
    slo, _ = targets_of(question)
    settings = settings_of(server)
    if settings is None:
        raise Insufficient("settings", "max_num_seqs unknown")
    if server.unsupported:
        runs = ", ".join(server.unsupported)
        raise Insufficient("unsupported", f"driftwatch does not simulate {runs}")
    try:
        window = undisturbed(question.minutes)
        now = steady(window)
        demands = _demands(question, now)
    except NoVerdict as error:
        raise Insufficient("traffic", error.message) from error
    _check_enough(now)
    _check_settings(now, settings)
    work = work_met(window, demands[0])
    prior = prior_of(server, window, demands[0], tables)
    models = step_times(work, prior, draws=DRAWS, seed=question.seed)
    if models is None:
        raise _no_step_times(window)
    draws = _draws(demands, settings, models, now, question.seed)
    change = partial(with_knobs, server=server, hardware=tables)
    return Situation(
        question,
        slo,
        now,
        demands[0],
        settings,
        models,
        Outlook(draws, slo, change),
        Outlook([_shorter(draws[number]) for number in _SWEEP], slo, change),
        (*now.notes, *settings.notes, *_hits_note(now), *_rise_note(draws)),
    )


def _demands(question: Question, now: Window) -> list[Demand]:
    """The server's own, then those of its peers."""
    server, seed = question.server, question.seed
    if question.log is not None:
        return [demand_of_log(question.log, now, server, seed)]
    demands = [rebuild_demand(now, server, seed)]
    for minutes in question.beside:
        try:
            demands.append(rebuild_demand(steady(undisturbed(minutes)), server, seed))
        except NoVerdict:
            continue
    return demands


def _check_enough(now: Window) -> None:
    came, since = float(arrivals(now).sum()), f" since {now.start:%H:%M} UTC"
    for gate, noun, count, least in (
        ("busy_windows", "minutes with requests", int((arrivals(now) > 0).sum()), _FEWEST_MINUTES),
        ("requests", "requests", round(came), _FEWEST_REQUESTS),
    ):
        if count < least:
            raise Insufficient(gate, f"needs {least} {noun}{since}, has {count:,}")


def _check_settings(now: Window, settings: Settings) -> None:
    """Settings that cannot be those of this server."""
    today, running = settings.configurations[0], now.mean("running_requests")
    if problems := today.problems():
        raise Insufficient("settings", f"it cannot run with these settings: {'; '.join(problems)}")
    if running is not None and running > today.max_num_seqs:
        text = f"{running:.3g} requests run at once: max_num_seqs is not {today.max_num_seqs}"
        raise Insufficient("settings", text)


def _no_step_times(window: Window) -> Insufficient:
    """The error, with what hides the step time in most minutes."""
    why = work_of(window.rows).filter(~pl.col("why").is_in([COMPLETE, PREEMPTING]))["why"]
    code = int(why.mode()[0]) if len(why) else COMPLETE
    text = f": {WHY_NOT[code].text}" if len(why) else ""
    gate = "step_time" if code in (*LASTING, ONE_TOKEN) else "busy_windows"
    return Insufficient(gate, f"fewer than {_FEWEST_MINUTES} minutes tell the time of a step{text}")


def _draws(
    demands: Sequence[Demand],
    settings: Settings,
    models: StepTimes,
    now: Window,
    seed: int,
) -> list[Draw]:
    draws, overhead, rises = [], _overhead(now), rise(now)
    likely = settings.configurations[len(settings.configurations) // 2]
    for number in range(DRAWS):
        rng = np.random.default_rng([seed, number])
        factor, demand = DEMANDS[number % len(DEMANDS)], demands[number % len(demands)]
        factor *= rises if factor > 1.0 else 1.0
        rate = max(factor * demand.requests_per_second, 1e-9)
        tokens = float((demand.prompt_tokens + demand.generation_tokens).mean())
        many = max(min(_MOST_REQUESTS, _MOST_TOKENS / tokens), _FEWEST_DRAWN)
        seconds = min(HORIZON_SECONDS, many / rate)
        every, requests = settings.configurations, demand.draw(rng, seconds, factor)
        today = every[number % len(every)] if number else likely
        if not (requests.cached_tokens > 0).any() and (requests.prefix_group == NO_GROUP).all():
            # nothing to hit but what a preempted request left: to follow it takes ten times as long
            today = replace(today, enable_prefix_caching=False)
        model = models.draws[number] if number else models.likeliest
        draws.append(Draw(requests, seconds, model, today, factor, overhead))
    return draws


def _shorter(draw: Draw) -> Draw:
    """Its first requests."""
    if len(draw.requests) <= _MOST_SWEPT:
        return draw
    until = float(draw.requests.arrival_seconds[_MOST_SWEPT])
    return replace(draw, requests=draw.requests.take(slice(_MOST_SWEPT)), seconds=until)


def _overhead(now: Window) -> float:
    """TTFT less queue and prefill: what passes in the API server."""
    parts = [
        now.ratio(name, count)
        for name, count in (
            ("ttft_seconds_sum", "ttft_seconds_count"),
            ("queue_seconds_sum", "queue_seconds_count"),
            ("prefill_seconds_sum", "e2e_seconds_count"),
        )
    ]
    waiting = now.mean("waiting_requests")
    if any(part is None for part in parts) or waiting is None or waiting >= 1.0:
        return 0.0
    ttft, queue, prefill = (part or 0.0 for part in parts)
    return float(np.clip(ttft - queue - prefill, 0.0, _MOST_OVERHEAD_SECONDS))


def _hits_note(now: Window) -> tuple[str, ...]:
    ratio = hit_ratio(now)
    if ratio is None:
        return ("prefix hits: not in /metrics, none assumed",)
    if ratio > 0:
        return ("prefix hits: as a share of each prompt, or whole prompts: both are tried",)
    return ()


def _rise_note(draws: Sequence[Draw]) -> tuple[str, ...]:
    most = max(draw.demand for draw in draws)
    if most <= max(DEMANDS):
        return ()
    return (f"the load still rises: up to {times(most)} of the window's mean is simulated",)


def model_check(draws: Sequence[Draw], window: Window) -> ModelCheck:
    """Whether today's settings, in some draws of today's demand, give what was observed."""
    seen = {
        "itl_seconds": window.ratio("itl_seconds_sum", "itl_seconds_count"),
        "running_requests": window.mean("running_requests"),
    }
    simulated = []
    for draw in [one for one in draws if one.demand == 1.0][:_CHECKED]:
        try:
            simulated.append(figures(draw, draw.configuration))
        except (ImpossibleConfiguration, NoVerdict):
            continue
    compared = {}
    for name, value in seen.items():
        values = [v for one in simulated if (v := one[name]) is not None]
        if value and values:
            compared[name] = Compared(value, min(values), max(values))
    return ModelCheck(compared)


def row_of(situation: Situation, knobs: Knobs, near: float | None = None) -> Candidate:
    """One configuration: its share in target over the draws, the rest by the likeliest.

    ``near``: where to begin to look for its capacity.
    """
    outlook = situation.outlook
    shares = outlook.shares(knobs)
    if shares.min() <= IMPOSSIBLE:
        return Candidate(knobs, refused="requests of this window never fit the KV cache then")
    draw = outlook.draws[0]
    configuration = outlook.with_knobs(draw.configuration, knobs)
    try:
        seen: dict[str, Any] = figures(draw, configuration)
    except (ImpossibleConfiguration, NoVerdict) as error:
        return Candidate(knobs, refused=str(error))
    keeps_up = seen.pop("keeps_up")
    reasons: dict[str, str] = {}
    limit = capacity(draw, configuration, outlook.slo, near)
    if seen["kv_cache_peak_ratio"] is None:
        reasons |= {"kv_cache_peak_ratio": "KV block count unknown", "kv_blocks": "not on the page"}
    why = None
    if limit is not None and situation.offered >= NEAR_CAPACITY * limit:
        why = NEAR
    elif not keeps_up:
        why = GROWS
    if why is not None:
        reasons |= {"ttft_seconds": why, "ttft_p95_seconds": why}
        seen |= {"ttft_seconds": None, "ttft_p95_seconds": None}
    ordered = sorted(shares)
    edge = len(ordered) // 10
    return Candidate(
        knobs,
        in_target_ratio=float(shares.mean()),
        in_target_low_ratio=float(ordered[edge]),
        in_target_high_ratio=float(ordered[-1 - edge]),
        capacity_requests_per_second=limit,
        kv_blocks=configuration.num_gpu_blocks,
        reasons=reasons,
        **seen,
    )
