"""``driftwatch compare``: ways of batching, the same steps and requests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import click
import numpy as np

from driftwatch.cli.engine_options import Numbers, engine_of, lab_command, mix_of, option
from driftwatch.cli.printer import UNKNOWN, Progress, number, print_answer
from driftwatch.lab import loads as lab
from driftwatch.lab.batchers import CONTINUOUS, POLICIES, Settings, serve
from driftwatch.lab.loads import STEADY_PART, Knee, Point
from driftwatch.numbers import figure, percent, rate
from driftwatch.simulate.demand import paced
from driftwatch.simulate.requests import Requests, make_requests
from driftwatch.simulate.step_time import StepTime

_EXIT_NO_VERDICT = 4
_AT_EACH_RATE = 4000  # requests: 2,800 in the steady part, 28 of them above its p99
_MIX_SIZE = 10_000  # lengths drawn; repeated where more are needed
_LIMIT_FACTOR = 3.0  # the limit: so many times the p99 of requests served alone
_HEADER = ("policy", "load", "req/s", "p50 s", "p99 s", "TTFT p99 s", "efficiency", "padding", "")


@dataclass(frozen=True, slots=True)
class Comparison:
    """Policies over rates."""

    limit_seconds: float  # on the p99 end-to-end time
    points: Mapping[str, Sequence[Point]]  # policy → one a rate
    capacities: Mapping[str, float | None]  # requests/s while there is always more to do
    knees: Mapping[str, Knee]


@lab_command(
    "compare",
    option("--rates", Numbers(float, 1e-6, 1e6), "Requests per second (default: eight)."),
    option("--batch-size", click.IntRange(1, 100_000), "Of static and dynamic.", default=32),
    generation_tokens=128,
)
def command(rates: tuple[float, ...] | None, batch_size: int, as_json: bool, **flags: Any) -> int:
    """Compare ways of batching: static, dynamic, continuous, hybrid.

    The same 4,000 requests with Poisson arrivals at each of --rates, one step-time model. Within
    target: a p99 end to end of at most three times that of requests served alone. Exit code 4: no
    policy keeps up at any rate.
    """
    mix, notes = mix_of(flags, None if flags["file"] else _MIX_SIZE)
    if flags["file"] is not None:
        mix = make_requests(np.zeros(len(mix)), mix.prompt_tokens, mix.generation_tokens)
        notes.append("only the lengths of the file are compared")
    engine = engine_of(flags)
    settings = Settings(engine.configuration, batch_size)
    found = _compare(settings, mix, engine.step_time, rates)
    document = {
        "prompt_tokens_mean": float(mix.prompt_tokens.mean()),
        "generation_tokens_mean": float(mix.generation_tokens.mean()),
        "step_time": asdict(engine.step_time),
        "settings": asdict(settings),
        "steady_part": STEADY_PART,
        "limit_e2e_p99_seconds": found.limit_seconds,
        "policies": {
            name: {
                "capacity_requests_per_second": found.capacities[name],
                "knee": asdict(found.knees[name]),
                "points": [asdict(one) for one in points],
            }
            for name, points in found.points.items()
        },
    }
    every = [one for points in found.points.values() for one in points]
    table = (_HEADER, [_row(one) for one in every])
    notes += engine.notes
    print_answer(as_json, _line(found), table, _details(found), document, notes)
    return 0 if any(one.keeps_up for one in every) else _EXIT_NO_VERDICT


def _compare(
    settings: Settings, mix: Requests, step_time: StepTime, rates: tuple[float, ...] | None
) -> Comparison:
    capacities = {name: lab.capacity(name, settings, mix, step_time) for name in POLICIES}
    limit_seconds = _LIMIT_FACTOR * float(np.quantile(lab.alone_seconds(mix, step_time), 0.99))
    every, points = mix.at(np.zeros(_AT_EACH_RATE)), dict[str, list[Point]]()
    progress = Progress("comparing")
    for done, name in enumerate(POLICIES):
        progress(done, len(POLICIES))
        points[name] = []
        for offered in rates or lab.ladder(capacities[CONTINUOUS] or 1.0):
            sent = paced(every, offered, np.random.default_rng(0))
            served = serve(name, sent, step_time, settings)
            points[name].append(lab.steady(name, offered, served, settings.leave_together(name)))
    progress.close()
    knees = {name: lab.knee(of_it, limit_seconds) for name, of_it in points.items()}
    return Comparison(limit_seconds, points, capacities, knees)


def _line(found: Comparison) -> str:
    """Where each policy's knee is."""
    limit = f"a p99 of {figure(found.limit_seconds)} s"
    by_rate: dict[float, list[str]] = {}
    for name, knee in sorted(found.knees.items(), key=lambda one: -(one[1].holds_at or 0.0)):
        by_rate.setdefault(knee.holds_at or 0.0, []).append(name)
    none = by_rate.pop(0.0, [])
    if not by_rate:
        return f"No way of batching keeps up with {limit} at these rates."
    parts = [f"{' and '.join(names)} up to {top:g} req/s" for top, names in by_rate.items()]
    parts += [f"{' and '.join(none)} at no rate"] if none else []
    return f"Within {limit}: {', '.join(parts)}."


def _row(one: Point) -> tuple[str, ...]:
    padding = one.prompt_padding_waste_ratio
    return (
        one.policy,
        f"{one.requests_per_second:g}",
        number(one.figures.requests_per_second),
        number(one.figures.e2e_seconds_p50),
        number(one.figures.e2e_seconds_p99),
        number(one.figures.ttft_seconds_p99),
        number(one.batch_efficiency_ratio),
        UNKNOWN if padding is None else percent(padding),
        "" if one.keeps_up else "behind",
    )


def _details(found: Comparison) -> Iterator[str]:
    yield (
        "load: arriving req/s. efficiency: generated tokens, over batch size times longest "
        "generation of the batch. padding: share of the prompt tokens computed. Neither is defined "
        "where no request waits for the longest of its batch. vLLM pads nothing."
    )
    yield f"{STEADY_PART[0].upper()}{STEADY_PART[1:]}"
    known = [f"{name} {rate(limit)}" for name, limit in found.capacities.items() if limit]
    if known:
        yield f"Capacity (throughput while the queue never empties): {', '.join(known)}."
    for name, knee in found.knees.items():
        if knee.reason:
            yield f"{name}{f' at {knee.fails_at:g} req/s' if knee.fails_at else ''}: {knee.reason}."
