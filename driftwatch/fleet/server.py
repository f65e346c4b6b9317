"""A server's page, and kinds of servers other than chat: their load and their metrics.

All kinds have one scheduler. A pooling request ends with its prompt and counts no generated token
(vLLM ``v1/metrics/stats.py``: an output without tokens). The prefill side of a disaggregated pair
generates one token. On the decode side a KV connector brings all but the last block of a prompt; a
request is deferred during the transfer (no latency counts that time here). Speculative decoding
drafts ``draft_tokens`` a step and adds the accepted share to the step's own token, so an answer
takes fewer steps; the cost of verifying, and the KV of tokens beyond one a step, are left out. A
sleeping engine runs nothing, and requests wait (``/sleep``, level 1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import orjson
import polars as pl

from driftwatch.errors import ImpossibleConfiguration
from driftwatch.fleet.scenario.model import Scenario
from driftwatch.fleet.servers import concerns
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.requests import Requests

Floats = npt.NDArray[np.float64]

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
_TRANSFER_SECONDS = 0.25  # 2,000 tokens of 128 KiB over 10 Gbit/s


@dataclass(frozen=True, slots=True)
class EngineKind:
    """The kind of a server's engine, over the whole scenario."""

    name: str = "generate"  # generate, pooling, prefill_only, decode_only or speculative
    draft_tokens: int = 0  # of each step
    # (start, accepted share), ascending
    accepted: tuple[tuple[float, float], ...] = ()
    asleep: tuple[tuple[float, float], ...] = ()  # stretches (from, to)

    def accepted_tokens(self, times: Floats) -> Floats:
        """Mean accepted tokens of a step at these times."""
        since = np.array([at for at, _ in self.accepted])
        ratios = np.array([ratio for _, ratio in self.accepted])
        place = np.maximum(np.searchsorted(since, times, side="right") - 1, 0)
        return np.asarray(self.draft_tokens * ratios[place], dtype=np.float64)

    def sent(self, requests: Requests, block_size: int) -> Requests:
        """The requests as the scheduler sees them."""
        if self.name in ("pooling", "prefill_only"):
            return replace(requests, generation_tokens=np.ones_like(requests.generation_tokens))
        if self.name == "decode_only":
            cached = (requests.prompt_tokens - 1) // block_size * block_size
            return replace(requests, cached_tokens=cached)
        if self.name == "speculative" and len(requests):
            step = 1.0 + self.accepted_tokens(requests.arrival_seconds)
            steps = np.ceil((requests.generation_tokens - 1) / step).astype(np.int64)
            return replace(requests, generation_tokens=1 + steps)
        return requests

    def booked(
        self, requests: pl.DataFrame, generation_tokens: Sequence[npt.NDArray[np.int64]]
    ) -> pl.DataFrame:
        """The ended requests, with the lengths that their clients see.

        ``requests``: of a run; ``generation_tokens``: of every request of this process, offer by
        offer.
        """
        ended = requests.filter(pl.col("status") != "unfinished")
        if self.name != "speculative" or ended.is_empty():
            return ended
        whole = pl.Series(np.concatenate(generation_tokens)[ended["index"].to_numpy()])
        share = ended["generated_tokens"] / ended["generation_tokens"]
        generated = (whole * share).round().cast(pl.Int64)
        return ended.with_columns(generation_tokens=whole, generated_tokens=generated)


USUAL = EngineKind()


def kind_of(scenario: Scenario, number: int) -> EngineKind:
    """The kind of one server of a scenario."""
    pool = scenario.pool
    own = [f for f in scenario.faults if concerns(f, number)]
    asleep = [(f.at, f.until or np.inf) for f in own if f.kind == "sleep"]
    accepted = [(0.0, pool.acceptance_ratio)]
    for fault in sorted((f for f in own if f.kind == "acceptance"), key=lambda f: f.at):
        accepted.append((fault.at, fault.ratio or 0.0))
        if fault.until is not None:
            accepted.append((fault.until, pool.acceptance_ratio))
    drafts = pool.draft_tokens if pool.kind == "speculative" else 0
    return EngineKind(pool.kind, drafts, tuple(accepted), tuple(sorted(asleep)))


@dataclass(slots=True)
class KindColumns:
    """The columns of an engine's scrapes, as its kind fills them."""

    kind: EngineKind  # of the engine
    accepted: float = 0.0  # tokens accepted up to the last scrape
    outputs: float = 0.0  # outputs after the first, up to then
    # of requests, seconds of the scenario, ascending
    arrivals: Floats = field(default_factory=lambda: np.zeros(0))

    def arrived(self, arrival_seconds: Floats) -> None:
        """Add requests; only the decode side needs them, for transfers."""
        if self.kind.name == "decode_only":
            self.arrivals = np.concatenate([self.arrivals, arrival_seconds])

    def columns(self, times: Floats, columns: dict[str, Floats]) -> dict[str, Floats]:
        """The columns of the scrape table, as this kind of server fills them.

        ``times``: of the scrapes, seconds of the scenario; ``columns``: those of a server that
        generates, one token a step; histograms as cumulative buckets and the sum.
        """
        kind, nothing = self.kind, np.zeros(len(times))
        awake = np.ones(len(times))
        for start, end in kind.asleep:
            awake[(times >= start) & (times < end)] = 0.0
        columns |= {
            "engine_awake": awake,
            "aborted_requests_total": nothing,
            "prompt_tokens_transferred_total": nothing,
            "external_prefix_cache_hits_total": nothing,
        }
        if kind.name == "decode_only":
            columns |= self._transferred(times, columns)
        if kind.name == "pooling":
            columns |= self._without_answers(columns)
        if kind.draft_tokens:
            columns |= self._drafted(times, columns)
        waiting = columns["waiting_capacity_requests"] + columns["waiting_deferred_requests"]
        return columns | {"waiting_requests": waiting}

    def _transferred(self, times: Floats, columns: Mapping[str, Floats]) -> dict[str, Floats]:
        """Columns of prompts that come by transfer; their requests are deferred meanwhile."""
        late = np.searchsorted(self.arrivals, times - _TRANSFER_SECONDS, side="right")
        arrived = np.searchsorted(self.arrivals, times, side="right")
        moved = columns["prompt_tokens_total"] - columns["prompt_tokens_computed_total"]
        return {
            "waiting_deferred_requests": (arrived - late).astype(np.float64),
            "prompt_tokens_transferred_total": moved,
            "external_prefix_cache_hits_total": columns["prefix_cache_hits_total"],
            "prefix_cache_hits_total": np.zeros(len(times)),
        }

    @staticmethod
    def _without_answers(columns: Mapping[str, Floats]) -> dict[str, Floats]:
        """Columns of requests that stop without a token."""
        tokens = columns["generation_tokens_total"]
        answers, steps = columns["generation_tokens"].copy(), columns["iteration_tokens"].copy()
        answers[:, -1] = 0.0
        steps[:, -1] = np.maximum(steps[:, -1] - tokens, 0.0)
        return {
            "generation_tokens_total": np.zeros_like(tokens),
            "generation_tokens": answers,
            "iteration_tokens": steps,
        }

    def _drafted(self, times: Floats, columns: Mapping[str, Floats]) -> dict[str, Floats]:
        """Columns with accepted tokens, and the counters of drafts."""
        outputs = columns["itl_seconds"][:, -2]
        new = np.diff(outputs, prepend=self.outputs)
        accepted = np.rint(self.accepted + np.cumsum(new * self.kind.accepted_tokens(times)))
        self.accepted, self.outputs = float(accepted[-1]), float(outputs[-1])
        steps = columns["iteration_tokens"].copy()
        steps[:, -1] += accepted
        return {
            "generation_tokens_total": columns["generation_tokens_total"] + accepted,
            "iteration_tokens": steps,
            "spec_decode_draft_tokens_total": outputs * self.kind.draft_tokens,
            "spec_decode_accepted_tokens_total": accepted,
        }


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
    kind: EngineKind = USUAL

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
