"""``driftwatch simulate``: requests through vLLM's scheduler; what would each have waited?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from driftwatch.cli.engine_options import (
    COUNT,
    RATE,
    EngineSetup,
    engine_of,
    lab_command,
    mix_of,
    option,
)
from driftwatch.cli.printer import Progress, number, print_answer
from driftwatch.errors import ImpossibleConfiguration, UsageError
from driftwatch.lab.run_summary import RunSummary, summarize
from driftwatch.numbers import milliseconds, percent
from driftwatch.simulate.demand import paced
from driftwatch.simulate.requests import Requests
from driftwatch.simulate.trial import check_fit, simulate

_EXIT_NO_VERDICT = 4
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
    "max_loras": "the cap on adapters",
    "other": "something else",
}


@lab_command(
    "simulate",
    option("--rate", RATE, "Without --requests: requests a second, Poisson."),
    option("--concurrency", COUNT, "Closed loop: so many clients, times of arrival are not used."),
    generation_tokens=128,
)
def command(rate: float | None, concurrency: int | None, as_json: bool, **flags: Any) -> int:
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
            "which requests?", help_text="give --requests FILE, or --rate, or --concurrency"
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
        [_row(label, summary.latency[name]) for name, label in _TIMES.items()],
    )
    notes = (*engine.notes, *unused)
    print_answer(as_json, _line(summary), table, _details(summary), document, notes)
    return 0 if finished else _EXIT_NO_VERDICT


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


def _line(summary: RunSummary) -> str:
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


def _row(label: str, latency: Mapping[str, float | None] | None) -> tuple[str, ...]:
    if latency is None:
        return (label, *("no request" for _ in _CELLS))
    values = (latency[cell] for cell in _CELLS)
    return (label, *(number(None if value is None else round(value, 9)) for value in values))


def _details(summary: RunSummary) -> Iterator[str]:
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
