"""The incidents of a week, as they stood at its end. Pure; nothing else here reads a page."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from driftwatch.incidents.incident import Incident
from driftwatch.knobs import COLUMN_KNOBS
from driftwatch.model import Diagnosis, KnobMove, TargetKey
from driftwatch.notify.advice import imperatives
from driftwatch.notify.phrases.traffic import length_ratio
from driftwatch.numbers import clean, is_as_before, knob, times
from driftwatch.report.material import Material
from driftwatch.report.report import ReportedIncident
from driftwatch.store.actions import USEFUL

_LIMITS: Mapping[str, str] = {
    **{name: f"{name} full" for name in COLUMN_KNOBS},
    "max_num_batched_tokens": "token budget full",
    "kv_cache": "KV cache full",
    "deferred": "requests held back",
}
_TODO_LIMIT = 120
_SLOWER = "slower at equal load"
_SO_LONG = re.compile(r" for \d+ (?:s|min|h)\b")
# an engine that is slow or hangs costs GPU time; anything else costs requests
BY_SPEED = ("speed", "stuck")
RETUNE = "retune"  # family of the ticket about lengths that stay
_QUIET = timedelta(hours=1)  # its condition is looked at within less


def keys_of(incident: Incident) -> tuple[TargetKey, ...]:
    """The servers that met the rule of an incident, recovered ones too; all while none has."""
    met = tuple(one.key for one in incident.servers if one.met)
    return met or tuple(one.key for one in incident.servers)


def subject_of(incident: Incident) -> str:
    """What a person calls it: its one server, else its pool."""
    keys = keys_of(incident)
    return clean(keys[0].text if len(keys) == 1 else incident.pool)


def fired_in(material: Material, start: datetime, end: datetime) -> list[Incident]:
    """Incidents that fired in a stretch and that somebody was sent, or a silence held back."""
    return [one for one in material.incidents if one.firing_at and start <= one.firing_at < end]


def of_week(material: Material) -> list[Incident]:
    """Incidents that fired before the week's end and were open in some of it, by start."""
    incidents = [
        one
        for one in material.incidents
        if one.firing_at is not None
        and one.firing_at < material.until
        and (one.resolved_at is None or one.resolved_at > material.since)
    ]
    return sorted(incidents, key=lambda one: (one.started_at, one.key))


def end_of(incident: Incident, material: Material) -> datetime | None:
    """When it was over; None where it was open at the report's end."""
    ended = incident.resolved_at
    return None if ended is None or ended >= material.until else ended


def over_at(incident: Incident, material: Material) -> datetime | None:
    """When its trouble was over; None while it lasts.

    A ticket to re-tune waits days for lengths to stay: what it is about was over before that.
    """
    ended, is_wait = end_of(incident, material), family_of(incident) == RETUNE
    last = incident.last_true_at
    return last if ended is None and is_wait and last < material.until - _QUIET else ended


def family_of(incident: Incident) -> str:
    """Which kind of drift its rule calls it; the alert's name where the rule does not say."""
    return (incident.page and incident.page.family) or incident.alert


def asks_nothing(incident: Incident) -> bool:
    """A ticket that says: nothing to do."""
    advice = None if incident.page is None else incident.page.advice
    return incident.severity == "ticket" and advice is not None and advice.action == "no_action"


def advised_moves(incident: Incident) -> tuple[KnobMove, ...]:
    """The settings that its page advises to change."""
    advice = None if incident.page is None else incident.page.advice
    return () if advice is None else advice.moves


def moves_text(moves: Sequence[KnobMove]) -> str:
    """``max_num_seqs 64 → 128``."""
    return ", ".join(
        f"{move.knob} {'?' if move.from_value is None else knob(move.from_value)} → "
        f"{knob(move.to_value)}"
        for move in moves
    )


def instead_of(incident: Incident) -> list[tuple[str, str]]:
    """What its page advises where no setting helps, each with what it would bring, best first."""
    advice = None if incident.page is None else incident.page.advice
    if advice is None or advice.action != "none":
        return []
    parts = (clean(text).partition(": ") for text in advice.instead)
    return [(what, brings) for what, _, brings in parts]


def diagnosis_of(incident: Incident) -> Diagnosis | None:
    """Why it came about. Of an engine that is slow or hangs its first page knows: later ones see
    the limit that its queue fills.
    """
    if incident.page is None:
        return None
    is_first = family_of(incident) in BY_SPEED
    return incident.page.as_first.diagnosis if is_first else incident.page.diagnosis


def advised_text(incident: Incident) -> str:
    """What the last advice of its page asks for, of a slow engine the first: ``drain it``; empty
    where it asks for nothing.
    """
    first = None if incident.page is None else incident.page.first
    if first is not None and family_of(incident) in BY_SPEED and first.diagnosis is not None:
        do = next((one.text for one in first.lines if one.label == "Do"), first.diagnosis.advice)
        return clean(do or "")[:1].lower() + clean(do or "")[1:]
    if moves := advised_moves(incident):
        return moves_text(moves)
    if choices := instead_of(incident):
        return choices[0][0].split(" (")[0]
    advice = None if incident.page is None else incident.page.advice
    is_leaf = advice is not None and advice.reason.code == "leaf"
    asks = incident.page is not None and incident.page.leaf != "healthy"
    return action_of(incident) if is_leaf and asks else ""


def action_of(incident: Incident) -> str:
    """What its page asks for: the longest text that fits; empty without a page."""
    texts = [] if incident.page is None else imperatives(incident.page)
    text = next((t for t in texts if len(t) <= _TODO_LIMIT), texts[-1] if texts else "")
    return text[:1].lower() + text[1:]


def ended_because(incidents: Sequence[Incident]) -> str | None:
    """Why the last of them ended, where that was no good minute."""
    pages = [one.page for one in incidents if one.page is not None]
    ends = [page.resolved_reason for page in pages if page.resolved_reason]
    return clean(ends[-1].split(" (")[0]) if ends else None


def page_lengths(incidents: Sequence[Incident]) -> str | None:
    """``prompts ×2.3`` by their pages, for a pool without usual lengths."""
    pages = [one.page for one in incidents if one.page is not None]
    ratios = [(s, length_ratio(p, s)) for p in pages for s in ("prompt", "generation")]
    # shorter answers may only be those that clients waited for
    moved = [(s, r) for s, r in ratios if r and not is_as_before(r) and (r > 1 or s == "prompt")]
    if not moved:
        return None
    stem, ratio = max(moved, key=lambda pair: max(pair[1], 1 / pair[1]))
    return f"{stem}s {times(ratio)}"


def problem(family: str, incidents: Sequence[Incident]) -> str:
    """What their pages complain of: ``token budget full``, ``19 % slower at equal load``."""
    pages = [one.page for one in incidents if one.page is not None]
    if family == "traffic":
        full = (_LIMITS.get(str(page.value("binding_limit"))) for page in pages)
        return next((text for text in full if text), "requests wait")
    # as the first page said it: a person has read that number
    texts = [page.first_problem or next(iter(page.phrases.problem), "") for page in pages]
    text = clean(next(filter(None, texts), incidents[0].alert))
    text = re.split("[,;] ", text)[0]
    text = _SO_LONG.sub("", text)  # the row says for how long
    why = next(filter(None, map(diagnosis_of, incidents)), None)
    meaning = "" if why is None else clean(why.meaning or "").partition(";")[0]
    # 22 % slower at equal load with the GPU clock down
    return text + (meaning.removeprefix(_SLOWER) if meaning.startswith(_SLOWER) else "")


def reported(one: Incident, material: Material) -> ReportedIncident:
    """An incident as the report has it."""
    mark = material.marks.get(one.id)
    return ReportedIncident(
        id=one.id,
        alert=one.alert,
        severity=one.severity,
        subject=subject_of(one),
        start=one.started_at,
        paged_at=one.firing_at or one.started_at,
        end=end_of(one, material),
        is_silenced=one.silenced_by is not None,
        acknowledged_by=one.acknowledged_by,
        useful=None if mark is None else mark.mark == USEFUL,
        marked_by=None if mark is None else mark.by,
        because=None if mark is None else mark.because or None,
    )
