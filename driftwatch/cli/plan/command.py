"""``driftwatch plan``: memory, batch, latency and queue of one server before it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from driftwatch.cli.finite import COUNT, RATE, SECONDS, Finite
from driftwatch.cli.simulate.options import (
    FILE,
    hardware_options,
    lengths_options,
    option,
    typed_flags,
)
from driftwatch.errors import UsageError

_EXIT_PROBLEM = 1
_CACHE_DTYPES = (
    *("auto", "bfloat16", "float16", "fp8", "fp8_e4m3", "fp8_e5m2", "fp8_ds_mla", "nvfp4_ds_mla"),
)


@click.command(name="plan")
@hardware_options
@option(
    "--kv-cache-dtype",
    click.Choice(_CACHE_DTYPES),
    "Type of the KV cache; auto: 16 bit.",
    default="auto",
)
@option(
    "--gpu-memory-utilization",
    Finite(0, 1, min_open=True),
    "Share of the GPU's memory that vLLM takes.",
    default=0.92,
)
@option("--max-num-seqs", COUNT, "Running requests, at most (default: vLLM's on this GPU).")
@option("--max-num-batched-tokens", COUNT, "Tokens of a step, at most (default: vLLM's).")
@option("--max-model-len", COUNT, "Default: the model's.")
@option("--block-size", COUNT, "Tokens of a KV block.", default=16)
@lengths_options(
    256, "Take the lengths, and without --rate the times, from this request log or trace."
)
@option(
    "--objective",
    click.Choice(["throughput", "latency"]),
    "Simulate a throughput preset, a latency preset and your settings; name the best.",
)
@option("--rate", RATE, "Requests a second: simulate the queue, and print M/M/1's beside it.")
@option("--ttft-seconds", SECONDS, "Target of the time to first token.")
@option("--tpot-seconds", SECONDS, "Target of the time per output token.")
@option("--table", FILE, "Measured CSV batch,seconds[,tokens]: which batch meets --tpot-seconds.")
@option("--json as_json", text="Print one JSON document.", is_flag=True)
@click.pass_context
def command(
    context: click.Context,
    /,
    table: Path | None,
    tpot_seconds: float | None,
    as_json: bool,
    **options: Any,
) -> int:
    """How many requests fit a server's memory, how fast it is with them, and how many queue.

    Memory and speed come from datasheets: an estimate before the server runs. Exit code 1: it does
    not fit, no batch meets the target, or the rate is above what the server can do.
    """
    if table is not None:
        _refuse_beside_table(context)
        return _from_table(table, tpot_seconds, as_json)
    from driftwatch.cli.plan.answer import answer, is_problem
    from driftwatch.cli.plan.question import question_from
    from driftwatch.cli.simulate.screen import print_json

    question, notes = question_from(tpot_seconds=tpot_seconds, **options)
    document = answer(question)
    if as_json:
        print_json({**document, "notes": notes})
    else:
        from driftwatch.cli.options import print_note
        from driftwatch.cli.plan.text import print_plan

        for note in notes:
            print_note(note)
        print_plan(document)
    return _EXIT_PROBLEM if is_problem(document) else 0


def _refuse_beside_table(context: click.Context) -> None:
    """A flag without effect is a mistake, not a wish to be ignored."""
    measured = {"table", "tpot_seconds", "as_json"}
    wrong = [flag for name, flag in typed_flags(context).items() if name not in measured]
    if wrong:
        names = ", ".join(sorted(wrong))
        raise UsageError(
            f"{names}: not with --table, which is measured", help_text=f"leave out {names}"
        )


def _from_table(path: Path, target: float | None, as_json: bool) -> int:
    """Fit the table and print which batch meets the target."""
    from dataclasses import asdict

    from driftwatch.lab.planning_table import fit_line, meeting, read_table

    if target is None:
        raise UsageError("--table needs a target", help_text="--tpot-seconds 0.05")
    table = read_table(path)
    line = fit_line(table)
    measured, fitted = meeting(table, line, target)
    document = {
        "schema_version": 1,
        "table": str(path),
        "rows": [
            {
                "batch": int(b),
                "seconds_per_token": float(s),
                "fitted_seconds_per_token": line.seconds(float(b)),
            }
            for b, s in zip(table.batch, table.seconds_per_token, strict=True)
        ],
        "line": asdict(line),
        "target_seconds": target,
        "largest_batch_measured": measured or None,
        "largest_batch_fitted": fitted or None,
    }
    if as_json:
        from driftwatch.cli.simulate.screen import print_json

        print_json(document)
    else:
        from driftwatch.cli.plan.text import print_table

        print_table(document)
    return 0 if measured else _EXIT_PROBLEM
