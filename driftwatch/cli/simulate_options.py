"""Flags of a simulated vLLM server, named as vLLM's own, and what is taken where one is missing.

``simulate run``, ``sweep`` and others that replay use them: decorate the command with
:func:`engine_options`, take ``**engine`` and hand it to :func:`engine_from`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from driftwatch.errors import UsageError

if TYPE_CHECKING:
    from driftwatch.simulate.configuration import SchedulerConfiguration
    from driftwatch.simulate.step_time import StepTime

Command = TypeVar("Command", bound=Callable[..., Any])

_GIB = 2**30
_POSITIVE = click.IntRange(min=1)
# vLLM 0.32, engine/arg_utils.py get_batch_defaults, API server: B, S
_LARGE, _MIDDLE, _OTHER = (16384, 1024), (8192, 1024), (2048, 256)


@dataclass(frozen=True, slots=True)
class EngineAsked:
    """The server that the flags describe.

    Attributes:
        configuration: its scheduler.
        step_time: its law.
        notes: what was taken because no flag says it, for stderr and JSON.
    """

    configuration: SchedulerConfiguration
    step_time: StepTime
    notes: tuple[str, ...]


def engine_options(command: Command) -> Command:
    """The scheduler's settings and the step-time law."""
    options = (
        click.option(
            "--step-time",
            metavar="C0,C1,C2,C3",
            help="Seconds of a step: C0 + C1·prefill tokens + C2·decoding requests + "
            "C3·KV tokens read.",
        ),
        click.option("--gpu", metavar="NAME", help="GPU whose roofline gives the step time."),
        click.option("--model", metavar="NAME", help="Model that runs on it."),
        click.option(
            "--tensor-parallel-size",
            type=_POSITIVE,
            default=1,
            show_default=True,
            help="GPUs that share each layer, with --gpu.",
        ),
        click.option("--max-num-seqs", type=_POSITIVE, help="Most requests that run at once."),
        click.option("--max-num-batched-tokens", type=_POSITIVE, help="Token budget of a step."),
        click.option(
            "--max-num-active-seqs",
            type=_POSITIVE,
            help="Admit only while fewer run (default: --max-num-seqs).",
        ),
        click.option(
            "--num-gpu-blocks",
            type=click.IntRange(min=0),
            help="KV blocks, vLLM's null block included (default: from --gpu and --model, else "
            "they never bind).",
        ),
        click.option(
            "--block-size",
            type=_POSITIVE,
            default=16,
            show_default=True,
            help="Tokens of a KV block.",
        ),
        click.option(
            "--max-model-len", type=_POSITIVE, help="Most tokens of a request, prompt and answer."
        ),
        click.option(
            "--long-prefill-token-threshold",
            type=click.IntRange(min=0),
            default=0,
            show_default=True,
            help="Most prompt tokens of one request in a step; 0 = no threshold.",
        ),
        click.option(
            "--watermark",
            type=float,
            default=0.0,
            show_default=True,
            help="Share of the blocks kept free when a request is admitted.",
        ),
        click.option(
            "--scheduling-policy",
            type=click.Choice(["fcfs", "priority"]),
            default="fcfs",
            show_default=True,
            help="Who is admitted first.",
        ),
        click.option(
            "--async-scheduling/--no-async-scheduling",
            default=True,
            show_default=True,
            help="Schedule a step while the one before runs.",
        ),
        click.option(
            "--enable-prefix-caching/--no-enable-prefix-caching",
            default=True,
            show_default=True,
            help="Find the blocks of a common prefix again.",
        ),
        click.option(
            "--scheduler-reserve-full-isl/--no-scheduler-reserve-full-isl",
            default=True,
            show_default=True,
            help="Admit only where the whole prompt fits the free blocks.",
        ),
        click.option(
            "--enable-chunked-prefill/--no-enable-chunked-prefill",
            default=True,
            show_default=True,
            help="Compute a prompt over several steps.",
        ),
        click.option(
            "--max-num-queued-reqs", type=_POSITIVE, help="Answer 503 while as many wait."
        ),
        click.option(
            "--max-num-queued-tokens",
            type=_POSITIVE,
            help="Answer 503 while as many prompt tokens wait.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def batch_defaults(memory_bytes: float | None, name: str = "") -> tuple[int, int]:
    """vLLM's own max_num_batched_tokens and max_num_seqs for an API server on a GPU.

    Args:
        memory_bytes: of one GPU; None = unknown.
        name: of the GPU: an A100 has the small ones whatever its memory.
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
    tensor_parallel_size: int,
    max_num_seqs: int | None,
    max_num_batched_tokens: int | None,
    num_gpu_blocks: int | None,
    **scheduler: Any,
) -> EngineAsked:
    """The server that the flags describe, with vLLM's defaults for what they leave out.

    Raises:
        UsageError: no step-time law, half of one, or a law that is none.
        ImpossibleConfiguration: vLLM would refuse the settings; every reason.
    """
    from driftwatch.simulate.configuration import SchedulerConfiguration
    from driftwatch.simulate.laws import parse_step_time, roofline

    unknown = UsageError(
        "how long a step takes is not known",
        help_text="give --step-time C0,C1,C2,C3, or --gpu and --model",
    )
    if (gpu is None) != (model is None):
        raise unknown
    notes: list[str] = []
    card = machine = None
    if gpu is not None and model is not None:
        from driftwatch.simulate.hardware import gpu as gpu_named
        from driftwatch.simulate.hardware import model as model_named

        card, machine = gpu_named(gpu), model_named(model)
    budget, seqs = batch_defaults(card.memory_bytes if card else None, card.name if card else "")
    if max_num_batched_tokens is None:
        length = scheduler.get("max_model_len")
        max_num_batched_tokens = budget
        if length is not None:
            max_num_batched_tokens = (
                min(budget, (max_num_seqs or seqs) * length)
                if scheduler.get("enable_chunked_prefill", True)
                else max(budget, length)
            )
        notes.append(
            f"max_num_batched_tokens {max_num_batched_tokens}: vLLM's default"
            f"{f' on {card.name}' if card else ' on a GPU that is not named'}"
        )
    if max_num_seqs is None:
        max_num_seqs = min(seqs, max_num_batched_tokens)
        notes.append(
            f"max_num_seqs {max_num_seqs}: vLLM's default"
            f"{f' on {card.name}' if card else ' on a GPU that is not named'}"
        )
    if card is not None and machine is not None:
        if num_gpu_blocks is None:
            from driftwatch.simulate.kv_cache import num_gpu_blocks as blocks_of

            num_gpu_blocks = blocks_of(
                card,
                machine,
                block_size=scheduler.get("block_size", 16),
                tensor_parallel=tensor_parallel_size,
                gpu_memory_utilization=0.92,
                max_num_seqs=max_num_seqs,
                max_num_batched_tokens=max_num_batched_tokens,
            )
            notes.append(f"num_gpu_blocks {num_gpu_blocks}: from the memory of {card.name}")
    elif num_gpu_blocks is None:
        notes.append("num_gpu_blocks unknown: the KV cache never binds")
    if step_time is not None:
        law = parse_step_time(step_time)
    elif card is not None and machine is not None:
        law = roofline(card, machine, tensor_parallel=tensor_parallel_size)
        notes.append(f"step time: the roofline of {gpu} and {model}, a prior, not a measurement")
    else:
        raise unknown
    configuration = SchedulerConfiguration(
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        num_gpu_blocks=num_gpu_blocks,
        **scheduler,
    )
    configuration.check()
    return EngineAsked(configuration, law, tuple(notes))
