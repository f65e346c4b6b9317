"""FOR YOU: what waits for a person at the week's end. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from statistics import median
from typing import get_args

import polars as pl

from driftwatch.incidents.incident import Incident
from driftwatch.model import KnobMove, Slo
from driftwatch.notify.verification_line import effect_text
from driftwatch.numbers import clean, count, cut, duration, knob, plural
from driftwatch.report.cells import CELL
from driftwatch.report.costs import between, in_target, of_pool
from driftwatch.report.incidents import (
    action_of,
    advised_moves,
    asks_nothing,
    end_of,
    family_of,
    instead_of,
    moves_text,
    of_week,
    subject_of,
)
from driftwatch.report.material import AdviceGiven, Material
from driftwatch.report.moved import INFERRED, rollouts
from driftwatch.report.report import Decision, DecisionKind, Moved
from driftwatch.report.words import ASKED, day_time, missed_text, share_text
from driftwatch.verify.verification import Effect, Verification

# as many ten minutes with more requests than max_num_seqs: one may lie across a change of it
_PROOF_CELLS = 2
_WHY_LIMIT = 120


def decisions(material: Material, moved: Sequence[Moved]) -> tuple[Decision, ...]:
    """Open decisions, by kind, of a kind the oldest first.

    ``question``: a setting that nobody confirmed after a restart; ``advice``: what an incident's
    last advice left to decide; ``verification``: no verdict, or a change that failed;
    ``setting``: the configuration contradicts the engine. ``moved``: the week's causes.
    """
    kinds: tuple[DecisionKind, ...] = get_args(DecisionKind)
    every = [*_open(material), *_advice(material, moved), *_verified(material)]
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
            kind, text = "retune", f"re-tune {moves_text(moves)}, {age}"
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


def _advice(material: Material, moved: Sequence[Moved]) -> Iterator[Decision]:
    """The last advice on each setting that no verification found, and what an incident of the week
    that is over left to decide where no setting helps."""
    on_pages = {
        (one.pool, move.knob)
        for one in of_week(material)
        if end_of(one, material) is None and one.severity != "notice"
        for move in advised_moves(one)
    }
    newest: dict[tuple[str, str], AdviceGiven] = {}
    for given in sorted(material.advice, key=lambda a: a.at):
        if given.moves:
            newest[(given.pool, given.moves[0].knob)] = given
    for (pool, what), given in sorted(newest.items()):
        if (pool, what) in on_pages:
            continue
        values = [
            v.change.what[what]
            for v in material.verifications
            if v.pool == pool and given.at <= v.change.at < material.until and what in v.change.what
        ]
        # what steps show is a bound: the person who restarted knows the value
        if any(INFERRED not in after for _, after in values):
            continue
        kind: DecisionKind = "advice"
        if values:
            kind, text = "setting", _other_setting(what, values)
        elif question := _question(material, pool, given.moves, given.at):
            kind, text = "question", question
        elif _is_replaced(material, given):
            continue
        else:
            text = _over(material, moved, given)
        yield Decision(kind=kind, subject=clean(pool), what=text, since=given.at)
    for row, one in _over_incidents(material, moved):
        instead = None if row.result.startswith("worked") else instead_of(one)
        if instead is not None and one.page is not None and one.page.advice is not None:
            what, brings = instead
            is_judged = one.page.advice.basis != "measured"
            why = [*(["no setting helps"] if is_judged else []), *([brings] if brings else [])]
            reasons = f" {_capital('; '.join(why))}." if why else ""
            text = f"Decide: {what} ahead of the next time?{reasons} {_cost(row)}"
            yield Decision(kind="advice", subject=row.subject, what=text, since=one.started_at)


def _is_replaced(material: Material, given: AdviceGiven) -> bool:
    """Whether a later advice of the same incident asks for something else."""
    return any(
        one.pool == given.pool
        and one.started_at <= given.at < (one.resolved_at or material.until)
        and one.page is not None
        and one.page.advice is not None
        and one.page.advice.action != "insufficient"
        and given.moves[0].knob not in {move.knob for move in advised_moves(one)}
        for one in of_week(material)
        if one.severity != "notice"
    )


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _over_incidents(material: Material, moved: Sequence[Moved]) -> Iterator[tuple[Moved, Incident]]:
    """The causes that are over, each with the last of its incidents."""
    by_id = {one.id: one for one in material.incidents}
    for row in moved:
        if row.end is not None:
            yield row, by_id[row.incidents[-1].id]


def _cost(row: Moved) -> str:
    """``637k–773k requests missed; over since Tue 15:15 UTC``."""
    return f"{_capital(missed_text(row.missed))}; over since {day_time(row.end or row.start)} UTC"


def _other_setting(name: str, values: Sequence[tuple[str, str]]) -> str:
    """Steps show another value than the configuration: correct that."""
    was = values[-1][0]
    now = sorted({after.removesuffix(INFERRED) for _, after in values}, key=lambda v: (len(v), v))
    return (
        f"the servers run about {clean(' or '.join(now))}, driftwatch.yaml says {clean(was)}: "
        f"correct serving.{name}"
    )


def _over(material: Material, moved: Sequence[Moved], given: AdviceGiven) -> str:
    """An advice that nobody took: to do ahead of the next time, where its incident is over."""
    steps, when = moves_text(given.moves), day_time(given.at)
    row, one = next(
        (
            (row, one)
            for row, one in _over_incidents(material, moved)
            if row.pool == given.pool and advised_moves(one) == given.moves
        ),
        (None, None),
    )
    advice = None if one is None or one.page is None else one.page.advice
    if row is None or row.end is None or advice is None:
        return f"{steps} was advised {when}; no server restarted since"
    gain = f" {_capital(clean(advice.effect[0]))}." if advice.effect else ""
    price = ", ".join(clean(text).split(" (")[0] for text in advice.price)
    text = f"Decide: set {steps} ahead of the next time?"
    since = in_target(material, between(of_pool(material, given.pool), row.end, material.until))
    share = material.slos.get(given.pool, Slo()).share
    is_enough = ""
    if since.low is not None and since.low >= share:
        is_enough = f"; today's setting suffices since ({share_text(since)} in target)"
    return (
        f"{text}{gain}{f' Cost: {price}.' if price else ''} {_cost(row)}, no server restarted"
        f"{is_enough}"
    )


def _verified(material: Material) -> Iterator[Decision]:
    """Changes whose verdict fell in the week and leaves a person to decide; a rollout is one."""
    closed = [
        one
        for one in material.verifications
        if one.closed_at is not None and material.since <= one.closed_at < material.until
    ]
    for several in rollouts(closed):
        bad = [one for one in several if one.verdict in ("FAIL", "INCONCLUSIVE")]
        if not bad:
            continue
        subject = clean(bad[0].key.text)
        if len(several) > 1:
            subject = f"{clean(several[0].pool)}, {len(several)} servers"
        since = min(one.closed_at for one in bad if one.closed_at is not None)
        text = _verdict_text(several, bad)
        yield Decision(kind="verification", subject=subject, what=text, since=since)


def _verdict_text(several: Sequence[Verification], bad: Sequence[Verification]) -> str:
    """What a rollout's verdicts mean, and what to do next."""
    changed = sorted(bad[0].change.what.items())
    failed = [one for one in bad if one.verdict == "FAIL"]
    reasons = dict.fromkeys(one.reason for one in failed or bad if one.reason)
    why = f": {cut(clean(next(iter(reasons))), _WHY_LIMIT)}" if reasons else ""
    if not failed:
        steps = ", ".join(
            f"{clean(name)} {clean(was)} → {clean(now)}" for name, (was, now) in changed
        )
        return f"{steps}: INCONCLUSIVE{why}"
    keep = ", ".join(
        f"{clean(name)} {clean(now).removesuffix(INFERRED)}" for name, (_, now) in changed
    )
    back = ", ".join(clean(was) for _, (was, _) in changed)
    counts = Counter(one.verdict for one in several)
    verdicts = ", ".join(f"{n} {name}" for name, n in counts.most_common())
    middle = [
        effect_text(effect)
        for name in ASKED
        if (effect := _middle([e for one in several for e in one.effects if e.name == name]))
    ]
    of = ", median server" if len(several) > 1 else ""
    told = f"{of}: {', '.join(middle)}" if middle else why
    return f"Decide: keep {keep} or go back to {back}? {verdicts}{told}"


def _middle(effects: Sequence[Effect]) -> Effect | None:
    """The figure of the median server."""
    if not effects:
        return None
    promised = [one.forecast for one in effects if one.forecast is not None]
    return replace(
        effects[0],
        before=median(one.before for one in effects),
        after=median(one.after for one in effects),
        forecast=median(promised) if promised else None,
    )


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
