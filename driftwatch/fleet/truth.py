"""What was injected, as JSON beside a recording, and the configuration of the pool."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from driftwatch.fleet.scenario.model import Effect, Scenario
from driftwatch.fleet.servers import host_of, instance_of, seconds_of, servers_of, uuids_of

if TYPE_CHECKING:
    from driftwatch.notify.page import Page

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
            "arguments": f"--max-model-len {serving.max_model_len}",
        }
    if pool.dcgm:
        settings["gpu_uuids"] = [
            uuid for n in range(scenario.servers) for uuid in uuids_of(scenario, n)
        ]
    if pool.slo is not None:
        settings["slo"] = pool.slo.model_dump(exclude_none=True)
    pages = [f"http://{instance_of(scenario, n)}/metrics" for n in range(scenario.servers)]
    return {"sources": [{"pages": pages}], "pools": [settings]}


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


@dataclass(frozen=True, slots=True)
class Line:
    """One expectation and what came of it."""

    word: str  # ``FOUND``, ``MISSED``, ``QUIET`` (rightly), ``EXTRA`` or ``OTHER``
    text: str  # what of


def fired_incident(page: Page) -> Fired:
    """What the firing page of an incident tells."""
    return Fired(
        at=page.times.evaluated_at,
        alert=page.alert,
        severity=page.severity,
        instance=page.labels.get("instance"),
        leaf=page.leaf,
        knob=next((move.knob for move in page.advice.moves), None) if page.advice else None,
    )


def compared(scenario: Scenario, fired: Sequence[Fired]) -> list[list[Line]]:
    """For each effect its lines, and at the end those of what belongs to none."""
    lines, rest = [], list(fired)
    for effect in scenario.truth.effects:
        own = [one for one in fired if _belongs(scenario, effect, one)]
        due = [one for one in own if one.alert in _expected(effect)[one.severity]]
        rest = [one for one in rest if one not in due]
        lines.append(list(_of_effect(scenario, effect, due)))
    besides: dict[tuple[str, str], list[Fired]] = {}
    for one in rest:
        besides.setdefault((one.severity, one.alert), []).append(one)
    extra = []
    for (severity, alert), (first, *more) in besides.items():
        text = f"{severity} {alert} at {first.at:%a %H:%M} UTC, {first.instance or 'the pool'}"
        extra.append(Line("EXTRA", text + (f", and {len(more)} more times" if more else "")))
    if not extra and not any(any(_expected(e).values()) for e in scenario.truth.effects):
        extra = [Line("QUIET", "no page, ticket or notice was sent, and none was due")]
    return [*lines, extra]


def _expected(effect: Effect) -> dict[str, tuple[str, ...]]:
    return dict(zip(_SEVERITIES, (effect.pages, effect.tickets, effect.notices), strict=True))


def _belongs(scenario: Scenario, effect: Effect, one: Fired) -> bool:
    first, last = window_of(scenario, effect)
    in_time = first <= one.at <= last + timedelta(seconds=effect.grace)
    return in_time and (one.instance is None or one.instance in instances_of(scenario, effect))


def _of_effect(scenario: Scenario, effect: Effect, due: Sequence[Fired]) -> Iterator[Line]:
    start, _ = window_of(scenario, effect)
    for severity, names in _expected(effect).items():
        said = {one.alert for one in due if one.severity == severity}
        # one of them is enough: a page of one rule may hold the other's back
        for name in [name for name in names if name in said] or names:
            fired = [one for one in due if (one.alert, one.severity) == (name, severity)]
            if not fired:
                yield Line("MISSED", f"{severity} {name}")
                continue
            minutes = (min(one.at for one in fired) - start).total_seconds() / 60.0
            who = {one.instance for one in fired}
            share = f"{len(who)} of {len(instances_of(scenario, effect))} servers"
            share = "the pool" if None in who else share
            yield Line("FOUND", f"{severity} {name} after {minutes:,.0f} min, {share}")
    if due and effect.leaf is not None:
        yield _same("leaf", effect.leaf, [one.leaf for one in due if one.leaf is not None])
    if due and effect.knob is not None:
        advised = [one for one in due if one.severity == "page" or one.knob]
        yield _same("advice", effect.knob, [one.knob or "no setting" for one in advised])


def _same(what: str, expected: str, answers: Sequence[str]) -> Line:
    if not answers:
        return Line("MISSED", f"{what} {expected}: driftwatch gave none")
    others = ", ".join(sorted(set(answers) - {expected}))
    if not others:
        return Line("FOUND", f"{what} {expected}")
    right = sum(one == expected for one in answers)
    return Line("OTHER", f"{what} {expected}: {right} of {len(answers)} times, else {others}")
