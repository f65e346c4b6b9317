"""What ``explain`` tells people to do, or what keeps it from a verdict."""

from __future__ import annotations

from collections.abc import Sequence

from driftwatch.evidence import BY_NAME
from driftwatch.model import Finding, Incident, Recommendation
from driftwatch.notify.advice import imperatives
from driftwatch.notify.columns import SHORT
from driftwatch.notify.numbers import clean, setting
from driftwatch.notify.path import short_reason

_NOTHING = "nothing to set: no verdict"
_NO_KNOB = "Do not change a knob"


def todo(finding: Finding, incidents: Sequence[Incident] = (), where: str = "") -> Sequence[str]:
    """What to do, first what open incidents say, or why nothing; and the next command.

    Args:
        finding: what was found.
        incidents: the target's own firing ones.
        where: options of ``driftwatch recommend`` that name the same moment and recording.
    """
    advice, advised = finding.recommendation, _advised(finding, incidents)
    said = []
    for alert, text in advised.items():
        text = text.removeprefix(f"{_NO_KNOB}; ")
        said.append(f"do:      {text[:1].lower()}{text[1:]} ({clean(alert)})")
    # a page that forbids a change is not contradicted, and one that advises is no "nothing"
    if any(text.startswith(_NO_KNOB) for text in advised.values()):
        advice = None
    if advice is not None and advice.action == "change":
        said.append(f"do:      {change_text(advice)}: {advice.why}")
        if advice.effect:
            said.append(f"effect:  {'; '.join(advice.effect)}")
        said.append(f"price:   {'; '.join(advice.price)}")
        if advice.not_cured:
            said.append(f"stays:   {'; '.join(advice.not_cured)}")
        said.append(f"undo:    {advice.undo}")
        said.append(f"wrong if {advice.wrong_if}")
    elif advice is not None and advice.basis in ("simulation", "measured"):
        said += _answered(advice)
    elif lacking(finding):
        mend = _mend(finding)
        if not advised or mend != _NOTHING:
            said.append(f"do:      {mend}")
    elif advice is not None and not advised:
        # advice says what to do by itself
        says = advice.reason.code in ("leaf", "engine", "gpus_lost")
        start = "no verdict: " if advice.action == "insufficient" else "nothing to set: "
        said.append(f"do:      {'' if says else start}{advice.why}")
    missing = finding.diagnosis.missing if finding.diagnosis else ()
    if missing:
        said.append(f"next:    driftwatch doctor, driftwatch evidence {missing[0]}")
    elif advice is not None and (
        advice.basis in ("simulation", "measured") or advice.action == "insufficient"
    ):
        said.append(f"next:    driftwatch recommend {finding.target.key.text}{where}")
    else:
        slower = ("slower_at_equal_load", "slower_than_pool")
        about = "speed" if any(finding.evidence.get(name) for name in slower) else "queue"
        said.append(f"next:    driftwatch evidence {about}")
    return said


def change_text(advice: Recommendation) -> str:
    """Every setting of a change: ``max_num_seqs 128 → 64, max_num_batched_tokens 8192 → 512``."""
    return ", ".join(
        setting(one.knob, one.from_value, one.to_value, one.from_provenance) for one in advice.moves
    )


def _answered(advice: Recommendation) -> list[str]:
    """What changes nothing: what helps instead, or that nothing is needed."""
    if advice.action == "no_action":
        return [f"do:      nothing: {advice.why}"]
    # measured: the reason says what the server completes, not that no knob helps
    start = "nothing to set: " if advice.basis == "measured" else ""
    said = [f"do:      {start}{advice.why}"]
    if advice.instead:
        said.append(f"instead: {'; '.join(advice.instead)}")
    return said


def _advised(finding: Finding, incidents: Sequence[Incident]) -> dict[str, str]:
    """Alert → what its page says to do, where the finding does not say it: no tree, no verdict."""
    found = {}
    for incident in incidents:
        page = incident.page
        if page is None or (page["diagnosis"] is not None and not lacking(finding)):
            continue
        said = imperatives(page)
        if said and not said[0].startswith("No verdict"):
            found[incident.alert] = said[0]
    return found


def _mend(finding: Finding) -> str:
    """What gives a verdict: how to mend it stands in brackets behind a reason."""
    missing = finding.diagnosis.missing if finding.diagnosis else ()
    reasons = [clean(reason_of(finding, name)) for name in missing]
    ways = [why.partition(" (")[2].rstrip(")") for why in reasons if " (--" in why]
    ways = [way.removesuffix(" in the configuration") for way in dict.fromkeys(ways)]
    return f"no verdict: give {'; '.join(ways)}" if ways else _NOTHING


def lacking(finding: Finding) -> list[str]:
    """Why there is no verdict, each reason once, without how to mend it; empty with a verdict."""
    if finding.diagnosis is None:
        return []
    found = []
    for name in finding.diagnosis.missing:
        why = short_reason(reason_of(finding, name))
        if why == "no reference":
            found.append(f"{why} for the lengths" if "_tokens_mean_" in name else why)
        else:
            word = SHORT.get(name, name)
            found.append(f"{name if '{}' in word else word.removesuffix(':')}: {why}")
    return [*dict.fromkeys(found)]


def reason_of(finding: Finding, name: str) -> str:
    """Why a column has no value."""
    return finding.reasons.get(name) or BY_NAME[name].disabled_by or "not on the page"
