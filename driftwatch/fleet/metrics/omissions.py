"""What a scrape config throws away before it is kept: ``metric_relabel_configs`` of a Prometheus.

Whole metrics, or the buckets of a histogram (which are most of its series): of those +Inf is left.
"""

from __future__ import annotations

from collections.abc import Collection

import polars as pl

from driftwatch.collect.registry import BUCKETED, REGISTRY, Metric
from driftwatch.collect.schema import BUCKETS


def _names(metric: Metric) -> frozenset[str]:
    """What it is called on the pages of the releases that are read."""
    return frozenset({metric.wire_name, *(old.wire_name for old in metric.old_names)})


_PARTS = ("sum", "count", "buckets", "edges")
METRIC_NAMES = frozenset(name for metric in REGISTRY for name in _names(metric))


def without(
    scrapes: pl.DataFrame, buckets: Collection[str], metrics: Collection[str]
) -> pl.DataFrame:
    """A scrape table without what is dropped.

    ``buckets``: histograms (``vllm:…``) that keep +Inf alone; ``metrics``: names (``vllm:…``) that
    are dropped.
    """
    columns: list[pl.Expr] = []
    for metric in REGISTRY:
        if _names(metric) & set(metrics):
            names = (metric.column, *(f"{metric.column}_{part}" for part in _PARTS))
            columns += [
                pl.lit(None, scrapes.schema[name]).alias(name)
                for name in names
                if name in scrapes.columns
            ]
        elif _names(metric) & set(buckets) and metric.column in BUCKETED:
            columns += [
                pl.col(f"{metric.column}_{part}").list.tail(1).cast(BUCKETS)
                for part in ("buckets", "edges")
            ]
    return scrapes.with_columns(columns)


def page_without(page: str, buckets: Collection[str], metrics: Collection[str]) -> str:
    """The text of a page without what is dropped; its HELP and TYPE lines stay."""
    if not (buckets or metrics):
        return page
    lines = []
    for line in page.splitlines(keepends=True):
        name = line.partition("{")[0].partition(" ")[0]
        if any(_is_of(name, metric) for metric in metrics):
            continue
        whole = name.removesuffix("_bucket")
        if whole != name and whole in buckets and 'le="+Inf"' not in line:
            continue
        lines.append(line)
    return "".join(lines)


def _is_of(sample: str, metric: str) -> bool:
    """Whether a line of a page is a sample of that metric (no comment)."""
    ends = ("", "_bucket", "_sum", "_count", "_created")
    return any(sample == metric + end for end in ends)
