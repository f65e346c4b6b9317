"""What closed forms cannot say: capacity, and what a request rate does, simulated."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.requests import Requests
from driftwatch.simulate.step_time import StepTime

Floats = npt.NDArray[np.float64]

_WARM_UP_SHARE = 0.1  # of the requests: the server starts empty
_DEPTH = 4  # a saturated simulation: requests for each that can run
_MOST_SEATS = 50_000  # of more the memory would go before the figure changes
_FEWEST = 10
_FEWEST_FOR_P95 = 20


@dataclass(frozen=True, slots=True)
class Measured:
    """One configuration under one demand; None = too few finished to measure it on."""

    requests: int  # that arrived after the warm-up
    finished: int  # of them
    generation_tokens_per_second: float | None  # over the whole simulation
    queue_seconds_mean: float | None  # arrival to first scheduled
    ttft_seconds_mean: float | None  # to the first token
    ttft_seconds_p95: float | None  # to the first token
    tpot_seconds_mean: float | None  # time per output token after the first
    tpot_seconds_p95: float | None  # time per output token after the first
    e2e_seconds_mean: float | None  # to the last token
    preemptions: float | None  # a finished request
    in_target_ratio: float | None  # share that meets every target given; None without a target


def simulate_demand(
    requests: Requests,
    configuration: SchedulerConfiguration,
    step_time: StepTime,
    *,
    ttft_seconds: float | None = None,
    tpot_seconds: float | None = None,
) -> Measured:
    """Simulate requests at their own times.

    Raises ImpossibleConfiguration: vLLM would refuse the settings or a request can never fit.
    """
    from driftwatch.simulate.engine import simulate

    rows = simulate(requests, configuration, step_time).requests
    counted = rows.slice(int(len(rows) * _WARM_UP_SHARE))
    done = counted.filter(pl.col("status") == "finished")
    if done.is_empty():
        return Measured(len(counted), 0, *(None,) * 9)
    ttft = done["ttft_seconds"].to_numpy()
    e2e = done["e2e_seconds"].to_numpy()
    more = np.maximum(done["generated_tokens"].to_numpy() - 1, 1)
    tpot = (e2e - ttft) / more
    several = done["generated_tokens"].to_numpy() > 1
    whole = rows.filter(pl.col("status") == "finished")
    first = float(whole["arrival_seconds"].to_numpy().min())
    last = float(whole["end_seconds"].to_numpy().max())
    meets = np.ones(len(done), dtype=bool)
    if ttft_seconds is not None:
        meets &= ttft <= ttft_seconds
    if tpot_seconds is not None:
        meets &= ~several | (tpot <= tpot_seconds)
    aimed = ttft_seconds is not None or tpot_seconds is not None
    return Measured(
        len(counted),
        len(done),
        float(whole["generated_tokens"].sum()) / (last - first),
        float(done["queue_seconds"].to_numpy().mean()),
        float(ttft.mean()),
        _p95(ttft),
        float(tpot[several].mean()) if several.any() else None,
        _p95(tpot[several]),
        float(e2e.mean()),
        float(done["preemptions"].to_numpy().mean()),
        float(meets.sum()) / len(counted) if aimed else None,
    )


def _p95(values: Floats) -> float | None:
    """None where fewer stand behind it than one in twenty needs."""
    return float(np.quantile(values, 0.95)) if len(values) >= _FEWEST_FOR_P95 else None


def capacity_per_second(
    requests: Requests, configuration: SchedulerConfiguration, step_time: StepTime
) -> float | None:
    """Requests a second of a saturated server: all offered at once, the middle of the completions.

    The mix is repeated until it is four times what runs together; the fifth of the completions at
    either end is left out, as the batch is not full or not yet mixed there. None: too few requests.
    """
    from driftwatch.simulate.trial import Trial

    seats = min(configuration.max_num_seqs, _MOST_SEATS)
    repeats = max(1, -(-_DEPTH * seats // len(requests)))
    at_once = requests.at(np.zeros(repeats * len(requests)))
    served = Trial(at_once, configuration).run(step_time)
    ends = np.sort(served.end_seconds[served.finished])
    low, high = int(0.2 * len(ends)), int(0.8 * len(ends))
    if high - low < _FEWEST or ends[high] <= ends[low]:
        return None
    return float((high - low) / (ends[high] - ends[low]))


def paced(requests: Requests, rate_per_second: float, rng: np.random.Generator) -> Requests:
    """The same requests in the same order as a Poisson stream of this rate."""
    return requests.at(np.cumsum(rng.exponential(1 / rate_per_second, len(requests))))
