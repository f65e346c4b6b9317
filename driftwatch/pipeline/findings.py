"""Findings: a firing rule's servers, their evidence of the last ten minutes, the diagnosis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import polars as pl

from driftwatch.collect.schema import KEY_COLUMNS
from driftwatch.detect.lengths import LENGTHS
from driftwatch.detect.reference import HISTOGRAMS
from driftwatch.diagnose.evidence_table import WINDOW_SCHEMA
from driftwatch.diagnose.limits import BINDING_WINDOW_SECONDS
from driftwatch.diagnose.tree import walk
from driftwatch.incidents.incident import Transition
from driftwatch.model import Diagnosis, Finding, Target, TargetKey
from driftwatch.pipeline.evaluation import Evaluation
from driftwatch.pipeline.question import pool_size
from driftwatch.pipeline.unknown_reasons import reasons
from driftwatch.rulebook.rules import Rule
from driftwatch.signals.minutes import MINUTE_KEY

_KEY = list(KEY_COLUMNS)
_HISTOGRAMS = (*HISTOGRAMS, *(f"reference_{name}" for name in HISTOGRAMS))
_SPAN = timedelta(seconds=BINDING_WINDOW_SECONDS)

# a finding without advice, and its evidence row
Found = tuple[Finding, Mapping[str, Any]]
Findings = dict[str, Found]  # by incident id
# a rule on this column is about servers without data
_MISSING = "coverage_missing_seconds"


def findings_of(evaluation: Evaluation, transitions: Sequence[Transition]) -> list[Found | None]:
    """The finding of each incident in its minute: its worst server's, with the others' names; None
    where no concerned server has a row.

    The evidence covers the last ten minutes, cut at restarts and knob changes. Two kinds of columns
    are those of the minute alone: the detectors' with a past, and those of the rule's condition
    that line 1 names, because a page must show why it fired.
    """
    rules = {rule.id: rule for rule in evaluation.plan.rules}
    worst = [worst_of(t, evaluation.rows, rules[t.incident.rule]) for t in transitions]
    measured = [
        (i, key)
        for i, key in enumerate(worst)
        if key is not None and not _is_missing(rules[transitions[i].incident.rule])
    ]
    windows = pl.DataFrame(
        [(*key, transitions[i].at - _SPAN, transitions[i].at, i) for i, key in measured],
        schema={**WINDOW_SCHEMA, "number": pl.Int64},
        orient="row",
    ).sort(*_KEY, "end")
    rows = evaluation.windows(evaluation, windows.drop("number")) if measured else windows
    row_of = dict(zip(windows["number"], rows.to_dicts(), strict=True))
    trees = {tree for i, _ in measured if (tree := rules[transitions[i].incident.rule].tree)}
    walked = {name: walk(evaluation.plan.trees[name], rows) for name in trees}
    place = {number: i for i, number in enumerate(windows["number"])}
    findings = list[Found | None]()
    if many := [t for t in transitions if len(t.incident.concerned) > 1]:
        keys = {key for t in many for key in t.incident.concerned}
        since, until = min(t.at for t in many) - _SPAN, max(t.at for t in many)
        evaluation.past.read_ahead(keys, since, until, (*MINUTE_KEY, *_SUMMED))
    for i, t in enumerate(transitions):
        rule, key = rules[t.incident.rule], worst[i]
        if key is None:
            findings.append(None)
            continue
        if i in row_of:
            row = row_of[i]
            diagnosis = walked[rule.tree][place[i]] if rule.tree else None
            finding = finding_of(rule.id, evaluation.state.targets[key], row, diagnosis)
            finding = replace(finding, peers=peer_speeds(key, t.at, evaluation.rows))
        else:
            finding, row = _without_data(evaluation, t, key)
        if fired_on := rule.when.columns & rule.page.columns_in_line_1:
            finding = _with_condition_of_minute(evaluation, finding, key, t.at, fired_on)
        others = tuple(other for other in t.incident.concerned if other != key)
        if others and i in row_of:
            finding = _of_all_servers(evaluation, t, finding)
        of = pool_size(evaluation.state.targets, t.incident.pool)
        counted = max(of, len(others) + 1)
        finding = replace(finding, concerned=(key, *others), of_targets=counted)
        if rule.page.family == "traffic":
            finding = replace(finding, also_missing=_also_missing(evaluation, t))
        findings.append((finding, row))
    return findings


def _also_missing(evaluation: Evaluation, transition: Transition) -> dict[str, float]:
    """Other servers of the pool that miss a target → share of their requests that miss."""
    of_pool = evaluation.rows.filter(
        (pl.col("end") == transition.at)
        & (pl.col("pool") == transition.incident.pool)
        & pl.col("slo_missed")
    )
    met = [pl.col(f"{stem}_in_target_10m_ratio") for stem in ("ttft", "tpot")]
    missed = of_pool.select(*_KEY, missed=1 - pl.min_horizontal(*met)).drop_nulls().sort(_KEY)
    concerned = transition.incident.concerned
    return {
        key.text: share
        for instance, engine, share in missed.iter_rows()
        if (key := TargetKey(instance, engine)) not in concerned
    }


def _with_condition_of_minute(
    evaluation: Evaluation, finding: Finding, key: TargetKey, at: datetime, names: frozenset[str]
) -> Finding:
    """The finding with these columns of the minute that ends at ``at``."""
    instance, engine = key
    of_minute = evaluation.rows.filter(
        pl.col("end") == at, pl.col("instance") == instance, pl.col("engine") == engine
    ).select(sorted(names))
    known = of_minute.row(0, named=True) if len(of_minute) else {}
    known = {name: value for name, value in known.items() if value is not None}
    return replace(finding, evidence={**finding.evidence, **known})


# the mean of the servers with the same full limit; a queue stays that of the worst server
_LIMIT_COLUMNS = (
    "limit_binding_share_10m_ratio",
    "binding_running_requests",
    "binding_kv_cache_usage_ratio",
)
_GIVEN_UP = "given_up_10m_low_ratio"
_SUMMED = (
    *(f"{name}_{part}" for name in LENGTHS for part in ("sum", "count")),
    *("finished_requests_total", "duration_seconds"),
)


def _of_all_servers(evaluation: Evaluation, transition: Transition, finding: Finding) -> Finding:
    """The finding with the numbers of all concerned servers.

    Lengths, their baseline and the requests are of all servers; a rate and a limit are means over
    servers. A speed and GPUs stay the worst server's.
    """
    keys, at, evidence = transition.incident.concerned, transition.at, dict(finding.evidence)
    named = pl.DataFrame(keys, schema=dict.fromkeys(_KEY, pl.String), orient="row")
    minutes = evaluation.past.rows(keys, at - _SPAN, at, (*MINUTE_KEY, *_SUMMED))
    references = evaluation.signals.reference
    # in order: a sum of floats depends on it
    sums = minutes.group_by(_KEY, maintain_order=True).agg(pl.col(*_SUMMED).sum())
    sums = sums.join(references, on=_KEY, how="left", maintain_order="left")
    for name in LENGTHS:
        n, mean = pl.col(f"{name}_count"), f"{name}_mean"
        if evidence.get(mean) is not None and sums[f"{name}_count"].sum() > 0:
            was = pl.col(f"reference_{mean}")
            now = (pl.col(f"{name}_sum").sum() / n.sum()).alias("now")
            before = ((was * n).sum() / n.filter(was.is_not_null()).sum()).alias("before")
            _compare(evidence, mean, f"{mean}_ratio", sums.select(now, before).row(0))
    if evidence.get("requests_per_second") is not None and len(sums):
        rate = pl.col("finished_requests_total").sum() / pl.col("duration_seconds").sum()
        rates = sums.select(rate, pl.col("reference_requests_per_second").mean()).row(0)
        _compare(evidence, "requests_per_second", "requests_per_second_ratio", rates)
        evidence["finished_requests"] = sums["prompt_tokens_count"].sum()
    rows = evaluation.rows.filter(pl.col("end") == at).join(named, on=_KEY, how="semi")
    limit = pl.lit(evidence.get("binding_limit"), pl.String)
    same_limit = rows.filter(pl.col("binding_limit").eq_missing(limit))
    for name in _LIMIT_COLUMNS:
        if evidence.get(name) is not None and same_limit[name].is_not_null().any():
            evidence[name] = same_limit[name].mean()
    if evidence.get("scrapes_10m") is not None and len(same_limit):
        evidence["scrapes_10m"] = same_limit["scrapes_10m"].sum()
    known = rows.filter(pl.col(_GIVEN_UP).is_not_null(), pl.col("ttft_seconds_count") > 0)
    if evidence.get(_GIVEN_UP) is not None and len(known):
        n = pl.col("ttft_seconds_count")
        evidence[_GIVEN_UP] = known.select((pl.col(_GIVEN_UP) * n).sum() / n.sum()).item()
        evidence["given_up_requests_10m"] = rows["given_up_requests_10m"].sum()
    return replace(
        finding,
        evidence={**evidence, **_in_target(rows, evidence)},
        reference=reference_of({**evidence, "reference_kind": finding.reference["kind"]})
        if finding.reference
        else None,
    )


def _compare(
    evidence: dict[str, Any], name: str, ratio: str, values: tuple[float, float | None]
) -> None:
    """Set a value; with a known baseline, the baseline and the ratio too."""
    now, before = values
    evidence[name] = now
    if before and evidence.get(ratio) is not None:
        evidence[f"reference_{name}"], evidence[ratio] = before, now / before


def _in_target(rows: pl.DataFrame, evidence: Mapping[str, Any]) -> dict[str, float]:
    """Shares of all servers' requests in target, if they agree with the worst server's verdict."""
    n, found = pl.col("ttft_seconds_count").fill_null(0.0), dict[str, float]()
    for stem in ("ttft", "tpot"):
        ends = [f"{stem}_in_target_10m_{end}" for end in ("ratio", "upper_ratio")]
        known = rows.filter(pl.col(ends[0]).is_not_null(), n > 0)
        if None in (evidence.get(ends[0]), evidence.get("slo_share")) or known.is_empty():
            continue
        upper = pl.col(ends[1]).fill_null(pl.col(ends[0]))
        shares = known.select(
            ((share * n).sum() / n.sum()).alias(end)
            for end, share in zip(ends, (pl.col(ends[0]), upper), strict=True)
        ).row(0, named=True)
        if (shares[ends[1]] < evidence["slo_share"]) == (evidence[ends[0]] < evidence["slo_share"]):
            found |= shares
    return found


def _is_missing(rule: Rule) -> bool:
    return _MISSING in rule.columns


def peer_speeds(
    key: TargetKey, end: datetime, minute_rows: pl.DataFrame
) -> dict[str, float] | None:
    """A target's pool in one minute: number of targets, of slower ones, and the others' speed where
    it is judged; None where no other target's speed is known.
    """
    of_minute = minute_rows.filter(pl.col("end") == end)
    own = (pl.col("instance") == key.instance) & (pl.col("engine") == key.engine)
    pool = of_minute.filter(own)["pool"].to_list()
    of_pool = of_minute.filter(pl.col("pool").is_in(pool))
    if of_pool.filter(~own)["speed_at_equal_load_ratio"].drop_nulls().is_empty():
        return None
    counts: dict[str, float] = {
        "of_targets": of_pool.height,
        "slower": int(of_pool.filter(own | pl.col("slower_at_equal_load")).height),
    }
    judged = of_pool.filter(~own, ~pl.col("slower_at_equal_load"))
    ratios = judged["speed_at_equal_load_ratio"].drop_nulls().to_list()
    if not ratios:
        return counts
    return {**counts, "speed_low_ratio": min(ratios), "speed_high_ratio": max(ratios)}


_ROOM = ("of_targets", "utilization_ratio", "utilization_at_seconds")


def with_last_load(
    peers: Mapping[str, float] | None, before: Mapping[str, float] | None
) -> Mapping[str, float] | None:
    """The current speeds, with the last simulated load of the peers."""
    room = {name: value for name, value in (before or {}).items() if name in _ROOM}
    return {**room, **(peers or {})} if "utilization_ratio" in room else peers


def finding_of(
    rule: str, target: Target, row: Mapping[str, Any], diagnosis: Diagnosis | None
) -> Finding:
    """A finding without advice; ``rule``: rule id, or the asking command."""
    return Finding(
        rule=rule,
        target=target,
        minute=row["end"] - timedelta(minutes=1),
        evidence={name: value for name, value in row.items() if not isinstance(value, list)},
        reasons=reasons(row),
        diagnosis=diagnosis,
        reference=reference_of(row),
        since=row["binding_since"],
        histograms={
            name: counts
            for name in _HISTOGRAMS
            if (counts := row.get(name)) is not None and len(counts)
        },
    )


def reference_of(row: Mapping[str, Any]) -> dict[str, Any] | None:
    """The baseline of this row; None without one."""
    if row.get("reference_kind") is None:
        return None
    values = {
        name.removeprefix("reference_"): value
        for name, value in row.items()
        if name.startswith("reference_")
        and name not in ("reference_kind", "reference_since", "reference_until")
        and value is not None
        and not isinstance(value, list)
    }
    return {
        "kind": row["reference_kind"],
        "from": row["reference_since"],
        "to": row["reference_until"],
        "values": values,
    }


# column of a rule → an expression that is largest for the worst server
_WORST: Mapping[str, pl.Expr] = {
    "slower_at_equal_load": -pl.col("speed_at_equal_load_ratio"),
    "slower_than_pool": -pl.col("speed_against_pool_ratio"),
    "seconds_since_last_token": pl.col("seconds_since_last_token"),
    _MISSING: pl.col(_MISSING),
    "limit_full": pl.col("batch_assembly_wait_10m_seconds"),
    "limit_binding_share_10m_ratio": pl.col("batch_assembly_wait_10m_seconds"),
    "rejected_requests_per_second": pl.col("rejected_requests_per_second"),
    "drafts_rejected": -pl.col("tokens_per_output"),
    "prefix_hits_lost": pl.col("lost_prefix_hits_prefill_ratio"),
    "batch_assembly_wait_10m_seconds": pl.col("batch_assembly_wait_10m_seconds"),
    **{
        # a length half as long is as bad as one twice as long
        f"{stem}_mean_ratio": pl.col(f"{stem}_mean_ratio").log().abs()
        for stem in ("prompt_tokens", "generation_tokens")
    },
    "latency_creeps": -pl.col("speed_slope_14d_ratio"),
}
_NO_ORDER = pl.repeat(0.0, pl.len())  # for other rules no server is the worst


def worst_of(transition: Transition, rows: pl.DataFrame, rule: Rule) -> TargetKey | None:
    """The server whose numbers an incident's page shows; None where none has a row."""
    height = next((by for name, by in _WORST.items() if name in rule.columns), _NO_ORDER)
    keys = pl.DataFrame(transition.incident.concerned, schema=_KEY, orient="row")
    here = rows.filter(pl.col("end") == transition.at).join(keys, on=_KEY, how="semi")
    ordered = here.sort(height, *_KEY, descending=[True, False, False], nulls_last=True)
    return None if ordered.is_empty() else TargetKey(*ordered.select(_KEY).row(0))


def _without_data(evaluation: Evaluation, transition: Transition, key: TargetKey) -> Found:
    """The finding of servers without data, by the row of the one gone for longest."""
    keys = pl.DataFrame(transition.incident.concerned, schema=_KEY, orient="row")
    concerned = evaluation.rows.filter(pl.col("end") == transition.at).join(
        keys, on=_KEY, how="semi"
    )
    own = (pl.col("instance") == key.instance) & (pl.col("engine") == key.engine)
    row = concerned.filter(own).row(0, named=True)
    finding = finding_of(transition.incident.rule, evaluation.state.targets[key], row, None)
    gone = _why_nothing_scraped(concerned, evaluation.signals.minutes)
    return replace(finding, since=None, histograms={}, reasons={**finding.reasons, **gone}), row


def _why_nothing_scraped(concerned: pl.DataFrame, minutes: pl.DataFrame) -> dict[str, str]:
    """Why every scrape failed since the targets lost their first input; empty if one succeeded."""
    absent_for = pl.duration(microseconds=pl.col("coverage_missing_seconds") * 1e6)
    failed = (
        minutes.select(*_KEY, "scrapes", "failure", at="end")
        .join(concerned.select(*_KEY, "end", since=pl.col("end") - absent_for), on=_KEY)
        .filter((pl.col("at") > pl.col("since")) & (pl.col("at") <= pl.col("end")))
        .sort(*_KEY, "at")
        .group_by(_KEY, maintain_order=True)
        .agg(pl.col("scrapes").sum(), reason=pl.col("failure").drop_nulls().last())
    )
    if len(failed) < len(concerned) or failed["scrapes"].sum() or failed["reason"].null_count():
        return {}
    counts = (
        failed.group_by("reason").len("targets").sort("targets", "reason", descending=[True, False])
    )
    if len(counts) == 1:
        return {"coverage_missing_inputs": counts["reason"][0]}
    each = [f"{number} {reason}" for reason, number in counts.iter_rows()]
    return {"coverage_missing_inputs": ", ".join(each)}
