"""A server process of vLLM 0.32: its bucket edges and the labels of its settings."""

from __future__ import annotations

from dataclasses import dataclass

import orjson

from driftwatch.errors import ImpossibleConfiguration
from driftwatch.simulate.configuration import SchedulerConfiguration

# bucket edges of vLLM 0.32's histograms (v1/metrics/buckets.py, loggers.py), finite ones
REQUEST_LATENCY_SECONDS = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0,
    120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0,
)  # fmt: skip
TIME_TO_FIRST_TOKEN_SECONDS = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5,
    10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
)  # fmt: skip
INTER_TOKEN_LATENCY_SECONDS = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5,
    10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
ITERATION_TOKENS = (
    1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0,
)  # fmt: skip


def request_tokens(max_model_len: int) -> tuple[float, ...]:
    """1, 2, 5, 10, … up to the model's length.

    >>> request_tokens(8192)[-3:]
    (1000.0, 2000.0, 5000.0)
    """
    edges: list[float] = []
    decade = 1
    while True:
        for step in (1, 2, 5):
            if decade * step > max_model_len:
                return tuple(edges)
            edges.append(float(decade * step))
        decade *= 10


READY_AFTER_SECONDS = 25.0  # from the start of a process until its metrics appear

# labels of cache_config_info on a page of vLLM 0.32 that do not follow from the settings
_INFO = {
    "_block_size_resolved": "True",
    "cache_dtype": "auto",
    "enable_mamba_shared_prefix_checkpoint": "False",
    "gpu_memory_utilization": "0.92",
    "is_attention_free": "False",
    "kv_cache_dtype_skip_layers": "[]",
    "kv_offloading_backend": "native",
    "kv_sharing_fast_prefill": "False",
    "mamba_cache_dtype": "auto",
    "mamba_cache_mode": "none",
    "mamba_ssm_cache_dtype": "float32",
    "prefix_cache_retention_interval": "0",
    "prefix_caching_hash_algo": "sha256",
    "replayssm_buffer_len": "16",
    "swa_bounded_replay": "True",
    "use_kda_recoverssm": "False",
    "use_replayssm": "False",
    "user_specified_block_size": "True",
} | dict.fromkeys(
    (
        *("cache_hit_alignment_tokens", "hash_block_size", "kv_cache_layout", "sliding_window"),
        *("kv_cache_memory_bytes", "kv_offloading_size", "mamba_block_size", "num_cpu_blocks"),
        *("mamba_page_size_padded", "num_gpu_blocks_override", "prefix_match_unit"),
        "skip_page_size_padded",
    ),
    "None",
)
_FEW_EDGES = 4  # a histogram with no more edges keeps all of them


@dataclass(frozen=True, slots=True)
class Server:
    """A server process of vLLM 0.32, from its start to its end."""

    instance: str  # host:port
    model_name: str  # first served model name
    # of each engine; a page needs its max_model_len and num_gpu_blocks
    configuration: SchedulerConfiguration
    log_stats: bool = True  # False = ``--disable-log-stats``: no ``vllm:`` line at all
    # ``--custom-histogram-buckets`` with every second of the usual edges
    other_buckets: bool = False

    def check(self) -> None:
        """Refuse settings that are impossible, or too few for a page.

        Raises ImpossibleConfiguration: with every problem.
        """
        problems = [*self.configuration.problems()]
        for name in ("max_model_len", "num_gpu_blocks"):
            if getattr(self.configuration, name) is None:
                problems.append(f"{name} is unknown, and the page needs it")
        if problems:
            raise ImpossibleConfiguration(tuple(problems))

    def edges(self) -> dict[str, tuple[float, ...]]:
        """Histogram of the scrape table → its finite bucket edges.

        Raises ImpossibleConfiguration: as :meth:`check`.
        """
        self.check()
        tokens = request_tokens(self.configuration.max_model_len or 0)
        latencies = ("e2e_seconds", "queue_seconds", "prefill_seconds", "decode_seconds")
        edges = {
            "iteration_tokens": ITERATION_TOKENS,
            "prompt_tokens": tokens,
            "generation_tokens": tokens,
            "ttft_seconds": TIME_TO_FIRST_TOKEN_SECONDS,
            "itl_seconds": INTER_TOKEN_LATENCY_SECONDS,
            "tpot_seconds": INTER_TOKEN_LATENCY_SECONDS,
            **dict.fromkeys(latencies, REQUEST_LATENCY_SECONDS),
        }
        if not self.other_buckets:
            return edges
        return {n: own[1::2] if len(own) > _FEW_EDGES else own for n, own in edges.items()}

    def cache_config(self) -> str:
        """Labels of cache_config_info, sorted JSON; counts include vLLM's null block."""
        blocks, size = self.configuration.num_gpu_blocks or 0, self.configuration.block_size
        length = self.configuration.max_model_len or 0
        labels = _INFO | {
            "block_size": str(size),
            "enable_prefix_caching": str(self.configuration.enable_prefix_caching),
            "num_gpu_blocks": str(blocks),
            "effective_attention_block_size": str(size),
            "kv_cache_max_concurrency": str(blocks / -(-length // size)),
            "kv_cache_size_tokens": str(blocks * size),
        }
        return orjson.dumps(labels, option=orjson.OPT_SORT_KEYS).decode()
