"""The simulated server of plan, simulate and compare, and its requests.

driftwatch's own options give the GPU and the requests. vLLM's own flags, or its whole ``vllm
serve`` command, give the settings. Numbers are finite, and within bounds that keep a run in memory.
"""

from __future__ import annotations

import difflib
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args, get_type_hints

import click
import numpy as np
import numpy.typing as npt

from driftwatch.cli.options import FILE, flag, option
from driftwatch.errors import ImpossibleConfiguration, UsageError
from driftwatch.knobs import flag_of
from driftwatch.lab.plan import Server
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.hardware import Gpu, shipped_hardware
from driftwatch.simulate.model_config import DTYPE_BYTES, QUANTIZED_BYTES, Model
from driftwatch.simulate.requests import Requests, make_requests
from driftwatch.simulate.step_time import StepTime, parse_step_time
from driftwatch.simulate.workload.requests_file import read_workload
from driftwatch.vllm_arguments.flags import human_int


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
RATE = Finite(min=0, min_open=True, max=1e6)
COUNT = click.IntRange(1, 10_000_000)

_MOST = 1_000_000_000  # of a setting
_SPREAD = 0.5  # sd / mean of lengths that are drawn
# vLLM 0.32, engine/arg_utils.py get_batch_defaults, API server: B, S
_LARGE, _MIDDLE, _OTHER = (16384, 1024), (8192, 1024), (2048, 256)
_OF_SCHEDULER = get_type_hints(SchedulerConfiguration)
# the settings of vLLM that are simulated → their type
_SETTINGS: Mapping[str, Any] = {
    **_OF_SCHEDULER,
    "model": str,
    "dtype": str,
    "quantization": str,
    "tensor_parallel_size": int,
    "kv_cache_dtype": str,
    "gpu_memory_utilization": float,
}
_SPELLED = {  # other spellings of vLLM's
    "tp": "tensor_parallel_size",
    "q": "quantization",
    "num_gpu_blocks_override": "num_gpu_blocks",
}
FLAGS = [f"{flag_of(name)}{'-override' if name == 'num_gpu_blocks' else ''}" for name in _SETTINGS]
_EPILOG = (
    "VLLM FLAGS are vLLM's own, or its whole command: vllm serve MODEL --max-num-seqs 128 -tp 2. "
    "Simulated are --max-num-seqs, --max-num-batched-tokens, --max-model-len, "
    "--tensor-parallel-size, --quantization, --kv-cache-dtype, --gpu-memory-utilization, "
    "--block-size, --num-gpu-blocks-override and the scheduler's others; what is left out has "
    "vLLM's default."
)


@dataclass(frozen=True, slots=True)
class EngineSetup:
    """The server that the flags describe."""

    configuration: SchedulerConfiguration  # its scheduler
    server: Server | None  # None without a GPU and a model
    step_time: StepTime  # its step-time model
    notes: tuple[str, ...]  # what was taken because no flag says it, for stderr and JSON


def lab_command(
    name: str, *options: Callable[[Any], Any]
) -> Callable[[Callable[..., Any]], click.Command]:
    """A verb about a simulated server: its own options, then requests, server and vLLM's flags."""
    used = "arrivals and lengths" if name == "simulate" else "lengths"
    every: tuple[Callable[[Any], Any], ...] = (
        *options,
        option("--prompt-tokens", TOKENS, "Mean prompt.", default=512),
        option("--generation-tokens", TOKENS, "Mean generation.", default=128),
        option("--requests file", FILE, f"Request log or trace: its {used}, instead of means."),
        option("--gpu", text="GPU of driftwatch's table, or a YAML file of one.", metavar="NAME"),
        option("--model", text="Model by its served name, or its config.json.", metavar="NAME"),
        option("--step-time", text="Measured seconds of a step.", metavar="C0,C1,C2,C3"),
        flag("--json as_json", "Print JSON."),
        click.argument("vllm", nargs=-1, type=click.UNPROCESSED, metavar="[VLLM FLAGS]..."),
    )

    def decorate(function: Callable[..., Any]) -> click.Command:
        for add in reversed(every):
            function = add(function)
        unknown = {"ignore_unknown_options": True}  # they are vLLM's
        return click.command(name, context_settings=unknown, epilog=_EPILOG)(function)

    return decorate


def mix_of(flags: Mapping[str, Any], count: int | None) -> tuple[Requests, list[str]]:
    """Requests of a file, or drawn log-normal and all there from the start; notes on the file.

    Raises WorkloadError: the file cannot be read as requests; UsageError: a file and means.
    """
    names = ("prompt_tokens", "generation_tokens")
    if flags["file"] is not None:
        context, typed = click.get_current_context(), click.core.ParameterSource.COMMANDLINE
        if wrong := [one for one in names if context.get_parameter_source(one) is typed]:
            means = ", ".join(map(flag_of, wrong))
            raise UsageError(
                f"--requests and {means} exclude each other", help_text="leave out one of them"
            )
        requests, unused = read_workload(flags["file"], limit=count)
        return requests, [f"columns not used: {', '.join(unused)}"] if unused else []
    rng, count = np.random.default_rng(0), count or 1
    lengths = [lognormal_lengths(flags[name], _SPREAD, count, rng) for name in names]
    return make_requests(np.zeros(count), *lengths), []


def lognormal_lengths(
    mean_tokens: float, cv: float, count: int, rng: np.random.Generator
) -> npt.NDArray[np.int64]:
    """Log-normal lengths in tokens, whole and at least 1, with this mean and sd / mean."""
    spread = np.log1p(cv * cv)
    lengths = rng.lognormal(np.log(mean_tokens) - spread / 2, np.sqrt(spread), count)
    return np.maximum(1, np.rint(lengths)).astype(np.int64)


def engine_of(flags: Mapping[str, Any], *, is_simulated: bool = True) -> EngineSetup:
    """The server that the flags describe, with vLLM's defaults for the rest.

    ``is_simulated``: the KV cache is that of its memory; False where memory itself is the question.

    Raises UsageError: no step-time model, half of one, or a flag that is none;
    ImpossibleConfiguration: vLLM would refuse the settings; every reason.
    """
    settings, notes = vllm_settings(flags["vllm"])
    models = {one for one in (settings.pop("model", None), flags["model"]) if one}
    if len(models) > 1:
        raise UsageError(
            f"two models are given: {' and '.join(sorted(models))}",
            help_text="leave out --model or the one after vllm serve",
        )
    card, model = _card_and_model(flags["gpu"], *(models or {None}))
    measured = None if flags["step_time"] is None else parse_step_time(flags["step_time"])
    given = {name: value for name, value in settings.items() if name in _OF_SCHEDULER}
    if model is not None:
        notes += model.notes
        if "max_model_len" not in given:
            given["max_model_len"] = model.max_model_len
            notes.append(f"max_model_len {model.max_model_len}: vLLM's default for {model.name}")
    configuration = _with_defaults(given, card, notes)
    if problems := configuration.problems():
        raise ImpossibleConfiguration(problems, help_text="change the flags that are named")
    if card is None or model is None:
        if measured is None:
            raise UsageError(
                "the step time is unknown",
                help_text="give --gpu and --model, or --step-time C0,C1,C2,C3",
            )
        if configuration.num_gpu_blocks is None:
            notes.append("num_gpu_blocks unknown: the KV cache never binds")
        return EngineSetup(configuration, None, measured, (*notes, *configuration.warnings()))
    names = ("tensor_parallel_size", "kv_cache_dtype", "gpu_memory_utilization")
    types = {name: settings[name] for name in names if name in settings}
    weight = _weight_bytes(model, settings)
    server = Server(card, model, configuration, weight, measured=measured, **types)
    if measured is None:
        notes.append(
            f"step time: the roofline of {card.name} and {model.name} at max_num_seqs decoding "
            "requests, a prior, not a measurement"
        )
    if is_simulated:
        if model.sliding is not None:
            notes.append(f"{model.name} has sliding windows, the simulated scheduler has none")
        if configuration.num_gpu_blocks is None:
            blocks = server.memory().num_gpu_blocks
            if blocks < 2:  # one is vLLM's null block
                raise ImpossibleConfiguration(
                    (f"{model.name} does not fit the memory of {card.name}",),
                    help_text="driftwatch plan with the same flags says how many GPUs it needs",
                )
            configuration = replace(configuration, num_gpu_blocks=blocks)
            notes.append(f"num_gpu_blocks {blocks}: from the memory of {card.name}")
        notes += configuration.warnings()
    return EngineSetup(configuration, server, server.step_time(), tuple(notes))


def _card_and_model(gpu: str | None, model: str | None) -> tuple[Gpu | None, Model | None]:
    if gpu is None and model is None:
        return None, None
    if gpu is None or model is None:
        missing = "--gpu" if gpu is None else "--model"
        raise UsageError(
            f"{missing} is not given: memory and step time need a GPU and a model",
            help_text=f"add {missing} NAME, or give --step-time without both",
        )
    return shipped_hardware().gpu(gpu), shipped_hardware().model(model)


def _with_defaults(
    given: Mapping[str, Any], card: Gpu | None, notes: list[str]
) -> SchedulerConfiguration:
    """vLLM's max_num_batched_tokens and max_num_seqs where they are not given, each with a note."""
    budget, seqs = given.get("max_num_batched_tokens"), given.get("max_num_seqs")
    usual, most = batch_defaults(card)
    longest = given.get("max_model_len")
    where = f"vLLM's default on {card.name if card else 'a GPU that is not named'}"
    if budget is None:
        budget = usual
        if longest is not None:
            whole = not given.get("enable_chunked_prefill", True)
            budget = max(usual, longest) if whole else min(usual, (seqs or most) * longest)
        notes.append(f"max_num_batched_tokens {budget}: {where}")
    if seqs is None:
        seqs = min(most, budget)
        notes.append(f"max_num_seqs {seqs}: {where}")
    limits = {"max_num_seqs": seqs, "max_num_batched_tokens": budget}
    return SchedulerConfiguration(**{**given, **limits})


def _weight_bytes(model: Model, settings: Mapping[str, Any]) -> float:
    quantization, dtype = settings.get("quantization"), settings.get("dtype", "auto")
    found = model.weight_bytes_per_parameter
    if quantization is not None:
        found = QUANTIZED_BYTES.get(quantization)
    elif dtype != "auto" and found == DTYPE_BYTES["bfloat16"]:  # narrower weights stay narrow
        found = DTYPE_BYTES.get(dtype)
    if found is None:
        raise UsageError(
            f"{model.name}: the bytes of a weight are unknown for {quantization or dtype}",
            help_text=f"--quantization with one of {', '.join(QUANTIZED_BYTES)}",
        )
    return found


def vllm_settings(words: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Settings by vLLM's names, of its flags or its whole command; of two alike the last counts.

    Of a whole command, a flag that is not simulated becomes a note; alone, it is an error.

    Raises UsageError: a flag without a value, a value of another type, or no flag.
    """
    found: dict[str, Any] = {}
    unused: list[str] = []
    rest, is_command = deque(words), False
    while rest:
        word = rest.popleft()
        written, equals, value = word.partition("=")
        name = written.lstrip("-").replace("-", "_")
        name = _SPELLED.get(name, name)
        if word in ("vllm", "serve"):
            is_command = True
        elif not word.startswith("-"):
            if not is_command or "model" in found:
                raise UsageError(f"{word!r} is no option", help_text="vllm serve MODEL ... is one")
            found["model"] = word
        elif _SETTINGS.get(name.removeprefix("no_")) is bool:
            found[name.removeprefix("no_")] = not name.startswith("no_") and value != "false"
        elif name in _SETTINGS:
            if not equals and not rest:
                raise UsageError(f"{written} has no value", help_text=f"{written} VALUE")
            found[name] = _value(written, _SETTINGS[name], value if equals else rest.popleft())
        elif is_command:
            unused.append(written)
            if not equals and rest and not rest[0].startswith("-"):
                rest.popleft()
        else:
            raise _no_flag(written)
    return found, [f"not simulated: {', '.join(unused)}"] if unused else []


def _value(written: str, kind: Any, text: str) -> int | float | str:
    kinds = (kind, *get_args(kind))
    try:
        value = human_int(text) if int in kinds else float(text) if float in kinds else text
    except ValueError:
        wanted = f"{written} takes {'whole numbers' if int in kinds else 'numbers'}"
        raise UsageError(f"{written} {text}: no number", help_text=wanted) from None
    if isinstance(value, int | float) and not abs(value) <= _MOST:
        raise UsageError(f"{written} {text}: too large", help_text=f"at most {_MOST:,}")
    return value


def _no_flag(written: str) -> UsageError:
    context = click.get_current_context(silent=True)
    options = context.command.params if context else []
    own = [one.opts[0] for one in options if isinstance(one, click.Option)]
    flags = list(dict.fromkeys([*own, *FLAGS]))
    close = difflib.get_close_matches(written, flags, n=1, cutoff=0.75)
    return UsageError(
        f"{written}: no option, and no flag of vLLM that is simulated",
        help_text=f"did you mean {close[0]}?" if close else f"one of {', '.join(flags)}",
    )


def batch_defaults(card: Gpu | None) -> tuple[int, int]:
    """vLLM's own max_num_batched_tokens and max_num_seqs for an API server on a GPU.

    By its memory, but an A100 has the small ones; None = unknown, the small ones too.
    """
    if card is None or card.memory_gib < 70 or "A100" in card.name:
        return _OTHER
    return _LARGE if card.memory_gib >= 160 else _MIDDLE
