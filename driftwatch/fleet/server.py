"""Servers that are not chat: what their requests are to the scheduler, and what their pages show.

The scheduler is simulated as it is; what differs is who computes what. A pooling request ends with
its prompt and books no generated token (vLLM ``v1/metrics/stats.py``: an output without tokens).
The prefill side of a disaggregated pair is asked for one token. On the decode side a KV connector
brings all but the last block of a prompt; who waits for it is deferred, for as long as the transfer
takes (that time is in no latency here). Speculative decoding drafts ``draft_tokens`` a step, of
which the accepted share comes beside the step's own token, so an answer takes fewer steps; what
verifying costs and the KV of tokens beyond one a step are left out. A sleeping engine runs nothing
and holds what comes (``/sleep``, level 1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import polars as pl

from driftwatch.errors import ImpossibleConfiguration
from driftwatch.fleet.metrics.families import Family, Style
from driftwatch.fleet.metrics.releases import V0_32
from driftwatch.fleet.scenario.model import Scenario
from driftwatch.fleet.servers import concerns
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.outcome import Outcome
from driftwatch.simulate.requests import Requests

Floats = npt.NDArray[np.float64]

READY_AFTER_SECONDS = 25.0  # from the start of a process until its metrics are made
_TRANSFER_SECONDS = 0.25  # 2,000 tokens of 128 KiB over 10 Gbit/s
_SPEC = "Number of {} in speculative decoding."
_SPEC_FAMILIES = tuple(
    Family(f"vllm:spec_decode_num_{name}", "counter", _SPEC.format(what), (f"spec_{name}",))
    for name, what in (
        ("drafts", "drafts"),
        ("draft_tokens", "draft tokens"),
        ("accepted_tokens", "accepted tokens"),
    )
)
# family → its columns, where a page of these kinds shows what others leave at 0 or 1
_KIND_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "vllm:engine_sleep_state": ("awake", "offloaded", ""),
    "vllm:prompt_tokens_by_source": (
        "prompt_tokens_computed",
        "prompt_tokens_local",
        "prompt_tokens_transferred",
    ),
    "vllm:external_prefix_cache_queries": ("external_queries",),
    "vllm:external_prefix_cache_hits": ("external_hits",),
}


@dataclass(frozen=True, slots=True)
class EngineKind:
    """What a server does with requests, over the whole scenario."""

    name: str = "generate"  # generate, pooling, prefill_only, decode_only or speculative
    draft_tokens: int = 0  # of each step
    # (from when, share of them that is accepted), ascending
    accepted: tuple[tuple[float, float], ...] = ()
    asleep: tuple[tuple[float, float], ...] = ()  # stretches (from, to)

    @property
    def is_usual(self) -> bool:
        """Its page is that of any server."""
        return self.name == "generate" and not self.asleep

    def style(self, usual: Style) -> Style:
        """What its page shows."""
        if self.is_usual:
            return usual
        families = tuple(
            replace(family, columns=_KIND_COLUMNS.get(family.name, family.columns))
            for family in usual.families
        )
        return replace(usual, families=families + (_SPEC_FAMILIES if self.draft_tokens else ()))

    def accepted_tokens(self, times: Floats) -> Floats:
        """Accepted tokens of a step at these times; mean."""
        since = np.array([at for at, _ in self.accepted])
        ratios = np.array([ratio for _, ratio in self.accepted])
        place = np.maximum(np.searchsorted(since, times, side="right") - 1, 0)
        return np.asarray(self.draft_tokens * ratios[place], dtype=np.float64)

    def sent(self, requests: Requests, block_size: int) -> Requests:
        """What the scheduler is offered of these requests."""
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
        self, outcome: Outcome, generation_tokens: Sequence[npt.NDArray[np.int64]]
    ) -> Outcome:
        """What ended, with the lengths that its clients see.

        ``generation_tokens``: of every request of this life, offer by offer.
        """
        if self.name != "speculative" or outcome.requests.is_empty():
            return outcome
        requests = outcome.requests
        whole = pl.Series(np.concatenate(generation_tokens)[requests["index"].to_numpy()])
        share = requests["generated_tokens"] / requests["generation_tokens"]
        generated = (whole * share).round().cast(requests.schema["generated_tokens"])
        return replace(
            outcome,
            requests=requests.with_columns(
                generation_tokens=whole.cast(requests.schema["generation_tokens"]),
                generated_tokens=generated,
            ),
        )


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
    """The columns of one engine's page that its kind decides, as it goes on."""

    kind: EngineKind  # of the engine
    accepted: float = 0.0  # tokens accepted until the last scrape
    outputs: float = 0.0  # outputs after the first until then
    # of requests, seconds of the scenario, ascending
    arrivals: Floats = field(default_factory=lambda: np.zeros(0))

    def arrived(self, arrival_seconds: Floats) -> None:
        """Further requests; only a transfer remembers them."""
        if self.kind.name == "decode_only":
            self.arrivals = np.concatenate([self.arrivals, arrival_seconds])

    def page_columns(self, times: Floats, columns: dict[str, Floats]) -> dict[str, Floats]:
        """The columns as such a server shows them.

        ``times``: of the scrapes, seconds of the scenario; ``columns``: columns of a server that
        generates, one token a step.
        """
        kind = self.kind
        if kind.is_usual:
            return columns
        nothing = np.zeros(len(times))
        sleeps = nothing.astype(bool)
        for start, end in kind.asleep:
            sleeps |= (times >= start) & (times < end)
        moved = nothing
        local = columns["prompt_tokens_cached"]
        if kind.name == "decode_only":
            moved, local = local, nothing
            late = np.searchsorted(self.arrivals, times - _TRANSFER_SECONDS, side="right")
            arrived = np.searchsorted(self.arrivals, times, side="right")
            columns["waiting_deferred"] = (arrived - late).astype(np.float64)
            columns["waiting"] = columns["waiting_capacity"] + columns["waiting_deferred"]
            columns["external_hits"] = columns["prefix_hits"]
            columns["prefix_hits"] = nothing
        if kind.name == "pooling":
            columns |= self._without_answers(columns)
        if kind.draft_tokens:
            columns |= self._drafted(times, columns)
        return columns | {
            "awake": (~sleeps).astype(float),
            "offloaded": sleeps.astype(float),
            "prompt_tokens_local": local,
            "prompt_tokens_transferred": moved,
            "external_queries": columns["prefix_queries"]
            if kind.name == "decode_only"
            else nothing,
            "external_hits": columns.get("external_hits", nothing),
        }

    @staticmethod
    def _without_answers(columns: Mapping[str, Floats]) -> dict[str, Floats]:
        """A pooling request stops, with no token and no ``max_tokens``."""
        nothing = np.zeros_like(columns["generation_tokens"])
        changed = {
            "generation_tokens": nothing,
            "finished_stop": columns["finished_stop"] + columns["finished_length"],
            "finished_length": nothing,
            "request_params_max_tokens": np.zeros_like(columns["request_params_max_tokens"]),
        }
        for name, tokens in (
            ("request_generation_tokens", columns["generation_tokens"]),
            ("request_max_num_generation_tokens", columns["generation_tokens"]),
            ("iteration_tokens", columns["generation_tokens"]),
        ):
            histogram = columns[name].copy()
            histogram[:, -1] = np.maximum(histogram[:, -1] - tokens, 0.0)
            changed[name] = histogram
        for name in ("request_generation_tokens", "request_max_num_generation_tokens"):
            changed[name][:, -1] = 0.0
        return changed

    def _drafted(self, times: Floats, columns: Mapping[str, Floats]) -> dict[str, Floats]:
        """More tokens a step, and the counters of drafts."""
        outputs = columns["itl_seconds_count"]
        new = np.diff(outputs, prepend=self.outputs)
        accepted = np.rint(self.accepted + np.cumsum(new * self.kind.accepted_tokens(times)))
        self.accepted, self.outputs = float(accepted[-1]), float(outputs[-1])
        histogram = columns["iteration_tokens"].copy()
        histogram[:, -1] += accepted
        return {
            "generation_tokens": columns["generation_tokens"] + accepted,
            "iteration_tokens": histogram,
            "spec_drafts": outputs,
            "spec_draft_tokens": outputs * self.kind.draft_tokens,
            "spec_accepted_tokens": accepted,
        }


@dataclass(frozen=True, slots=True)
class Server:
    """A server process, from its start to its end."""

    instance: str  # host:port
    model_name: str  # first served model name
    # of each engine; max_model_len and num_gpu_blocks must be known, as a page shows them
    configuration: SchedulerConfiguration
    style: Style = V0_32  # version of vLLM
    log_stats: bool = True  # False = ``--disable-log-stats``: no ``vllm:`` line at all
    # group of edges, or family, → finite edges
    custom_histogram_buckets: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    # labels of cache_config_info instead of the usual ones
    cache_config: Mapping[str, str] = field(default_factory=dict)
    kind: EngineKind = USUAL  # what it does with them, where that is not to generate

    def check(self) -> None:
        """Refuse settings that cannot be, or of which a page cannot be made.

        Raises ImpossibleConfiguration: with every problem.
        """
        problems = [*self.configuration.problems()]
        for name in ("max_model_len", "num_gpu_blocks"):
            if getattr(self.configuration, name) is None:
                problems.append(f"{name} is not known: the page shows it")
        if problems:
            raise ImpossibleConfiguration(tuple(problems))

    def finite_edges(self) -> dict[str, tuple[float, ...]]:
        """Group and family → finite bucket edges.

        Raises ImpossibleConfiguration: as :meth:`check`.
        """
        self.check()
        length = self.configuration.max_model_len
        assert length is not None  # noqa: S101 - checked just now
        return self.style.finite_edges(length, self.custom_histogram_buckets)

    @property
    def itl_edges(self) -> tuple[float, ...]:
        """Finite edges that the engine has to book time between tokens by."""
        return self._edges_of("itl_seconds")

    @property
    def iteration_tokens_edges(self) -> tuple[float, ...]:
        """Finite edges that the engine has to book tokens of a step by."""
        return self._edges_of("iteration_tokens")

    def _edges_of(self, column: str) -> tuple[float, ...]:
        """Edges of the family that shows the column."""
        edges = self.finite_edges()
        families = (f for f in self.style.families if f.type == "histogram")
        return next(edges[family.name] for family in families if column in family.columns)

    def info_labels(self) -> dict[str, str]:
        """Labels of cache_config_info; count and size of blocks include vLLM's null block."""
        labels = dict(self.style.info_labels)
        blocks, size = self.configuration.num_gpu_blocks, self.configuration.block_size
        length = self.configuration.max_model_len
        assert blocks is not None  # noqa: S101 - checked before any page is made
        assert length is not None  # noqa: S101
        labels |= {
            "block_size": str(size),
            "enable_prefix_caching": str(self.configuration.enable_prefix_caching),
            "num_gpu_blocks": str(blocks),
            "effective_attention_block_size": str(size),
            "kv_cache_max_concurrency": str(blocks / -(-length // size)),
            "kv_cache_size_tokens": str(blocks * size),
        }
        return {**labels, **self.cache_config, "engine": "0"}
