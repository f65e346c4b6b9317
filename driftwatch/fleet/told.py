"""What driftwatch said of a scenario beside what was injected; nothing is made to look better."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from driftwatch.fleet.scenario import Effect, Scenario
from driftwatch.fleet.truth import instances_of, window_of

_SEVERITIES = ("page", "ticket", "notice")


@dataclass(frozen=True, slots=True)
class Said:
    """One incident that fired, as its page tells it."""

    at: datetime  # end of the minute that decided it
    alert: str  # name of the rule
    severity: str  # page, ticket or notice
    instance: str | None  # the server; None for a pool's
    leaf: str | None  # where its diagnosis ended, None without one
    knob: str | None  # the setting it advises to change, None where it advises none
    # what it says helps instead of a setting; None where it says nothing of the kind
    instead: str | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """One expectation and what came of it."""

    # ``FOUND``, ``PARTLY``, ``MISSED``, ``AGAIN`` (more than once for the same server), ``QUIET``
    # (rightly), ``EXTRA`` or ``OTHER``
    word: str
    text: str  # what of


def said_by(page: Mapping[str, Any]) -> Said:
    """The firing page (docs/page.schema.json) of an incident."""
    change = page["recommendation"] or {}
    return Said(
        at=datetime.fromisoformat(page["times"]["evaluated_at"]),
        alert=page["alert"],
        severity=page["severity"],
        instance=page["target"].get("instance"),
        leaf=(page["diagnosis"] or {}).get("leaf"),
        knob=change.get("knob") if change.get("action") == "change" else None,
        instead=next(iter(change.get("instead") or ()), None),
    )


def judged(scenario: Scenario, said: Sequence[Said], rules: Collection[str]) -> list[list[Line]]:
    """For each effect its lines, and at the end those of what belongs to none.

    Args:
        rules: alert names of the enabled rules.
    """
    found = [_effect(scenario, effect, said, rules) for effect in scenario.truth.effects]
    covered = {
        number
        for number, one in enumerate(said)
        for effect in scenario.truth.effects
        if one.alert in _expected(effect)[one.severity] and _belongs(scenario, effect, one)
    }
    lines = _extra([one for number, one in enumerate(said) if number not in covered])
    if not lines and not any(any(_expected(e).values()) for e in scenario.truth.effects):
        lines = [Line("QUIET", "nobody was told, and nobody should have been")]
    return [*found, lines]


def _extra(said: Sequence[Said]) -> list[Line]:
    """What belongs to nothing that was injected: the first of each rule, and how many."""
    by_rule: dict[tuple[str, str], list[Said]] = {}
    for one in said:
        by_rule.setdefault((one.severity, one.alert), []).append(one)
    lines = []
    for (severity, alert), all_of_it in by_rule.items():
        first = all_of_it[0]
        text = f"{severity} {alert} at {first.at:%a %H:%M} UTC, {first.instance or 'the pool'}"
        if len(all_of_it) > 1:
            text += f", and {len(all_of_it) - 1} more times"
        lines.append(Line("EXTRA", text))
    return lines


def _expected(effect: Effect) -> dict[str, tuple[str, ...]]:
    return dict(zip(_SEVERITIES, (effect.pages, effect.tickets, effect.notices), strict=True))


def _belongs(scenario: Scenario, effect: Effect, one: Said) -> bool:
    first, last = window_of(scenario, effect)
    in_time = first <= one.at <= last + timedelta(seconds=effect.grace)
    return in_time and (one.instance is None or one.instance in instances_of(scenario, effect))


def _effect(
    scenario: Scenario, effect: Effect, said: Sequence[Said], rules: Collection[str]
) -> list[Line]:
    own = [one for one in said if _belongs(scenario, effect, one)]
    start, _ = window_of(scenario, effect)
    servers = len(instances_of(scenario, effect))
    lines = []
    for severity, names in _expected(effect).items():
        alerts = {one.alert for one in own if one.severity == severity} & set(names)
        # one of them is enough: a page of one rule may hold the other's back
        for name in [name for name in names if name in alerts] or names:
            fired = [one for one in own if (one.alert, one.severity) == (name, severity)]
            lines.append(_rule(f"{severity} {name}", fired, start, servers, name in rules))
            lines += _again(f"{severity} {name}", fired)
    speaking = [
        one for one in own if one.alert in {n for e in _expected(effect).values() for n in e}
    ]
    diagnosed = [one.leaf for one in speaking if one.leaf is not None]
    if effect.leaf is not None and any(_expected(effect).values()):
        lines.append(_same("leaf", effect.leaf, diagnosed))
    if effect.knob is not None:
        # two pages of one cause that say two things are no advice
        # and a page without any setting leaves on-call with another answer
        asked = [o for o in speaking if o.severity == "page" or o.knob or o.instead]
        lines.append(_same("advice", effect.knob, [o.knob or o.instead or _NONE for o in asked]))
    elif any(one.knob for one in own):
        knobs = ", ".join(sorted({one.knob for one in own if one.knob}))
        lines.append(Line("OTHER", f"advice: none helps; driftwatch said {knobs}"))
    return lines


_NONE = "no setting"


def _rule(what: str, fired: Sequence[Said], start: datetime, servers: int, known: bool) -> Line:
    if not fired:
        return Line("MISSED", what if known else f"{what}: no such rule in this release")
    delay = min(one.at for one in fired) - start
    who = {one.instance for one in fired}
    whole = None in who or len(who) >= servers
    share = "the pool" if None in who else f"{len(who)} of {servers} servers"
    minutes = delay.total_seconds() / 60.0
    return Line("FOUND" if whole else "PARTLY", f"{what} after {minutes:,.0f} min, {share}")


def _again(what: str, fired: Sequence[Said]) -> list[Line]:
    """An incident that resolved and fired anew inside of one episode: told more often than due."""
    times = Counter(one.instance for one in fired)
    if len(fired) == len(times):
        return []
    ((most, count),) = times.most_common(1)
    who = "the pool" if most is None else most
    text = f"{what}: {len(fired)} times, resolved in between; {who} {count} times"
    return [Line("AGAIN", text)]


def _same(what: str, expected: str, said: Iterable[str]) -> Line:
    found = list(said)
    if not found:
        return Line("MISSED", f"{what} {expected}: driftwatch said none")
    right = sum(one == expected for one in found)
    if right == len(found):
        return Line("FOUND", f"{what} {expected}")
    others = ", ".join(sorted(set(found) - {expected}))
    word = "PARTLY" if right else "OTHER"
    return Line(word, f"{what} {expected}: {right} of {len(found)} times, else {others}")
