"""How many requests a second one server of a scenario can answer: found by running it full.

The hidden engine without jitter, wander and stalls, and its own traffic offered all at once: the
rate at which the middle of these requests ends is what it can do while there is always more to do.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from driftwatch.fleet.hidden_engine import generator, law_of
from driftwatch.fleet.scenario import Scenario, Serving
from driftwatch.fleet.traffic_source import source_of
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.engine import simulate
from driftwatch.simulate.hardware import gpu, model
from driftwatch.simulate.kv_cache import num_gpu_blocks
from driftwatch.simulate.requests import make_requests

_REQUESTS = 400  # or three batches, where the cap is large
_MIDDLE = (0.2, 0.8)  # shares of the requests that ended, between which the rate is taken
_SPAN_SECONDS = 7 * 86_400.0  # ServeGen's mix is that of a whole week


def configuration_of(scenario: Scenario, serving: Serving) -> SchedulerConfiguration:
    """The scheduler's settings; KV blocks are what the model leaves on the GPU."""
    pool = scenario.pool
    blocks = serving.num_gpu_blocks or num_gpu_blocks(
        gpu(pool.gpu),
        model(pool.model),
        block_size=serving.block_size,
        tensor_parallel=pool.gpus_per_replica,
        gpu_memory_utilization=0.9,
        max_num_seqs=serving.max_num_seqs,
        max_num_batched_tokens=serving.max_num_batched_tokens,
    )
    return serving.configuration(blocks)


@lru_cache(maxsize=64)
def capacity(scenario: Scenario) -> float:
    """Requests per second of one server at the settings it starts with.

    The same for every seed: it is a property of engine, settings and traffic.
    """
    said, configuration = scenario.traffic, configuration_of(scenario, scenario.pool.serving)
    rng = generator(0, "capacity")
    count = max(_REQUESTS, 3 * configuration.max_num_seqs)
    drawn = source_of(said).draw(float(count), 1, (0.0, _SPAN_SECONDS), rng)
    chosen = rng.permutation(len(drawn.at))[:count]
    most = scenario.pool.serving.max_model_len
    prompts = np.clip(drawn.prompt_tokens[chosen], 1, most - 1)
    cached = (prompts * said.prefix_hit_ratio).astype(np.int64)
    block = scenario.pool.serving.block_size
    requests = make_requests(
        np.zeros(len(prompts)),
        prompts,
        np.clip(drawn.generation_tokens[chosen], 1, most - prompts),
        cached_tokens=np.minimum(cached, prompts - 1) // block * block,
    )
    law = law_of(scenario.engine, scenario.pool)
    ended = simulate(requests, configuration, law).requests["end_seconds"].drop_nulls().sort()
    first, last = (int(share * (len(ended) - 1)) for share in _MIDDLE)
    return (last - first) / float(ended[last] - ended[first])
