"""FOR YOU: what waits for a person, each ask by itself, the most pressing first. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime, timedelta
from typing import get_args

import polars as pl

from driftwatch.incidents.incident import Incident
from driftwatch.notify.rollout import (
    IN_PART,
    OUTCOMES,
    Rollout,
    is_better,
    median_effects,
    outcome_of,
    outcome_text,
    rollouts,
)
from driftwatch.numbers import clean, count, cut, duration, knob, plural
from driftwatch.report.cells import CELL
from driftwatch.report.changes import share_of
from driftwatch.report.costs import of_pool
from driftwatch.report.incidents import (
    RETUNE,
    action_of,
    advised_moves,
    asks_nothing,
    family_of,
    instead_of,
    moves_text,
    of_week,
    over_at,
    subject_of,
)
from driftwatch.report.material import AdviceGiven, Material
from driftwatch.report.report import Decision, DecisionKind, Moved
from driftwatch.report.week import day_time, minute
from driftwatch.verify.changes import advised_by, number_of
from driftwatch.verify.verification import Verification

# as many ten minutes with more requests than max_num_seqs: one may lie across a change of it
_PROOF_CELLS = 2
_WHY_LIMIT = 120
_SEQS = "max_num_seqs"
_SAME_ROLLOUT = timedelta(hours=1)


def decisions(material: Material, moved: Sequence[Moved]) -> tuple[Decision, ...]:
    """What waits for a person, by kind, of a kind the oldest first; each asks for one thing.

    ``page``, ``retune``, ``ticket``: an open incident. ``advice``: what to do before an incident
    comes back. ``verification``: a change to keep or to take back. ``question``: a setting that
    nobody confirmed after a restart. ``setting``: the configuration contradicts the engine.
    ``moved``: the week's causes, the costliest first.
    """
    kinds: tuple[DecisionKind, ...] = get_args(DecisionKind)
    advice = list(_advice(material, moved))
    about = {one.subject for one in advice}
    every = [
        *_open(material),
        *advice,
        *_verified(material, {row.pool for row in moved if row.subject in about}),
        *_settings(material),
    ]
    texts = {(one.subject, one.what): one for one in reversed(every)}
    return tuple(
        sorted(texts.values(), key=lambda d: (kinds.index(d.kind), d.since, d.subject, d.what))
    )


def _open(material: Material) -> Iterator[Decision]:
    """Pages and tickets whose trouble lasts; of the same ask in one pool the first."""
    asked = set()
    for one in of_week(material):
        if over_at(one, material) is not None or one.severity == "notice" or asks_nothing(one):
            continue
        moves = advised_moves(one)
        age = f"open {duration((material.until - one.started_at).total_seconds())}"
        kind: DecisionKind = one.severity
        if moves and family_of(one) == RETUNE:
            kind, text = "retune", f"re-tune {moves_text(moves)}, {age}"
        else:
            by = f", acknowledged by {clean(one.acknowledged_by)}" if one.acknowledged_by else ""
            do = f": {asks}" if (asks := action_of(one)) else ""
            text = f"{clean(one.alert)}{do}, {age}{by}"
        if (ask := (one.pool, action_of(one) or one.id)) not in asked:
            asked.add(ask)
            yield Decision(kind=kind, subject=subject_of(one), what=text, since=one.started_at)


def _advice(material: Material, moved: Sequence[Moved]) -> Iterator[Decision]:
    """What incidents that are over left to decide, the costliest first."""
    by_id = {one.id: one for one in material.incidents}
    for row in moved:
        one = by_id[row.incidents[-1].id]
        # made already: its verification says whether to keep it
        made = [
            v
            for v in material.verifications
            if v.pool == row.pool
            and row.start <= v.change.at < material.until
            and advised_by(v.change, advised_moves(one))
        ]
        if row.end is None or made or row.result.startswith("worked"):
            continue
        when = "before it happens again"
        if row.drift is not None and row.drift.end <= row.end:
            when = f"in case {row.what} come back (over by itself {day_time(row.drift.end)})"
        if text := _beforehand(one, when):
            subject, since = row.subject, one.started_at
            yield Decision(kind="advice", subject=subject, what=text, since=since)


def _beforehand(one: Incident, when: str) -> str | None:
    """What its last advice asks to do ``when``; None where it asks for nothing."""
    advice = None if one.page is None else one.page.advice
    if advice is None:
        return None
    if advice.moves:
        gain = clean(advice.effect[0]).replace("forecast: ", "forecast ") if advice.effect else ""
        price = ", ".join(clean(text).split(" (")[0] for text in advice.price)
        why = "; ".join([*([gain] if gain else []), *([f"price: {price}"] if price else [])])
        return f"set {moves_text(advice.moves)} {when}{f': {why}' if why else ''}"
    choices = instead_of(one)
    if not choices:
        return None
    reasons = ["no setting helps"] if advice.basis != "measured" else []
    (do, brings), *rest = choices
    why = ", ".join([*reasons, *([brings] if brings else [])])
    # replicas are known to need no change of the clients
    rest.sort(key=lambda choice: "replica" not in choice[0])
    other = f". Or {rest[0][0]}: {rest[0][1]}".removesuffix(": ") if rest else ""
    return f"{do} {when}{f': {why}' if why else ''}{other}"


def _verified(material: Material, answered: Collection[str]) -> Iterator[Decision]:
    """Changes whose verdict fell in the week and leaves a person to decide; a rollout is one.

    ``answered``: pools with an advice on what else helps.
    """
    closed = [
        one
        for one in material.verifications
        if one.closed_at is not None and one.closed_at >= material.since
    ]
    for several in rollouts(closed):
        pool = several[0].pool
        outcome = outcome_of(several, share_of(material, pool))
        if outcome != OUTCOMES["PASS"]:
            subject = clean(pool if len(several) > 1 else several[0].key.text)
            ends = [one.closed_at for one in several if one.closed_at is not None]
            text = _keep_or_not(material, several, outcome)
            if pool not in answered and outcome == IN_PART:
                at = minute(max(ends))
                text += f"; what else helps: driftwatch recommend {subject} --at {at}"
            yield Decision(kind="verification", subject=subject, what=text, since=min(ends))


def _keep_or_not(material: Material, several: Rollout, outcome: str) -> str:
    """Whether to keep a change, by what it did to the figure that people ask about first."""
    changed = sorted(several[0].change.what.items())
    keep = ", ".join(f"{clean(name)} {_most(several, name)}" for name, _ in changed)
    back = ", ".join(f"{clean(name)} {_bare(was)}" for name, (was, _) in changed)
    text = cut(outcome_text(several, share_of(material, several[0].pool)), _WHY_LIMIT)
    if outcome == OUTCOMES["INCONCLUSIVE"]:
        return f"decide whether to keep {keep}: {text}"
    is_kept = is_better(median_effects(several))
    return f"{f'keep {keep}' if is_kept else f'go back to {back}'}: {text}"


def _most(several: Rollout, name: str) -> str:
    """The largest value that a rollout gave a setting; the first where they are no numbers."""
    values = [_bare(one.change.what[name][1]) for one in several]
    return max(values, key=lambda value: number_of(value) or 0.0)


def _bare(value: str) -> str:
    """A value without how it is known."""
    return clean(value).removeprefix("at least ").split(" (")[0]


def _settings(material: Material) -> Iterator[Decision]:
    """Settings that were advised, and what runs is not what driftwatch.yaml says, or nobody knows;
    one ask of a kind a pool. A value that steps show is a bound: whoever restarted knows it.
    """
    by_pool: dict[str, list[AdviceGiven]] = {}
    newest = {given.incident_id or given.pool: given for given in material.advice}
    beyond = [*_beyond(material)]
    refuted = {one.subject for one in beyond}  # no question: what runs is not what the file says
    for given in material.advice:
        if given.moves and given.at >= material.since:
            by_pool.setdefault(given.pool, []).append(given)
    for pool, every in by_pool.items():
        last, asked, wrong, when = every[-1], [], [], ""
        for name in sorted({given.moves[0].knob for given in every}):
            if name == _SEQS and clean(pool) in refuted:
                continue
            of_name = [v for v in _changes(material, pool) if name in v.change.what]
            was, now = _known(of_name, name)
            if of_name and was is None:  # the engine reports it
                continue
            if of_name:
                since = of_name[-1].change.at + _SAME_ROLLOUT
                question = f"is {name} still {now}, or back to {was}?"
            elif last.moves[0].knob == name and last in newest.values():
                since, question = last.at, _still(last)
            else:  # a later advice replaced it
                continue
            if again := _restarts(material, pool, since):
                when = again
                asked.append((name, question))
            elif of_name:
                wrong.append(_correct(name, was, f"the servers run at least {now}"))
            elif not _has_incident(material, last):
                text = f"{moves_text(last.moves)} was advised {day_time(last.at)}; no server "
                text += "restarted since"
                yield Decision(kind="advice", subject=clean(pool), what=text, since=last.at)
        if asked:
            names = ", ".join(f"serving.{name}" for name, _ in asked)
            text = (
                f"{when}: {' '.join(question for _, question in asked)} Write the answer into "
                f"driftwatch.yaml ({names} of pool {clean(pool)}), or name the start-up log there: "
                "serving.startup_log"
            )
            yield Decision(kind="question", subject=clean(pool), what=text, since=last.at)
        if wrong:
            what = "; ".join(wrong)
            yield Decision(kind="setting", subject=clean(pool), what=what, since=last.at)
    yield from beyond


def _changes(material: Material, pool: str) -> list[Verification]:
    """Changes of a pool in the week, in order of time."""
    of_pool = [one for one in material.verifications if one.pool == pool]
    in_week = [one for one in of_pool if material.since <= one.change.at < material.until]
    return sorted(in_week, key=lambda one: one.change.at)


def _known(changes: Sequence[Verification], name: str) -> tuple[str | None, str | None]:
    """A setting before and after its changes, where the values after are inferred."""
    values = [one.change.what[name] for one in changes]
    if not values or any(" (" not in after for _, after in values):
        return None, None
    return _bare(values[-1][0]), max((_bare(now) for _, now in values), key=float)


def _still(given: AdviceGiven) -> str:
    first = given.moves[0]
    advised = f"{knob(first.to_value)} was advised {day_time(given.at)}."
    if first.from_value is None:
        return f"what is {first.knob} now? {advised}"
    return f"is {first.knob} still {knob(first.from_value)}? {advised}"


def _has_incident(material: Material, given: AdviceGiven) -> bool:
    """Whether an incident of the week asks for what was advised, or its last advice decides."""
    return any(
        one.id == given.incident_id
        or (one.pool == given.pool and given.moves[0].knob in {m.knob for m in advised_moves(one)})
        for one in of_week(material)
        if one.severity != "notice"
    )


def _restarts(material: Material, pool: str, at: datetime) -> str:
    """``3 restarts Sat 20:00``: the last ones after a time; empty where no server restarted.

    A setting changes with a restart only, and no metric shows it: whoever restarted the servers
    may have changed it.
    """
    cells = of_pool(material, pool).filter(pl.col("restarted").fill_null(False))
    starts = sorted(end - CELL for end in cells["end"] if end > at)
    if not starts:
        return ""
    last = [one for one in starts if one > starts[-1] - timedelta(hours=1)]
    return f"{plural(len(last), 'restart')} {day_time(last[0])}"


def _correct(name: str, was: str | None, truth: str) -> str:
    return f"correct serving.{name} in driftwatch.yaml: it says {was}, and {truth}"


def _beyond(material: Material) -> Iterator[Decision]:
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
        configured, mean = knob(row["max_num_seqs"]), count(row["running_requests"])
        after = _restarts(material, row["pool"], material.since)
        truth = (
            f"{f'after {after} ' if after else ''}more ran: a mean of {mean} over 10 min on "
            f"{clean(row['instance'])}; the start-up log has the value"
        )
        yield Decision(
            kind="setting",
            subject=clean(row["pool"]),
            what=_correct(_SEQS, configured, truth),
            since=row["end"],
        )
