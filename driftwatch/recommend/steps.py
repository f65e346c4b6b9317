"""The time of a step, from minutes and the roofline: a model, and draws of what it may be.

ITL of a minute = c0 + c1·prefill + c2·requests + c3·KV tokens (+ c4·pairs), of work as a token
meets it (:mod:`driftwatch.detect.speed.load`). Logarithms of the coefficients have a normal prior
around the roofline; the maximum of the posterior is found by least squares. Each draw resamples
the minutes and draws the prior's middle anew (randomised maximum a posteriori): where minutes say
little draws differ as the prior does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import least_squares

from driftwatch.arrays import Floats, Integers
from driftwatch.detect.speed.load import COMPLETE, COVARIATES, PREEMPTING, work_of
from driftwatch.errors import DriftwatchError
from driftwatch.recommend.advice import StepTimeFit
from driftwatch.recommend.demand import Demand, resampled
from driftwatch.recommend.server import Server
from driftwatch.recommend.window import Window
from driftwatch.simulate.hardware import Hardware
from driftwatch.simulate.roofline import pair_seconds, roofline
from driftwatch.simulate.step_time import StepTime, describe

# How far the coefficients lie from the roofline, sd of logarithms: all of them together, then c0,
# c1, c2, c3, c4 each. Bandwidth and operations are reached to 40 to 95 % of the datasheet; c2
# holds sampling and scheduling on the host too, which no datasheet knows.
KNOWN_LOG_SD = (0.3, 0.15, 0.3, 0.7, 0.3, 0.5)
UNKNOWN_LOG_SD = (0.5, 0.5, 0.8, 2.0, 2.0, 1.0)
_MISFIT = 0.04  # sd of ln ITL of a minute around its model: wander, gauges of few scrapes
# … and this times the share of the time that goes into prefill: which tokens meet it depends on
# bursts that no minute shows.
_PREFILL_MISFIT = 0.3
_CORRELATED = 5.0  # minutes that wander together: they count once
_FEWEST_MINUTES = 3
# The roofline's c2 is exact for so many decoding requests: the batches that a change may make.
_DECODE_BATCH = 256
# Where model or GPU are unknown, over the step of a request alone: what another decoding request
# adds (0.002 to 0.005 where weights are read from GPU memory, 0.1 where a CPU computes), and what a
# token of context adds (its KV bytes over those of the weights: 2e-6 for a 70B with grouped
# queries, 4e-5 for a 7B without). The middles.
_SEQ_SHARE, _KV_TOKEN_SHARE = 0.05, 1e-5
# Operations of attention for a pair of tokens over those of a token in all else: Llama-3.1-8B.
_PAIR_SHARE = 3.5e-5


@dataclass(frozen=True, slots=True)
class Prior:
    """Step times before any minute is used."""

    step_times: tuple[StepTime, ...]  # one a form: with quadratic attention, linear
    log_sd: tuple[float, ...]
    source: str
    is_known: bool  # from a datasheet


def prior_of(server: Server, window: Window, demand: Demand, hardware: Hardware) -> Prior:
    """The roofline of model and GPU; where no table knows them, what the window itself says."""
    gpu, no_gpu = hardware.find_gpu(server.gpu)
    model, no_model = hardware.find_model(server.model)
    if gpu is None or model is None:
        why = "; ".join(text for text in (no_model, no_gpu) if text)
        return _from_window(window, demand, why)
    share = server.tensor_parallel or 1
    try:
        base = roofline(
            gpu,
            model,
            dtype_bytes=server.weight_bytes or model.weight_bytes_per_parameter or 2.0,
            tensor_parallel=share,
            kv_cache_dtype=server.kv_cache_dtype or "auto",
            decode_batch=_DECODE_BATCH,
        )
    except DriftwatchError as error:
        why = f"no roofline of {model.name} on {gpu.name}: {error}"
        return _from_window(window, demand, why)
    pair = pair_seconds(model, gpu, tensor_parallel=share)
    source = f"roofline of {model.name} on {gpu.name}{f' × {share}' if share > 1 else ''}"
    if server.tensor_parallel is None:
        source += ", tensor parallel size unknown: 1 taken"
    forms = (replace(base, c4_seconds_per_prefill_pair=pair), base)
    return Prior(forms, KNOWN_LOG_SD, source, is_known=True)


def _from_window(window: Window, demand: Demand, why: str) -> Prior:
    """A model with the window's mean step time, split by typical shares; its sd is wide."""
    step = window.ratio("itl_seconds_sum", "itl_seconds_count") or 0.02
    batch = window.ratio("generation_tokens_total", "forward_passes") or 1.0
    per_pass = window.ratio("iteration_tokens_sum", "forward_passes") or batch
    prefill = window.ratio("prefill_seconds_sum", "e2e_seconds_count") or 2 * step
    token = float(np.clip(prefill - step, 0.1 * step, 20 * step)) / demand.prompt_tokens.mean()
    alone = max(step - max(per_pass - batch, 0.0) * token, 0.3 * step)
    alone /= 1.0 + batch * (_SEQ_SHARE + _KV_TOKEN_SHARE * demand.context_tokens)
    linear = StepTime(alone, token, _SEQ_SHARE * alone, _KV_TOKEN_SHARE * alone)
    squared = replace(linear, c4_seconds_per_prefill_pair=_PAIR_SHARE * token)
    return Prior((squared, linear), UNKNOWN_LOG_SD, f"no datasheet: {why}", is_known=False)


@dataclass(frozen=True, slots=True)
class StepTimes:
    """The likeliest model, as an answer prints it, and draws of others."""

    likeliest: StepTime
    draws: tuple[StepTime, ...]
    fit: StepTimeFit


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """Minutes as tokens met them: columns 1, prefill tokens, requests, KV tokens, prefill pairs."""

    met: Floats
    itl_seconds: Floats


def work_met(window: Window, demand: Demand) -> Work:
    """Work of a window's usable minutes; contexts are those of the demand.

    A preempted request is computed again, which no counter of prompt tokens shows.
    """
    work = work_of(window.rows)
    usable = work["why"].is_in([COMPLETE, PREEMPTING])
    complete, rows = work.filter(usable), window.rows.filter(usable)
    preempted = rows["preemptions_total"].fill_null(0.0) / rows["forward_passes"]
    values = {name: complete[name].to_numpy().astype(np.float64) for name in COVARIATES}
    overlap = values["overlap"]
    requests = values["requests"] * np.maximum(1.0, overlap) ** 2
    prefill = (values["prefill"] + preempted.to_numpy() * recomputed_tokens(demand)) * overlap
    met = np.stack(
        (
            np.ones_like(overlap),
            prefill,
            requests,
            requests * demand.context_tokens,
            prefill * demand.pairs_per_token,
        ),
        axis=-1,
    )
    return Work(met, values["itl"])


def recomputed_tokens(demand: Demand) -> float:
    """Of a preempted request: it was admitted last, so its context lies between its prompt and
    the context of those that stay; the middle.
    """
    return float(demand.prompt_tokens.mean() + demand.context_tokens) / 2


def step_times(work: Work, prior: Prior, *, draws: int, seed: int) -> StepTimes | None:
    """The posterior; None where too few minutes tell anything."""
    rng = np.random.default_rng(seed)
    many = len(work.itl_seconds)
    if many < _FEWEST_MINUTES:
        return None
    everything = np.arange(many)
    fits = [_fit(work, everything, base, prior.log_sd, _MISFIT) for base in prior.step_times]
    noise = max(_MISFIT, min(misfit for _, misfit in fits))
    fits = [_fit(work, everything, base, prior.log_sd, noise) for base in prior.step_times]
    likeliest, misfit = min(fits, key=lambda one: one[1])
    drawn = []
    for number in range(draws):
        base = prior.step_times[number % len(prior.step_times)]
        moved = rng.standard_normal(len(prior.log_sd))
        rows = resampled(many, many, rng)
        drawn.append(_fit(work, rows, base, prior.log_sd, noise, moved)[0])
    fit = StepTimeFit(describe(likeliest), prior.source, prior.is_known, many, misfit)
    return StepTimes(likeliest, tuple(drawn), fit)


def _fit(
    work: Work,
    rows: Integers,
    base: StepTime,
    log_sd: tuple[float, ...],
    misfit_ratio: float,
    moved: Floats | None = None,
) -> tuple[StepTime, float]:
    """The likeliest coefficients around a prior whose middle is ``moved`` (in its sds)."""
    prior = np.array(
        (
            base.c0_seconds,
            base.c1_seconds_per_prefill_token,
            base.c2_seconds_per_decode_seq,
            base.c3_seconds_per_kv_token,
            base.c4_seconds_per_prefill_pair,
        )
    )
    met, itl, sd = work.met[rows] * prior, work.itl_seconds[rows], np.asarray(log_sd)
    middle = np.zeros(len(sd)) if moved is None else moved
    by_prefill = (met[:, 1] + met[:, 4]) / met.sum(axis=1)
    noise = np.hypot(misfit_ratio, _PREFILL_MISFIT * by_prefill) * np.sqrt(_CORRELATED)

    def residuals(x: Floats) -> Floats:
        factors = np.exp(sd[0] * x[0] + sd[1:] * x[1:])
        return np.concatenate((np.log(met @ factors / itl) / noise, x - middle))

    x = least_squares(residuals, middle, max_nfev=20).x
    c = prior * np.exp(sd[0] * x[0] + sd[1:] * x[1:])
    errors = residuals(x)[: len(itl)] * noise
    misfit = 1.4826 * float(np.median(np.abs(errors - np.median(errors))))
    model = replace(
        base,
        c0_seconds=float(c[0]),
        c1_seconds_per_prefill_token=float(c[1]),
        c2_seconds_per_decode_seq=float(c[2]),
        c3_seconds_per_kv_token=float(c[3]),
        c4_seconds_per_prefill_pair=float(c[4]),
    )
    return model, misfit
