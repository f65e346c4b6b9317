"""Flags of a simulated vLLM server and of its requests, and the defaults of those left out.

The server's flags have vLLM's names: a command with :func:`engine_options` hands its ``**engine``
to :func:`engine_from`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from driftwatch.cli.finite import COUNT, SEED, TOKENS, Finite
from driftwatch.errors import ImpossibleConfiguration, UsageError

if TYPE_CHECKING:
    from driftwatch.simulate.configuration import SchedulerConfiguration
    from driftwatch.simulate.hardware import Gpu, Model
    from driftwatch.simulate.requests import Requests
    from driftwatch.simulate.step_time import StepTime

Command = TypeVar("Command", bound=Callable[..., Any])

_GIB = 2**30
_DTYPE_BYTES = {"bfloat16": 2.0, "float16": 2.0, "fp8": 1.0}
_UTILIZATION = 0.92  # vLLM's gpu_memory_utilization
_MOST_BLOCKS = 1_000_000_000
# vLLM 0.32, engine/arg_utils.py get_batch_defaults, API server: B, S
_LARGE, _MIDDLE, _OTHER = (16384, 1024), (8192, 1024), (2048, 256)


@dataclass(frozen=True, slots=True)
class EngineSetup:
    """The server that the flags describe."""

    configuration: SchedulerConfiguration  # its scheduler
    step_time: StepTime  # its step-time model
    notes: tuple[str, ...]  # what was taken because no flag says it, for stderr and JSON


def option(
    names: str, kind: Any = None, text: str = "", **more: Any
) -> Callable[[Command], Command]:
    """An option that shows its default; ``names``: its flags and the name of its argument."""
    has_default = more.get("default") is not None
    return click.option(*names.split(), type=kind, help=text, show_default=has_default, **more)


FILE = click.Path(path_type=Path, dir_okay=False)
_HARDWARE = (
    option(
        "--step-time",
        text="Seconds of a step: C0 + C1·prefill tokens + C2·decoding requests + "
        "C3·KV tokens read.",
        metavar="C0,C1,C2,C3",
    ),
    option("--gpu", text="GPU of driftwatch's table, e.g. H100-80GB.", metavar="NAME"),
    option("--model", text="Model of driftwatch's table, or its Hugging Face id.", metavar="NAME"),
    option("--hardware", FILE, "YAML file with GPUs and models of your own."),
    option(
        "--dtype",
        click.Choice(["auto", *_DTYPE_BYTES]),
        "Type of the weights, with --gpu; auto is that of the checkpoint.",
        default="auto",
    ),
    option(
        "--tensor-parallel-size --tensor-parallel",
        COUNT,
        "GPUs that share each layer, with --gpu.",
        default=1,
    ),
)
_SCHEDULER = (
    option("--max-num-seqs", COUNT, "Number of requests that run at once, at most."),
    option("--max-num-batched-tokens", COUNT, "Token budget of a step."),
    option(
        "--max-num-active-seqs",
        COUNT,
        "Admit a request only while fewer run (default: --max-num-seqs).",
    ),
    option(
        "--num-gpu-blocks",
        click.IntRange(0, _MOST_BLOCKS),
        "KV blocks, vLLM's null block included (default: from --gpu and --model, else "
        "the KV cache never fills).",
    ),
    option("--block-size", COUNT, "Tokens of a KV block.", default=16),
    option(
        "--max-model-len",
        COUNT,
        "Longest request, in tokens of prompt and generation (default: the model's).",
    ),
    option(
        "--long-prefill-token-threshold",
        click.IntRange(0, 10_000_000),
        "Prompt tokens of one request in a step, at most; 0 = no threshold.",
        default=0,
    ),
    option(
        "--scheduling-policy",
        click.Choice(["fcfs", "priority"]),
        "Who is admitted first.",
        default="fcfs",
    ),
    option(
        "--async-scheduling/--no-async-scheduling",
        text="Schedule a step while the one before runs.",
        default=True,
    ),
    option(
        "--enable-prefix-caching/--no-enable-prefix-caching",
        text="Find the blocks of a common prefix again.",
        default=True,
    ),
    option(
        "--enable-chunked-prefill/--no-enable-chunked-prefill",
        text="Compute a prompt over several steps.",
        default=True,
    ),
    option("--max-num-queued-reqs", COUNT, "Answer 503 while this many requests wait or run."),
    option(
        "--max-num-queued-tokens",
        COUNT,
        "Answer 503 while the prompts without a first token have this many tokens together.",
    ),
)


def with_all(
    options: Sequence[Callable[[Command], Command]],
) -> Callable[[Command], Command]:
    """A decorator that adds these options, in the order of the help."""

    def add_all(command: Command) -> Command:
        for add in reversed(options):
            command = add(command)
        return command

    return add_all


OUTPUT = (
    option("--plot", FILE, "Draw the answer into this .svg file."),
    option("--json as_json", text="Print one JSON document.", is_flag=True),
)


def hardware_options(command: Command) -> Command:
    """The step-time model, or the GPU and the model that it follows from."""
    return with_all(_HARDWARE)(command)


def engine_options(command: Command) -> Command:
    """The same, and the scheduler's settings."""
    return with_all((*_HARDWARE, *_SCHEDULER))(command)


def lengths_options(
    generation_tokens: float, requests_help: str, *, cv: float = 0.5
) -> Callable[[Command], Command]:
    """Which lengths are sent: means and a spread, or those of a file (see ``mix_of``)."""
    options = (
        option("--prompt-tokens", TOKENS, "Mean prompt.", default=512),
        option("--generation-tokens", TOKENS, "Mean generation.", default=generation_tokens),
        option(
            "--length-cv",
            Finite(min=0, max=20),
            "Spread of both, log-normal: sd / mean; 0 = all alike.",
            default=cv,
        ),
        option("--requests file", FILE, requests_help),
        option("--seed", SEED, "Seed of the random numbers.", default=0),
    )
    return with_all(options)


_MEANS = ("prompt_tokens", "generation_tokens", "length_cv")


def typed_flags(context: click.Context) -> dict[str, str]:
    """Options on the command line: name → flag, in the order of the help."""
    typed = click.core.ParameterSource.COMMANDLINE
    return {
        option.name: option.opts[0]
        for option in context.command.params
        if option.name and context.get_parameter_source(option.name) is typed
    }


def mix_of(
    file: Path | None, mean_tokens: tuple[float, float], cv: float, seed: int, count: int | None
) -> tuple[Requests, tuple[str, ...]]:
    """Requests of a file, or drawn log-normal and all there from the start; notes on the file.

    Raises WorkloadError: the file cannot be read as requests; UsageError: a file and means.
    """
    if file is not None:
        typed = typed_flags(click.get_current_context())
        if wrong := [typed[name] for name in _MEANS if name in typed]:
            raise UsageError(
                f"--requests and {', '.join(wrong)} exclude each other",
                help_text="leave out one of them",
            )
        from driftwatch.simulate.workload import read_workload

        workload = read_workload(file, limit=count)
        return workload.requests, workload.notes
    import numpy as np

    from driftwatch.lab.comparison import lognormal_lengths
    from driftwatch.simulate.requests import make_requests

    rng, count = np.random.default_rng(seed), count or 1
    lengths = [lognormal_lengths(mean, cv, count, rng) for mean in mean_tokens]
    return make_requests(np.zeros(count), *lengths), ()


def batch_defaults(memory_bytes: float | None, name: str = "") -> tuple[int, int]:
    """vLLM's own max_num_batched_tokens and max_num_seqs for an API server on a GPU.

    ``memory_bytes``: of one GPU; None = unknown; ``name``: of the GPU: an A100 has the small ones
    whatever its memory.
    """
    if memory_bytes is None:
        return _OTHER
    if memory_bytes >= 160 * _GIB:
        return _LARGE
    if memory_bytes >= 70 * _GIB and "a100" not in name.lower():
        return _MIDDLE
    return _OTHER


def engine_from(
    *,
    step_time: str | None,
    gpu: str | None,
    model: str | None,
    hardware: Path | None,
    dtype: str,
    tensor_parallel_size: int,
    max_num_seqs: int | None,
    max_num_batched_tokens: int | None,
    max_model_len: int | None,
    num_gpu_blocks: int | None,
    **scheduler: Any,
) -> EngineSetup:
    """The server that the flags describe, with vLLM's defaults for what they leave out.

    Memory and roofline are those of ``driftwatch plan`` for the same flags.

    Raises UsageError: no step-time model, half of one, or one that is none;
    ImpossibleConfiguration: vLLM would refuse the settings; every reason.
    """
    from driftwatch.simulate.configuration import SchedulerConfiguration
    from driftwatch.simulate.roofline import roofline
    from driftwatch.simulate.step_time import parse_step_time

    card, machine = _named(gpu, model, hardware, dtype, tensor_parallel_size)
    timing = parse_step_time(step_time) if step_time is not None else None
    notes: list[str] = []
    if max_model_len is None and machine is not None:
        max_model_len = machine.max_position_embeddings
        notes.append(f"max_model_len {max_model_len}: the longest context of {machine.name}")
    chunked = scheduler.get("enable_chunked_prefill", True)
    budget, seqs, defaults = batch_of(
        card, max_num_batched_tokens, max_num_seqs, max_model_len, chunked=chunked
    )
    notes += defaults
    if card is not None and machine is not None:
        if machine.sliding is not None:
            notes.append(
                f"{machine.name} has sliding windows, the scheduler here does not: its KV cache "
                "fills earlier and is read for longer than it would"
            )
        of_weight = dtype_bytes_of(machine, dtype)
        if num_gpu_blocks is None:
            block_size = scheduler.get("block_size", 16)
            memory = (card, machine, block_size, tensor_parallel_size, seqs, budget, of_weight)
            num_gpu_blocks = _blocks(*memory)
            notes.append(f"num_gpu_blocks {num_gpu_blocks}: from the memory of {card.name}")
        if timing is None:
            timing = roofline(
                card,
                machine,
                dtype_bytes=of_weight,
                tensor_parallel=tensor_parallel_size,
                decode_batch=seqs,
            )
            notes.append(
                f"step time: the roofline of {gpu} and {model}, a prior, not a measurement"
            )
    elif num_gpu_blocks is None:
        notes.append("num_gpu_blocks unknown: the KV cache never binds")
    if timing is None:
        raise UsageError(
            "the step time is unknown",
            help_text="give --step-time C0,C1,C2,C3, or --gpu and --model",
        )
    configuration = SchedulerConfiguration(
        max_num_seqs=seqs,
        max_num_batched_tokens=budget,
        max_model_len=max_model_len,
        num_gpu_blocks=num_gpu_blocks,
        **scheduler,
    )
    _check(configuration)
    return EngineSetup(configuration, timing, (*notes, *configuration.warnings()))


def _blocks(
    card: Gpu, machine: Model, block: int, split: int, seqs: int, budget: int, dtype_bytes: float
) -> int:
    from driftwatch.simulate.kv_cache import num_gpu_blocks

    return num_gpu_blocks(
        card,
        machine,
        block_size=block,
        tensor_parallel=split,
        gpu_memory_utilization=_UTILIZATION,
        max_num_seqs=seqs,
        max_num_batched_tokens=budget,
        dtype_bytes=dtype_bytes,
    )


def _check(configuration: SchedulerConfiguration) -> None:
    try:
        configuration.check()
    except ImpossibleConfiguration as error:
        raise ImpossibleConfiguration(
            error.problems, help_text="each is a flag of that name, what vLLM takes: --help"
        ) from error


def batch_of(
    gpu: Gpu | None,
    max_num_batched_tokens: int | None,
    max_num_seqs: int | None,
    max_model_len: int | None,
    *,
    chunked: bool = True,
) -> tuple[int, int, list[str]]:
    """max_num_batched_tokens and max_num_seqs: of the flags, else vLLM's, with a note on each."""
    where = f"vLLM's default on {gpu.name if gpu else 'a GPU that is not named'}"
    notes = []
    budget, seqs = batch_defaults(gpu.memory_bytes if gpu else None, gpu.name if gpu else "")
    if max_num_batched_tokens is None:
        max_num_batched_tokens = budget
        if max_model_len is not None:
            max_num_batched_tokens = (
                min(budget, (max_num_seqs or seqs) * max_model_len)
                if chunked
                else max(budget, max_model_len)
            )
        notes.append(f"max_num_batched_tokens {max_num_batched_tokens}: {where}")
    if max_num_seqs is None:
        max_num_seqs = min(seqs, max_num_batched_tokens)
        notes.append(f"max_num_seqs {max_num_seqs}: {where}")
    return max_num_batched_tokens, max_num_seqs, notes


def dtype_bytes_of(model: Model, dtype: str) -> float:
    """Bytes of a weight; ``auto`` is the checkpoint's type."""
    return _DTYPE_BYTES[model.checkpoint_dtype if dtype == "auto" else dtype]


def _named(
    gpu: str | None, model: str | None, hardware: Path | None, dtype: str, split: int
) -> tuple[Gpu | None, Model | None]:
    """The table's rows, both or neither."""
    if gpu is None and model is None:
        unused = [
            flag
            for flag, is_set in (
                ("--hardware", hardware is not None),
                ("--dtype", dtype != "auto"),
                ("--tensor-parallel-size", split != 1),
            )
            if is_set
        ]
        if unused:
            raise UsageError(
                f"{' and '.join(unused)}: only with --gpu and --model",
                help_text="add --gpu and --model",
            )
        return None, None
    if gpu is None or model is None:
        named, missing = ("--model", "--gpu") if gpu is None else ("--gpu", "--model")
        raise UsageError(
            f"{named} is given without {missing}: memory and step time need both",
            help_text=f"add {missing} NAME, or leave out {named} and give --step-time",
        )
    from driftwatch.simulate.hardware import with_hardware

    tables = with_hardware(hardware)
    return tables.gpu(gpu), tables.model(model)
