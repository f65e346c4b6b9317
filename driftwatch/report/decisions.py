"""FOR YOU: one decision a pool, with what to do first. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime, timedelta
from typing import get_args

import polars as pl

from driftwatch.incidents.incident import Incident
from driftwatch.model import KnobMove
from driftwatch.notify.verification_line import effect_text
from driftwatch.numbers import clean, count, cut, duration, knob, plural
from driftwatch.report.cells import CELL
from driftwatch.report.changes import (
    NOT_ENOUGH,
    Rollout,
    is_better,
    median_effects,
    outcome_of,
    rollouts,
)
from driftwatch.report.costs import of_pool
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
from driftwatch.report.moved import BY_SPEED
from driftwatch.report.report import Decision, DecisionKind, Moved
from driftwatch.report.week import day_time, minute
from driftwatch.verify.changes import advised_by

# as many ten minutes with more requests than max_num_seqs: one may lie across a change of it
_PROOF_CELLS = 2
_WHY_LIMIT = 120


# whose: the pool, or a server with a trouble of its own
_Parts = Iterator[tuple[str, Decision]]


def decisions(material: Material, moved: Sequence[Moved]) -> tuple[Decision, ...]:
    """What waits for a person: one decision a pool, by kind, of a kind the oldest first.

    ``retune``, ``page``, ``ticket``: an open incident. ``question``: a setting that nobody
    confirmed after a restart. ``advice``: what to do before an incident comes back.
    ``verification``: a change that failed, or has no verdict. ``setting``: the configuration
    contradicts the engine. The kinds of one pool follow each other in this order. ``moved``: the
    week's causes, the costliest first.
    """
    kinds: tuple[DecisionKind, ...] = get_args(DecisionKind)
    every = [*_open(material), *_advice(material, moved)]
    answered = {about for about, one in every if one.kind == "advice"}
    every += [*_verified(material, answered), *_settings(material)]
    of_each: dict[str, list[Decision]] = {}
    for about, one in sorted(every, key=lambda part: kinds.index(part[1].kind)):
        of_each.setdefault(about, []).append(one)
    joined = map(_joined, of_each.values())
    return tuple(sorted(joined, key=lambda d: (kinds.index(d.kind), d.since, d.subject)))


def _joined(several: Sequence[Decision]) -> Decision:
    """One decision: another advice is its alternative, or the answer to the question before it;
    anything else is to do as well.
    """
    first, *others = several
    texts = [first.what]
    for one in others:
        link = "Or" if one.kind == first.kind == "advice" else "Also"
        if first.kind == "question" and one.what.startswith("set "):
            link = "If it is,"
        texts.append(f"{link} {one.what}")
    return first.model_copy(update={"what": ". ".join(dict.fromkeys(texts))})


def _open(material: Material) -> _Parts:
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
        subject = subject_of(one)
        about = subject if family_of(one) in BY_SPEED else one.pool
        yield about, Decision(kind=kind, subject=subject, what=text, since=one.started_at)


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


def _advice(material: Material, moved: Sequence[Moved]) -> _Parts:
    """What incidents that are over left to decide, the costliest first; then the last advice on
    each setting that no verification found.
    """
    by_id = {one.id: one for one in material.incidents}
    over = [(row, by_id[row.incidents[-1].id]) for row in moved if row.end is not None]
    over_ids = {one.id for row, _ in over for one in row.incidents}
    for row, one in over:
        # made already: its verification says whether to keep it
        made = [
            v
            for v in material.verifications
            if v.pool == row.pool
            and row.start <= v.change.at < material.until
            and advised_by(v.change, advised_moves(one))
        ]
        if made or row.result.startswith("worked"):
            continue
        if text := _beforehand(one):
            decision = Decision(kind="advice", subject=row.subject, what=text, since=one.started_at)
            yield row.pool, decision
    on_pages = {
        (one.pool, move.knob)
        for one in of_week(material)
        if end_of(one, material) is None and one.severity != "notice"
        for move in advised_moves(one)
    }
    of_knobs: dict[tuple[str, str], list[AdviceGiven]] = {}
    for given in material.advice:
        if given.moves and given.at >= material.since:
            of_knobs.setdefault((given.pool, given.moves[0].knob), []).append(given)
    for (pool, what), every in sorted(of_knobs.items()):
        given = every[-1]
        questions = (_question(material, pool, one.moves, one.at) for one in reversed(every))
        values = [
            v.change.what[what]
            for v in material.verifications
            if v.pool == pool and given.at <= v.change.at < material.until and what in v.change.what
        ]
        # a value that steps show is a bound: the person who restarted knows it
        if (pool, what) in on_pages or any(" (" not in after for _, after in values):
            continue
        kind: DecisionKind = "advice"
        if values:
            kind, text = "setting", _other_setting(what, values)
        elif question := next(filter(None, questions), None):
            kind, text = "question", question
        elif given.incident_id in over_ids:  # its last advice decides
            continue
        else:
            steps, when = moves_text(given.moves), day_time(given.at)
            text = f"{steps} was advised {when}; no server restarted since"
        decision = Decision(kind=kind, subject=clean(pool), what=text, since=given.at)
        yield pool, decision


def _beforehand(one: Incident) -> str | None:
    """What its last advice asks to do before it happens again; None where it asks for nothing."""
    advice = None if one.page is None else one.page.advice
    if advice is None:
        return None
    if advice.moves:
        gain = clean(advice.effect[0]).replace("forecast: ", "forecast ") if advice.effect else ""
        price = ", ".join(clean(text).split(" (")[0] for text in advice.price)
        why = "; ".join([*([gain] if gain else []), *([f"price: {price}"] if price else [])])
        return f"set {moves_text(advice.moves)} before it happens again{f': {why}' if why else ''}"
    choices = instead_of(one)
    if not choices:
        return None
    reasons = ["no setting helps"] if advice.basis != "measured" else []
    (do, brings), *rest = choices
    why = ", ".join([*reasons, *([brings] if brings else [])])
    # replicas are known to need no change of the clients
    rest.sort(key=lambda choice: "replica" not in choice[0])
    other = f". Or {rest[0][0]}: {rest[0][1]}".removesuffix(": ") if rest else ""
    return f"{do} before it happens again{f': {why}' if why else ''}{other}"


def _other_setting(name: str, values: Sequence[tuple[str, str]]) -> str:
    """Steps show another value than the configuration: correct that."""
    was, now = _bare(values[-1][0]), max((_bare(after) for _, after in values), key=float)
    return (
        f"correct serving.{name} in driftwatch.yaml: it says {was}, and the servers run at least "
        f"{now}"
    )


def _verified(material: Material, answered: Collection[str]) -> _Parts:
    """Changes whose verdict fell in the week and leaves a person to decide; a rollout is one.

    ``answered``: pools with an advice on what else helps.
    """
    closed = [
        one
        for one in material.verifications
        if one.closed_at is not None and material.since <= one.closed_at < material.until
    ]
    for several in rollouts(closed):
        bad = [one for one in several if one.verdict in ("FAIL", "INCONCLUSIVE")]
        if bad or outcome_of(material, several) == NOT_ENOUGH:
            pool = several[0].pool
            subject = clean(pool if len(several) > 1 else several[0].key.text)
            since = min(one.closed_at for one in several if one.closed_at is not None)
            text = _keep_or_not(several, bad)
            if pool not in answered and outcome_of(material, several) == NOT_ENOUGH:
                last = max(one.closed_at for one in several if one.closed_at is not None)
                text += f"; what else helps: driftwatch recommend {subject} --at {minute(last)}"
            decision = Decision(kind="verification", subject=subject, what=text, since=since)
            yield pool, decision


def _keep_or_not(several: Rollout, bad: Rollout) -> str:
    """Whether to keep a change, by what it did to the figure that people ask about first."""
    changed = sorted(several[0].change.what.items())
    keep = ", ".join(f"{clean(name)} {_bare(now)}" for name, (_, now) in changed)
    back = ", ".join(f"{clean(name)} {_bare(was)}" for name, (was, _) in changed)
    failed = [one for one in bad if one.verdict == "FAIL"]
    reason = next((one.reason for one in failed or bad if one.reason), "")
    why = f": {cut(clean(reason), _WHY_LIMIT)}" if reason else ""
    if bad and not failed:
        return f"decide whether to keep {keep}; it cannot be judged{why}"
    effects = median_effects(several)
    figure = f": {effect_text(effects[0])}" if effects else why
    return f"{f'keep {keep}' if is_better(effects) else f'go back to {back}'}{figure}"


def _bare(value: str) -> str:
    """A value without how it is known."""
    return clean(value).removeprefix("at least ").split(" (")[0]


def _settings(material: Material) -> _Parts:
    """More requests ran than max_num_seqs allows: the configured value is not the engine's."""
    beyond = material.cells.filter(
        (pl.col("running_requests") > pl.col("max_num_seqs") + 0.5)  # a mean of whole numbers
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
        configured, most = knob(row["max_num_seqs"]), count(row["running_requests"])
        text = (
            f"correct serving.max_num_seqs in driftwatch.yaml: it says {configured}, and {most} "
            "requests ran at once"
        )
        subject = clean(row["pool"])
        decision = Decision(kind="setting", subject=subject, what=text, since=row["end"])
        yield row["pool"], decision
