"""``driftwatch simulate`` and ``compare``: requests on vLLM's scheduler, and ways of batching."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from driftwatch.cli.engine_options import (
    COUNT,
    RATE,
    EngineSetup,
    engine_of,
    lab_command,
    mix_of,
)
from driftwatch.cli.main import EXIT_NO_VERDICT
from driftwatch.cli.options import option
from driftwatch.cli.printer import UNKNOWN, Progress, number, print_answer
from driftwatch.errors import ImpossibleConfiguration, UsageError
from driftwatch.lab import loads as lab
from driftwatch.lab.batchers import (
    BATCH_SIZE,
    CONTINUOUS,
    MAX_WAIT_SECONDS,
    POLICIES,
    PREFILL_SHARE_RATIO,
    batch_seconds,
    serve,
)
from driftwatch.lab.loads import STEADY_PART, Point
from driftwatch.lab.run_summary import RunSummary, summarize
from driftwatch.numbers import figure, milliseconds, percent, rate
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.demand import paced
from driftwatch.simulate.requests import Requests, make_requests
from driftwatch.simulate.step_time import StepTime
from driftwatch.simulate.trial import check_fit, simulate

_DRAWN = 2_000  # requests, where no file has them
_MOST_REQUESTS = 2_000_000  # about 1 KB each
_TIMES = {
    "ttft_seconds": "TTFT",
    "itl_seconds": "ITL, a request's mean",
    "e2e_seconds": "end to end",
    "queue_seconds": "queue",
}
_CELLS = ("p50", "p90", "p99", "mean", "max")
_FEW = "too few requests for this quantile, p50 needs 2, p90 10, p99 100"
_LIMITS = {
    "max_num_seqs": "max_num_seqs",
    "max_num_batched_tokens": "the token budget",
    "kv_cache": "KV blocks",
    "other": "something else",
}


@lab_command(
    "simulate",
    option("--rate", RATE, "Without --requests: requests a second, Poisson."),
    option("--concurrency", COUNT, "Closed loop: so many clients, times of arrival are not used."),
)
def simulate_command(
    rate: float | None, concurrency: int | None, as_json: bool, **flags: Any
) -> int:
    """Simulate requests on vLLM's scheduler: a log, or 2,000 that are drawn.

    How long each waits, what the batch is, which limit held requests back. Exit code 4: no request
    finished.
    """
    file = flags["file"]
    if file is not None and rate is not None:
        raise UsageError(
            "--requests and --rate exclude each other", help_text="leave out one of them"
        )
    engine = engine_of(flags)
    if file is None and rate is None and concurrency is None:
        raise UsageError(
            "no requests are given", help_text="give --requests FILE, or --rate, or --concurrency"
        )
    requests, unused = mix_of(flags, None if file else _DRAWN)
    if len(requests) > _MOST_REQUESTS:
        raise UsageError(
            f"{len(requests):,} requests; at most {_MOST_REQUESTS:,} are simulated",
            help_text="give a shorter file",
        )
    requests = _arrivals(requests, rate, at_once=concurrency is not None)
    summary = _run(requests, engine, concurrency)
    finished = bool(summary.requests["finished"])
    document = {
        "requests_file": None if file is None else str(file),
        "configuration": asdict(engine.configuration),
        "kv_cache_binds": engine.configuration.num_gpu_blocks is not None,
        "step_time": asdict(engine.step_time),
        **asdict(summary),
        "latency_reason": f"null: {_FEW}" if finished else "no request finished",
    }
    table = (
        ("latency, s", *_CELLS),
        [_latency_row(label, summary.latency[name]) for name, label in _TIMES.items()],
    )
    notes = (*engine.notes, *unused)
    print_answer(as_json, _run_line(summary), table, _run_details(summary), document, notes)
    return 0 if finished else EXIT_NO_VERDICT


def _arrivals(requests: Requests, rate: float | None, *, at_once: bool) -> Requests:
    """The requests at the times that are asked for; how long a client waits is its own."""
    patience = requests.cancel_seconds - requests.arrival_seconds
    if at_once:
        arrival = np.zeros(len(requests))
    elif rate is not None:
        arrival = paced(requests, rate, np.random.default_rng((0, 1))).arrival_seconds
    else:
        arrival = requests.arrival_seconds
    return replace(requests, arrival_seconds=arrival, cancel_seconds=arrival + patience)


def _run(requests: Requests, engine: EngineSetup, concurrency: int | None) -> RunSummary:
    try:
        check_fit(requests, engine.configuration)
    except ImpossibleConfiguration as error:
        raise ImpossibleConfiguration(
            error.problems, help_text="raise the limit that is named, or leave these requests out"
        ) from error
    progress = Progress("simulating")
    ran = simulate(
        requests,
        engine.configuration,
        engine.step_time,
        concurrency=concurrency,
        per_step=True,
    )
    progress.close()
    return summarize(ran, requests, engine.configuration)


def _run_line(summary: RunSummary) -> str:
    total, finished = sum(summary.requests.values()), summary.requests["finished"]
    ttft, e2e = summary.latency["ttft_seconds"], summary.latency["e2e_seconds"]
    if ttft is None or e2e is None:
        return f"NO VERDICT: of {total:,} requests none finished."
    waited = max(summary.waited_busy_time_ratio, key=summary.waited_busy_time_ratio.__getitem__)
    held = "no limit held requests back"
    if (share := summary.waited_busy_time_ratio[waited]) > 0:
        held = f"requests waited for {_LIMITS[waited]} {percent(share)} of the step time"
    return (
        f"{finished:,} of {total:,} requests finished, mean TTFT "
        f"{milliseconds(ttft['mean'] or 0)}, end to end {milliseconds(e2e['mean'] or 0)}, "
        f"{number(summary.throughput['generation_tokens_per_second'])} generated tokens/s: {held}."
    )


def _latency_row(label: str, latency: Mapping[str, float | None] | None) -> tuple[str, ...]:
    if latency is None:
        return (label, *("no request" for _ in _CELLS))
    values = (latency[cell] for cell in _CELLS)
    return (label, *(number(None if value is None else round(value, 9)) for value in values))


def _run_details(summary: RunSummary) -> Iterator[str]:
    if any(None in one.values() for one in summary.latency.values() if one is not None):
        yield f"-: {_FEW}."
    throughput, batch = summary.throughput, summary.batch
    ended = (f"{n:,} {name.replace('_', ' ')}" for name, n in summary.requests.items() if n)
    yield (
        f"{', '.join(ended)}; {number(throughput['prompt_tokens_per_second'])} prompt tokens/s, "
        f"{number(throughput['requests_per_second'])} requests/s over "
        f"{number(throughput['span_seconds'])} s."
    )
    yield (
        f"{int(batch['steps'] or 0):,} steps, {number(batch['decode_seqs_per_step'])} decoding "
        f"requests and {number(batch['tokens_per_step'])} tokens a step, busy "
        f"{percent(min(1.0, batch['busy_ratio'] or 0.0))} of the time, "
        f"{summary.preemptions:,} preemptions."
    )
    if held := {name: share for name, share in summary.waited_busy_time_ratio.items() if share}:
        shares = ", ".join(f"{_LIMITS[name]} {percent(share)}" for name, share in held.items())
        yield f"Share of the step time in which requests waited for a limit: {shares}."


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
    # the largest rate within the limit, in requests/s; None = no rate
    knees: Mapping[str, float | None]


@lab_command(
    "compare",
)
def compare_command(as_json: bool, **flags: Any) -> int:
    """Compare ways of batching: static, dynamic, continuous, hybrid.

    The same 4,000 requests with Poisson arrivals at eight rates, one step-time model. Within
    target: a p99 end to end of at most three times that of requests served alone. Exit code 4: no
    policy keeps up at any rate.
    """
    mix, notes = mix_of(flags, None if flags["file"] else _MIX_SIZE)
    if flags["file"] is not None:
        mix = make_requests(np.zeros(len(mix)), mix.prompt_tokens, mix.generation_tokens)
        notes.append("only the lengths of the file are compared")
    engine = engine_of(flags)
    found = _compare(engine.configuration, mix, engine.step_time)
    document = {
        "prompt_tokens_mean": float(mix.prompt_tokens.mean()),
        "generation_tokens_mean": float(mix.generation_tokens.mean()),
        "step_time": asdict(engine.step_time),
        "settings": {
            "configuration": asdict(engine.configuration),
            "batch_size": BATCH_SIZE,
            "max_wait_seconds": MAX_WAIT_SECONDS,
            "prefill_share_ratio": PREFILL_SHARE_RATIO,
        },
        "steady_part": STEADY_PART,
        "limit_e2e_p99_seconds": found.limit_seconds,
        "policies": {
            name: {
                "capacity_requests_per_second": found.capacities[name],
                "holds_at_requests_per_second": found.knees[name],
                "points": [asdict(one) for one in points],
            }
            for name, points in found.points.items()
        },
    }
    every = [one for points in found.points.values() for one in points]
    table = (_HEADER, [_row(one) for one in every])
    notes += engine.notes
    print_answer(as_json, _line(found), table, _details(found), document, notes)
    return 0 if any(one.keeps_up for one in every) else EXIT_NO_VERDICT


def _compare(
    configuration: SchedulerConfiguration, mix: Requests, step_time: StepTime
) -> Comparison:
    capacities = {name: lab.capacity(name, configuration, mix, step_time) for name in POLICIES}
    lengths = zip(mix.prompt_tokens.tolist(), mix.generation_tokens.tolist(), strict=True)
    alone = [batch_seconds(step_time, 1, *one) for one in lengths]  # on an empty server
    limit_seconds = _LIMIT_FACTOR * float(np.quantile(alone, 0.99))
    every, points = mix.at(np.zeros(_AT_EACH_RATE)), dict[str, list[Point]]()
    progress = Progress("comparing")
    for done, name in enumerate(POLICIES):
        progress(done, len(POLICIES))
        points[name] = []
        for offered in lab.ladder(capacities[CONTINUOUS] or 1.0):
            sent = paced(every, offered, np.random.default_rng(0))
            points[name].append(
                lab.steady(name, offered, serve(name, sent, step_time, configuration))
            )
    progress.close()
    knees = {name: lab.knee(of_it, limit_seconds) for name, of_it in points.items()}
    return Comparison(limit_seconds, points, capacities, knees)


def _line(found: Comparison) -> str:
    """Where each policy's knee is."""
    limit = f"a p99 of {figure(found.limit_seconds)} s"
    by_rate: dict[float, list[str]] = {}
    for name, knee in sorted(found.knees.items(), key=lambda one: -(one[1] or 0.0)):
        by_rate.setdefault(knee or 0.0, []).append(name)
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
