"""A rollout: the same change of a pool's servers, with one verdict and its figures. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from statistics import median

from driftwatch.notify.verification_line import from_to
from driftwatch.numbers import clean, percent
from driftwatch.verify.figures import IN_TARGET, ITL, TTFT, WORDS
from driftwatch.verify.verdict import HARM_SHARE, SLOWER, improvement
from driftwatch.verify.verification import Effect, Verdict, Verification

MAIN_FIGURES = (IN_TARGET, TTFT, ITL)
# verdict → outcome; if two verdicts have as many servers, the first one counts
OUTCOMES: Mapping[Verdict, str] = {
    "FAIL": "did not work",
    "INCONCLUSIVE": "cannot be judged",
    "PASS": "worked",
    "open": "not verified yet",
}
IN_PART = "helped in part"
_TOGETHER = timedelta(hours=1)

Rollout = Sequence[Verification]


def rollouts(verifications: Iterable[Verification]) -> list[list[Verification]]:
    """Group verifications into rollouts: same pool and change, each within an hour of the last."""
    found: dict[tuple[str, ...], list[list[Verification]]] = {}
    for one in sorted(verifications, key=lambda v: (v.change.at, v.instance, v.engine)):
        several = found.setdefault((one.pool, *_values(one)), [])
        if not several or one.change.at - several[-1][-1].change.at >= _TOGETHER:
            several.append([])
        several[-1].append(one)
    every = (rollout for several in found.values() for rollout in several)
    return sorted(every, key=lambda rollout: rollout[0].change.at)


def _values(one: Verification) -> list[str]:
    """The new settings; a value known only as a lower bound stands for any."""
    return [
        f"{n} {now.partition('at least ')[0]}" for n, (_, now) in sorted(one.change.what.items())
    ]


def outcome_of(rollout: Rollout, share: float) -> str:
    """``worked``, ``helped in part``, …: the verdict of most servers; of equally many, the worse.

    It is open while one server's is. ``helped in part``: more requests are in target than before,
    but by two points fewer than required (``share``), or than forecast.
    """
    if any(one.verdict == "open" for one in rollout):
        return OUTCOMES["open"]
    verdicts = Counter(one.verdict for one in rollout)
    verdict = max(OUTCOMES, key=lambda name: verdicts[name])
    effects = median_effects(rollout)
    if verdict == "FAIL" and any(one.reason == SLOWER for one in rollout):
        return SLOWER
    is_short = bool(effects) and _is_short(effects[0], share)
    if (verdict == "PASS" and is_short) or (verdict == "FAIL" and is_better(effects)):
        return IN_PART
    return OUTCOMES[verdict]


def _is_short(first: Effect, share: float) -> bool:
    return first.name == IN_TARGET and first.after < share - HARM_SHARE


def outcome_text(rollout: Rollout, share: float) -> str:
    """``worked: 1.3 → 100 % in target``, ``helped on 2 of 3 servers: 40 → 74 % in target, still
    below 95 %``; with the reason where it cannot be judged.
    """
    word, effects = outcome_of(rollout, share), median_effects(rollout)
    if word == OUTCOMES["open"]:
        return word
    if word == OUTCOMES["INCONCLUSIVE"] or not effects:
        reason = next((one.reason for one in rollout if OUTCOMES[one.verdict] == word), "")
        return f"{word}: {clean(reason)}" if reason else word
    first, rest = effects[0], ""
    if word == SLOWER:
        first = next((one for one in effects if one.name == ITL), first)
    if word == IN_PART:
        passed = sum(one.verdict == "PASS" for one in rollout)
        some = f" on {passed} of {len(rollout)} servers" if 0 < passed < len(rollout) else ""
        word = f"helped{some}"
        short = f"still below {percent(share)}"
        rest = f", {short if _is_short(first, share) else 'less than promised'}"
    if first.name == IN_TARGET:
        return f"{word}: {from_to(first)} in target{rest}"
    return f"{word}: {effect_name(first.name)} {from_to(first)}{rest}"


def median_effects(rollout: Rollout) -> list[Effect]:
    """The median of the servers' figures, the main ones first."""
    found: dict[str, list[Effect]] = {}
    for effect in (effect for one in rollout for effect in one.effects):
        found.setdefault(effect.name, []).append(effect)
    names = [name for name in MAIN_FIGURES if name in found]
    return [_median(found[name]) for name in (*names, *(n for n in found if n not in names))]


def _median(effects: Sequence[Effect]) -> Effect:
    promised = [one.forecast for one in effects if one.forecast is not None]
    values = {n: median(getattr(e, n) for e in effects) for n in ("before", "after", "low", "high")}
    return replace(effects[0], **values, forecast=median(promised) if promised else None)


def is_better(effects: Sequence[Effect]) -> bool:
    """Whether the first main figure improved."""
    return bool(effects) and improvement(effects[0])[0] > 0


def effect_name(column: str) -> str:
    """``TTFT`` for ttft_seconds_mean; other columns as in ``driftwatch verify``."""
    stem = next((s for s in ("ttft", "itl", "tpot", "e2e") if column.startswith(f"{s}_")), None)
    return stem.upper() if stem else WORDS.get(column) or clean(column)
