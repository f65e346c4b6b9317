"""What was done about a drift, and what came of it: verifications in the words of a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime

from driftwatch.knobs import KNOBS
from driftwatch.model import Incident
from driftwatch.notify.numbers import clean, cut
from driftwatch.notify.verification_line import from_to
from driftwatch.report.incidents import key_of
from driftwatch.verify.figures import WORDS
from driftwatch.verify.verification import Effect, Verification

# verdict → what the report calls it, what a person looks for first in front
_WORDS: Mapping[str, str] = {
    "FAIL": "did not work",
    "INCONCLUSIVE": "not proven",
    "open": "not verified yet",
    "PASS": "worked",
}


def verifications_of(
    incidents: Sequence[Incident], verifications: Iterable[Verification], until: datetime
) -> list[Verification]:
    """Verifications of changes that came after incidents began, on their targets or pools."""
    keys = {key_of(one) for one in incidents if one.target.get("instance")}
    pools = {one.target.get("pool") for one in incidents if not one.target.get("instance")}
    ids = {one.id for one in incidents}
    began = min(one.started_at for one in incidents)
    return [
        one
        for one in verifications
        if one.change.at < until
        and (
            one.incident_id in ids
            or (
                ((one.instance, one.engine) in keys or one.pool in pools) and one.change.at >= began
            )
        )
    ]


def done_text(verifications: Sequence[Verification]) -> str:
    """What was changed: ``budget 2048``, ``release 0.11.0``.

    >>> done_text([])
    'no change found'
    """
    words: dict[str, None] = {}
    for one in verifications:
        for name, (_, after) in sorted(one.change.what.items()):
            what = KNOBS[name].short if name in KNOBS else clean(name)
            words[f"{what} {cut(clean(after), 24)}"] = None
    return ", ".join(words) or "no change found"


def standing(one: Verification, until: datetime) -> str:
    """Its verdict as it stood at a time."""
    return "open" if one.closed_at is None or one.closed_at >= until else one.verdict


def result_text(verifications: Sequence[Verification], until: datetime) -> str | None:
    """Did it work: ``worked, 1 → 100 %``, or of several ``7 worked``; None without any."""
    verdicts = Counter(standing(one, until) for one in verifications)
    if not verdicts:
        return None
    if len(verdicts) > 1:
        return ", ".join(
            f"{verdicts[name]} {word}" for name, word in _WORDS.items() if verdicts[name]
        )
    (verdict,) = verdicts
    word = _WORDS[verdict]
    if verdict == "open":
        return word
    last = verifications[-1]
    effect = effect_text(main_effect(last.effects))
    return f"{word}, {effect}" if effect else word


def main_effect(effects: Sequence[Effect]) -> Effect | None:
    """The one that says most: requests in target, else the first, which decided the verdict."""
    for one in effects:
        if one.name == "in_target_ratio":
            return one
    return effects[0] if effects else None


def effect_text(effect: Effect | None) -> str:
    """From → to with its unit: ``1 → 100 %``, ``TTFT 1.8 → 0.06 s``."""
    if effect is None:
        return ""
    name = "" if effect.name == "in_target_ratio" else f"{effect_name(effect.name)} "
    return f"{name}{from_to(asdict(effect))}"


def effect_name(column: str) -> str:
    """``TTFT`` of ttft_seconds_mean; other columns as ``driftwatch verify`` calls them."""
    for stem in ("ttft", "itl", "tpot", "e2e"):
        if column.startswith(f"{stem}_"):
            return stem.upper()
    return WORDS.get(column) or clean(column)
