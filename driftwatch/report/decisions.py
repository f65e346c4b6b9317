"""FOR YOU: what waits for a person at the week's end. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

import polars as pl

from driftwatch.incidents.incident import Incident
from driftwatch.model import TargetKey
from driftwatch.notify.advice import imperatives, setting_change
from driftwatch.numbers import clean, count, cut, duration, knob, utc_text
from driftwatch.report.drift import standing
from driftwatch.report.incidents import (
    advised_knob,
    family_of,
    is_open,
    namer,
    of_week,
    short_names,
    targets_of,
)
from driftwatch.report.material import AdviceGiven, Material

_KINDS = ("retune", "page", "ticket", "advice", "verification", "setting", "baseline")
# as many ten minutes with more requests than max_num_seqs: one may lie across a change of it
_PROOF_CELLS = 2
_WHY_LIMIT = 120


def decisions(material: Material) -> list[dict[str, Any]]:
    """Open decisions as JSON values: kind, subject, text, since when; the oldest of a kind first.

    Kinds: ``retune`` (a stale tune), ``page`` and ``ticket`` (still open), ``advice`` (a change
    that was advised and not seen), ``verification`` (no verdict, or a change that failed),
    ``setting`` (the configuration contradicts the engine), ``baseline`` (not accepted).
    """
    every = [*_open(material), *_advice(material), *_verified(material), *_settings(material)]
    every += _pins(material)
    return sorted(every, key=lambda d: (_KINDS.index(d["kind"]), d["since"], d["subject"]))


def _decision(kind: str, subject: str, text: str, since: datetime) -> dict[str, Any]:
    return {"kind": kind, "subject": subject, "text": text, "since": utc_text(since)}


def _age(since: datetime, material: Material) -> str:
    return f"open {duration((material.until - since).total_seconds())}"


def _open(material: Material) -> Iterator[dict[str, Any]]:
    name: Callable[[Incident], str] = namer(material)
    for one in of_week(material):
        if not is_open(one, material.until) or one.severity == "notice":
            continue
        since = one.started_at  # as its page and the drift table count
        page = one.page
        advised = None if page is None else page.advice
        action = None if advised is None else advised.action
        if one.severity == "ticket" and action == "no_action":
            continue  # its ticket says that there is nothing to do
        if family_of(one) == "retune" and advised is not None and action == "change":
            text = f"re-tune {setting_change(advised)}, {_age(since, material)}"
            yield _decision("retune", name(one), text, since)
            continue
        todo = "" if page is None else _todo(imperatives(page))
        acked = f", acknowledged by {clean(one.acknowledged_by)}" if one.acknowledged_by else ""
        do = f": {todo[:1].lower()}{todo[1:]}" if todo else ""
        text = f"{clean(one.alert)}{do}, {_age(since, material)}{acked}"
        yield _decision(one.severity, name(one), text, since)


def _todo(texts: list[str]) -> str:
    """What the page says is to be done: the longest that fits, never "change nothing" alone."""
    return next((text for text in texts if len(text) <= _WHY_LIMIT), texts[-1] if texts else "")


def _advice(material: Material) -> Iterator[dict[str, Any]]:
    """Changes that were advised in the week, whose knob nobody was seen to change since."""
    pages = {
        (one.target.get("pool"), advised_knob(one))
        for one in of_week(material)
        if is_open(one, material.until) and one.severity != "notice"
    }
    newest: dict[tuple[str, str], AdviceGiven] = {}
    for one in sorted(material.advice, key=lambda a: a.at):
        advised = one.recommendation
        if advised.get("action") == "change" and material.since <= one.at < material.until:
            newest[(one.pool, str(advised.get("knob")))] = one
    names = short_names([*targets_of(material), *(one.target for one in newest.values())])
    for (pool, what), one in sorted(newest.items()):
        if (pool, what) in pages or _changed(material, pool, what, one.at):
            continue
        advised = one.recommendation
        step = ", ".join(map(_step, (advised, *advised.get("also", ()))))
        text = f"{clean(step)} was advised, not made yet, {_age(one.at, material)}"
        yield _decision("advice", names[one.target], text, one.at)


def _step(change: Mapping[str, Any]) -> str:
    """One setting, by the recommendation's own names or a page's."""
    before = change.get("from_value", change.get("from"))
    after = change.get("to_value", change.get("to"))
    words = ["?" if value is None else knob(value) for value in (before, after)]
    return f"{change.get('knob')} {words[0]} → {words[1]}"


def _changed(material: Material, pool: str, what: str, at: datetime) -> bool:
    return any(
        one.pool == pool and what in one.change.what and at <= one.change.at < material.until
        for one in material.verifications
    )


def _verified(material: Material) -> Iterator[dict[str, Any]]:
    """Verifications that ended in the week and leave a person to decide."""
    names = short_names(
        [*targets_of(material), *(TargetKey(v.instance, v.engine) for v in material.verifications)]
    )
    for one in material.verifications:
        closed = one.closed_at
        if closed is None or not material.since <= closed < material.until:
            continue
        if standing(one, material.until) not in ("FAIL", "INCONCLUSIVE"):
            continue
        changed = ", ".join(
            f"{clean(name)} {clean(before)} → {clean(after)}"
            for name, (before, after) in sorted(one.change.what.items())
        )
        why = f": {cut(clean(one.reason), _WHY_LIMIT)}" if one.reason else ""
        text = f"{changed}: {one.verdict}{why}"
        name = names[TargetKey(one.instance, one.engine)]
        yield _decision("verification", name, text, closed)


def _settings(material: Material) -> Iterator[dict[str, Any]]:
    """More requests ran than max_num_seqs allows: the configured value is not the engine's."""
    beyond = material.cells.filter(
        (pl.col("running_requests") > pl.col("max_num_seqs"))
        & ~pl.col("max_num_seqs_inferred").fill_null(False)
    )
    by = beyond.group_by("pool", "instance", "engine", maintain_order=True).agg(
        pl.len().alias("cells"),
        pl.col("end").min().alias("since"),
        pl.col("running_requests").max(),
        pl.col("max_num_seqs").last(),
    )
    by = by.filter(pl.col("cells") >= _PROOF_CELLS).sort("pool", "since")
    for (pool,), servers in by.group_by("pool", maintain_order=True):
        row = servers.sort("running_requests", maintain_order=True).row(-1, named=True)
        text = (
            f"max_num_seqs {knob(row['max_num_seqs'])} is configured, but "
            f"{count(row['running_requests'])} requests ran at once: correct serving.max_num_seqs"
        )
        yield _decision("setting", clean(str(pool)), text, row["since"])


def _pins(material: Material) -> Iterator[dict[str, Any]]:
    proposed = {one.name for one in material.proposed}
    last = material.cells.group_by("instance", "engine", maintain_order=True).last()
    for (name,), servers in last.sort("pool").group_by("pool", maintain_order=True):
        pool, count = clean(str(name)), int(servers["baseline_possible"].fill_null(False).sum())
        if not count or pool in proposed:
            continue
        mine = pl.col("baseline_possible").fill_null(False) & (pl.col("pool") == name)
        since = material.cells.filter(mine)["end"].min()
        text = (
            f"{count} of {servers.height} servers have no baseline, and data enough for one: "
            f"driftwatch baseline list {pool}"
        )
        if isinstance(since, datetime):
            yield _decision("baseline", pool, text, since)
    for one in material.proposed:
        text = (
            f"baseline {utc_text(one.since)[:16]}Z to {utc_text(one.until)[:16]}Z proposed; "
            f"accept: driftwatch baseline accept {clean(one.id)}"
        )
        yield _decision("baseline", clean(one.name), text, one.until)
