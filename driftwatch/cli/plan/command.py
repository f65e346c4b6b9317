"""``driftwatch plan``: memory, batch, latency and queue of one server before it runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from driftwatch.cli.finite import COUNT, RATE, SECONDS, SEED, TOKENS, Finite
from driftwatch.cli.simulate.options import DTYPE_BYTES, mix_of, typed_flags
from driftwatch.errors import UsageError

if TYPE_CHECKING:
    from driftwatch.cli.plan.question import Question
    from driftwatch.simulate.hardware import Hardware
    from driftwatch.simulate.requests import Requests

_MIX_SIZE = 2000  # requests of a mix that is given by its means
_MOST_READ = 50_000  # of a file: more change no figure by 1 %
_EXIT_PROBLEM = 1


@click.command(name="plan")
@click.option("--gpu", metavar="NAME", help="GPU of the table, e.g. H100-80GB.")
@click.option("--model", metavar="NAME", help="Model of the table, or its Hugging Face id.")
@click.option(
    "--hardware",
    type=click.Path(path_type=Path, dir_okay=False),
    help="YAML file with GPUs and models of your own.",
)
@click.option(
    "--tensor-parallel-size",
    "--tensor-parallel",
    type=COUNT,
    default=1,
    show_default=True,
    help="GPUs that share each layer.",
)
@click.option(
    "--dtype",
    type=click.Choice(["auto", *DTYPE_BYTES]),
    default="auto",
    show_default=True,
    help="Type of the weights; auto is the checkpoint's.",
)
@click.option(
    "--kv-cache-dtype",
    type=click.Choice(
        [
            "auto",
            "bfloat16",
            "float16",
            "fp8",
            "fp8_e4m3",
            "fp8_e5m2",
            "fp8_ds_mla",
            "nvfp4_ds_mla",
        ]
    ),
    default="auto",
    show_default=True,
    help="Type of the KV cache; auto is 16 bit.",
)
@click.option(
    "--gpu-memory-utilization",
    type=Finite(0, 1, min_open=True),
    default=0.92,
    show_default=True,
    help="Share of the GPU's memory that vLLM takes.",
)
@click.option("--max-num-seqs", type=COUNT, help="Default: vLLM's on this GPU.")
@click.option("--max-num-batched-tokens", type=COUNT, help="Default: vLLM's on this GPU.")
@click.option("--max-model-len", type=COUNT, help="Default: the model's.")
@click.option(
    "--block-size", type=COUNT, default=16, show_default=True, help="Tokens of a KV block."
)
@click.option(
    "--prompt-tokens",
    type=TOKENS,
    default=512.0,
    show_default=True,
    help="Mean prompt.",
)
@click.option(
    "--generation-tokens",
    type=TOKENS,
    default=256.0,
    show_default=True,
    help="Mean generation.",
)
@click.option(
    "--length-cv",
    type=Finite(min=0, max=20),
    default=0.5,
    show_default=True,
    help="Spread of both, log-normal: sd / mean; 0 = all alike.",
)
@click.option(
    "--requests",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Take the lengths, and without --rate the times, from this request log or trace.",
)
@click.option(
    "--step-time",
    metavar="C0,C1,C2,C3",
    help="Measured step time instead of the roofline of the datasheet.",
)
@click.option(
    "--objective",
    type=click.Choice(["throughput", "latency"]),
    help="Replay both presets and the settings as given on the mix, and say which serves it.",
)
@click.option("--rate", type=RATE, help="Requests a second: replay the queue, beside M/M/1.")
@click.option("--ttft-seconds", type=SECONDS, help="Target of the time to first token.")
@click.option("--tpot-seconds", type=SECONDS, help="Target of the time per output token.")
@click.option(
    "--table",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Measured CSV batch,seconds[,tokens]: which batch meets --tpot-seconds.",
)
@click.option("--seed", type=SEED, default=0, show_default=True, help="Draws lengths and times.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@click.pass_context
def command(
    context: click.Context,
    /,
    gpu: str | None,
    model: str | None,
    hardware: Path | None,
    table: Path | None,
    tpot_seconds: float | None,
    as_json: bool,
    **options: Any,
) -> int:
    """What fits a server's memory together, how fast it is then, and what waits.

    Memory and speed come from datasheets: an estimate before the server runs. Exit code 1: it does
    not fit, no batch meets the target, or the rate is above what the server can do.
    """
    if table is not None:
        _refuse_beside_table(context)
        return _from_table(table, tpot_seconds, as_json)
    if gpu is None or model is None:
        missing = " and ".join(
            name for name, value in (("--gpu", gpu), ("--model", model)) if value is None
        )
        raise UsageError(
            f"{missing} is not given",
            help_text="driftwatch plan --gpu H100-80GB --model llama-3.1-8b",
        )
    from driftwatch.cli.plan.answer import answer, is_problem, notes_of
    from driftwatch.simulate.hardware import with_hardware

    question, dropped, assumptions = _question(
        with_hardware(hardware), gpu, model, tpot_seconds=tpot_seconds, **options
    )
    document = answer(question)
    notes = notes_of(question, dropped, assumptions)
    if as_json:
        _print_json({**document, "notes": notes})
    else:
        from driftwatch.cli.options import print_note
        from driftwatch.cli.plan.text import print_plan

        for note in notes:
            print_note(note)
        print_plan(document)
    return _EXIT_PROBLEM if is_problem(document) else 0


def _question(
    tables: Hardware,
    gpu: str,
    model: str,
    *,
    dtype: str,
    max_num_seqs: int | None,
    max_num_batched_tokens: int | None,
    max_model_len: int | None,
    file: Path | None,
    prompt_tokens: float,
    generation_tokens: float,
    length_cv: float,
    step_time: str | None,
    rate: float | None,
    tensor_parallel_size: int,
    seed: int,
    **rest: Any,
) -> tuple[Question, int, list[str]]:
    """The question with every default taken, how many requests are too long, and what was taken."""
    import numpy as np

    from driftwatch.cli.plan.question import Question
    from driftwatch.cli.simulate.options import batch_defaults
    from driftwatch.simulate.step_time import parse_step_time

    card, shapes = tables.gpu(gpu), tables.model(model)
    budget, seqs = batch_defaults(card.memory_bytes, card.name)
    length = max_model_len or shapes.max_position_embeddings
    assumptions: list[str] = []
    if max_num_batched_tokens is None:
        max_num_batched_tokens = min(budget, (max_num_seqs or seqs) * length)
        assumptions.append(
            f"max_num_batched_tokens {max_num_batched_tokens}: vLLM's on {card.name}"
        )
    if max_num_seqs is None:
        max_num_seqs = min(seqs, max_num_batched_tokens)
        assumptions.append(f"max_num_seqs {max_num_seqs}: vLLM's on {card.name}")
    if max_num_batched_tokens < max_num_seqs:
        raise UsageError(
            f"max_num_batched_tokens {max_num_batched_tokens} is below max_num_seqs "
            f"{max_num_seqs}: vLLM refuses to start so",
            help_text="lower --max-num-seqs, or raise --max-num-batched-tokens",
        )
    requests, dropped, unused = _requests(
        file, prompt_tokens, generation_tokens, length_cv, length, seed
    )
    assumptions += unused
    question = Question(
        gpu=card,
        model=shapes,
        tensor_parallel=tensor_parallel_size,
        dtype_bytes=DTYPE_BYTES[shapes.checkpoint_dtype if dtype == "auto" else dtype],
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        max_model_len=length,
        requests=requests,
        timed=file is not None and float(np.ptp(requests.arrival_seconds)) > 0,
        measured_step_time=None if step_time is None else parse_step_time(step_time),
        rate_per_second=rate,
        seed=seed,
        **rest,
    )
    return question, dropped, assumptions


def _requests(
    file: Path | None, prompt: float, generation: float, cv: float, longest: int, seed: int
) -> tuple[Requests, int, tuple[str, ...]]:
    """The mix, none longer than max_model_len, how many were, and what of a file is not used."""
    count = _MIX_SIZE if file is None else _MOST_READ
    requests, notes = mix_of(file, (prompt, generation), cv, seed, count)
    fits = requests.prompt_tokens + requests.generation_tokens <= longest
    if not fits.any():
        raise UsageError(
            f"every request is longer than max_model_len {longest:,}",
            help_text="raise --max-model-len, or lower --prompt-tokens and --generation-tokens",
        )
    return requests.take(fits), int((~fits).sum()), notes


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
    """Fit the table and say which batch meets the target."""
    from dataclasses import asdict

    from driftwatch.lab.planning_table import fit_line, meeting, read_table

    if target is None:
        raise UsageError("--table wants a target", help_text="--tpot-seconds 0.05")
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
        _print_json(document)
    else:
        from driftwatch.cli.plan.text import print_table

        print_table(document)
    return 0 if measured else _EXIT_PROBLEM


def _print_json(document: dict[str, Any]) -> None:
    import orjson

    click.echo(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode())
