"""FOR YOU: what waits for a person at the week's end. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import get_args

import polars as pl

from driftwatch.model import KnobMove, TargetKey
from driftwatch.numbers import clean, count, cut, duration, knob, plural
from driftwatch.report.cells import CELL
from driftwatch.report.costs import of_pool
from driftwatch.report.incidents import (
    action_of,
    advised_moves,
    asks_nothing,
    end_of,
    family_of,
    of_week,
    subject_of,
)
from driftwatch.report.material import AdviceGiven, Material
from driftwatch.report.moved import INFERRED
from driftwatch.report.report import Decision, DecisionKind
from driftwatch.report.words import day_time
from driftwatch.verify.verification import Verification

# as many ten minutes with more requests than max_num_seqs: one may lie across a change of it
_PROOF_CELLS = 2
_WHY_LIMIT = 120


def decisions(material: Material) -> tuple[Decision, ...]:
    """Open decisions, by kind, of a kind the oldest first.

    ``question``: a setting that nobody confirmed after a restart; ``advice``: advised, and no
    server restarted since; ``verification``: no verdict, or a change that failed; ``setting``: the
    configuration contradicts the engine.
    """
    kinds: tuple[DecisionKind, ...] = get_args(DecisionKind)
    every = [*_open(material), *_advice(material), *_verified(material)]
    every += _settings(material)
    return tuple(sorted(every, key=lambda d: (kinds.index(d.kind), d.since, d.subject)))


def _open(material: Material) -> Iterator[Decision]:
    """Pages and tickets that are still open."""
    for one in of_week(material):
        if end_of(one, material) is not None or one.severity == "notice" or asks_nothing(one):
            continue
        moves = advised_moves(one)
        age = f"open {duration((material.until - one.started_at).total_seconds())}"
        kind: DecisionKind = one.severity
        question = moves and _question(material, one.pool, moves, one.started_at)
        if question:
            kind, text = "question", question
        elif moves and family_of(one) == "retune":
            kind, text = "retune", f"re-tune {_steps(moves)}, {age}"
        else:
            by = f", acknowledged by {clean(one.acknowledged_by)}" if one.acknowledged_by else ""
            do = f": {asks}" if (asks := action_of(one)) else ""
            text = f"{clean(one.alert)}{do}, {age}{by}"
        yield Decision(kind=kind, subject=subject_of(one), what=text, since=one.started_at)


def _question(material: Material, pool: str, moves: Sequence[KnobMove], at: datetime) -> str | None:
    """Whether a setting is still what it was; None where no server restarted.

    A setting changes with a restart only, and no metric shows it: whoever restarted the servers
    may have changed it.
    """
    cells = of_pool(material, pool).filter(pl.col("restarted").fill_null(False))
    starts = sorted(end - CELL for end in cells["end"] if end > at)
    if not starts:
        return None
    last = [one for one in starts if one > starts[-1] - timedelta(hours=1)]
    first, when = moves[0], f"{plural(len(last), 'restart')} {day_time(last[0])}"
    is_it = "what is" if first.from_value is None else "is"
    still = "" if first.from_value is None else f" still {knob(first.from_value)}"
    return (
        f"{when}: {is_it} {first.knob}{still}{' now' if not still else ''}? "
        f"{knob(first.to_value)} was advised {day_time(at)}. If it changed, correct "
        f"serving.{first.knob} of pool {clean(pool)} in driftwatch.yaml, or name the start-up log "
        "there: serving.startup_log"
    )


def _steps(moves: Sequence[KnobMove]) -> str:
    """``max_num_seqs 64 → 128``."""
    return ", ".join(
        f"{move.knob} {'?' if move.from_value is None else knob(move.from_value)} → "
        f"{knob(move.to_value)}"
        for move in moves
    )


def _advice(material: Material) -> Iterator[Decision]:
    """Changes that were advised in the week and that no verification found."""
    on_pages = {
        (one.pool, move.knob)
        for one in of_week(material)
        if end_of(one, material) is None and one.severity != "notice"
        for move in advised_moves(one)
    }
    newest: dict[tuple[str, str], AdviceGiven] = {}
    for one in sorted(material.advice, key=lambda a: a.at):
        if one.moves:
            newest[(one.pool, one.moves[0].knob)] = one
    for (pool, what), one in sorted(newest.items()):
        changed = any(
            v.pool == pool
            and one.at <= v.change.at < material.until
            # what steps show is a bound: the person who restarted knows the value
            and INFERRED not in v.change.what.get(what, ("", INFERRED))[1]
            for v in material.verifications
        )
        if changed or (pool, what) in on_pages:
            continue
        question = _question(material, pool, one.moves, one.at)
        advised = f"{_steps(one.moves)} was advised {day_time(one.at)}"
        text = question or f"{advised}; no server restarted since"
        kind: DecisionKind = "question" if question else "advice"
        yield Decision(kind=kind, subject=clean(pool), what=text, since=one.at)


def _verified(material: Material) -> Iterator[Decision]:
    """Verifications that ended in the week and leave a person to decide; alike ones are one."""
    found: dict[tuple[str, str], list[Verification]] = {}
    for one in material.verifications:
        closed = one.closed_at
        if closed is None or not material.since <= closed < material.until:
            continue
        if one.verdict not in ("FAIL", "INCONCLUSIVE"):
            continue
        changed = ", ".join(
            f"{clean(name)} {clean(before)} → {clean(after)}"
            for name, (before, after) in sorted(one.change.what.items())
        )
        why = f": {cut(clean(one.reason), _WHY_LIMIT)}" if one.reason else ""
        found.setdefault((one.pool, f"{changed}: {one.verdict}{why}"), []).append(one)
    for (pool, text), several in found.items():
        subject = clean(TargetKey(several[0].instance, several[0].engine).text)
        if len(several) > 1:
            subject = f"{clean(pool)}, {len(several)} servers"
        since = min(one.closed_at for one in several if one.closed_at is not None)
        yield Decision(kind="verification", subject=subject, what=text, since=since)


def _settings(material: Material) -> Iterator[Decision]:
    """More requests ran than max_num_seqs allows: the configured value is not the engine's."""
    beyond = material.cells.filter(
        (pl.col("running_requests") > pl.col("max_num_seqs"))
        & ~pl.col("max_num_seqs_inferred").fill_null(False)
    )
    by_server = beyond.group_by("pool", "instance", "engine").agg(
        pl.len(),
        pl.col("end").min(),
        pl.col("running_requests").max(),
        pl.col("max_num_seqs").last(),
    )
    proven = by_server.filter(pl.col("len") >= _PROOF_CELLS).sort("running_requests", "end")
    for row in proven.unique("pool", keep="last").sort("pool").iter_rows(named=True):
        text = (
            f"max_num_seqs {knob(row['max_num_seqs'])} is configured, but "
            f"{count(row['running_requests'])} requests ran at once: correct serving.max_num_seqs"
        )
        yield Decision(kind="setting", subject=clean(row["pool"]), what=text, since=row["end"])
