"""From what an engine counts to what the pages of its server show."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from driftwatch.fleet.metrics.engine import Floats
from driftwatch.fleet.server import KindColumns, Server


class EngineColumns:
    """One engine's columns of the page, from its counters."""

    def __init__(self, server: Server) -> None:
        self.kind = KindColumns(server.kind)

    def page_columns(
        self, times: Floats, engine_columns: Mapping[str, Floats]
    ) -> dict[str, Floats]:
        """Columns of the next scrapes."""
        columns = dict(engine_columns)
        columns["waiting"] = engine_columns["waiting_capacity"] + engine_columns["waiting_deferred"]
        cached = engine_columns["prompt_tokens"] - engine_columns["prompt_tokens_computed"]
        columns["prompt_tokens_cached"] = cached
        columns["prefix_queries"] = engine_columns["prefix_queries_tokens"]
        columns["prefix_hits"] = engine_columns["prefix_hits_tokens"]
        columns["itl_seconds"] = np.column_stack(
            [engine_columns["itl_seconds_buckets"], engine_columns["itl_seconds_sum"]]
        )
        columns["iteration_tokens"] = np.column_stack(
            [engine_columns["iteration_tokens_buckets"], engine_columns["iteration_tokens_sum"]]
        )
        return self.kind.page_columns(times, columns)
