"""The longest stretch of minutes in which one engine ran undisturbed, and what came in it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
import polars as pl

from driftwatch.arrays import Flags, Floats, Integers
from driftwatch.errors import NoVerdict
from driftwatch.recommend.traffic.observed import CHUNK_SCHEMA
from driftwatch.signals.histograms import quantile

# Flag of a minute → why what lies before it is left out.
_CUTS = {
    "restarted": "a restart",
    "configuration_changed": "a change of its settings",
    "release_changed": "a change of its release",
}
# A row that saw less of its time than this is a gap: what was lost is not told apart.
_SEEN_AT_LEAST = 0.5
_MINUTE_SECONDS = 60.0


@dataclass(frozen=True, slots=True, eq=False)
class Clean:
    """Rows that can be read as one undisturbed stretch."""

    rows: pl.DataFrame  # :data:`driftwatch.signals.minutes.MINUTE_SCHEMA`, in order, at least one
    # observed seconds since the start at each edge of the rows, one more than rows. Gaps between
    # scrapes are not in them: counters say nothing of those.
    edges: Floats
    start: datetime
    notes: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        """Length of the stretch, as observed."""
        return float(self.edges[-1])

    def column(self, name: str) -> Floats:
        """A column as numbers, NaN where it is NULL."""
        return self.rows[name].cast(pl.Float64).fill_null(np.nan).to_numpy().astype(np.float64)


def clean(minutes: pl.DataFrame) -> Clean:
    """The longest clean stretch that ends with the last row that has a scrape.

    A restart, a change of settings or release, and a gap end it; so does a change of the bucket
    edges of the lengths. ``minutes``: :data:`driftwatch.signals.minutes.MINUTE_SCHEMA` of one
    engine, in order; rows may be longer than a minute. Raises NoVerdict: no row has a usable
    scrape.
    """
    rows = minutes.sort("end")
    with_spans = rows.with_columns(
        usable=(pl.col("scrapes") > 0) & (pl.col("duration_seconds") > 0), span=_row_seconds(rows)
    )
    usable = with_spans["usable"].fill_null(False).to_numpy()
    if not usable.any():
        raise NoVerdict(
            "no minute with a usable scrape in the window",
            help_text="name a window with --at and --window in which the server was scraped",
        )
    last = int(np.flatnonzero(usable)[-1])
    first, why = _begin(with_spans, usable, last)
    usable_rows = rows.slice(first, last - first + 1)
    edges = np.concatenate(([0.0], np.cumsum(usable_rows["duration_seconds"].to_numpy())))
    start = _start(usable_rows, edges)
    notes = []
    if why is not None and bool((rows["scrapes"].head(first) > 0).any()):
        notes.append(f"before {start:%H:%M} UTC not used: {why}")
    longest = float(with_spans["span"].slice(first, last - first + 1).max() or 0.0)  # type: ignore[arg-type]
    if longest > _MINUTE_SECONDS:
        notes.append(f"rows of {longest / _MINUTE_SECONDS:.0f} min: minutes are no longer kept")
    return Clean(usable_rows, edges, start, tuple(notes))


def _start(rows: pl.DataFrame, edges: Floats) -> datetime:
    """When the stretch began, by most of its rows: one before a gap saw less than its time."""
    first: datetime = rows["end"][0]
    ends = (rows["end"] - first).dt.total_seconds(fractional=True).to_numpy()
    return first + timedelta(seconds=float(np.median(ends - edges[1:])))


def _row_seconds(rows: pl.DataFrame) -> pl.Series:
    """Length of each row: a minute, or what separates a rolled-up one from the row before."""
    apart = rows["end"].diff().dt.total_seconds(fractional=True)
    durations = rows["duration_seconds"].fill_null(0.0)
    # a roll-up is told by what it saw: more than two minutes can hold
    long = durations > 2 * _MINUTE_SECONDS
    lengths = pl.DataFrame({"apart": apart, "seen": durations, "long": long}).select(
        pl.when("long")
        .then(pl.min_horizontal(pl.col("apart").fill_null(pl.col("seen")), 3_600.0))
        .otherwise(_MINUTE_SECONDS)
    )
    return lengths.to_series()


def _begin(rows: pl.DataFrame, usable: Flags, last: int) -> tuple[int, str | None]:
    """First row of the stretch that ends with row ``last``, and why not an earlier one."""
    flags = {name: rows[name].fill_null(False).to_numpy() for name in _CUTS if name in rows.columns}
    spans = rows["span"].to_numpy()
    durations = rows["duration_seconds"].fill_null(0.0).to_numpy()
    ends = rows["end"].to_list()
    edges = [
        (rows["prompt_tokens_edges"][i], rows["generation_tokens_edges"][i])
        for i in range(len(rows))
    ]
    for i in range(last, -1, -1):
        why = None
        if not usable[i]:
            before = any(usable[:i])
            why = "a gap without scrapes" if before else "nothing was scraped before"
        elif durations[i] < _SEEN_AT_LEAST * spans[i] and _alone(durations, spans, i, last):
            why = "a minute of which too little was scraped"
        elif i < last and (ends[i + 1] - ends[i]).total_seconds() > 1.5 * spans[i + 1]:
            return i + 1, "a gap without scrapes"
        elif i < last and _differ(edges[i], edges[i + 1]):
            why = "other histogram buckets"
        else:
            why = next((text for name, text in _CUTS.items() if flags[name][i]), None)
        if why is not None:
            # the last row itself is all there is where it is the disturbed one
            return (i + 1, why) if i < last else (i, None)
    return 0, None


def _alone(durations: Floats, spans: Floats, i: int, last: int) -> bool:
    """Too little was seen, and the row after does not make up for it (scrapes a minute apart)."""
    after = i + 1 if i < last else i - 1
    if after < 0:
        return True
    return bool(durations[i] + durations[after] < _SEEN_AT_LEAST * (spans[i] + spans[after]))


def _differ(one: tuple[pl.Series | None, ...], other: tuple[pl.Series | None, ...]) -> bool:
    for before, after in zip(one, other, strict=True):
        if before is None or after is None or not len(before) or not len(after):
            continue
        if len(before) != len(after) or before.to_list() != after.to_list():
            return True
    return False


# A chunk has so many first tokens at least, so that its means are not mostly chance (10 % of a
# mean with a coefficient of variation of 1), and a window so many chunks at most.
_FIRST_TOKENS = 100.0
_MOST_CHUNKS = 30


def chunks_of(stretch: Clean) -> pl.DataFrame:
    """Rows of a stretch → :data:`driftwatch.recommend.traffic.observed.CHUNK_SCHEMA`."""
    group = _groups(stretch)
    seconds = np.diff(stretch.edges)

    def summed(name: str) -> Floats:
        """Total of each chunk; unknown where it is so in one row of it."""
        return _per_chunk(group, stretch.column(name))

    def mean(name: str) -> Floats:
        values = stretch.column(name)
        finite = ~np.isnan(values)
        weight = np.where(finite, seconds, 0.0)
        return _over(
            _per_chunk(group, np.where(finite, values, 0.0) * weight), _per_chunk(group, weight)
        )

    over = summed("forward_passes_overcounted")
    passes = np.where(over > 0, np.nan, summed("forward_passes"))
    span = _per_chunk(group, seconds)
    last = np.append(np.flatnonzero(np.diff(group)), len(group) - 1)
    ends = stretch.edges[1:][last]
    tokens = summed("generation_tokens_total")
    columns = {
        "start_seconds": np.concatenate(([0.0], ends[:-1])),
        "end_seconds": ends,
        "generation_tokens_per_second": _over(tokens, span),
        "first_tokens_per_second": _over(summed("ttft_seconds_count"), span),
        "finished_per_second": _over(summed("generation_tokens_count"), span),
        "itl_seconds": _over(summed("itl_seconds_sum"), summed("itl_seconds_count")),
        "steps_per_generation_token": _over(passes, tokens),
        "tokens_per_step": _over(summed("iteration_tokens_sum"), passes),
        "ttft_seconds": _over(summed("ttft_seconds_sum"), summed("ttft_seconds_count")),
        "queue_seconds": _over(summed("queue_seconds_sum"), summed("queue_seconds_count")),
        "prefill_seconds": _over(summed("prefill_seconds_sum"), summed("e2e_seconds_count")),
        "running_requests": mean("running_requests"),
        "waiting_requests": mean("waiting_requests"),
        "kv_cache_usage_ratio": mean("kv_cache_usage_ratio"),
        "preemptions_per_second": _over(summed("preemptions_total"), span),
    }
    return pl.DataFrame(columns, schema=CHUNK_SCHEMA).with_columns(pl.all().fill_nan(None))


def _groups(stretch: Clean) -> Integers:
    """Number of the chunk of each row: neighbours, until enough first tokens came."""
    first = np.nan_to_num(stretch.column("ttft_seconds_count"))
    enough = max(_FIRST_TOKENS, float(first.sum()) / _MOST_CHUNKS)
    group = np.zeros(len(first), dtype=np.int64)
    number, tokens = 0, 0.0
    for row, count in enumerate(first):
        if tokens >= enough:
            number, tokens = number + 1, 0.0
        group[row] = number
        tokens += float(count)
    if number and tokens < enough:  # the last one is too small: it joins the one before
        group[group == number] = number - 1
    return group


def p95_of(stretch: Clean, name: str) -> float | None:
    """95th percentile of a histogram over the whole stretch, linear inside its bucket (PromQL).

    None where it is not on the page, nothing was observed or it lies above the last edge.
    """
    rows = stretch.rows.select(f"{name}_buckets", f"{name}_edges").drop_nulls()
    lists = [(list(buckets), list(edges)) for buckets, edges in rows.iter_rows()]
    if not lists:
        return None
    edges = lists[-1][1]
    total = np.sum([counts for counts, of in lists if of == edges], axis=0)
    p95 = quantile(pl.Series([total.tolist()]), pl.Series([edges]), 0.95)
    if p95.upper[0] is None:
        return None
    value: float | None = p95.value[0]
    return value


def _per_chunk(group: Integers, values: Floats) -> Floats:
    return np.bincount(group, weights=values).astype(np.float64)


def _over(numerator: Floats, denominator: Floats) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio: Floats = np.where(denominator > 0, numerator / denominator, np.nan)
    return ratio


def whole_hit_ratio(stretch: Clean) -> float | None:
    """Prefix hits over queries of the whole stretch; None = unknown."""
    queries, hits = _queries_and_hits(stretch)
    finite = ~(np.isnan(queries) | np.isnan(hits))
    total = float(queries[finite].sum())
    return float(hits[finite].sum()) / total if total > 0 else None


def _queries_and_hits(stretch: Clean) -> tuple[Floats, Floats]:
    queries = stretch.column("prefix_cache_queries_total")
    hits = stretch.column("prefix_cache_hits_total")
    if not np.isnan(queries).all():
        return queries, hits
    # what was not computed had been cached
    prompts = stretch.column("prompt_tokens_total")
    return prompts, prompts - stretch.column("prompt_tokens_computed_total")


def hit_ratios(stretch: Clean) -> tuple[Floats, str | None]:
    """The hit ratio of each row, the stretch's where a row has none; 0 where it is unknown."""
    whole = whole_hit_ratio(stretch)
    if whole is None:
        return np.zeros(len(stretch.rows)), "prefix hits: not in /metrics, none assumed"
    queries, hits = _queries_and_hits(stretch)
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = np.where(queries > 0, hits / queries, whole)
    note = None
    if whole > 0:
        note = "prefix hits: each request has the hit ratio of its minute"
    return np.clip(np.where(np.isnan(ratio), whole, ratio), 0.0, 1.0), note


def cached_tokens(
    prompt: Integers, ratio: Floats, block: int, rng: np.random.Generator
) -> Integers:
    """Cached tokens of each prompt in whole blocks; hits over queries is the ratio on average."""
    blocks = prompt * ratio / block
    whole = np.floor(blocks + rng.random(len(prompt))).astype(np.int64)
    tokens: Integers = np.minimum(whole, (prompt - 1) // block) * block
    return tokens
