"""One simulated vLLM server as a scraper meets it: address, model, version, settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from driftwatch.errors import ImpossibleConfiguration
from driftwatch.fleet.engine_kinds import USUAL, EngineKind
from driftwatch.fleet.families import REQUEST_TOKENS, Style
from driftwatch.fleet.families_0_32 import V0_32
from driftwatch.simulate.configuration import SchedulerConfiguration


@dataclass(frozen=True, slots=True)
class Server:
    """A server process, from its start to its end."""

    instance: str  # host:port
    model_name: str  # first served model name
    # of each engine; max_model_len and num_gpu_blocks must be known, as a page shows them
    configuration: SchedulerConfiguration
    style: Style = V0_32  # version of vLLM
    engines: int = 1  # ``--data-parallel-size``
    api_servers: int = 1  # ``--api-server-count``
    log_stats: bool = True  # False = ``--disable-log-stats``: no ``vllm:`` line at all
    # group of edges, or family, → finite edges
    custom_histogram_buckets: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    # labels of cache_config_info instead of the usual ones
    cache_config: Mapping[str, str] = field(default_factory=dict)
    ready_after_seconds: float = 25.0  # from the start of the process until its metrics are made
    # ``max_tokens`` of every request: what reaches it finishes by ``length``, all else by ``stop``.
    # None: each request asks for what it generates.
    client_max_tokens: int | None = None
    handler: str = "/v1/completions"  # path of the requests
    kind: EngineKind = USUAL  # what it does with them, where that is not to generate

    def problems(self) -> tuple[str, ...]:
        """Why there can be no such server; empty where there can."""
        found = list(self.configuration.problems())
        if self.configuration.max_model_len is None:
            found.append("max_model_len is not known: the edges of request lengths follow from it")
        if self.configuration.num_gpu_blocks is None:
            found.append("num_gpu_blocks is not known: cache_config_info shows it")
        for name in ("engines", "api_servers"):
            if getattr(self, name) < 1:
                found.append(f"{name} must be at least 1, not {getattr(self, name)}")
        if not self.style.engine_label and self.engines > 1:
            found.append(f"vLLM {self.style.version} has one engine a server, not {self.engines}")
        if self.custom_histogram_buckets and not self.style.custom_buckets:
            found.append(f"vLLM {self.style.version} has no custom histogram buckets")
        known = {REQUEST_TOKENS, *self.style.groups} | {
            family.name.removeprefix("vllm:")
            for family in self.style.families
            if family.type == "histogram"
        }
        for key, edges in self.custom_histogram_buckets.items():
            if key.removeprefix("vllm:") not in known:
                found.append(
                    f"custom_histogram_buckets: {key} is none of {', '.join(sorted(known))}"
                )
            if list(edges) != sorted(set(edges)) or not edges or edges[-1] == float("inf"):
                found.append(
                    f"custom_histogram_buckets: the edges of {key} do not rise, or end in inf"
                )
        return tuple(found)

    def check(self) -> None:
        """Refuse what cannot be.

        Raises:
            ImpossibleConfiguration: with every problem.
        """
        if found := self.problems():
            raise ImpossibleConfiguration(found)

    def finite_edges(self) -> dict[str, tuple[float, ...]]:
        """Group and family → finite bucket edges.

        Raises:
            ImpossibleConfiguration: as :meth:`check`.
        """
        self.check()
        length = self.configuration.max_model_len
        assert length is not None  # noqa: S101 - checked just now
        return self.style.finite_edges(length, self.custom_histogram_buckets)

    @property
    def itl_edges(self) -> tuple[float, ...]:
        """Finite edges that the engine has to book time between tokens by."""
        return self._edges_of("itl_seconds", "inter_token_latency")

    @property
    def iteration_tokens_edges(self) -> tuple[float, ...]:
        """Finite edges that the engine has to book tokens of a step by."""
        return self._edges_of("iteration_tokens", "iteration_tokens")

    def _edges_of(self, column: str, group: str) -> tuple[float, ...]:
        """Edges of the family that shows the column; V0 shows no tokens of a step."""
        edges = self.finite_edges()
        for family in self.style.families:
            if family.type == "histogram" and column in family.columns:
                return edges[family.name]
        return V0_32.groups[group]

    def info_labels(self, engine: int) -> dict[str, str]:
        """Labels of one engine's cache_config_info.

        Block count and size of the KV cache include vLLM's null block. With several engines
        num_gpu_blocks is that of all of them together and the other two of one (recorded).
        """
        found = dict(self.style.info_labels)
        blocks, size = self.configuration.num_gpu_blocks, self.configuration.block_size
        length = self.configuration.max_model_len
        assert blocks is not None  # noqa: S101 - checked before any page is made
        assert length is not None  # noqa: S101
        found |= {
            "block_size": str(size),
            "enable_prefix_caching": str(self.configuration.enable_prefix_caching),
            "num_gpu_blocks": str(blocks * self.engines),
        }
        if self.style.version == V0_32.version:
            found |= {
                "effective_attention_block_size": str(size),
                "kv_cache_max_concurrency": str(blocks / -(-length // size)),
                "kv_cache_size_tokens": str(blocks * size),
            }
        found |= self.cache_config
        if self.style.info_engine_label:
            found["engine"] = str(engine)
        return found
