"""``driftwatch simulate run``: requests through vLLM's scheduler; what would each have waited?"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from driftwatch.cli.main import EXIT_ANSWERED, EXIT_NO_VERDICT
from driftwatch.cli.simulate_options import engine_from, engine_options
from driftwatch.errors import UsageError

if TYPE_CHECKING:
    from driftwatch.simulate.configuration import SchedulerConfiguration
    from driftwatch.simulate.requests import Requests
    from driftwatch.simulate.workload import Workload

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command("run")
@click.option(
    "--requests",
    "requests_file",
    type=_FILE,
    metavar="FILE",
    help="JSONL, CSV or Parquet (also gzipped) with arrival_seconds, prompt_tokens and "
    "generation_tokens; an Azure or Mooncake trace; or ServeGen's rates.",
)
@click.option(
    "--servegen-lengths", type=_FILE, metavar="FILE", help="ServeGen's lengths, with its rates."
)
@click.option(
    "--recording",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Instead of --requests: rebuild them from recorded /metrics.",
)
@click.option("--server", metavar="HOST:PORT", help="With --recording: which of its servers.")
@click.option(
    "--window-seconds",
    type=click.FloatRange(min=1),
    default=60.0,
    show_default=True,
    help="With --recording: lengths and arrivals are those of windows so long.",
)
@click.option(
    "--from-seconds", type=float, help="With ServeGen: begin here (default: its beginning)."
)
@click.option("--to-seconds", type=float, help="With ServeGen: end here (default: an hour later).")
@click.option(
    "--rate-scale",
    type=click.FloatRange(min=0, min_open=True),
    default=1.0,
    show_default=True,
    help="With ServeGen: factor on every client's rate.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Of what is drawn, with ServeGen and --recording.",
)
@click.option("--limit", type=click.IntRange(min=1), help="Only so many requests.")
@click.option(
    "--arrival-scale",
    type=click.FloatRange(min=0, min_open=True),
    default=1.0,
    show_default=True,
    help="Factor on the times of arrival; patience (cancel_seconds) stays as long.",
)
@click.option(
    "--concurrency",
    type=click.IntRange(min=1),
    help="Closed loop: so many clients, each sends its next request when one is answered.",
)
@click.option(
    "--timeout-seconds",
    type=click.FloatRange(min=0, min_open=True),
    help="Clients give up so long after arrival.",
)
@engine_options
@click.option(
    "--long-prefill-token-threshold-adaptive/--no-long-prefill-token-threshold-adaptive",
    default=False,
    show_default=True,
    help="Raise that threshold to an equal share of the budget.",
)
@click.option("--max-loras", type=click.IntRange(min=1), help="Most adapters that run at once.")
@click.option(
    "--per-request", type=_FILE, metavar="FILE", help="Write a row a request, in their order."
)
@click.option("--per-step", type=_FILE, metavar="FILE", help="Write a row a step.")
@click.option(
    "--scrapes",
    type=_FILE,
    metavar="FILE",
    help="Write what /metrics would say at each scrape: gauges, counters, histograms.",
)
@click.option(
    "--scrape-interval",
    type=click.FloatRange(min=0, min_open=True),
    default=15.0,
    show_default=True,
    metavar="SECONDS",
    help="Between two scrapes.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")
def command(
    requests_file: Path | None,
    servegen_lengths: Path | None,
    recording: Path | None,
    server: str | None,
    window_seconds: float,
    from_seconds: float | None,
    to_seconds: float | None,
    rate_scale: float,
    seed: int,
    limit: int | None,
    arrival_scale: float,
    concurrency: int | None,
    timeout_seconds: float | None,
    per_request: Path | None,
    per_step: Path | None,
    scrapes: Path | None,
    scrape_interval: float,
    as_json: bool,
    **engine: Any,
) -> int:
    """Replay requests through vLLM V1's scheduler, step by step.

    Tables are written as JSON lines or Parquet, by their suffix: .jsonl, .jsonl.gz or .parquet.
    Exit: 0 answered, 2 the requests, the settings or the usage are wrong, 4 no request finished.
    """
    from driftwatch.cli.options import Progress
    from driftwatch.cli.simulate_files import check_outputs
    from driftwatch.cli.simulate_pieces import Written
    from driftwatch.cli.simulate_summary import as_json as summary_json
    from driftwatch.cli.simulate_summary import as_lines, fitted
    from driftwatch.simulate.long_run import LongRun

    outputs = {"--per-request": per_request, "--per-step": per_step, "--scrapes": scrapes}
    given = [path for path in (requests_file, recording, servegen_lengths) if path is not None]
    if (requests_file is None) == (recording is None):
        raise UsageError("which requests?", help_text="give --requests FILE, or --recording FILE")
    check_outputs(outputs, given)
    asked = engine_from(**engine)
    span = (from_seconds, to_seconds)
    if servegen_lengths is None and (span != (None, None) or rate_scale != 1.0):
        raise UsageError("--from-seconds, --to-seconds and --rate-scale need --servegen-lengths")
    if recording is not None and servegen_lengths is not None:
        raise UsageError("--servegen-lengths goes with --requests, not with --recording")
    if recording is not None:
        from driftwatch.cli.simulate_recording import Asked, rebuilt

        settings = asked.configuration
        lengths = (settings.max_model_len, settings.block_size)
        workload = rebuilt(Asked(recording, server, window_seconds, *lengths, seed))
        workload = replace(workload, requests=workload.requests.take(slice(None, limit)))
    elif servegen_lengths is not None:
        workload = _of_servegen(given[0], servegen_lengths, span, rate_scale, seed, limit)
    else:
        from driftwatch.simulate.workload import read_workload

        workload = read_workload(given[0], limit=limit)
    workload = _used(_stretched(workload, arrival_scale), asked.configuration)
    for note in (*asked.notes, *workload.notes):
        click.echo("\n".join(fitted(f"note: {note}", sys.stderr)), err=True)
    run = LongRun(
        workload.requests if concurrency is None else _at_once(workload.requests),
        asked.configuration,
        asked.step_time,
        concurrency,
        timeout_seconds,
        None if scrapes is None else scrape_interval,
    )
    summary = Written(run, outputs, Progress("simulating")).answer()
    if as_json:
        click.echo(summary_json(given[0], workload, asked, summary))
    else:
        for line in as_lines(given[0], workload, asked, summary):
            click.echo("\n".join(fitted(line, sys.stdout)))
    return EXIT_ANSWERED if summary.statuses["finished"] else EXIT_NO_VERDICT


def _of_servegen(
    rates: Path,
    lengths: Path,
    span: tuple[float | None, float | None],
    rate_scale: float,
    seed: int,
    limit: int | None,
) -> Workload:
    import numpy as np

    from driftwatch.simulate.workload import Workload
    from driftwatch.simulate.workload.servegen import ServeGen

    recording = ServeGen(rates, lengths)
    start = recording.start_seconds if span[0] is None else span[0]
    end = min(start + 3600.0, recording.end_seconds) if span[1] is None else span[1]
    rng = np.random.default_rng(seed)
    try:
        requests = recording.requests(start, end, rng, scale=rate_scale)
    except ValueError as error:
        raise UsageError(str(error)) from error
    if not len(requests):
        raise UsageError(f"nobody sends a request in {start:g}..{end:g} s at that scale")
    notes = (f"ServeGen from {start:,.0f} to {end:,.0f} s", *recording.notes(start, end))
    return Workload(requests.take(slice(None, limit)), "ServeGen", notes)


def _stretched(workload: Workload, factor: float) -> Workload:
    """Arrivals times a factor; how long a client waits before it gives up is its own."""
    if factor == 1.0:
        return workload
    requests = workload.requests
    arrival = requests.arrival_seconds * factor
    patience = requests.cancel_seconds - requests.arrival_seconds
    return replace(
        workload,
        requests=replace(requests, arrival_seconds=arrival, cancel_seconds=arrival + patience),
    )


def _at_once(requests: Requests) -> Requests:
    """All ready at 0, as a closed loop sends them: its clients have no other clock."""
    import numpy as np

    patience = requests.cancel_seconds - requests.arrival_seconds
    arrival = np.zeros(len(requests))
    return replace(requests, arrival_seconds=arrival, cancel_seconds=patience)


def _used(workload: Workload, configuration: SchedulerConfiguration) -> Workload:
    """The workload with a note for each column that these settings do not look at."""
    from driftwatch.simulate.requests import LOOK_UP, NO_ADAPTER, NO_GROUP

    requests, unused = workload.requests, []
    if configuration.scheduling_policy == "fcfs" and requests.priority.any():
        unused.append("priority is not used: --scheduling-policy is fcfs")
    if not configuration.enable_prefix_caching and (
        (requests.prefix_group != NO_GROUP).any() or (requests.cached_tokens != LOOK_UP).any()
    ):
        unused.append("prefixes are not used: prefix caching is off")
    if configuration.max_loras is None and (requests.adapter != NO_ADAPTER).any():
        unused.append("adapters bind nothing: --max-loras is not given")
    return replace(workload, notes=(*workload.notes, *unused))
