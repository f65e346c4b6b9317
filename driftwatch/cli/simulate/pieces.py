"""What ``driftwatch simulate run`` does with each piece of a run: add it up, write its rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from driftwatch.cli.simulate.files import InOrder, TableWriter

if TYPE_CHECKING:
    import polars as pl

    from driftwatch.cli.options import Progress
    from driftwatch.simulate.long_run import LongRun, Piece
    from driftwatch.simulate.run_summary import RunSummary


class Written:
    """Tables and figures of a run, piece by piece.

    ``run``: what is run; ``outputs``: ``--per-request``, ``--per-step``, ``--scrapes`` → file, None
    = not asked for; ``progress``: told how many requests have ended.
    """

    def __init__(self, run: LongRun, outputs: dict[str, Path | None], progress: Progress) -> None:
        from driftwatch.simulate import vllm_buckets

        self._run = run
        self._outputs = outputs
        self._progress = progress
        self._writers: dict[str, TableWriter] = {}
        self._fixed = {
            "itl_seconds_edges": vllm_buckets.INTER_TOKEN_LATENCY_SECONDS,
            "iteration_tokens_edges": vllm_buckets.ITERATION_TOKENS,
        }

    def answer(self) -> RunSummary:
        """Run it all; the files are there when this returns, none of them if it raises.

        Raises UsageError: a file cannot be written; else as ``LongRun.run``.
        """
        try:
            totals = self._run.run(self._begin, self._take)
            for writer in self._writers.values():
                writer.close()
        finally:
            self._progress.close()
            self._discard()
        return self._tally.summary(totals)

    def _begin(self) -> None:
        from driftwatch.simulate.request_histograms import Histograms, edges_of
        from driftwatch.simulate.run_summary import RunTally

        requests, configuration = self._run.requests, self._run.configuration
        self._discard()
        self._writers = {
            option: TableWriter(path) for option, path in self._outputs.items() if path is not None
        }
        self._tally = RunTally(requests, configuration)
        self._in_order = InOrder()
        self._ended = 0
        longest = int((requests.prompt_tokens + requests.generation_tokens).max(initial=1))
        self._histograms = Histograms(edges_of(configuration.max_model_len, longest))

    def _take(self, piece: Piece) -> None:
        from driftwatch.simulate.run_summary import with_itl

        requests = with_itl(piece.requests)
        self._tally.take(requests, piece.steps)
        if (writer := self._writers.get("--per-request")) is not None:
            writer.append(self._in_order.take(requests))
        if (writer := self._writers.get("--per-step")) is not None:
            writer.append(piece.steps)
        if (writer := self._writers.get("--scrapes")) is not None:
            writer.append(self._scraped(piece))
        self._ended += requests.height
        self._progress(self._ended, len(self._run.requests))

    def _scraped(self, piece: Piece) -> pl.DataFrame:
        """What ``/metrics`` would say at the piece's scrapes."""
        import polars as pl

        if piece.scrapes is None or piece.first_tokens is None:
            raise AssertionError("observed without a scrape")
        histograms = self._histograms.take(
            piece.requests, piece.first_tokens, piece.scrapes["time_seconds"].to_numpy()
        )
        edges = [
            pl.lit(list(finite), dtype=pl.List(pl.Float64)).alias(name)
            for name, finite in self._fixed.items()
        ]
        return pl.concat([piece.scrapes.with_columns(edges), histograms], how="horizontal")

    def _discard(self) -> None:
        for writer in self._writers.values():
            writer.discard()
