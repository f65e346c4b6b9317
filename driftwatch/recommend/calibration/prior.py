"""What is believed of a server's step time before its traffic is looked at."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from driftwatch.errors import DriftwatchError
from driftwatch.recommend.calibration.fits import Prior
from driftwatch.recommend.traffic.observed import Observed, Server
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.hardware import Hardware, shipped_hardware
from driftwatch.simulate.roofline import HINGE_TOKENS, VARIANTS, roofline, variants
from driftwatch.simulate.step_time import StepTime

# How far a fitted coefficient lies from the roofline, as the sd of its logarithm. Bandwidth and
# operations are reached to 40 to 95 % of the datasheet; c2 holds sampling and scheduling on the
# host too, which no datasheet knows.
KNOWN_LOG_SD = {"c0": 0.3, "c1": 0.4, "c2": 1.0, "c3": 0.4}
UNKNOWN_LOG_SD = {"c0": 0.5, "c1": 0.8, "c2": 1.2, "c3": 1.2}
# Where model or GPU are unknown, over the step of a request alone: what another decoding request
# adds (0.002 to 0.005 where weights are read from GPU memory, 0.1 where a CPU computes), and what a
# token of context adds (its KV bytes over those of the weights: 2e-6 for a 70B with grouped
# queries, 4e-5 for a 7B without, 1e-4 for a model of 10 million parameters). The middles.
_SEQ_SHARE, _KV_TOKEN_SHARE = 0.02, 1e-5
# Operations of attention for a pair of tokens over those of a token in all else, where the model is
# unknown: those of Llama-3.1-8B (4 · 32 layers · 4096 wide over 2 · 7.5e9).
_PAIR_SHARE = 3.5e-5


def prior_of(
    server: Server,
    observed: Observed,
    configuration: SchedulerConfiguration,
    *,
    hardware: Hardware | None = None,
) -> Prior:
    """The roofline of model and GPU; where a table does not know them, what the window itself says.

    ``hardware``: tables; None = the shipped ones.
    """
    tables = hardware or shipped_hardware()
    gpu, no_gpu = tables.find_gpu(server.gpu)
    model, no_model = tables.find_model(server.model)
    if gpu is None or model is None:
        why = "; ".join(text for text in (no_model, no_gpu) if text)
        return _from_traffic(observed, why)
    share = server.tensor_parallel or 1
    dtype_bytes = server.weight_bytes or model.weight_bytes_per_parameter or 2.0
    try:
        step_time = roofline(
            gpu,
            model,
            dtype_bytes=dtype_bytes,
            tensor_parallel=share,
            kv_cache_dtype=server.kv_cache_dtype or "auto",
            decode_batch=_decode_batch(observed, configuration),
        )
    except DriftwatchError as error:
        return _from_traffic(observed, f"no roofline of {model.name} on {gpu.name}: {error}")
    source = "; ".join((f"roofline of {model.name} on {gpu.name}", *model.notes))
    source += f" × {share}" if share > 1 else ""
    if server.tensor_parallel is None:
        source += ", tensor parallel size unknown: 1 taken"
    return Prior(
        variants(step_time, gpu, model, tensor_parallel=share),
        dict(KNOWN_LOG_SD),
        source,
        is_known=True,
    )


def _decode_batch(observed: Observed, configuration: SchedulerConfiguration) -> int:
    """The batch for which the roofline shall be exact: what runs, doubled, within max_num_seqs."""
    running = observed.chunks["running_requests"].max()
    most = float(running) if isinstance(running, int | float) else 0.0
    return int(np.clip(2 * most, min(16, configuration.max_num_seqs), configuration.max_num_seqs))


def _from_traffic(observed: Observed, why: str) -> Prior:
    """A step-time model that would give the window's mean step, its parts shared out; wide."""
    chunks, requests = observed.chunks, observed.requests

    def typical(name: str, otherwise: float) -> float:
        value = chunks[name].median()
        return float(value) if isinstance(value, int | float) and value > 0 else otherwise

    step = typical("itl_seconds", 0.02)
    batch = max(1.0, 1.0 / typical("steps_per_generation_token", 1.0))
    prompt = float(requests.prompt_tokens.mean()) if len(requests) else 500.0
    context = prompt + (float(requests.generation_tokens.mean()) / 2 if len(requests) else 100.0)
    prefill = typical("prefill_seconds", 0.0)
    if not prefill:
        waited = 0.0 if observed.saturated else typical("queue_seconds", 0.0)
        prefill = typical("ttft_seconds", 2 * step) - waited
    token = float(np.clip(prefill - step, 0.1 * step, 20 * step)) / prompt
    # a decode token comes with the prompts of so many others as come for each of its kind
    beside = max(0.0, typical("tokens_per_step", batch) - batch) * token
    alone = max(step - beside, 0.3 * step)
    alone /= 1.0 + batch * (_SEQ_SHARE + _KV_TOKEN_SHARE * context)
    step_time = StepTime(
        c0_seconds=alone,
        c1_seconds_per_prefill_token=token,
        c2_seconds_per_decode_seq=_SEQ_SHARE * alone,
        c3_seconds_per_kv_token=_KV_TOKEN_SHARE * alone,
    )
    hinged = replace(step_time, hinge_tokens=HINGE_TOKENS)
    squared = replace(hinged, c4_seconds_per_prefill_pair=_PAIR_SHARE * token)
    step_times = dict(zip(VARIANTS, (step_time, hinged, squared), strict=True))
    return Prior(step_times, dict(UNKNOWN_LOG_SD), f"no datasheet: {why}", is_known=False)
