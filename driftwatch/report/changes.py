"""Changes of settings and releases in a report: what was changed, and whether it worked. Pure.

``driftwatch verify`` judges a change on matched minutes. Where it did, the report has its figures
and no others. The same change of a pool's servers is one rollout, with the figures of its median
server.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import timedelta
from statistics import median

from driftwatch.model import Slo
from driftwatch.notify.rollout import MAIN_FIGURES, Rollout, median_effects, outcome_of, rollouts
from driftwatch.notify.verification_line import effect_text, minutes_text
from driftwatch.numbers import clean, cut, plural
from driftwatch.report.cells import CELL
from driftwatch.report.incidents import moves_text
from driftwatch.report.material import Material
from driftwatch.report.report import ForecastError, Record
from driftwatch.report.result import last_restarts, starts_text
from driftwatch.report.week import day_time
from driftwatch.store.history import TargetAdvice
from driftwatch.verify.changes import advised_by, number_of
from driftwatch.verify.figures import IN_TARGET
from driftwatch.verify.verification import Verification

TRACK = timedelta(weeks=8)
UNKNOWN = (_UNCONFIRMED, _NOT_MADE, _NOT_SEEN) = ("not confirmed", "not made", "no change seen")


def changed_text(rollout: Rollout) -> str:
    """``release 0.11.0``, ``max_num_seqs 64 or 128 (most that ran at once)``."""
    values: dict[str, dict[str, None]] = {}
    for one in rollout:
        for name, (_, after) in sorted(one.change.what.items()):
            values.setdefault(name, {})[clean(after)] = None
    texts = []
    for name, several in values.items():
        parts = sorted((text.partition(" (") for text in several), key=lambda p: (len(p[0]), p[0]))
        if all(value.startswith("at least ") for value, *_ in parts):
            parts = parts[-1:]  # one bound holds for all
        known = dict.fromkeys(cut(value, 24) for value, *_ in parts)
        how = next((f" ({rest}" for *_, rest in parts if rest), "")
        texts.append(f"{clean(name)} {' or '.join(known)}{how}")
    people = dict.fromkeys(clean(one.confirmed_by) for one in rollout if one.confirmed_by)
    return ", ".join(texts) + (f" (says {', '.join(people)})" if people else "")


def done_text(material: Material, changed: Rollout) -> str:
    """What was changed, and whether that was advised: ``max_num_seqs 64, as advised Tue 09:20``."""
    last = rollouts(changed)[-1]
    return ", ".join([changed_text(changed), *_advised(material, last[0])])


def _advised(material: Material, one: Verification) -> list[str]:
    if one.forecast is None:
        return []
    given = advice_before(material, one)
    if given is None:
        return ["as advised"]
    when, other = day_time(given.at), []
    for move in given.moves:
        value = one.change.what[move.knob][1]
        now = number_of(value) or 0.0
        if now > move.to_value or (now < move.to_value and not value.startswith("at least")):
            other.append(move)
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


def compared_text(rollout: Rollout) -> str:
    """What a verdict rests on: which minutes were compared, and what they show."""
    effects = [effect for effect in median_effects(rollout) if effect.name in MAIN_FIGURES]
    if not effects:
        return ""
    before, after = (round(median(one.matched_minutes[side] for one in rollout)) for side in (0, 1))
    of = f", median of {plural(len(rollout), 'server')}" if len(rollout) > 1 else ""
    return f"{minutes_text(before, after)}{of}: {', '.join(map(effect_text, effects))}"


def share_of(material: Material, pool: str) -> float:
    """The share of a pool's requests that must meet its targets."""
    return material.slos.get(pool, Slo()).share


def _outcome(material: Material, rollout: Rollout) -> str:
    return outcome_of(rollout, share_of(material, rollout[0].pool))


def record(material: Material) -> Record:
    """What came of the settings that were advised in eight weeks, and how far the forecasts were
    off. A change that was made counts once for its pool; so does a setting without a known change.
    """
    until = material.until
    since = until - TRACK
    known = material.known_since or material.since
    begun = [one for one in material.verifications if one.opened_at < until]
    made = rollouts(one for one in begun if one.forecast is not None)
    waiting = [
        (_unknown(material, given), given)
        for given in material.advice
        if given.moves
        and since <= given.at
        and not any(
            v.pool == given.pool and v.change.at >= given.at and advised_by(v.change, given.moves)
            for v in begun
        )
    ]
    # of a setting the newest; one that a restart may have followed goes before it
    waiting.sort(key=lambda pair: (pair[0][0] == _UNCONFIRMED, pair[1].at))
    unknown = {(given.pool, given.moves[0].knob): found for found, given in waiting}
    outcomes = Counter([_outcome(material, one) for one in made])
    outcomes += Counter([name for name, _ in unknown.values()])
    closed = [one for one in begun if one.closed_at is not None]
    return Record(
        since=max(since, known),
        is_whole=known <= since,
        advised=outcomes.total(),
        outcomes=dict(outcomes.most_common()),
        unknown=tuple(text for _, text in unknown.values()),
        forecast_errors={
            name: ForecastError(median=median(errors), n=len(errors))
            for name, errors in sorted(_forecast_errors(rollouts(closed)).items())
        },
    )


def _unknown(material: Material, given: TargetAdvice) -> tuple[str, str]:
    """Outcome of an advice that no change followed, and the outcome with pool, setting and time."""
    advised = f"{clean(given.pool)} {moves_text(given.moves)} (advised {day_time(given.at)})"
    if given.at < material.since:
        return _NOT_SEEN, f"{advised} {_NOT_SEEN}"
    again = last_restarts(material, given.pool, given.at, material.until)
    answered = material.confirmed.get((given.pool, given.moves[0].knob), given.at)
    if again.is_empty() or answered >= again["end"][0] - CELL:
        why = "a person says so" if answered > given.at else "no server restarted since"
        return _NOT_MADE, f"{advised} {_NOT_MADE}: {why}"
    return _UNCONFIRMED, f"{advised} {_UNCONFIRMED}: what did {starts_text(again)} change?"


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
