"""A rollout: the same change of a pool's servers, with one verdict and its figures. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from statistics import median

from driftwatch.notify.verification_line import from_to
from driftwatch.numbers import clean, percent
from driftwatch.verify.figures import IN_TARGET, ITL, TTFT, WAIT, WORDS
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
    found: list[list[Verification]] = []
    for one in sorted(verifications, key=lambda v: (v.change.at, v.instance, v.engine)):
        late = (r for r in reversed(found) if one.change.at - r[-1].change.at < _TOGETHER)
        mine = next((r for r in late if _is_same(r[0], one) and _is_same(r[-1], one)), None)
        if mine is None:
            found.append(mine := [])
        mine.append(one)
    return found


def _is_same(one: Verification, other: Verification) -> bool:
    """Whether both are one change of a pool; a value known only as a lower bound stands for any."""
    what, also = one.change.what, other.change.what
    pairs = ((what[name][1], also[name][1]) for name in what.keys() & also.keys())
    return (
        one.pool == other.pool
        and what.keys() == also.keys()
        and all(
            a.split(" (")[0] == b.split(" (")[0] or "at least " in (a[:9], b[:9]) for a, b in pairs
        )
    )


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
    if verdict == "FAIL" and {one.reason for one in rollout if one.verdict == verdict} == {SLOWER}:
        return SLOWER
    is_short = bool(effects) and _is_short(effects[0], share)
    if (verdict == "PASS" and is_short) or (verdict == "FAIL" and is_better(effects)):
        return IN_PART
    return OUTCOMES[verdict]


def _is_short(first: Effect, share: float) -> bool:
    return first.name == IN_TARGET and first.after < share - HARM_SHARE


def outcome_text(rollout: Rollout, share: float) -> str:
    """``worked: 1.3 → 100 % in target``, ``helped on 2 of 3 servers: 40 → 74 % in target, still
    below 95 %``; with the reason where it cannot be judged. Of a release whose tokens come later
    ``slower: ITL 25.8 → 31.1 ms; 36 → 0 % in target, requests queued before it too``.
    """
    word, effects = outcome_of(rollout, share), median_effects(rollout)
    if word == OUTCOMES["open"]:
        return word
    if word == OUTCOMES["INCONCLUSIVE"] or not effects:
        reason = next((one.reason for one in rollout if OUTCOMES[one.verdict] == word), "")
        return f"{word}: {clean(reason)}" if reason else word
    first, rest = effects[0], ""
    by_name = {one.name: one for one in effects}
    is_worse = ITL in by_name and improvement(by_name[ITL])[0] < 0
    if word == SLOWER:
        first = by_name.get(ITL, first)
    elif word == OUTCOMES["FAIL"] and rollout[0].change.kind == "release" and is_worse:
        word, wait, whole = "slower", by_name.get(WAIT), by_name.get(TTFT)
        if first.name == IN_TARGET:
            rest = f"; {from_to(first)} in target"
            # a queue that grows with time makes any later minute look worse
            if first.before < share and wait and whole and wait.before > whole.before / 2:
                rest += ", requests queued before it too"
        first = by_name[ITL]
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
