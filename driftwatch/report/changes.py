"""Changes of settings and releases in a report: what was changed, and whether it worked. Pure.

``driftwatch verify`` judges a change on matched minutes. Where it did, the report has its figures
and no others. The same change of a pool's servers is one rollout, with the figures of its median
server.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from statistics import median

import polars as pl

from driftwatch.collect.schema import KEY
from driftwatch.incidents.incident import Incident
from driftwatch.knobs import least_budget
from driftwatch.model import Slo
from driftwatch.notify.rollout import (
    Rollout,
    outcome_of,
    rollouts,
)
from driftwatch.numbers import clean, cut, knob, plural
from driftwatch.report.cells import CELL
from driftwatch.report.costs import of_pool
from driftwatch.report.incidents import diagnosis_of, keys_of
from driftwatch.report.material import Material
from driftwatch.report.report import ForecastError, Record
from driftwatch.report.result import last_restarts
from driftwatch.report.week import day_time
from driftwatch.signals.rows import EXCEEDED_RATIO
from driftwatch.store.history import TargetAdvice
from driftwatch.verify.changes import SEQS, advised_by, has_advised_values
from driftwatch.verify.figures import IN_TARGET
from driftwatch.verify.verification import Verification

TRACK = timedelta(weeks=8)
_MINUTE = timedelta(minutes=1)
_MOST, _STEPS = "running_requests_max_of_process", "step_tokens_max_of_process"
_LEVEL = "inferred_max_num_seqs"
_UNCONFIRMED = "not confirmed"


def changed_text(rollout: Rollout) -> str:
    """``release 0.11.0``, ``max_num_seqs 64 or 128 (most that ran at once)``."""
    values: dict[str, dict[str, None]] = {}
    for one in rollout:
        for name, (_, after) in sorted(one.change.what.items()):
            values.setdefault(name, {})[clean(after)] = None
    texts = []
    for name, several in values.items():
        parts = sorted((text.partition(" (") for text in several), key=lambda p: (len(p[0]), p[0]))
        exact = [part for part in parts if not part[0].startswith("at least ")]
        parts = exact or parts[-1:]  # one bound holds for all
        known = dict.fromkeys(cut(value, 24) for value, *_ in parts)
        how = next((f" ({rest}" for *_, rest in parts if rest), "")
        texts.append(f"{clean(name)} {' or '.join(known)}{how}")
    people = dict.fromkeys(clean(one.confirmed_by) for one in rollout if one.confirmed_by)
    return ", ".join(texts) + (f" (says {', '.join(people)})" if people else "")


def done_text(material: Material, changed: Rollout) -> str:
    """What was changed, and whether that was advised: ``max_num_seqs 64, as advised Tue 09:20``;
    ``vllm 0.32.0, back to 0.31.0 Wed 09:00``.
    """
    steps = rollouts(changed)
    texts = [changed_text(step) for step in steps]
    for at, (before, after) in enumerate(pairwise(steps), 1):
        was, now = before[0].change.what, after[0].change.what
        when = day_time(after[0].change.at - _MINUTE)
        if {name: pair[::-1] for name, pair in was.items()} == dict(now):
            texts[at] = f"back to {', '.join(clean(to) for _, to in now.values())} {when}"
        else:
            texts[at] = f"then {texts[at]} {when}"
    return ", ".join([*texts, *_advised(material, rollouts(changed)[-1][0])])


def came_text(rollout: Rollout) -> str:
    """``vllm 0.32.0 → 0.33.0 came Fri 10:00``."""
    change = rollout[0].change
    texts = (
        f"{clean(name)} {clean(was)} → {clean(now)}" for name, (was, now) in change.what.items()
    )
    return f"{', '.join(texts)} came {day_time(change.at - _MINUTE)}"


def blamed_release(material: Material, incident: Incident) -> list[Verification]:
    """The last release that its servers got before it, where its page blames one; else empty."""
    diagnosis = diagnosis_of(incident)
    if diagnosis is None or diagnosis.leaf != "version_change":
        return []
    keys, began = set(keys_of(incident)), max(one.since for one in incident.servers)
    releases = (v for v in material.verifications if v.change.kind == "release" and v.key in keys)
    before = rollouts(one for one in releases if one.change.at <= began)
    return before[-1] if before else []


def _advised(material: Material, one: Verification) -> list[str]:
    given = advice_before(material, one)
    if given is None:
        return [] if one.forecast is None else ["as advised"]
    when = day_time(given.at)
    other = [m for m in given.moves if not has_advised_values(one.change, [m])]
    if not other:
        return [f"as advised {when}"]
    return [f"{' and '.join(f'{move.to_value:.0f}' for move in other)} was advised {when}"]


def advice_before(material: Material, one: Verification) -> TargetAdvice | None:
    """The newest advice of a change; None where the store has dropped it."""
    asked = [
        given
        for given in material.advice
        if given.pool == one.pool
        and given.at <= one.change.at
        and advised_by(one.change, given.moves)
    ]
    return asked[-1] if asked else None


def share_of(material: Material, pool: str) -> float:
    """The share of a pool's requests that must meet its targets."""
    return material.slos.get(pool, Slo()).share


def _outcome(material: Material, rollout: Rollout) -> str:
    outcome = outcome_of(rollout, share_of(material, rollout[0].pool))
    return (
        outcome
        if _has_advised(material, rollout[0])
        else f"{outcome} with another value than advised"
    )


def _has_advised(material: Material, one: Verification) -> bool:
    given = advice_before(material, one)
    return given is None or has_advised_values(one.change, given.moves)


@dataclass(frozen=True, slots=True)
class Exceeded:
    """A setting of driftwatch.yaml that the engine exceeds: another one is in force."""

    fact: str  # what the file says, and what ran
    likely: float | None  # the level that requests held while others waited; None = unknown
    since: datetime  # end of the first ten minutes that show it


def exceeded_settings(material: Material) -> dict[tuple[str, str], Exceeded]:
    """(pool, knob) → how its servers exceed what driftwatch.yaml says."""
    found = {}
    for (pool, name), configured in sorted(material.configured.items()):
        column, ratio = (_MOST, 1.0) if name == SEQS else (_STEPS, EXCEEDED_RATIO)
        cells = of_pool(material, pool).drop_nulls(column).sort("end", *KEY)
        newest = cells.unique(KEY, keep="last", maintain_order=True)
        beyond = newest.filter(pl.col(column) > ratio * configured).sort(-pl.col(column), *KEY)
        if beyond.is_empty():
            continue
        levels = beyond.drop_nulls(_LEVEL) if name == SEQS else beyond.clear()
        likely = levels[_LEVEL][0] if levels[_LEVEL].n_unique() == 1 else None
        most, one, servers = beyond[column][0], beyond["instance"][0], plural(len(newest), "server")
        if name != SEQS:
            fact = f"the servers run at least {least_budget(most)}"
        elif likely is None:
            fact = f"up to {knob(most)} ran at once on {clean(one)}"
        else:
            where = f"{len(levels)} of {servers}" if len(levels) < len(newest) else f"all {servers}"
            where = clean(one) if len(newest) == 1 else where
            fact = f"at most {knob(likely)} ran on {where} while requests queued: probably "
            fact += knob(likely)
        since = cells.filter(pl.col(column) > ratio * configured)["end"][0]
        fact = f"it says {knob(configured)}, and {fact}"
        found[pool, name] = Exceeded(fact, likely, since)
    return found


def record(material: Material) -> Record:
    """What came of the settings that were advised in eight weeks, and how far the forecasts were
    off. A change that was made counts once for its pool; so does a setting without a known change.
    """
    until = material.until
    since = until - TRACK
    known = material.known_since or material.since
    begun = [one for one in material.verifications if one.opened_at < until]
    made = rollouts(o for o in begun if o.forecast is not None or advice_before(material, o))
    waiting = [
        (_without_change(material, given), given)
        for given in material.advice
        if given.moves
        and since <= given.at
        and not any(
            v.pool == given.pool and v.change.at >= given.at and advised_by(v.change, given.moves)
            for v in begun
        )
    ]
    # of a setting the newest; one that a restart may have followed goes before it
    waiting.sort(key=lambda pair: (pair[0] == _UNCONFIRMED, pair[1].at))
    unknown = {(given.pool, given.moves[0].knob): found for found, given in waiting}
    outcomes = Counter([_outcome(material, one) for one in made])
    outcomes += Counter(unknown.values())
    closed = rollouts(one for one in begun if one.closed_at is not None)
    as_advised = [one for one in closed if all(_has_advised(material, v) for v in one)]
    return Record(
        since=max(since, known),
        advised=outcomes.total(),
        outcomes=dict(outcomes.most_common()),
        forecast_errors={
            name: ForecastError(median=median(errors), n=len(errors))
            for name, errors in sorted(_forecast_errors(as_advised).items())
        },
    )


def _without_change(material: Material, given: TargetAdvice) -> str:
    """Outcome of an advice that no change followed."""
    if given.at < material.since:
        return "no change seen"
    again, move = last_restarts(material, given.pool, given.at, material.until), given.moves[0]
    answered, _ = material.confirmed.get((given.pool, move.knob), (given.at, 0.0))
    last = again["end"][-1] if len(again) else given.at
    now = of_pool(material, given.pool).filter(pl.col("end") > last).sort("end")
    levels = now.drop_nulls(_LEVEL).unique(KEY, keep="last")[_LEVEL].to_list()
    is_same = move.knob == SEQS and set(levels) == {move.from_value}
    if is_same or again.is_empty() or max(answered, given.at) >= again["end"][0] - CELL:
        return "not made"
    return _UNCONFIRMED


def _forecast_errors(changes: Iterable[Rollout]) -> dict[str, list[float]]:
    """Figure → by how much each forecast missed what was measured, the median of its servers.

    |measured / forecast - 1|; of a share of requests |measured - forecast|, in its unit.
    """
    errors: dict[str, list[float]] = {}
    for servers in changes:
        own: dict[str, list[float]] = {}
        for effect in (one for verification in servers for one in verification.effects):
            promise, is_share = effect.forecast, effect.name == IN_TARGET
            if promise is not None and (promise > 0 or is_share):
                error = effect.after - promise if is_share else effect.after / promise - 1
                own.setdefault(effect.name, []).append(abs(error))
        for name, several in own.items():
            errors.setdefault(name, []).append(median(several))
    return errors
