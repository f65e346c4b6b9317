"""What each target shows: its page, the inputs of the rules, whether the numbers can be true."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

import polars as pl

from driftwatch.collect.pages.foreign import fix_of
from driftwatch.collect.registry import BY_COLUMN, HISTOGRAMS
from driftwatch.doctor.checks import Seen
from driftwatch.doctor.needs import Costs
from driftwatch.doctor.reach import can_be_true
from driftwatch.evidence import BY_NAME, COLUMNS
from driftwatch.model import TargetKey
from driftwatch.notify.engine_words import ASLEEP, ENGINE_WORDS, NEVER_FILLED, NOT_APPLICABLE
from driftwatch.rulebook.rules import Rule
from driftwatch.signals.engine import KIND_COLUMNS, kind_of_scrape

Row = Mapping[str, object]

_NO_ANSWER = "is vLLM running there, and is the address right?"
# vLLM's largest edge is 7,680 s and its longest pauses between two tokens are seconds; what is
# beyond these is counted in milliseconds
_EDGE_SECONDS = 50_000.0
_ITL_SECONDS = 10.0
_COUNTERS = ("prompt_tokens_total", "generation_tokens_total", "finished_requests_total")


def page(key: TargetKey, row: Row | None, problem: str | None = None) -> Seen:
    """Whether there is a page of vLLM."""
    if row is None:
        what = "no scrape" + (f" ({problem})" if problem else "")
        return Seen(key, "MISSING", what, what, ("every rule",), _NO_ANSWER)
    if not row["ok"]:
        reason = str(row["reason"])
        fix = fix_of(reason) or _NO_ANSWER
        return Seen(key, "MISSING", reason, reason, ("every rule",), fix)
    return Seen(key, "ok", "page", "page read")


def engine(key: TargetKey, row: Row, rules: Iterable[Rule]) -> Iterator[Seen]:
    """What kind of engine it is where that is not the usual one, and the rules it is not for."""
    if row["engine_awake"] == 0:
        yield Seen(key, "ok", "asleep", f"{ASLEEP}: its rules wait until it is woken")
    counted = {name: row[name] for name in KIND_COLUMNS}
    schema = dict.fromkeys(KIND_COLUMNS, pl.Float64)
    kind = pl.DataFrame([counted], schema=schema).select(kind_of_scrape()).item()
    if kind not in ENGINE_WORDS:
        return
    never = NEVER_FILLED.get(kind, frozenset())
    dark = {c.name for c in COLUMNS if (set(c.sources) - set(c.optional)) & never}
    lost = tuple(rule.id for rule in rules if not can_be_true(rule.when, dark))
    what = f"not applicable: {ENGINE_WORDS[kind]}: {NOT_APPLICABLE[kind]}"
    yield Seen(key, "off", what, what, lost)


def inputs(key: TargetKey, costs: Costs) -> Iterator[Seen]:
    """Every metric that a rule reads."""
    known, rules = costs.known[key], costs.rules
    looked = sorted(
        {
            source
            for rule in rules
            for column in rule.columns
            for source in BY_NAME[column].sources
            if source in BY_COLUMN
        }
    )
    gone = 0
    for source in looked:
        cost = costs.of((key,), source)
        poorer = [
            rule.id
            for rule in rules
            if rule.id not in (*cost.lost, *cost.partly)
            and any(source in known.poorer(BY_NAME[column]) for column in rule.columns)
        ]
        disables = (*cost.told, *(f"a part of {rule}" for rule in poorer))
        if not disables:
            continue
        gone += 1
        what = f"{BY_COLUMN[source].wire_name}: not on the page"
        yield Seen(key, "MISSING" if cost.lost else "WARNING", what, what, disables)
    if gone < len(looked):
        what = f"{len(looked) - gone} inputs of the rules are on the page"
        yield Seen(key, "ok", what, what)


def counting(key: TargetKey, row: Row, told: float | None) -> Iterator[Seen]:
    """Whether engine steps are counted once, or by how many servers (``told``)."""
    if row["several_api_servers"] and told is not None:
        what = f"steps are counted by {told:g} API servers, as configured"
        yield Seen(key, "ok", what, what)
    elif row["several_api_servers"]:
        yield Seen(
            key,
            "WARNING",
            "api servers",
            "several API servers: each engine step is counted once per server",
            ("requests_per_forward_pass and tokens_per_forward_pass are lower bounds",),
            "serving.api_server_count, or vLLM's --api-server-count 1",
            setting=("serving", "api_server_count"),
        )


def units(key: TargetKey, row: Row) -> Iterator[Seen]:
    """Whether the newest numbers can be what their names say."""
    wrong = 0
    kv = row["kv_cache_usage_ratio"]
    if isinstance(kv, float) and kv > 1:
        wrong += 1
        yield Seen(
            key,
            "WRONG",
            "kv percent",
            f"{BY_COLUMN['kv_cache_usage_ratio'].wire_name} is {kv:g}: not a ratio of 0 to 1, a "
            "percentage?",
            ("the KV cache's limit and margin",),
            "take away what multiplies it (a recording or relabelling rule)",
            kv,
        )
    for name in HISTOGRAMS:
        if not name.endswith("_seconds"):
            continue
        edges, count, total = row[f"{name}_edges"], row[f"{name}_count"], row[f"{name}_sum"]
        finite = [e for e in edges if math.isfinite(e)] if isinstance(edges, list) else []
        last = max(finite, default=0.0)
        mean = (
            total / count if isinstance(total, float) and isinstance(count, float) and count else 0
        )
        if last > _EDGE_SECONDS:
            said = f"has buckets up to {last:,.0f} s"
        elif name == "itl_seconds" and mean > _ITL_SECONDS:
            said = f"has a mean of {mean:,.0f} s between two tokens"
        else:
            continue
        wrong += 1
        yield Seen(
            key,
            "WRONG",
            f"{name} milliseconds",
            f"{BY_COLUMN[name].wire_name} {said}: milliseconds?",
            tuple(c.name for c in BY_NAME.values() if name in c.sources and c.unit == "seconds")[
                :3
            ],
            "serve it in seconds",
            max(last, mean),
        )
    if not wrong:
        yield Seen(key, "ok", "units", "ratios and seconds are plausible")


def counters(scrapes: pl.DataFrame) -> Iterator[Seen]:
    """Counters that fall though the server did not start again: two servers at one address."""
    by = ["instance", "engine"]
    start = pl.col("process_start_time_seconds")
    good = (
        scrapes.select(*by, "time", "ok", "process_start_time_seconds", *_COUNTERS)
        .filter("ok")
        .sort(*by, "time")
    )
    same = start.is_not_null() & (start == start.shift(1).over(by))
    back = (start < start.shift(1).over(by) - 1).fill_null(False)
    falls = [(pl.col(c).diff().over(by) < 0) & same for c in _COUNTERS]
    found = (
        good.with_columns(
            back.alias("back"),
            *(
                fall.fill_null(False).alias(f"fall_{c}")
                for c, fall in zip(_COUNTERS, falls, strict=True)
            ),
        )
        .group_by(by, maintain_order=True)
        .agg(pl.col("back", *(f"fall_{c}" for c in _COUNTERS)).sum())
    )
    for row in found.iter_rows(named=True):
        key = TargetKey(row["instance"], row["engine"])
        fallen = [c for c in _COUNTERS if row[f"fall_{c}"]]
        if row["back"]:
            what = "its start time goes back and forth: several servers answer at this address"
        elif fallen:
            name = BY_COLUMN[fallen[0]].wire_name
            what = f"{name} falls though the server did not start again: are two summed up?"
        else:
            continue
        yield Seen(
            key,
            "WRONG",
            what,
            what,
            ("every rule: rates are of two servers mixed",),
            "scrape each server at its own address, not through a load balancer",
        )
