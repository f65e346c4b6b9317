"""Does each target show a page, the inputs of the rules, and numbers that can be true?"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

import polars as pl

from driftwatch.collect.foreign import fix_of
from driftwatch.collect.registry import BY_COLUMN, HISTOGRAMS
from driftwatch.doctor.checks import TargetCheck
from driftwatch.doctor.rules import Costs, can_be_true
from driftwatch.evidence import BY_NAME, COLUMNS
from driftwatch.minutes.continuity import NEVER_ZERO
from driftwatch.minutes.engine import KIND_COLUMNS, kind_of_scrape
from driftwatch.model import TargetKey
from driftwatch.notify.engine_words import ASLEEP, ENGINE_WORDS, NEVER_FILLED, NOT_APPLICABLE
from driftwatch.rulebook.rules import Rule

Row = Mapping[str, object]

# vLLM's largest edge is 7,680 s and its longest pauses between two tokens are seconds; what is
# beyond these is counted in milliseconds
_EDGE_SECONDS = 50_000.0
_ITL_SECONDS = 10.0
_COUNTERS = ("prompt_tokens_total", "generation_tokens_total", "finished_requests_total")


def page(key: TargetKey, row: Row | None) -> TargetCheck:
    """Whether there is a page of vLLM."""
    if row is not None and row["ok"]:
        return TargetCheck(key, "ok", "page read")
    reason = "no scrape" if row is None else str(row["reason"])
    fix = fix_of(reason) or "is vLLM running there, and is the address right?"
    return TargetCheck(key, "MISSING", reason, ("every rule",), fix)


def engine(key: TargetKey, row: Row, rules: Iterable[Rule]) -> Iterator[TargetCheck]:
    """What kind of engine it is where that is not the usual one, and the rules it is not for."""
    if row["engine_awake"] == 0:
        yield TargetCheck(key, "ok", f"{ASLEEP}: its rules wait until it is woken")
    schema = dict.fromkeys(KIND_COLUMNS, pl.Float64)
    counted = pl.DataFrame([{name: row[name] for name in KIND_COLUMNS}], schema=schema)
    kind = counted.select(kind_of_scrape()).item()
    if kind not in ENGINE_WORDS:
        return
    never = NEVER_FILLED.get(kind, frozenset())
    dark = frozenset(c.name for c in COLUMNS if (set(c.sources) - set(c.optional)) & never)
    lost = tuple(rule.id for rule in rules if rule.enabled and not can_be_true(rule.when, dark))
    what = f"not applicable: {ENGINE_WORDS[kind]}: {NOT_APPLICABLE[kind]}"
    yield TargetCheck(key, "OFF", what, lost)


def inputs(key: TargetKey, costs: Costs) -> Iterator[TargetCheck]:
    """Every metric that a rule reads."""
    facts, rules = costs.facts[key], costs.rules
    columns = {column for rule in rules for column in rule.columns}
    sources = sorted({s for c in columns for s in BY_NAME[c].sources if s in BY_COLUMN})
    missing = 0
    for source in sources:
        cost = costs.of((key,), source)
        poorer = [
            rule.id
            for rule in rules
            if rule.id not in (*cost.lost, *cost.partly)
            and any(source in facts.poorer(BY_NAME[column]) for column in rule.columns)
        ]
        disables = (*cost.disables, *(f"a part of {rule}" for rule in poorer))
        if disables:
            missing += 1
            what = f"{BY_COLUMN[source].wire_name}: not on the page"
            yield TargetCheck(key, "MISSING" if cost.lost else "WARNING", what, disables)
    if missing < len(sources):
        what = f"{len(sources) - missing} inputs of the rules are on the page"
        yield TargetCheck(key, "ok", what)


def counting(key: TargetKey, row: Row, configured: float | None) -> Iterator[TargetCheck]:
    """Whether engine steps are counted once, or by how many API servers."""
    if row["several_api_servers"] and configured is not None:
        what = f"steps are counted by {configured:g} API servers, as configured"
        yield TargetCheck(key, "ok", what)
    elif row["several_api_servers"]:
        yield TargetCheck(
            key,
            "WARNING",
            "no process_start_time_seconds and no _created: several API servers, each of which "
            "counts every engine step, or a relabelling rule that drops them",
            ("requests_per_forward_pass and tokens_per_forward_pass may be too low",),
            "serving.arguments: --api-server-count 1 if there is one; else their number",
            ("serving", "arguments"),
        )


def units(key: TargetKey, row: Row) -> Iterator[TargetCheck]:
    """Whether the newest numbers can be what their names say."""
    wrong = [*_percentages(key, row), *_milliseconds(key, row)]
    yield from wrong or [TargetCheck(key, "ok", "ratios and seconds are plausible")]


def _percentages(key: TargetKey, row: Row) -> Iterator[TargetCheck]:
    usage = row["kv_cache_usage_ratio"]
    if isinstance(usage, float) and usage > 1:
        name = BY_COLUMN["kv_cache_usage_ratio"].wire_name
        yield TargetCheck(
            key,
            "WRONG",
            f"{name} is {usage:g}: not a ratio of 0 to 1, a percentage?",
            ("the KV cache's limit and margin",),
            "take away what multiplies it (a recording or relabelling rule)",
            kind="kv percent",
            weight=usage,
        )


def _milliseconds(key: TargetKey, row: Row) -> Iterator[TargetCheck]:
    for name in (h for h in HISTOGRAMS if h.endswith("_seconds")):
        edges, count, total = row.get(f"{name}_edges"), row[f"{name}_count"], row[f"{name}_sum"]
        finite = [e for e in edges if math.isfinite(e)] if isinstance(edges, list) else []
        last, mean = max(finite, default=0.0), 0.0
        if isinstance(total, float) and isinstance(count, float) and count:
            mean = total / count
        if last > _EDGE_SECONDS:
            what = f"has buckets up to {last:,.0f} s"
        elif name == "itl_seconds" and mean > _ITL_SECONDS:
            what = f"has a mean of {mean:,.0f} s between two tokens"
        elif total == 0 and count and name in NEVER_ZERO:
            what = f"adds up to 0 s in {count:,.0f} requests"
        else:
            continue
        unit, fix = "milliseconds?", "serve it in seconds"
        if total == 0:
            unit, fix = "not measured", "another release of vLLM; until then it is unknown"
        columns = [c.name for c in BY_NAME.values() if name in c.sources and c.unit == "seconds"]
        yield TargetCheck(
            key,
            "WRONG",
            f"{BY_COLUMN[name].wire_name} {what}: {unit}",
            tuple(columns[:3]),
            fix,
            kind=f"{name} milliseconds",
            weight=max(last, mean),
        )


def counters(scrapes: pl.DataFrame) -> Iterator[TargetCheck]:
    """Counters that fall though the server did not start again: two servers at one address."""
    by = ["instance", "engine"]
    start = pl.col("process_start_time_seconds")
    same = start.is_not_null() & (start == start.shift(1).over(by))
    back = start < start.shift(1).over(by) - 1
    falls = {c: (pl.col(c).diff().over(by) < 0) & same for c in _COUNTERS}
    engines = (
        scrapes.filter("ok")
        .sort(*by, "time")
        .select(
            *by, back=back.fill_null(False), **{c: f.fill_null(False) for c, f in falls.items()}
        )
        .group_by(by, maintain_order=True)
        .agg(pl.col("back", *_COUNTERS).any())
    )
    for row in engines.iter_rows(named=True):
        fallen = [BY_COLUMN[c].wire_name for c in _COUNTERS if row[c]]
        if row["back"]:
            what = "its start time goes back and forth: several servers answer at this address"
        elif fallen:
            what = f"{fallen[0]} falls though the server did not start again: are two summed up?"
        else:
            continue
        yield TargetCheck(
            TargetKey(row["instance"], row["engine"]),
            "WRONG",
            what,
            ("every rule: rates are of two servers mixed",),
            "scrape each server at its own address, not through a load balancer",
        )
