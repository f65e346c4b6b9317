"""FOR YOU: what waits for a person, each ask by itself, the most pressing first. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime, timedelta
from typing import get_args

import polars as pl

from driftwatch.collect.schema import KEY
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
from driftwatch.numbers import clean, cut, duration, figure, knob, plural
from driftwatch.report.cells import CELL, REASONS
from driftwatch.report.changes import Exceeded, blamed_release, exceeded_settings, share_of
from driftwatch.report.costs import between, busiest_hour, of_pool
from driftwatch.report.incidents import (
    RETUNE,
    action_of,
    advised_moves,
    asks_nothing,
    family_of,
    instead_of,
    keys_of,
    moves_text,
    of_week,
    over_at,
    problem,
    subject_of,
)
from driftwatch.report.material import Material
from driftwatch.report.report import Decision, DecisionKind, Moved
from driftwatch.report.result import last_restarts, restarts_text, starts_text, without_changes
from driftwatch.report.week import day_time, minute
from driftwatch.store.history import TargetAdvice
from driftwatch.verify.changes import advised_by, number_of

_WHY_LIMIT = 120
_MORE = 1.1  # times the requests that an advice is for: it may ask for too little
_SAME_ROLLOUT, _MINUTE = timedelta(hours=1), timedelta(minutes=1)


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
    settings = list(_settings(material))
    asked = {one.subject for one in settings if one.kind == "question"}
    every = [
        *_open(material, moved),
        *advice,
        *_verified(material, {row.pool for row in moved if row.subject in about}),
        *settings,
        *(one for one in _restarts(material, moved) if one.subject not in asked),
    ]
    texts = {(one.subject, one.what): one for one in reversed(every)}
    return tuple(
        sorted(texts.values(), key=lambda d: (kinds.index(d.kind), d.since, d.subject, d.what))
    )


def _open(material: Material, moved: Sequence[Moved]) -> Iterator[Decision]:
    """Pages and tickets that last; the first where several of a pool ask for one thing."""
    asked = set()
    for one in of_week(material):
        if over_at(one, material) is not None or one.severity == "notice" or asks_nothing(one):
            continue
        moves = advised_moves(one)
        age = f"open {duration((material.until - one.started_at).total_seconds())}"
        kind: DecisionKind = one.severity
        if moves and family_of(one) == RETUNE:
            if _is_made(material, one, one.started_at):
                continue
            kind, text = "retune", _retune(material, one, age)
        elif release := blamed_release(material, one):
            text = f"{_back(material, one, release)}; {age}"
        else:
            by = f", acknowledged by {clean(one.acknowledged_by)}" if one.acknowledged_by else ""
            do = f": {asks}" if (asks := action_of(one)) else ""
            text = f"{clean(one.alert)}{do}, {age}{by}"
        text += _by_load(material, one, moved)
        if (ask := (one.pool, action_of(one) or one.id)) not in asked:
            asked.add(ask)
            yield Decision(kind=kind, subject=subject_of(one), what=text, since=one.started_at)


def _by_load(material: Material, one: Incident, moved: Sequence[Moved]) -> str:
    """``; this is for the 10.7 requests/s …``: where an hour of the same cause had more requests
    than its newest advice is for, the command for that hour; else empty.
    """
    given = next((g for g in reversed(material.advice) if g.incident_id == one.id), None)
    row = next((row for row in moved if one.id in {i.id for i in row.incidents}), None)
    offered = None if given is None else given.answer.offered_requests_per_second
    if given is None or not offered or row is None or not action_of(one):
        return ""
    peak = busiest_hour(between(of_pool(material, one.pool), row.start, row.end or material.until))
    if peak is None or peak[1] < offered * _MORE:
        return ""
    command = f"driftwatch recommend {clean(one.pool)} --at {minute(peak[0])}{material.options}"
    return (
        f"; that is for the {figure(offered)} requests/s a server of {day_time(given.at)}; "
        f"{figure(peak[1])} came in the hour to {day_time(peak[0])}: {command}"
    )


def _restarts(material: Material, moved: Sequence[Moved]) -> Iterator[Decision]:
    """Restarts of half a pool and more while it missed its targets, that no change explains: a
    person may have changed a setting, which no metric shows.
    """
    for row in moved:
        if row.family != "traffic":
            continue
        pool, known = of_pool(material, row.pool), material.verifications
        again = between(pool, row.start, row.end or material.until).filter("restarted").sort("end")
        again = without_changes(again, known)
        answered = [at for (name, _), (at, _) in material.confirmed.items() if name == row.pool]
        again = again.filter(pl.col("end") > max(answered, default=row.start))
        again = again.filter(pl.col("end") > pl.col("end").max() - _SAME_ROLLOUT)
        if again.is_empty() or 2 * again.n_unique(KEY) < pool.n_unique(KEY):
            continue
        subject, at = clean(row.pool), again["end"][0] - CELL
        what = (
            f"{restarts_text(again)}, inside an incident ({row.what}). If a setting changed, "
            f"record it: driftwatch verify {subject} --setting NAME=VALUE --at {minute(at)}"
        )
        yield Decision(
            kind="question", subject=subject, what=what + material.options, since=row.start
        )


def _retune(material: Material, one: Incident, age: str) -> str:
    """What a ticket to re-tune asks; while an engine is slow, no simulation knows what helps."""
    slow = _open_of(material, one.pool, "speed")
    if slow:
        is_back = any(blamed_release(material, other) for other in slow)
        when = "the release is taken back" if is_back else "its servers have their speed again"
        command = f"driftwatch recommend {clean(one.pool)}{material.options}"
        return f"re-tune once {when}, {age}: {command}"
    advice = None if one.page is None else one.page.advice
    is_more = advice is not None and advice.instead  # replicas beside the change
    what = f": {action_of(one)}" if is_more else f" {moves_text(advised_moves(one))}"
    return f"re-tune{what}, {age}"


def _open_of(material: Material, pool: str, family: str) -> list[Incident]:
    """The open incidents of a pool and family."""
    mine = (o for o in of_week(material) if o.pool == pool and family_of(o) == family)
    return [one for one in mine if over_at(one, material) is None]


def _back(material: Material, one: Incident, release: Rollout) -> str:
    """``go back to vllm 0.32.0 (0.33.0 came Fri 10:00): 4 of 4 servers 21 % slower …``."""
    change, cells = release[0].change, of_pool(material, one.pool, keys_of(one))
    back = ", ".join(
        f"{clean(name)} {clean(was)} ({clean(now)} came {day_time(change.at - _MINUTE)})"
        for name, (was, now) in change.what.items()
    )
    servers = plural(of_pool(material, one.pool).n_unique(["instance", "engine"]), "server")
    slower = problem(family_of(one), [one]).partition(" than ")[0]
    text = f"go back to {back}: {len(keys_of(one))} of {servers} {slower}"
    before = between(cells, release[-1].change.at, one.started_at)
    seconds = {reason: float(before[reason].sum()) for reason in REASONS}
    why = max(seconds, key=lambda reason: seconds[reason])
    if seconds[why] > float(before["seconds"].sum()) / 2:
        text += f", first seen {day_time(one.started_at)}: {why} before"
    return text


def _is_made(material: Material, one: Incident, since: datetime) -> bool:
    """Whether a change that the incident advises was made; its verification judges it."""
    return any(
        v.pool == one.pool
        and since <= v.change.at < material.until
        and advised_by(v.change, advised_moves(one))
        for v in material.verifications
    )


def _advice(material: Material, moved: Sequence[Moved]) -> Iterator[Decision]:
    """What incidents that are over left to decide, the costliest first."""
    by_id = {one.id: one for one in material.incidents}
    for row in moved:
        one = by_id[row.incidents[-1].id]
        is_answered = row.result.startswith("worked") or _is_made(material, one, row.start)
        if row.end is None or row.is_followed or is_answered:
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
    # replicas need no change of the clients
    rest.sort(key=lambda choice: "replica" not in choice[0])
    other = f". Or {rest[0][0]}: {rest[0][1]}".removesuffix(": ") if rest else ""
    return f"{do} {when}{f': {why}' if why else ''}{other}"


def _verified(material: Material, answered: Collection[str]) -> Iterator[Decision]:
    """Changes with a verdict of the week, to be kept or taken back; a rollout is one.

    ``answered``: pools with an advice on what else helps.
    """
    closed = [
        one
        for one in material.verifications
        if one.closed_at is not None and one.closed_at >= material.since
    ]
    asked = [
        release.id
        for pool in {one.pool for one in closed}
        for one in _open_of(material, pool, "speed")
        for release in blamed_release(material, one)
    ]
    for several in rollouts(one for one in closed if one.id not in asked):
        pool, last = several[0].pool, several[-1].change
        outcome = outcome_of(several, share_of(material, pool))
        # what was changed again since then is no question any more
        later = (o.change for o in closed if o.pool == pool and o.change.at > last.at)
        if outcome != OUTCOMES["PASS"] and not any(last.what.keys() & o.what for o in later):
            subject = clean(pool if len(several) > 1 else several[0].key.text)
            ends = [one.closed_at for one in several if one.closed_at is not None]
            text = _keep_or_not(material, several, outcome)
            if pool not in answered and outcome == IN_PART:
                command = f"driftwatch recommend {subject} --at {minute(max(ends))}"
                text += f"; what else helps: {command}{material.options}"
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
    """A value without its source: 53 of "at least 53 (by …)"."""
    return clean(value).removeprefix("at least ").split(" (")[0]


def _settings(material: Material) -> Iterator[Decision]:
    """Settings that a restart may have changed and nobody confirmed, and those that contradict
    driftwatch.yaml; one ask a pool and setting. A value that steps show is a lower bound.
    """
    newest = {given.incident_id or given.pool: given for given in material.advice}.values()
    advised = {
        (one.pool, one.moves[0].knob): one
        for one in material.advice
        if one.moves and one.at >= material.since
    }
    exceeded = exceeded_settings(material)
    for pool, name in sorted({*advised, *exceeded}):
        given = advised.get((pool, name))
        made = [one for one in material.verifications if one.pool == pool]
        made = [one for one in made if one.change.at >= material.since and name in one.change.what]
        if (pool, name) in exceeded:
            yield _exceeded(material, pool, name, exceeded[pool, name], given)
        elif not made and given is not None and given in newest:  # no later advice replaced it
            since = max(given.at, material.confirmed.get((pool, name), (given.at, 0.0))[0])
            if len(last_restarts(material, pool, since, material.until)):
                yield _setting_question(material, pool, name, [], (since, material.until), given)
    for (pool, name), (since, value) in sorted(material.confirmed.items()):
        configured = material.configured.get((pool, name), value)
        if configured != value and (pool, name) not in exceeded:
            fact = f"it says {knob(configured)}"
            yield _recorded(pool, name, fact, since, value)


def _exceeded(
    material: Material, pool: str, name: str, one: Exceeded, given: TargetAdvice | None
) -> Decision:
    """What a setting is; to correct the file where a person has recorded that."""
    since, value = material.confirmed.get((pool, name), (material.since, 0.0))
    last = one.since + _SAME_ROLLOUT
    if value and last_restarts(material, pool, since + _SAME_ROLLOUT, last).is_empty():
        return _recorded(pool, name, one.fact.partition(",")[0], since, value)
    span = material.since, last
    return _setting_question(material, pool, name, [one.fact], span, given, one.likely)


def _recorded(pool: str, name: str, fact: str, since: datetime, value: float) -> Decision:
    """To correct the file: a person has recorded what runs."""
    what = f"correct serving.{name} in driftwatch.yaml: {fact}, and {knob(value)} runs since "
    what += f"{day_time(since)} (a person recorded it)"
    return Decision(kind="setting", subject=clean(pool), what=what, since=since)


def _setting_question(
    material: Material,
    pool: str,
    name: str,
    facts: list[str],
    span: tuple[datetime, datetime],
    given: TargetAdvice | None,
    likely: float | None = None,
) -> Decision:
    """What a setting is since the restarts in a span; to correct the file where there is none.

    ``likely``: its value by what ran.
    """
    again = last_restarts(material, pool, *span)
    if not again.is_empty():  # what was advised before it may be what somebody set
        same = [
            g for g in material.advice if g.pool == pool and g.moves and g.moves[0].knob == name
        ]
        given = next((g for g in reversed(same) if g.at < again["end"][0]), None)
    if given is not None:
        before, to = given.moves[0].from_value, knob(given.moves[0].to_value)
        facts += [] if facts or before is None else [f"it was {knob(before)}"]
        facts += [f"{to} was advised {day_time(given.at)}"]
    known, subject = "; ".join(facts), clean(pool)
    since = span[0] if given is None else given.at
    if again.is_empty():
        what = f"correct serving.{name} in driftwatch.yaml (the start-up log has it): {known}"
        return Decision(kind="setting", subject=subject, what=what, since=since)
    known = known.replace("it says", "driftwatch.yaml says")
    value, at = "N" if likely is None else knob(likely), minute(again["end"][0] - CELL)
    record = f"driftwatch verify {subject} --setting {name}={value} --at {at}{material.options}"
    what = (
        f"what is {name} since {starts_text(again)}? Nobody confirmed it; {known}. Correct "
        f"driftwatch.yaml, and record it: {record}"
    )
    return Decision(kind="question", subject=subject, what=what, since=since)
