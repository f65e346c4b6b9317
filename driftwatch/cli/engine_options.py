"""Flags of a simulated vLLM server and of its requests, and the defaults of those left out.

The server's flags have vLLM's names: a command with :func:`engine_options` hands its ``**engine``
to :func:`engine_from`. Numbers are finite, and within bounds that keep a run in memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import click
import numpy as np
from pydantic import TypeAdapter, ValidationError

from driftwatch.errors import ImpossibleConfiguration, UsageError
from driftwatch.lab.comparison import lognormal_lengths
from driftwatch.lab.plan import Server
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.hardware import with_hardware
from driftwatch.simulate.requests import Requests, make_requests
from driftwatch.simulate.step_time import StepTime, parse_step_time
from driftwatch.simulate.workload.requests_file import read_workload


class Finite(click.FloatRange):
    """A number that is neither nan nor infinite, within its bounds.

    click's own range lets nan through everywhere, and inf where there is no upper bound.
    """

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Text to a number."""
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = 0.0  # click's own message says what is no number
        if not math.isfinite(number):
            self.fail(f"{value} is no finite number", param, ctx)
        return super().convert(value, param, ctx)


TOKENS = Finite(min=1, max=1e7)
SECONDS = Finite(min=0, min_open=True, max=1e9)
RATE = Finite(min=0, min_open=True, max=1e6)
SEED = click.IntRange(0, 2**63 - 1)
COUNT = click.IntRange(1, 10_000_000)


class Numbers(click.ParamType[Any]):
    """Numbers within bounds, separated by commas, rising, once each."""

    name = "n,n,..."

    def __init__(self, kind: type[int] | type[float], low: float, high: float) -> None:
        self._kind, self._low, self._high = kind, low, high

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Text to a tuple."""
        if isinstance(value, tuple):
            return value
        try:
            numbers = tuple(sorted({self._kind(word) for word in str(value).split(",")}))
        except ValueError:
            whole = "whole numbers" if self._kind is int else "numbers"
            self.fail(f"{value!r} is no list of {whole}, e.g. 1,2,4,8", param, ctx)
        if not all(self._low <= one <= self._high for one in numbers):
            self.fail(f"each number is from {self._low:g} to {self._high:g}", param, ctx)
        return numbers


Command = TypeVar("Command", bound=Callable[..., Any])

_GIB = 2**30
_DTYPE_BYTES = {"bfloat16": 2.0, "float16": 2.0, "fp8": 1.0}
_MOST = 1_000_000_000  # of a setting
# vLLM 0.32, engine/arg_utils.py get_batch_defaults, API server: B, S
_LARGE, _MIDDLE, _OTHER = (16384, 1024), (8192, 1024), (2048, 256)
_HARDWARE_NAMES = ("gpu", "model", "dtype", "tensor_parallel_size")
_FLAGS = ("max_num_seqs", "max_num_batched_tokens", "max_model_len")
_SETTINGS = [one.name for one in fields(SchedulerConfiguration) if one.name not in _FLAGS]


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


def with_all(options: Sequence[Callable[[Command], Command]]) -> Callable[[Command], Command]:
    """A decorator that adds these options, in the order of the help."""

    def add_all(command: Command) -> Command:
        for add in reversed(options):
            command = add(command)
        return command

    return add_all


FILE = click.Path(path_type=Path, dir_okay=False)
_STEP_TIME = "Seconds of a step: C0 + C1·prefill tokens + C2·decoding requests + C3·KV tokens."
_MODEL = "Model by its served name, or its config.json (- reads it from standard input)."
_HARDWARE = (
    option("--step-time", text=_STEP_TIME, metavar="C0,C1,C2,C3"),
    option("--gpu", text="GPU of driftwatch's table, e.g. H100-80GB.", metavar="NAME"),
    option("--model", text=_MODEL, metavar="NAME"),
    option("--hardware", FILE, "YAML file with GPUs of your own."),
    option(
        "--dtype", click.Choice(["auto", *_DTYPE_BYTES]), "Type of the weights.", default="auto"
    ),
    option("--tensor-parallel-size --tensor-parallel", COUNT, "GPUs of a model.", default=1),
    option("--max-num-seqs", COUNT, "Requests that run at once, at most (default: vLLM's)."),
    option("--max-num-batched-tokens", COUNT, "Token budget of a step (default: vLLM's)."),
    option("--max-model-len", COUNT, "Longest request, in tokens (default: the model's)."),
)
_SET = option(
    "--set settings",
    text="Another setting of vLLM's scheduler, e.g. num_gpu_blocks=7001; once for each.",
    metavar="NAME=VALUE",
    multiple=True,
)
hardware_options = with_all(_HARDWARE)
engine_options = with_all((*_HARDWARE, _SET))


def lengths_options(
    generation_tokens: float, requests_help: str, *, cv: float = 0.5
) -> Callable[[Command], Command]:
    """Which lengths are sent: means and a spread, or those of a file (see ``mix_of``)."""
    options = (
        option("--prompt-tokens", TOKENS, "Mean prompt.", default=512),
        option("--generation-tokens", TOKENS, "Mean generation.", default=generation_tokens),
        option("--length-cv", Finite(0, 20), "Spread of both: sd / mean.", default=cv),
        option("--requests file", FILE, requests_help),
        option("--seed", SEED, "Seed of the random numbers.", default=0),
    )
    return with_all(options)


def typed_flags(context: click.Context) -> dict[str, str]:
    """Options on the command line: name → flag, in the order of the help."""
    typed = click.core.ParameterSource.COMMANDLINE
    return {
        option.name: option.opts[0]
        for option in context.command.params
        if option.name and context.get_parameter_source(option.name) is typed
    }


def mix_of(flags: Mapping[str, Any], count: int | None) -> tuple[Requests, list[str]]:
    """Requests of a file, or drawn log-normal and all there from the start; notes on the file.

    Raises WorkloadError: the file cannot be read as requests; UsageError: a file and means.
    """
    names = ("prompt_tokens", "generation_tokens", "length_cv")
    if flags["file"] is not None:
        typed = typed_flags(click.get_current_context())
        if wrong := [typed[name] for name in names if name in typed]:
            raise UsageError(
                f"--requests and {', '.join(wrong)} exclude each other",
                help_text="leave out one of them",
            )
        workload = read_workload(flags["file"], limit=count)
        return workload.requests, list(workload.notes)
    *means, cv = (flags[name] for name in names)
    rng, count = np.random.default_rng(flags["seed"]), count or 1
    lengths = [lognormal_lengths(mean, cv, count, rng) for mean in means]
    return make_requests(np.zeros(count), *lengths), []


def server_of(
    flags: Mapping[str, Any], *, chunked: bool = True, **more: Any
) -> tuple[Server | None, dict[str, int | None], list[str]]:
    """The server (None without a GPU and a model), its limits, and a note on each default.

    Raises UsageError: a GPU without a model or the reverse, or a step time that is none.
    """
    gpu, model, dtype, split = (flags[name] for name in _HARDWARE_NAMES)
    seqs, budget, longest = (flags[name] for name in _FLAGS)
    measured = None if flags["step_time"] is None else parse_step_time(flags["step_time"])
    if (gpu is None) != (model is None):
        named, missing = ("--model", "--gpu") if gpu is None else ("--gpu", "--model")
        raise UsageError(
            f"{named} is given without {missing}: memory and step time need both",
            help_text=f"add {missing} NAME, or leave out {named} and give --step-time",
        )
    if gpu is None and (flags["hardware"] or dtype != "auto" or split != 1):
        raise UsageError(
            "--hardware, --dtype and --tensor-parallel-size: only with --gpu and --model",
            help_text="add --gpu and --model",
        )
    tables = with_hardware(flags["hardware"])
    card = tables.gpu(gpu) if gpu else None
    shapes = tables.model(model) if model else None
    notes = list(shapes.notes) if shapes else []
    if longest is None and shapes is not None:
        longest = shapes.max_model_len
        notes.append(f"max_model_len {longest}: vLLM's default for {shapes.name}")
    where = f"vLLM's default on {card.name if card else 'a GPU that is not named'}"
    usual, most = batch_defaults(card.memory_bytes if card else None, card.name if card else "")
    if budget is None:
        budget = usual
        if longest is not None:
            budget = min(usual, (seqs or most) * longest) if chunked else max(usual, longest)
        notes.append(f"max_num_batched_tokens {budget}: {where}")
    if seqs is None:
        seqs = min(most, budget)
        notes.append(f"max_num_seqs {seqs}: {where}")
    limits = dict(zip(_FLAGS, (seqs, budget, longest), strict=True))
    if card is None or shapes is None:
        return None, limits, notes
    if measured is None:
        notes.append(
            f"step time: the roofline of {card.name} and {shapes.name} at max_num_seqs decoding "
            "requests, a prior, not a measurement"
        )
    weight = shapes.weight_bytes_per_parameter if dtype == "auto" else _DTYPE_BYTES[dtype]
    if weight is None:
        raise UsageError(
            f"{shapes.name}: how many bytes its quantization takes for a weight is not known here",
            help_text="--dtype fp8 for one byte, bfloat16 for two",
        )
    sizes: dict[str, Any] = {**limits, "measured": measured, **more}
    return Server(card, shapes, weight, split, **sizes), limits, notes


def engine_from(flags: Mapping[str, Any]) -> EngineSetup:
    """The scheduler and step time that the flags describe, with vLLM's defaults for the rest.

    Memory and roofline are those of ``driftwatch plan`` for the same flags.

    Raises UsageError: no step-time model, half of one, or one that is none;
    ImpossibleConfiguration: vLLM would refuse the settings; every reason.
    """
    given = _scheduler(flags["settings"])
    chunked, block = given.get("enable_chunked_prefill", True), given.get("block_size", 16)
    server, limits, notes = server_of(flags, chunked=chunked, block_size=block)
    typed = flags["step_time"]
    if server is None and typed is None:
        raise UsageError(
            "the step time is unknown",
            help_text="give --step-time C0,C1,C2,C3, or --gpu and --model",
        )
    if server is not None and server.model.sliding is not None:
        notes.append(f"{server.model.name} has sliding windows, the simulated scheduler has none")
    if given.get("num_gpu_blocks") is None:
        if server is None:
            notes.append("num_gpu_blocks unknown: the KV cache never binds")
        else:
            given["num_gpu_blocks"] = blocks = server.memory().num_gpu_blocks
            notes.append(f"num_gpu_blocks {blocks}: from the memory of {server.gpu.name}")
    configuration = checked(limits, given)
    step_time = parse_step_time(typed) if server is None else server.step_time()
    return EngineSetup(configuration, step_time, (*notes, *configuration.warnings()))


def checked(limits: Mapping[str, Any], more: Mapping[str, Any]) -> SchedulerConfiguration:
    """A configuration that vLLM takes.

    Raises ImpossibleConfiguration: with every reason.
    """
    configuration = SchedulerConfiguration(**limits, **more)
    if problems := configuration.problems():
        cure = "change the named settings with --max-... or --set NAME=VALUE"
        raise ImpossibleConfiguration(problems, help_text=cure)
    return configuration


def _scheduler(settings: Sequence[str]) -> dict[str, Any]:
    """``NAME=VALUE`` texts as arguments of a SchedulerConfiguration."""
    kinds, found = get_type_hints(SchedulerConfiguration), {}
    for text in settings:
        name, _, value = text.partition("=")
        if (name := name.strip().replace("-", "_")) not in _SETTINGS:
            raise UsageError(
                f"--set {text}: no setting has this name",
                help_text=f"NAME=VALUE with one of {', '.join(_SETTINGS)}",
            )
        if name in found:
            raise UsageError(f"--set {text}: {name} is given twice", help_text="give it once")
        try:
            found[name] = TypeAdapter(kinds[name]).validate_strings(value.strip())
        except ValidationError as error:
            why = error.errors()[0]["msg"]
            raise UsageError(f"--set {text}: {why}", help_text=f"--set {name}=VALUE") from error
        if isinstance(found[name], int | float) and not abs(found[name]) <= _MOST:
            raise UsageError(f"--set {text}: too large", help_text=f"at most {_MOST:,}")
    return found


def batch_defaults(memory_bytes: float | None, name: str = "") -> tuple[int, int]:
    """vLLM's own max_num_batched_tokens and max_num_seqs for an API server on a GPU.

    ``memory_bytes``: of one GPU; None = unknown; ``name``: an A100 has the small ones.
    """
    if memory_bytes is None or memory_bytes < 70 * _GIB:
        return _OTHER
    if memory_bytes >= 160 * _GIB:
        return _LARGE
    return _OTHER if "a100" in name.lower() else _MIDDLE
