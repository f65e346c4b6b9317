"""What was injected, as JSON beside a recording, and the configuration of the pool."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson

from driftwatch.fleet.scenario.model import Effect, Scenario
from driftwatch.fleet.servers import host_of, instance_of, seconds_of, servers_of, uuids_of

TRUTH, CONFIGURATION = "truth.json", "driftwatch.yaml"


def truth_of(scenario: Scenario, seed: int) -> dict[str, Any]:
    """The truth file; times in unix seconds, ``schema_version`` 1."""
    start, end = seconds_of(scenario)
    baseline = scenario.truth.baseline
    return {
        "schema_version": 1,
        "scenario": scenario.name,
        "title": scenario.title,
        "seed": seed,
        "start_seconds": start,
        "end_seconds": end,
        "baseline": None
        if baseline is None
        else {"start_seconds": start + baseline.at, "end_seconds": start + baseline.until},
        "servers": [
            {
                "instance": instance_of(scenario, server.number),
                "host": host_of(scenario, server.number),
                "gpu_uuids": uuids_of(scenario, server.number),
                "listed": [[start + a, min(start + b, end)] for a, b in server.listed],
                "lives": [
                    [start + life.start_seconds, min(start + life.end_seconds, end)]
                    for life in server.lives
                ],
            }
            for server in servers_of(scenario)
        ],
        "effects": [_effect_facts(scenario, effect) for effect in scenario.truth.effects],
    }


def instances_of(scenario: Scenario, effect: Effect) -> list[str]:
    """The servers that it is about."""
    numbers = effect.replicas or range(scenario.servers)
    return [instance_of(scenario, number) for number in numbers]


def window_of(scenario: Scenario, effect: Effect) -> tuple[datetime, datetime]:
    """From when to when it lasts, without its grace."""
    until = scenario.duration if effect.until is None else effect.until
    start = scenario.start.astimezone(UTC)
    return start + timedelta(seconds=effect.at), start + timedelta(seconds=until)


def configuration_of_pool(scenario: Scenario) -> dict[str, Any]:
    """What ``driftwatch.yaml`` says of the pool: what an operator would have written."""
    pool = scenario.pool
    serving = pool.serving
    settings: dict[str, Any] = {
        "name": pool.name,
        "gpus_per_replica": float(pool.gpus_per_replica),
    }
    if pool.declared:
        settings["serving"] = {
            "max_num_seqs": serving.max_num_seqs,
            "max_num_batched_tokens": serving.max_num_batched_tokens,
            "max_model_len": serving.max_model_len,
        }
    if pool.dcgm:
        settings["gpu_uuids"] = [
            uuid for n in range(scenario.servers) for uuid in uuids_of(scenario, n)
        ]
    if pool.slo is not None:
        settings["slo"] = pool.slo.model_dump(exclude_none=True)
    return {"sources": [{"recording": "."}], "pools": [settings]}


def write_truth(scenario: Scenario, seed: int, folder: Path) -> None:
    """``truth.json`` and ``driftwatch.yaml`` into the folder of a recording."""
    (folder / TRUTH).write_bytes(
        orjson.dumps(truth_of(scenario, seed), option=orjson.OPT_INDENT_2) + b"\n"
    )
    # JSON is YAML, and orjson writes the same bytes everywhere
    settings = orjson.dumps(configuration_of_pool(scenario), option=orjson.OPT_INDENT_2)
    (folder / CONFIGURATION).write_bytes(settings + b"\n")


def _effect_facts(scenario: Scenario, effect: Effect) -> Mapping[str, Any]:
    first, last = window_of(scenario, effect)
    return {
        "what": effect.what,
        "kind": effect.kind,
        "size": effect.size,
        "start_seconds": first.timestamp(),
        "end_seconds": last.timestamp(),
        "grace_seconds": effect.grace,
        "instances": instances_of(scenario, effect),
        "leaf": effect.leaf,
        "knob": effect.knob,
        "pages": list(effect.pages),
        "tickets": list(effect.tickets),
        "notices": list(effect.notices),
    }


_SEVERITIES = ("page", "ticket", "notice")


@dataclass(frozen=True, slots=True)
class Fired:
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


def fired_incident(page: Mapping[str, Any]) -> Fired:
    """The firing page (docs/page.schema.json) of an incident."""
    change = page["recommendation"] or {}
    return Fired(
        at=datetime.fromisoformat(page["times"]["evaluated_at"]),
        alert=page["alert"],
        severity=page["severity"],
        instance=page["target"].get("instance"),
        leaf=(page["diagnosis"] or {}).get("leaf"),
        knob=change.get("knob") if change.get("action") == "change" else None,
        instead=next(iter(change.get("instead") or ()), None),
    )


def compared(
    scenario: Scenario, fired: Sequence[Fired], rules: Collection[str]
) -> list[list[Line]]:
    """For each effect its lines, and at the end those of what belongs to none.

    ``rules``: alert names of the enabled rules.
    """
    of_effects = [_effect(scenario, effect, fired, rules) for effect in scenario.truth.effects]
    covered = {
        number
        for number, one in enumerate(fired)
        for effect in scenario.truth.effects
        if one.alert in _expected(effect)[one.severity] and _belongs(scenario, effect, one)
    }
    lines = _extra([one for number, one in enumerate(fired) if number not in covered])
    if not lines and not any(any(_expected(e).values()) for e in scenario.truth.effects):
        lines = [Line("QUIET", "no page, ticket or notice was sent, and none was due")]
    return [*of_effects, lines]


def _extra(fired: Sequence[Fired]) -> list[Line]:
    """What belongs to nothing that was injected: the first of each rule, and how many."""
    by_rule: dict[tuple[str, str], list[Fired]] = {}
    for one in fired:
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


def _belongs(scenario: Scenario, effect: Effect, one: Fired) -> bool:
    first, last = window_of(scenario, effect)
    in_time = first <= one.at <= last + timedelta(seconds=effect.grace)
    return in_time and (one.instance is None or one.instance in instances_of(scenario, effect))


def _effect(
    scenario: Scenario, effect: Effect, fired: Sequence[Fired], rules: Collection[str]
) -> list[Line]:
    own = [one for one in fired if _belongs(scenario, effect, one)]
    start, _ = window_of(scenario, effect)
    servers = len(instances_of(scenario, effect))
    lines = []
    for severity, names in _expected(effect).items():
        alerts = {one.alert for one in own if one.severity == severity} & set(names)
        # one of them is enough: a page of one rule may hold the other's back
        for name in [name for name in names if name in alerts] or names:
            matching = [one for one in own if (one.alert, one.severity) == (name, severity)]
            lines.append(_rule(f"{severity} {name}", matching, start, servers, name in rules))
            lines += _again(f"{severity} {name}", matching)
    speaking = [
        one for one in own if one.alert in {n for e in _expected(effect).values() for n in e}
    ]
    diagnosed = [one.leaf for one in speaking if one.leaf is not None]
    if effect.leaf is not None and any(_expected(effect).values()):
        lines.append(_same("leaf", effect.leaf, diagnosed))
    if effect.knob is not None:
        # two pages of one cause that say two things are no advice
        # and a page without any setting leaves on-call with another answer
        advised = [o for o in speaking if o.severity == "page" or o.knob or o.instead]
        lines.append(_same("advice", effect.knob, [o.knob or o.instead or _NONE for o in advised]))
    elif any(one.knob for one in own):
        knobs = ", ".join(sorted({one.knob for one in own if one.knob}))
        lines.append(Line("OTHER", f"advice: no setting helps; driftwatch advised {knobs}"))
    return lines


_NONE = "no setting"


def _rule(what: str, fired: Sequence[Fired], start: datetime, servers: int, is_rule: bool) -> Line:
    if not fired:
        return Line("MISSED", what if is_rule else f"{what}: no such rule in this release")
    delay = min(one.at for one in fired) - start
    who = {one.instance for one in fired}
    whole = None in who or len(who) >= servers
    share = "the pool" if None in who else f"{len(who)} of {servers} servers"
    minutes = delay.total_seconds() / 60.0
    return Line("FOUND" if whole else "PARTLY", f"{what} after {minutes:,.0f} min, {share}")


def _again(what: str, fired: Sequence[Fired]) -> list[Line]:
    """An incident that resolved and fired anew inside of one episode: told more often than due."""
    times = Counter(one.instance for one in fired)
    if len(fired) == len(times):
        return []
    ((most, count),) = times.most_common(1)
    who = "the pool" if most is None else most
    text = f"{what}: {len(fired)} times, resolved in between; {who} {count} times"
    return [Line("AGAIN", text)]


def _same(what: str, expected: str, values: Iterable[str]) -> Line:
    answers = list(values)
    if not answers:
        return Line("MISSED", f"{what} {expected}: driftwatch gave none")
    right = sum(one == expected for one in answers)
    if right == len(answers):
        return Line("FOUND", f"{what} {expected}")
    others = ", ".join(sorted(set(answers) - {expected}))
    word = "PARTLY" if right else "OTHER"
    return Line(word, f"{what} {expected}: {right} of {len(answers)} times, else {others}")
