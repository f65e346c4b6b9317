"""``driftwatch simulate compare``: ways of batching, the same steps and requests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from driftwatch.cli.answer import UNKNOWN, Answer, check_plot, number, publish, together
from driftwatch.cli.engine_options import (
    OUTPUT,
    engine_from,
    engine_options,
    lengths_options,
    mix_of,
    option,
    with_all,
)
from driftwatch.cli.finite import Finite, Numbers
from driftwatch.errors import UsageError
from driftwatch.notify.numbers import figure, percent

if TYPE_CHECKING:
    from driftwatch.lab.batchers import Settings
    from driftwatch.lab.comparison import Knee, Mix, Point
    from driftwatch.plots.plot import Plot
    from driftwatch.simulate.step_time import StepTime

_EXIT_NO_VERDICT = 4
_MOST_REQUESTS = 2_000_000
_MIX_SIZE = 10_000  # lengths drawn; repeated where more are needed
_LIMIT_FACTOR = 3.0  # default limit: so many times the p99 of requests served alone
_ABOVE_0 = Finite(min=0, min_open=True, max=1e9)
_HEADER = (*("policy", "load", "req/s", "p50 s", "p99 s", "TTFT p99", "efficiency", "padding", ""),)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Policies over rates."""

    rates: tuple[float, ...]  # requests per second, rising
    limit_seconds: float  # on the p99 end-to-end time
    points: tuple[Point, ...]  # one a policy and rate
    capacities: Mapping[str, float | None]  # requests/s while there is always more to do
    knees: Mapping[str, Knee]

    def points_of(self, policy: str) -> list[Point]:
        """Its points, by rate."""
        return [one for one in self.points if one.policy == policy]


@click.command("compare")
@lengths_options(128, "Take the lengths of this request log, in its order, not its times.", cv=1.0)
@option(
    "--rates",
    Numbers(float, 1e-6, 1e6),
    "Requests per second (default: eight, up to a little above what continuous batching can do).",
)
@option(
    "--duration-seconds",
    _ABOVE_0,
    "Arrivals last so long, and longer where that is under 2,000 requests.",
    default=120.0,
)
@option(
    "--batch-size",
    click.IntRange(1, 100_000),
    "Batch size of static and dynamic batching.",
    default=32,
)
@option(
    "--max-wait-seconds",
    Finite(0, 1e9),
    "Dynamic: a batch starts once its oldest waited so long.",
    default=0.05,
)
@option(
    "--buckets bucket_tokens",
    Numbers(int, 1, 1e7),
    "Static and dynamic: pad prompts to these lengths, a batch from one bucket.",
)
@option(
    "--prefill-share prefill_share_ratio",
    Finite(0, 1, min_open=True, max_open=True),
    "Hybrid: share of the time for prompts while answers wait too.",
    default=0.8,
)
@option(
    "--slo-p99-seconds",
    _ABOVE_0,
    f"Limit on the p99 end-to-end time (default: {_LIMIT_FACTOR:g} times that of requests served "
    "alone).",
)
@with_all(OUTPUT)
@engine_options
def command(
    prompt_tokens: float,
    generation_tokens: float,
    length_cv: float,
    file: Path | None,
    seed: int,
    rates: tuple[float, ...] | None,
    duration_seconds: float,
    batch_size: int,
    max_wait_seconds: float,
    bucket_tokens: tuple[int, ...] | None,
    prefill_share_ratio: float,
    slo_p99_seconds: float | None,
    plot: Path | None,
    as_json: bool,
    **engine: Any,
) -> None:
    """Compare ways of batching: static, dynamic, continuous, hybrid.

    The same requests with Poisson arrivals at each of --rates, one step-time model. Exit code 4: no
    policy keeps up at any rate.
    """
    from driftwatch.lab.batchers import Settings
    from driftwatch.lab.comparison import DEFINITION

    check_plot(plot)
    mix, unused = _mix(file, (prompt_tokens, generation_tokens), length_cv, seed)
    server = engine_from(**engine)
    settings = Settings(
        server.configuration,
        batch_size,
        max_wait_seconds,
        bucket_tokens or (),
        prefill_share_ratio,
    )
    try:
        compared = _compare(
            settings, mix, server.step_time, rates, duration_seconds, slo_p99_seconds
        )
    except ValueError as error:  # what the simulator calls impossible is a wrong command line here
        raise UsageError(
            str(error), help_text="driftwatch simulate compare --help lists what each option takes"
        ) from error
    document = {
        "requests_in_mix": len(mix.prompt_tokens),
        "prompt_tokens_mean": float(mix.prompt_tokens.mean()),
        "generation_tokens_mean": float(mix.generation_tokens.mean()),
        "seed": seed,
        "step_time": asdict(server.step_time),
        "settings": asdict(settings),
        "steady_part": DEFINITION,
        "limit_e2e_p99_seconds": compared.limit_seconds,
        "policies": {
            name: {
                "capacity_requests_per_second": capacity,
                "knee": asdict(compared.knees[name]),
                "points": [_point(one) for one in compared.points_of(name)],
            }
            for name, capacity in compared.capacities.items()
        },
    }
    answer = Answer(
        _line(compared),
        _HEADER,
        [_row(one) for one in compared.points],
        list(_details(compared)),
        document,
        (*unused, *server.notes),
        lambda: _plots(compared),
    )
    publish(answer, as_json=as_json, plot=plot)
    if not any(one.steady.keeps_up for one in compared.points):
        click.get_current_context().exit(_EXIT_NO_VERDICT)


def _mix(
    file: Path | None, means: tuple[float, float], cv: float, seed: int
) -> tuple[Mix, tuple[str, ...]]:
    """The lengths that are served at every rate, and what of their file is not used."""
    import numpy as np

    from driftwatch.lab.comparison import Mix, lognormal_lengths

    if file is None:
        prompts, generations = (
            lognormal_lengths(mean, cv, _MIX_SIZE, (seed, stream))
            for stream, mean in enumerate(means, 3)
        )
        return Mix(prompts, generations, seed), ()
    requests, notes = mix_of(file, means, cv, seed, None)
    columns = {
        "prefixes": (requests.shared_prefix_tokens > 0) | (requests.cached_tokens > 0),
        "priorities": requests.priority != 0,
        "cancellations": np.isfinite(requests.cancel_seconds),
        "adapters": requests.adapter >= 0,
    }
    if dropped := [name for name, there in columns.items() if there.any()]:
        notes = (*notes, f"only lengths are compared: {', '.join(dropped)} of the file not used")
    return Mix(requests.prompt_tokens, requests.generation_tokens, seed), notes


def _compare(
    settings: Settings,
    mix: Mix,
    step_time: StepTime,
    rates: tuple[float, ...] | None,
    duration_seconds: float,
    limit_seconds: float | None,
) -> Comparison:
    import numpy as np

    from driftwatch.cli.options import Progress
    from driftwatch.lab import comparison as lab
    from driftwatch.lab.batchers import CONTINUOUS, POLICIES

    capacities = {name: lab.capacity(name, settings, mix, step_time) for name in POLICIES}
    if rates is None:
        if (top := capacities[CONTINUOUS]) is None:
            raise UsageError(
                "all requests end at one time: no capacity to choose --rates from",
                help_text="--rates 5,10,20",
            )
        rates = lab.ladder(top)
    if (count := rates[-1] * duration_seconds) > _MOST_REQUESTS:
        raise UsageError(
            f"{rates[-1]:g} requests/s for {duration_seconds:g} s are {count:,.0f} requests; at "
            f"most {_MOST_REQUESTS:,} are simulated",
            help_text="give a smaller --duration-seconds",
        )
    if limit_seconds is None:
        alone = lab.alone_seconds(mix.at(np.zeros(len(mix.prompt_tokens))), step_time)
        limit_seconds = _LIMIT_FACTOR * float(np.quantile(alone, 0.99))
    progress, points = Progress("comparing"), []
    for name in POLICIES:
        for rate in rates:
            how = {"seconds": duration_seconds, "limit_seconds": limit_seconds}
            points.append(lab.measure(name, settings, mix, step_time, rate, **how))
            progress(len(points), len(POLICIES) * len(rates))
    progress.close()
    knees = {
        name: lab.knee([one for one in points if one.policy == name], limit_seconds)
        for name in POLICIES
    }
    return Comparison(rates, limit_seconds, tuple(points), capacities, knees)


def _point(one: Point) -> dict[str, Any]:
    row = asdict(one)
    return {**{k: v for k, v in row.items() if k not in ("policy", "steady")}, **row["steady"]}


def _line(compared: Comparison) -> str:
    """Where each policy's knee is."""
    limit = f"a p99 of {figure(compared.limit_seconds)} s"
    by_rate = _grouped((knee.holds_at or 0.0, name) for name, knee in compared.knees.items())
    parts = [f"{together(by_rate[rate])} up to {rate:g} req/s" for rate in sorted(by_rate) if rate]
    if not parts:
        return f"No way of batching keeps up with {limit} at these rates."
    none = [f"{together(by_rate[0.0])} at no rate"] if 0.0 in by_rate else []
    return f"Within {limit}: {', '.join([*reversed(parts), *none])}."


def _grouped(pairs: Iterable[tuple[Any, str]]) -> dict[Any, list[str]]:
    groups: dict[Any, list[str]] = {}
    for key, name in pairs:
        groups.setdefault(key, []).append(name)
    return groups


def _row(one: Point) -> tuple[str, ...]:
    steady, padding = one.steady, one.prompt_padding_waste_ratio
    return (
        one.policy,
        f"{one.requests_per_second:g}",
        number(steady.throughput_requests_per_second),
        number(steady.e2e.p50),
        number(steady.e2e.p99),
        number(steady.ttft.p99),
        number(one.batch_efficiency_ratio),
        UNKNOWN if padding is None else percent(padding),
        "" if steady.keeps_up else "behind",
    )


def _details(compared: Comparison) -> Iterator[str]:
    from driftwatch.lab.comparison import DEFINITION, best

    yield (
        "load: arriving req/s. efficiency: generated tokens, over batch size times longest "
        "generation of the batch. padding: share of the prompt tokens computed. Neither is defined "
        "where no request waits for the longest of its batch. vLLM pads nothing."
    )
    yield f"{DEFINITION[0].upper()}{DEFINITION[1:]}"
    known = {name: rate for name, rate in compared.capacities.items() if rate is not None}
    lowest = min(known.values(), default=0.0)
    capacities = [
        f"{name} {figure(rate)} req/s" + (f" ({figure(rate / lowest)}×)" if rate > lowest else "")
        for name, rate in known.items()
    ]
    if capacities:
        yield (
            "Capacity (throughput while the queue never empties, each a run of its own): "
            f"{', '.join(capacities)}."
        )
    for name, knee in compared.knees.items():
        if knee.reason:
            yield f"{name}{f' at {knee.fails_at:g} req/s' if knee.fails_at else ''}: {knee.reason}."
        if rejected := sum(one.steady.rejected_requests for one in compared.points_of(name)):
            yield f"{name}: {rejected:,} requests rejected."
    lowest_by = _grouped((names, f"{rate:g}") for rate, names in best(compared.points))
    for names, rates in lowest_by.items():
        yield f"Lowest p99 at {together(rates)} req/s: {together(names) or 'none keeps up'}."


def _plots(compared: Comparison) -> Sequence[Plot]:
    from driftwatch.plots.plot import Series, plot
    from driftwatch.plots.scales import Axis

    def drawn(title: str, unit: str, value: Any, limit: Sequence[Series] = ()) -> Plot:
        lines = [
            Series(
                "line",
                name,
                compared.rates,
                [value(one.steady) for one in compared.points_of(name)],
                colour=colour,
            )
            for colour, name in enumerate(compared.knees)
        ]
        is_log = unit != "req/s"
        x = Axis("arriving requests per second")
        return plot(title, [*lines, *limit], x, Axis(unit, is_log=is_log))

    limit = Series("level", "limit", y=[compared.limit_seconds], colour=4)
    return (
        drawn("Throughput", "req/s", lambda s: s.throughput_requests_per_second),
        drawn("End to end, p99", "seconds, log scale", lambda s: s.e2e.p99, [limit]),
        drawn("To first token, p99", "seconds, log scale", lambda s: s.ttft.p99),
    )
