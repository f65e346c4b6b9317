"""What ``explain`` tells people to do, or what keeps it from a verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from driftwatch.model import Finding, Incident, Recommendation
from driftwatch.notify.advice import advice_lines, imperatives, no_verdict
from driftwatch.notify.attribution import reason_of
from driftwatch.notify.columns import name_of
from driftwatch.notify.numbers import clean, setting
from driftwatch.notify.page import diagnosis_json, recommendation_json
from driftwatch.notify.page_values import Page, form_of

# kinds of drift that no setting mends
_NO_SETTING = ("speed", "stuck")


def todo(finding: Finding, incidents: Sequence[Incident] = (), where: str = "") -> list[str]:
    """What to do, first what open incidents say, or why nothing; and the next command.

    ``incidents``: the target's own firing ones; ``where``: options that name the same moment.
    """
    pages = _advising(finding, incidents)
    out = [f"Do       {imperatives(page)[0]} ({clean(page['alert'])})" for page in pages]
    advice = finding.recommendation
    # a page that forbids a change is not contradicted
    if any(form_of(page)["family"] in _NO_SETTING for page in pages):
        advice = None
    missing = finding.diagnosis.missing if finding.diagnosis else ()
    repeats = pages and advice is not None and advice.action == "none" and advice.basis is None
    if advice is not None and not missing and not repeats:
        out += _own(finding, advice)
    if missing and not out:
        whys = [f"{name_of(n)}: {clean(finding.reasons.get(n) or 'unknown')}" for n in missing]
        out.append(f"Do       give what is missing: {'; '.join(dict.fromkeys(whys))}")
    if missing:
        out.append(f"next:    driftwatch doctor, driftwatch evidence {missing[0]}")
    elif advice is not None and (
        advice.basis in ("simulation", "measured") or advice.action == "insufficient"
    ):
        out.append(f"next:    driftwatch recommend {finding.target.key.text}{where}")
    else:
        slower = ("slower_at_equal_load", "slower_than_pool")
        about = "speed" if any(finding.evidence.get(name) for name in slower) else "queue"
        if finding.diagnosis is not None and finding.diagnosis.leaf == "drifted_within_limits":
            about = "length"
        out.append(f"next:    driftwatch evidence {about}")
    return out


def _own(finding: Finding, advice: Recommendation) -> Iterator[str]:
    """What the finding's own recommendation says, in the lines of a page."""
    diagnosis = finding.diagnosis
    if advice.reason.code == "leaf" and (diagnosis is None or diagnosis.advice is None):
        yield "Do       nothing to set"
        return
    page = {
        "severity": "page",
        "summary": "",
        "evidence": {name: {"value": amount} for name, amount in finding.evidence.items()},
        "diagnosis": None if diagnosis is None else diagnosis_json(diagnosis, finding.reasons),
        "recommendation": recommendation_json(advice),
    }
    for line in advice_lines(page):
        yield f"{line.label:<8} {line.text}"
    if advice.not_cured:
        yield f"Also     {'; '.join(advice.not_cured)}"


def change_text(advice: Recommendation) -> str:
    """Every setting of a change: ``max_num_seqs 128 → 64, max_num_batched_tokens 8192 → 512``."""
    return ", ".join(
        setting(one.knob, one.from_value, one.to_value, one.from_provenance) for one in advice.moves
    )


def _advising(finding: Finding, incidents: Sequence[Incident]) -> list[Page]:
    """Pages that say what to do where the finding does not: it has no tree, or no verdict."""
    pages = [incident.page for incident in incidents if incident.page is not None]
    return [
        page
        for page in pages
        if (page["diagnosis"] is None or lacking(finding))
        and no_verdict(page) is None
        and imperatives(page)
    ]


def lacking(finding: Finding) -> list[str]:
    """Why there is no verdict, each reason once, without how to mend it; empty with a verdict."""
    missing = finding.diagnosis.missing if finding.diagnosis else ()
    texts = [f"{name_of(name)}: {reason_of(name, finding.reasons)}" for name in missing]
    return [*dict.fromkeys(texts)]
