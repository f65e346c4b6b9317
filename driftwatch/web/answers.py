"""What open incidents say of a pool or a target, and what ten minutes of a target say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from driftwatch.baselines.in_force import in_force
from driftwatch.detect.baselines import Baseline, Baselines
from driftwatch.errors import NoVerdict
from driftwatch.incidents.incident import Incident
from driftwatch.model import Finding, Target, TargetKey
from driftwatch.notify.explanation import fact_texts, target_text, todo, verdict_text, window_text
from driftwatch.notify.path import limit_texts
from driftwatch.numbers import clean, cut
from driftwatch.pipeline.explain import Window, explain, window_ending
from driftwatch.pipeline.plan import Plan
from driftwatch.web.database import WebStore
from driftwatch.web.fleet import RANK, incident_state
from driftwatch.web.page import Link
from driftwatch.web.pages.incidents import (
    Line,
    incident_link,
    incident_path,
    page_texts,
    without_state,
)

_MOST, _MOST_UNTAKEN = 20, 3


@dataclass(frozen=True, slots=True)
class OpenAnswer:
    """The first line and the advice of an open incident."""

    state: str
    text: str
    lines: list[Line]
    since: datetime
    holder: str | None  # who has it
    path: str


def of_pool(incidents: Iterable[Incident], pool: str) -> list[Incident]:
    """Open incidents of a pool, and of its targets that nobody speaks for: worst first.

    What is of the whole pool goes before what is of one server.
    """
    own = [one for one in incidents if one.target.get("pool") == pool and one.part_of is None]
    return sorted(own, key=_worst_first)


def of_target(incidents: Iterable[Incident], key: TargetKey, pool: str) -> list[Incident]:
    """Open incidents of a target and of its whole pool, worst first."""
    return [
        one for one in of_pool(incidents, pool) if "instance" not in one.target or _key(one) == key
    ] + sorted(
        (one for one in incidents if one.part_of is not None and _key(one) == key),
        key=_worst_first,
    )


def fired(incidents: Iterable[Incident]) -> list[Incident]:
    """Those that do not wait any more."""
    return [one for one in incidents if one.state != "pending"]


def answer_of(incidents: Sequence[Incident]) -> OpenAnswer | None:
    """What the worst of them says; None without one that has a page."""
    first = next((one for one in incidents if one.page is not None), None)
    if first is None or first.page is None:
        return None
    summary, lines, _ = page_texts(first)
    return OpenAnswer(
        state=incident_state(first),
        text=without_state(summary, first.page),
        lines=lines,
        since=first.started_at,
        holder=first.acknowledged_by and clean(first.acknowledged_by),
        path=incident_path(first.id),
    )


def links_of(incidents: Sequence[Incident]) -> tuple[Link, ...]:
    """Links to at most twenty of those that fired."""
    return tuple(incident_link(one) for one in fired(incidents)[:_MOST])


def untaken(incidents: Iterable[Incident]) -> list[Incident]:
    """At most three that fire and that nobody has, the oldest first."""
    firing = (one for one in incidents if incident_state(one) == "firing" and one.part_of is None)
    return sorted(firing, key=lambda one: (one.started_at, one.id))[:_MOST_UNTAKEN]


def first_lines_of(incidents: Iterable[Incident]) -> tuple[Link, ...]:
    """Line 1 of their pages, of those that have one."""
    return tuple(
        Link(text=without_state(page_texts(one)[0], one.page), path=incident_path(one.id))
        for one in incidents
        if one.page is not None
    )


def pending_of(incidents: Sequence[Incident]) -> int:
    """How many wait, for their time or because of another one."""
    return sum(one.state == "pending" for one in incidents)


def _key(incident: Incident) -> TargetKey | None:
    instance = incident.target.get("instance")
    return None if instance is None else TargetKey(instance, incident.target.get("engine", "0"))


def _worst_first(incident: Incident) -> tuple[int, bool, datetime, str]:
    own = "instance" in incident.target
    return RANK[incident_state(incident)], own, incident.started_at, incident.id


LENGTH = timedelta(minutes=10)
_LONGEST = 600


@dataclass(frozen=True, slots=True, eq=False)
class TargetAnswer:
    """A window of a target, explained."""

    finding: Finding | None  # None = no minute with a scrape lies in the window
    window: Window
    baseline: Baseline | None  # in force; None = there is none
    why: str | None  # why there is no finding


def target_answer(store: WebStore, target: Target, plan: Plan, end: datetime) -> TargetAnswer:
    """What the ten minutes before ``end`` say of a target, against its baseline."""
    pool = target.pool or "default"
    named = Baselines(tuple(store.baselines_naming(target.key, pool)))
    every = in_force(named, {target.key: target}, plan)
    baseline = every.baselines.of_target(target.key.instance, target.key.engine, pool)
    window = window_ending(end, LENGTH)
    try:
        finding, window = explain(store, target, window, plan, every.reference, today=end.date())
    except NoVerdict as error:
        why = f"{error.message}; {error.help_text}" if error.help_text else error.message
        return TargetAnswer(None, window, baseline, clean(why))
    return TargetAnswer(finding, window, baseline, None)


def answer_lines(finding: Finding, incidents: list[Incident]) -> tuple[str, list[Line]]:
    """The answer in a sentence, and what to do, as ``explain`` prints them."""
    lines = [
        _labelled(text)
        for text in todo(finding, [one.page for one in incidents if one.page is not None])
    ]
    return cut(verdict_text(finding), _LONGEST), lines


def _labelled(text: str) -> Line:
    """``Do       drain it`` → its label of at most eight letters, and the rest."""
    label = text[:8].strip()
    if " " in label or text[8:9] != " ":
        label, rest = "", text
    else:
        rest = text[8:]
    return Line(label=_headed(label.rstrip(":")), text=cut(clean(rest.strip()), _LONGEST))


def _headed(label: str) -> str:
    return "GPUs" if label == "gpus" else label[:1].upper() + label[1:]


def fact_lines(answer: TargetAnswer) -> Iterator[Line]:
    """What else was measured, or why not."""
    if answer.finding is not None:
        for label, text in fact_texts(answer.finding, answer.window.end):
            if text:
                yield Line(label=_headed(label), text=cut(clean(text), _LONGEST))


def engine_line(finding: Finding) -> str:
    """Model, GPUs and settings."""
    return target_text(finding).partition(": ")[2]


def window_line(answer: TargetAnswer) -> str | None:
    """The ten minutes, how many requests finished, and the baseline."""
    if answer.finding is None:
        return None
    window = answer.window
    return window_text(answer.finding, window.start, window.end, window.end.date())


def limit_cells(finding: Finding) -> list[dict[str, Any]]:
    """The limits with their margins, as ``explain`` prints them."""
    if finding.diagnosis is None:
        return []
    now, limits = finding.evidence, finding.diagnosis.limits
    waiting = now.get("binding_waiting_requests")
    texts = limit_texts(
        limits,
        waiting=now.get("waiting_requests") if waiting is None else waiting,
        preempted=now.get("preemptions_per_second"),
        full_share=now.get("limit_binding_share_10m_ratio"),
    )
    return [
        {"is_full": limit.binds, **row._asdict()} for limit, row in zip(limits, texts, strict=True)
    ]
