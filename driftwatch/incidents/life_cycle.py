"""The life of an incident: pending (``for``) → firing → resolved. Pure.

One call advances every incident by one evaluated minute. Time is counted in *evidence*:

* a minute in which the condition was seen true adds 60 s to ``true_seconds``; the incident fires
  when they reach ``for`` (``for: 5m`` is five true minutes, ``for: 0s`` the first one);
* a minute seen false drops a pending incident; on a firing one it adds 60 s to
  ``false_seconds``, and the incident resolves when they reach ``keep_firing_for``;
* where the rule says ``until``, an incident that fires is seen false only in minutes in which that
  holds (hysteresis), and while that is unknown it stays;
* an incident that another alert inhibits waits: it does not fire, is dropped when seen false, and
  when nothing inhibits it any more it fires after it was seen true for
  :data:`AFTER_INHIBITION_SECONDS`, so that what recovers a little later tells nobody;
* one that is part of its pool's incident is told of by that one alone, and is open as long as if
  it fired itself;
* an incident that fires ends when an alert that inhibits it, and that it does not inhibit itself,
  fires on the same target: of two pages that would contradict each other the later one stays;
* a minute whose verdict is unknown, a key that was not evaluated (its target vanished) and the
  minutes in which driftwatch was down add to neither: they never fire, drop or resolve anything.

Only :func:`close` ends an incident otherwise, with a reason that its page prints.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from driftwatch.incidents.incident import Event, Incident, Transition
from driftwatch.model import Severity

MINUTE_SECONDS = 60.0
# A detector's hysteresis lasts 15 min: two that look at the same
# slowdown end that far apart at most.
AFTER_INHIBITION_SECONDS = 900.0

SUPERSEDES = "says what is behind it, and takes its place"

_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_:.-/")


@dataclass(frozen=True, slots=True)
class RuleTiming:
    """What the life cycle needs to know of a rule."""

    rule: str  # rule id
    alert: str  # alert name
    severity: Severity  # page, ticket or notice
    for_seconds: float  # how long the condition must be seen true before it fires
    keep_firing_for_seconds: float  # how long it must be seen false before it resolves
    has_until: bool = False  # a condition of its own ends it


@dataclass(frozen=True, slots=True)
class Observation:
    """One rule's verdict on one target group in one minute."""

    key: str  # :func:`identity` of rule and target
    timing: RuleTiming  # the rule
    target: Mapping[str, str]  # labels of the target group
    verdict: bool | None  # true, false, or None where an input is missing
    since: datetime | None = None  # when the condition began, where that is earlier than the minute
    # whether the condition that ends it holds, None = unknown; read where there is one
    over: bool | None = None
    inhibited_by: str | None = None  # alert that keeps it from firing in this minute, None = none
    # that alert, where its page says what a page of this one would contradict: an incident that
    # fires ends with it
    superseded_by: str | None = None


def identity(rule: str, target: Mapping[str, str]) -> str:
    """Rule and target labels as one text, label order ignored; never holds a value.

    >>> identity("BatchLimitBinding", {"instance": "host:8000", "engine": "0"})
    'BatchLimitBinding{engine="0",instance="host:8000"}'
    """
    labels = ",".join(f"{_word(name)}={_quoted(target[name])}" for name in sorted(target))
    return f"{_word(rule)}{{{labels}}}"


def incident_id(key: str, minute_start: datetime) -> str:
    """Twelve hex digits from the identity and the start of the first true minute.

    Not from ``started_at``: a ten-minute window may name one beginning for two incidents.
    """
    text = key + minute_start.astimezone(UTC).isoformat()
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def step(
    incidents: dict[str, Incident], minute_end: datetime, observations: Iterable[Observation]
) -> list[Transition]:
    """Advance ``incidents`` in place by the minute that ends at ``minute_end``.

    Minutes come in order, each once: one that an incident has counted as true already changes
    nothing. Several observations of a key count as true if any is true, else as unknown if any is.
    A rule's severity and ``for`` may change while an incident is pending, not after it fired.
    Returns what happened, by key; what was dropped or resolved is not among ``incidents`` any more.
    """
    transitions: list[Transition] = []
    for key, observation in sorted(_merged(observations).items()):
        before = incidents.pop(key, None)
        if _is_superseded(before, minute_end, observation) and before is not None:
            ended = replace(before, state="resolved", resolved_at=minute_end)
            reason = f"{observation.superseded_by} {SUPERSEDES}"
            transitions.append(Transition(ended, "resolved", minute_end, reason))
            continue
        incident, event = _step(before, minute_end, observation)
        if event is not None and incident is not None:
            transitions.append(Transition(incident=incident, event=event, at=minute_end))
        if incident is not None and incident.state != "resolved":
            incidents[key] = incident
    return transitions


def _is_superseded(before: Incident | None, minute_end: datetime, observation: Observation) -> bool:
    """Whether an open page gives way to one about the same server that would contradict it."""
    return (
        before is not None
        and before.state == "firing"
        and before.last_true_at < minute_end
        and observation.superseded_by is not None
    )


def close(
    open_incidents: Mapping[str, Incident], minute_end: datetime, reasons: Mapping[str, str]
) -> tuple[dict[str, Incident], tuple[Transition, ...]]:
    """End incidents whose target is gone: firing ones resolve with the reason, pending ones drop.

    ``reasons``: key → why. Returns the incidents that stay open, and what resolved, by key.
    """
    transitions = [
        Transition(
            replace(open_incidents[key], state="resolved", resolved_at=minute_end),
            event="resolved",
            at=minute_end,
            reason=reasons[key],
        )
        for key in sorted(reasons.keys() & open_incidents.keys())
        if open_incidents[key].state == "firing"
    ]
    after = {key: open_incidents[key] for key in sorted(open_incidents.keys() - reasons.keys())}
    return after, tuple(transitions)


def _step(
    before: Incident | None, minute_end: datetime, observation: Observation
) -> tuple[Incident | None, Event | None]:
    verdict = _verdict(before, observation)
    if verdict is None:
        return before, None
    if before is not None and minute_end <= before.last_true_at:
        return before, None
    if verdict:
        return _seen_true(before or _opened(observation, minute_end), minute_end, observation)
    if before is None or (before.state == "pending" and before.part_of is None):
        return None, None
    incident, event = _seen_false(before, minute_end, observation.timing)
    if before.state == "pending" and event is not None:
        return None, None
    return incident, event


def _verdict(before: Incident | None, observation: Observation) -> bool | None:
    """What was seen: of an incident that fires, or would, whether it is over decides."""
    verdict = observation.verdict
    if before is None or verdict or not observation.timing.has_until:
        return verdict
    if before.state == "pending" and before.inhibited_by is None:
        return verdict
    return None if observation.over is None else not observation.over


def _opened(observation: Observation, minute_end: datetime) -> Incident:
    minute_start = minute_end - timedelta(seconds=MINUTE_SECONDS)
    since = observation.since
    return Incident(
        id=incident_id(observation.key, minute_start),
        key=observation.key,
        rule=observation.timing.rule,
        alert=observation.timing.alert,
        severity=observation.timing.severity,
        target=dict(observation.target),
        state="pending",
        started_at=minute_start if since is None else min(since, minute_start),
        last_true_at=minute_start,
    )


def _seen_true(
    incident: Incident, minute_end: datetime, observation: Observation
) -> tuple[Incident, Event | None]:
    timing = observation.timing
    incident = replace(
        incident,
        last_true_at=minute_end,
        true_seconds=incident.true_seconds + MINUTE_SECONDS,
        false_seconds=0.0,
    )
    if incident.state == "firing":
        return incident, None
    incident = replace(
        incident, alert=timing.alert, severity=timing.severity, target=dict(observation.target)
    )
    if observation.inhibited_by is not None:
        return replace(incident, inhibited_by=observation.inhibited_by, true_seconds=0.0), None
    wanted = timing.for_seconds
    if incident.inhibited_by is not None:
        wanted = max(wanted, AFTER_INHIBITION_SECONDS)
    if incident.true_seconds < wanted:
        return incident, None
    fired = replace(incident, state="firing", firing_at=minute_end, inhibited_by=None)
    return fired, "firing"


def _seen_false(
    incident: Incident, minute_end: datetime, timing: RuleTiming
) -> tuple[Incident, Event | None]:
    incident = replace(incident, false_seconds=incident.false_seconds + MINUTE_SECONDS)
    if incident.false_seconds < timing.keep_firing_for_seconds:
        return incident, None
    return replace(incident, state="resolved", resolved_at=minute_end), "resolved"


def _merged(observations: Iterable[Observation]) -> dict[str, Observation]:
    merged: dict[str, Observation] = {}
    for observation in observations:
        earlier = merged.get(observation.key)
        merged[observation.key] = observation if earlier is None else _joined(earlier, observation)
    return merged


def _joined(one: Observation, other: Observation) -> Observation:
    ends = (one.over, other.over)
    over = False if False in ends else None if None in ends else True
    one = replace(one, over=over, inhibited_by=one.inhibited_by or other.inhibited_by)
    true = [each for each in (one, other) if each.verdict is True]
    if true:
        began = [each.since for each in true if each.since is not None]
        return replace(one, verdict=True, since=min(began, default=None))
    unknown = one.verdict is None or other.verdict is None
    return replace(one, verdict=None if unknown else False)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _word(text: str) -> str:
    return text if text and _PLAIN.issuperset(text) else _quoted(text)
