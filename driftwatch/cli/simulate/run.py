"""``driftwatch simulate run``: requests through vLLM's scheduler; what would each have waited?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from driftwatch.cli.engine_options import FILE, EngineSetup, engine_from, engine_options, option
from driftwatch.cli.finite import COUNT, SECONDS, SEED, Finite
from driftwatch.cli.main import EXIT_ANSWERED, EXIT_NO_VERDICT
from driftwatch.errors import ImpossibleConfiguration, UsageError

if TYPE_CHECKING:
    from driftwatch.simulate.configuration import SchedulerConfiguration
    from driftwatch.simulate.requests import Requests
    from driftwatch.simulate.workload import Workload

_WHEN = Finite(-1e12, 1e12)  # seconds of a recording, or since 1970


@click.command("run")
@option(
    "--requests requests_file",
    FILE,
    "JSONL, CSV or Parquet (also gzipped) with arrival_seconds, prompt_tokens and "
    "generation_tokens; an Azure or Mooncake trace; or ServeGen's rates.",
    metavar="FILE",
)
@option("--servegen-lengths", FILE, "ServeGen's lengths, with its rates.", metavar="FILE")
@option(
    "--recording",
    click.Path(path_type=Path),
    "Instead of --requests: rebuild them from recorded /metrics.",
    metavar="FILE",
)
@option("--server", text="With --recording: which of its servers.", metavar="HOST:PORT")
@option(
    "--window-seconds",
    Finite(min=1, max=1e9),
    "With --recording: length of the windows that lengths and arrivals come from.",
    default=60.0,
)
@option("--from-seconds", _WHEN, "With ServeGen: begin here (default: its beginning).")
@option("--to-seconds", _WHEN, "With ServeGen: end here (default: an hour later).")
@option(
    "--rate-scale",
    Finite(min=0, min_open=True, max=1e3),
    "With ServeGen: factor on every client's rate.",
    default=1.0,
)
@option("--seed", SEED, "Seed of the random numbers, with ServeGen and --recording.", default=0)
@option("--limit", click.IntRange(1, 10**9), "Number of requests to simulate, at most.")
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
@engine_options
@option(
    "--long-prefill-token-threshold-adaptive/--no-long-prefill-token-threshold-adaptive",
    text="Raise --long-prefill-token-threshold to an equal share of the budget.",
    default=False,
)
@option("--max-loras", COUNT, "Number of adapters that run at once, at most.")
@option("--per-request", FILE, "Write a row a request, in their order.", metavar="FILE")
@option("--per-step", FILE, "Write a row a step.", metavar="FILE")
@option(
    "--scrapes",
    FILE,
    "Write what /metrics would show at each scrape: gauges, counters, histograms.",
    metavar="FILE",
)
@option(
    "--scrape-interval",
    Finite(min=1e-6, max=1e9),
    "Time between two scrapes.",
    default=15.0,
    metavar="SECONDS",
)
@option("--json as_json", text="Print one JSON document.", is_flag=True)
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
    from driftwatch.cli.options import Progress, print_note
    from driftwatch.cli.simulate.files import check_outputs
    from driftwatch.cli.simulate.pieces import Written
    from driftwatch.cli.simulate.screen import print_json
    from driftwatch.cli.simulate.summary import document, print_summary
    from driftwatch.simulate.long_run import LongRun

    outputs = {"--per-request": per_request, "--per-step": per_step, "--scrapes": scrapes}
    inputs = [path for path in (requests_file, recording, servegen_lengths) if path is not None]
    if (requests_file is None) == (recording is None):
        raise UsageError("which requests?", help_text="give --requests FILE, or --recording FILE")
    _check_companions(recording, engine["gpu"])
    check_outputs(outputs, inputs)
    setup = _engine(engine)
    span = (from_seconds, to_seconds)
    _check_servegen(servegen_lengths, recording, span, rate_scale)
    if recording is not None:
        from driftwatch.cli.simulate.recording import rebuilt

        workload = rebuilt(recording, server, window_seconds, setup.configuration, seed)
        workload = replace(workload, requests=workload.requests.take(slice(None, limit)))
    elif servegen_lengths is not None:
        workload = _of_servegen(inputs[0], servegen_lengths, span, rate_scale, seed, limit)
    else:
        from driftwatch.simulate.workload import read_workload

        workload = read_workload(inputs[0], limit=limit)
    workload = _used(_stretched(workload, arrival_scale), setup.configuration)
    for note in (*setup.notes, *workload.notes):
        print_note(note)
    run = LongRun(
        workload.requests if concurrency is None else _at_once(workload.requests),
        setup.configuration,
        setup.step_time,
        concurrency,
        timeout_seconds,
        None if scrapes is None else scrape_interval,
    )
    summary = Written(run, outputs, Progress("simulating")).answer()
    if as_json:
        print_json(document(inputs[0], workload, setup, summary))
    else:
        print_summary(inputs[0], workload, summary)
    return EXIT_ANSWERED if summary.statuses["finished"] else EXIT_NO_VERDICT


def _check_servegen(
    lengths: Path | None,
    recording: Path | None,
    span: tuple[float | None, float | None],
    rate_scale: float,
) -> None:
    """Refuse flags of ServeGen's files without them, and these beside a recording."""
    if lengths is None and (span != (None, None) or rate_scale != 1.0):
        raise UsageError(
            "--from-seconds, --to-seconds and --rate-scale need --servegen-lengths",
            help_text="give ServeGen's two files, or leave these flags out",
        )
    if recording is not None and lengths is not None:
        raise UsageError("--servegen-lengths goes with --requests, not with --recording")


def _check_companions(recording: Path | None, gpu: str | None) -> None:
    """Refuse flags that nothing would look at."""
    from click.core import ParameterSource

    context = click.get_current_context()
    for flag, companion, there in (
        ("--server", "--recording", recording is not None),
        ("--window-seconds", "--recording", recording is not None),
        ("--tensor-parallel-size", "--gpu", gpu is not None),
    ):
        name = flag[2:].replace("-", "_")
        if not there and context.get_parameter_source(name) is not ParameterSource.DEFAULT:
            raise UsageError(
                f"{flag} is not used without {companion}",
                help_text=f"give {companion} as well, or leave {flag} out",
            )


def _engine(engine: dict[str, Any]) -> EngineSetup:
    """The server asked for, with what the scheduler here does not do of its model."""
    try:
        setup = engine_from(**engine)
    except ImpossibleConfiguration as error:
        raise ImpossibleConfiguration(
            error.problems,
            help_text=error.help_text
            or "each is a flag of that name, what vLLM takes: driftwatch simulate run --help",
        ) from error
    if engine["model"] is None:
        return setup
    from driftwatch.simulate.hardware import with_hardware

    machine = with_hardware(engine["hardware"]).model(engine["model"])
    if machine.sliding is None:
        return setup
    note = (
        f"{machine.name} has sliding windows, the scheduler here does not: its KV cache fills "
        "earlier and is read for longer than it would"
    )
    return replace(setup, notes=(*setup.notes, note))


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
