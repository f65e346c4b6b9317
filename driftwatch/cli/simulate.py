"""``driftwatch simulate``: requests through vLLM's scheduler; what would each have waited?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from driftwatch.cli.answer import Answer, check_plot, number, publish, seconds
from driftwatch.cli.engine_options import (
    OUTPUT,
    engine_from,
    engine_options,
    lengths_options,
    mix_of,
    option,
    typed_flags,
    with_all,
)
from driftwatch.cli.finite import COUNT, RATE, SECONDS, Finite
from driftwatch.cli.lazy import LazyGroup
from driftwatch.errors import ImpossibleConfiguration, UsageError
from driftwatch.notify.numbers import figure, percent

if TYPE_CHECKING:
    from driftwatch.plots.plot import Plot
    from driftwatch.simulate.configuration import SchedulerConfiguration
    from driftwatch.simulate.outcome import Outcome
    from driftwatch.simulate.requests import Requests
    from driftwatch.simulate.run_summary import RunSummary

_EXIT_ANSWERED, _EXIT_NO_VERDICT = 0, 4
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


@click.command(
    "simulate",
    cls=LazyGroup,
    modules={"compare": "driftwatch.cli.compare"},
    invoke_without_command=True,
)
@lengths_options(
    128,
    "Request log (JSONL, CSV, Parquet, also gzipped: arrival_seconds, prompt_tokens, "
    "generation_tokens), or an Azure or Mooncake trace.",
)
@option("--rate", RATE, "Without --requests: requests a second, Poisson.")
@option("--limit", COUNT, f"Requests, at most (default: all of a file, else {_DRAWN:,}).")
@option(
    "--arrival-scale",
    Finite(min=0, min_open=True, max=1e6),
    "Factor on the times of arrival; patience (cancel_seconds) stays as long.",
    default=1.0,
)
@option(
    "--concurrency",
    COUNT,
    "Closed loop from time 0: so many clients, each sends its next request when one is "
    "answered; times of arrival are not used.",
)
@option("--timeout-seconds", SECONDS, "How long after its arrival a client gives up.")
@with_all(OUTPUT)
@engine_options
@click.pass_context
def command(
    context: click.Context,
    /,
    prompt_tokens: float,
    generation_tokens: float,
    length_cv: float,
    file: Path | None,
    seed: int,
    rate: float | None,
    limit: int | None,
    arrival_scale: float,
    concurrency: int | None,
    timeout_seconds: float | None,
    plot: Path | None,
    as_json: bool,
    **engine: Any,
) -> int | None:
    """Simulate requests on vLLM's scheduler, or compare ways of batching.

    How long each waits, what the batch is, which limit held requests back. Exit code 4: no request
    finished.
    """
    if context.invoked_subcommand is not None:
        if typed := typed_flags(context):
            after = context.invoked_subcommand
            raise UsageError(
                f"{', '.join(typed.values())}: given before {after}",
                help_text=f"write it after {after}, if it belongs there",
            )
        return None
    check_plot(plot)
    if file is not None and rate is not None:
        raise UsageError(
            "--requests and --rate exclude each other",
            help_text="--arrival-scale changes the rate of a file",
        )
    if file is None and rate is None and concurrency is None:
        raise UsageError(
            "which requests?", help_text="give --requests FILE, or --rate, or --concurrency"
        )
    server = engine_from(**engine)
    count = limit if file else limit or _DRAWN
    requests, unused = mix_of(file, (prompt_tokens, generation_tokens), length_cv, seed, count)
    if len(requests) > _MOST_REQUESTS:
        raise UsageError(
            f"{len(requests):,} requests; at most {_MOST_REQUESTS:,} are simulated",
            help_text=f"--limit {_MOST_REQUESTS}",
        )
    requests = _arrivals(requests, rate, seed, arrival_scale, at_once=concurrency is not None)
    outcome, summary = _run(
        requests, server.configuration, server.step_time, concurrency, timeout_seconds
    )
    document: dict[str, Any] = {
        "requests_file": None if file is None else str(file),
        "configuration": asdict(server.configuration),
        "kv_cache_binds": server.configuration.num_gpu_blocks is not None,
        "step_time": asdict(server.step_time),
        **summary.as_json(),
    }
    known = [one for one in summary.latency.values() if one is not None]
    if not summary.statuses["finished"]:
        document["latency_reason"] = "no request finished"
    elif any(None in one.values() for one in known):
        document["latency_reason"] = f"null: {_FEW}"
    answer = Answer(
        _line(summary),
        ("latency, s", *_CELLS),
        [_row(label, summary.latency[name]) for name, label in _TIMES.items()],
        list(_details(summary)),
        document,
        (*server.notes, *unused, *_not_used(requests, server.configuration)),
        lambda: _plots(outcome),
    )
    publish(answer, as_json=as_json, plot=plot)
    return _EXIT_ANSWERED if summary.statuses["finished"] else _EXIT_NO_VERDICT


def _arrivals(
    requests: Requests, rate: float | None, seed: int, factor: float, *, at_once: bool
) -> Requests:
    """The requests at the times that are asked for; how long a client waits is its own."""
    import numpy as np

    from driftwatch.simulate.demand import paced

    patience = requests.cancel_seconds - requests.arrival_seconds
    if at_once:
        arrival = np.zeros(len(requests))
    elif rate is not None:
        arrival = paced(requests, rate, np.random.default_rng((seed, 1))).arrival_seconds * factor
    else:
        arrival = requests.arrival_seconds * factor
    return replace(requests, arrival_seconds=arrival, cancel_seconds=arrival + patience)


def _run(
    requests: Requests,
    configuration: SchedulerConfiguration,
    step_time: Any,
    concurrency: int | None,
    timeout_seconds: float | None,
) -> tuple[Outcome, RunSummary]:
    from driftwatch.cli.options import Progress
    from driftwatch.simulate.engine import check_fit, simulate
    from driftwatch.simulate.run_summary import RunTally, with_itl

    try:
        check_fit(requests, configuration)
    except ImpossibleConfiguration as error:
        raise ImpossibleConfiguration(
            error.problems, help_text="raise the limit that is named, or leave these requests out"
        ) from error
    progress = Progress("simulating")
    outcome = simulate(
        requests,
        configuration,
        step_time,
        concurrency=concurrency,
        timeout_seconds=timeout_seconds,
        per_step=True,
    )
    progress.close()
    tally = RunTally(requests, configuration)
    if outcome.steps is not None:
        tally.take(with_itl(outcome.requests), outcome.steps)
    return outcome, tally.summary(outcome.summary)


def _not_used(requests: Requests, configuration: SchedulerConfiguration) -> Iterator[str]:
    """A note for each column of a log that these settings do not look at."""
    from driftwatch.simulate.requests import LOOK_UP, NO_ADAPTER, NO_GROUP

    if configuration.scheduling_policy == "fcfs" and requests.priority.any():
        yield "priority is not used: --scheduling-policy is fcfs"
    if not configuration.enable_prefix_caching and (
        (requests.prefix_group != NO_GROUP).any() or (requests.cached_tokens != LOOK_UP).any()
    ):
        yield "prefixes are not used: prefix caching is off"
    if (requests.adapter != NO_ADAPTER).any():
        yield "adapters bind nothing here"


def _line(summary: RunSummary) -> str:
    total, finished = sum(summary.statuses.values()), summary.statuses["finished"]
    ttft, e2e = summary.latency["ttft_seconds"], summary.latency["e2e_seconds"]
    if ttft is None or e2e is None:
        return f"NO VERDICT: of {total:,} requests none finished."
    waited = max(summary.waited, key=summary.waited.__getitem__)
    held = "no limit held requests back"
    if (share := summary.waited[waited]) > 0:
        held = f"requests waited for {_LIMITS[waited]} {percent(share)} of the step time"
    return (
        f"{finished:,} of {total:,} requests finished, mean TTFT {seconds(ttft['mean'])}, end to "
        f"end {seconds(e2e['mean'])}, "
        f"{number(summary.throughput['generation_tokens_per_second'])} generated tokens/s: {held}."
    )


def _row(label: str, latency: Mapping[str, float | None] | None) -> tuple[str, ...]:
    if latency is None:
        return (label, *("no request" for _ in _CELLS))
    # less than a nanosecond is the rounding of the clock
    values = (latency[cell] for cell in _CELLS)
    return (
        label,
        *("0" if value is not None and value < 1e-9 else number(value) for value in values),
    )


def _details(summary: RunSummary) -> Iterator[str]:
    if any(None in one.values() for one in summary.latency.values() if one is not None):
        yield f"-: {_FEW}."
    others = [
        f"{count:,} {name.replace('_', ' ')}"
        for name, count in summary.statuses.items()
        if count and name != "finished"
    ]
    if others:
        yield f"Not finished: {', '.join(others)}."
    throughput, batch = summary.throughput, summary.batch
    if throughput["requests_per_second"] is not None:
        yield (
            f"{number(throughput['generation_tokens_per_second'])} generated tokens/s, "
            f"{number(throughput['prompt_tokens_per_second'])} prompt tokens/s, "
            f"{number(throughput['requests_per_second'])} requests/s over "
            f"{number(throughput['span_seconds'])} s."
        )
    parts = [f"{int(batch['steps'] or 0):,} steps"]
    if batch["decode_seqs_per_step"] is not None:
        parts += [
            f"{figure(batch['decode_seqs_per_step'])} decoding requests a step",
            f"{number(batch['tokens_per_step'])} tokens a step",
        ]
    if batch["busy_ratio"] is not None:
        parts.append(f"busy {percent(min(1.0, batch['busy_ratio']))} of the time")
    yield f"{', '.join(parts)}, {summary.preemptions:,} preemptions."
    waited = sorted(
        ((share, name) for name, share in summary.waited.items() if share), reverse=True
    )
    if waited:
        shares = ", ".join(f"{_LIMITS[name]} {percent(share)}" for share, name in waited)
        yield f"Share of the step time in which requests waited for a limit: {shares}."


def _plots(outcome: Outcome) -> Sequence[Plot]:
    from driftwatch.plots.plot import Series, plot
    from driftwatch.plots.scales import Axis

    steps, rows = outcome.steps, outcome.requests.drop_nulls("ttft_seconds").sort("arrival_seconds")
    if steps is None or not steps.height:
        return ()
    time, x = steps["end_seconds"].to_list(), Axis("seconds")
    inside = [
        Series("line", name, time, steps[name].to_list(), colour=colour)
        for colour, name in enumerate(("running", "waiting"))
    ]
    first = Series("line", "", rows["arrival_seconds"].to_list(), rows["ttft_seconds"].to_list())
    return (
        plot("Requests in the server", inside, x, Axis("requests")),
        plot("Time to first token by arrival", [first], x, Axis("seconds")),
    )
