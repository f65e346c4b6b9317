"""Changes of settings and releases in a report: what was changed, and whether it worked. Pure.

``driftwatch verify`` judges a change on matched minutes. Where it did, the report has its figures
and no others. The same change of a pool's servers is one rollout, with the figures of its median
server.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from statistics import median

from driftwatch.model import Slo
from driftwatch.notify.verification_line import effect_text, from_to, minutes_text
from driftwatch.numbers import clean, cut, plural
from driftwatch.report.material import AdviceGiven, Material
from driftwatch.report.report import ForecastError, Record
from driftwatch.report.week import day_time
from driftwatch.verify.changes import advised_by, number_of
from driftwatch.verify.figures import IN_TARGET, ITL, TTFT, WORDS
from driftwatch.verify.verdict import HARM_SHARE, towards_good
from driftwatch.verify.verification import Effect, Verdict, Verification

ASKED = (IN_TARGET, TTFT, ITL)  # the figures that people ask about
TRACK = timedelta(weeks=8)
# verdict → what the report calls it; of two that as many servers have, the first one counts
_WORDS: Mapping[Verdict, str] = {
    "FAIL": "did not work",
    "INCONCLUSIVE": "cannot be judged",
    "PASS": "worked",
    "open": "not verified yet",
}
NOT_ENOUGH, _NO_CHANGE = "not enough", "without a known change"
_ROLLOUT = timedelta(hours=1)

Rollout = Sequence[Verification]


def rollouts(verifications: Iterable[Verification]) -> list[list[Verification]]:
    """Verifications of the same change of a pool's servers, within an hour of the one before."""
    found: dict[tuple[str, ...], list[list[Verification]]] = {}
    for one in sorted(verifications, key=lambda v: (v.change.at, v.instance, v.engine)):
        several = found.setdefault((one.pool, *_values(one)), [])
        if not several or one.change.at - several[-1][-1].change.at >= _ROLLOUT:
            several.append([])
        several[-1].append(one)
    every = (rollout for several in found.values() for rollout in several)
    return sorted(every, key=lambda rollout: rollout[0].change.at)


def _values(one: Verification) -> list[str]:
    """What was changed to what; a value that is only known to be larger may be any."""
    return [
        f"{n} {now.partition('at least ')[0]}" for n, (_, now) in sorted(one.change.what.items())
    ]


def outcome_of(material: Material, rollout: Rollout) -> str:
    """``worked``, ``not enough``: by the verdict of most of its servers, of as many the worse.

    It is not verified while one server is not. ``not enough``: more requests are in target than
    before, and by two points fewer than must be, or than was promised.
    """
    until, share = material.until, material.slos.get(rollout[0].pool, Slo()).share - HARM_SHARE
    if any(one.closed_at is None or one.closed_at >= until for one in rollout):
        return _WORDS["open"]
    verdicts = Counter(one.verdict for one in rollout)
    verdict = max(_WORDS, key=lambda name: verdicts[name])
    effects = median_effects(rollout)
    first = effects[0] if effects else None
    is_short = first is not None and first.name == IN_TARGET and first.after < share
    if (verdict == "PASS" and is_short) or (verdict == "FAIL" and is_better(effects)):
        return NOT_ENOUGH
    return _WORDS[verdict]


def median_effects(rollout: Rollout) -> list[Effect]:
    """The figures of the median server, those that people ask about first."""
    found: dict[str, list[Effect]] = {}
    for effect in (effect for one in rollout for effect in one.effects):
        found.setdefault(effect.name, []).append(effect)
    names = [name for name in ASKED if name in found]
    return [_median(found[name]) for name in (*names, *(n for n in found if n not in names))]


def _median(effects: Sequence[Effect]) -> Effect:
    promised = [one.forecast for one in effects if one.forecast is not None]
    values = {n: median(getattr(e, n) for e in effects) for n in ("before", "after", "low", "high")}
    return replace(effects[0], **values, forecast=median(promised) if promised else None)


def is_better(effects: Sequence[Effect]) -> bool:
    """Whether the figure that people ask about first became better."""
    return bool(effects) and towards_good(effects[0])[0] > 0


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
    return ", ".join(texts)


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


def advice_before(material: Material, one: Verification) -> AdviceGiven | None:
    """The newest advice that asked for a change; None where it is no longer stored."""
    asked = [
        given
        for given in material.advice
        if given.pool == one.pool
        and given.at <= one.change.at
        and advised_by(one.change, given.moves)
    ]
    return asked[-1] if asked else None


def outcome(material: Material, rollout: Rollout) -> str:
    """RESULT: ``worked: 1.3 → 100 % in target``."""
    word, effects = outcome_of(material, rollout), median_effects(rollout)
    if word == _WORDS["open"]:
        return word
    if word == _WORDS["INCONCLUSIVE"] or not effects:
        reason = next((one.reason for one in rollout if _WORDS[one.verdict] == word), "")
        return f"{word}: {clean(reason)}" if reason else word
    first = effects[0]
    if first.name == IN_TARGET:
        return f"{word}: {from_to(first)} in target"
    return f"{word}: {effect_name(first.name)} {from_to(first)}"


def compared_text(rollout: Rollout) -> str:
    """What a verdict rests on: which minutes were compared, and what they show."""
    effects = [effect for effect in median_effects(rollout) if effect.name in ASKED]
    if not effects:
        return ""
    before, after = (round(median(one.matched_minutes[side] for one in rollout)) for side in (0, 1))
    of = f", median of {plural(len(rollout), 'server')}" if len(rollout) > 1 else ""
    return f"{minutes_text(before, after)}{of}: {', '.join(map(effect_text, effects))}"


def effect_name(column: str) -> str:
    """``TTFT`` of ttft_seconds_mean; other columns as ``driftwatch verify`` calls them."""
    stem = next((s for s in ("ttft", "itl", "tpot", "e2e") if column.startswith(f"{s}_")), None)
    return stem.upper() if stem else WORDS.get(column) or clean(column)


def record(material: Material) -> Record:
    """What came of each advice of eight weeks, and how far the forecasts were off.

    The settings that an incident advised are one advice, however often it gave another value.
    """
    until = material.until
    since = until - TRACK
    known = material.known_since or material.since
    advised: dict[str, list[Verification]] = {}
    for given in material.advice:
        if given.moves and since <= given.at:
            advised.setdefault(given.incident_id or given.pool, [])
    begun = [one for one in material.verifications if one.opened_at < until]
    for one in begun:
        if one.forecast is not None:
            advised.setdefault(one.incident_id or one.pool, []).append(one)
    outcomes = Counter(
        outcome_of(material, rollouts(several)[-1]) if several else _NO_CHANGE
        for several in advised.values()
    )
    closed = [one for one in begun if one.closed_at is not None and one.closed_at < until]
    return Record(
        since=max(since, known),
        is_whole=known <= since,
        advised=len(advised),
        outcomes=dict(outcomes.most_common()),
        forecast_errors={
            name: ForecastError(median=median(errors), n=len(errors))
            for name, errors in sorted(_forecast_errors(rollouts(closed)).items())
        },
    )


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
