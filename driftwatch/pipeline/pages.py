"""Pages of what fired and what ended, and their follow-ups. Pure.

A page that went out without an answer asks again while it fires, on minutes of the grid
(:data:`driftwatch.notify.page.EVERY`, on the clock): the minutes alone decide, however they are
split over ticks. The page says when it is asked again, so its receivers are sent the answer that
stays, whatever it is, with what changed; after that it asks no more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import polars as pl

from driftwatch.model import Finding, Incident, Slo, TargetKey, Transition
from driftwatch.notify.follow_up import (
    AGAIN,
    follow_up,
    later,
    says_less,
    what_changed,
    with_answer,
)
from driftwatch.notify.page import EVERY, build_page, next_time
from driftwatch.pipeline.advice import advised
from driftwatch.pipeline.evaluation import Evaluation
from driftwatch.pipeline.findings import as_of_target, findings_at, findings_of
from driftwatch.pipeline.plan import Plan
from driftwatch.pipeline.question import TargetAdvice
from driftwatch.pipeline.state import State

# incidents of one minute, to be asked about → findings with their advice, and the advice
Ask = Callable[[Sequence[Transition]], tuple[Mapping[str, Finding], Sequence[TargetAdvice]]]


def with_pages(
    evaluation: Evaluation, happened: Sequence[Transition], incidents: Mapping[str, Incident]
) -> tuple[tuple[Transition, ...], dict[str, Incident], tuple[TargetAdvice, ...]]:
    """Transitions with their pages, follow-ups among them; open incidents with theirs; the advice.

    Args:
        happened: what fired and what ended, in order.
    """
    state, plan = evaluation.state, evaluation.plan
    firing = [t for t in happened if t.event == "firing"]
    of_rules = [t for t in firing if t.incident.rule in evaluation.verdicts.columns]
    findings, advices = advised(evaluation, of_rules, findings_of(evaluation, of_rules))
    fired = paged(firing, state, plan, findings)
    ended = [t for t in happened if t.event == "resolved"]
    span = (evaluation.first, evaluation.last)
    updates = asked_again(
        state.incidents,
        [*fired, *ended],
        advices,
        span,
        plan.simulations,
        lambda waiting: _ask_again(evaluation, waiting),
    )
    pages = {t.incident.id: t.incident.page for t in fired} | dict(updates.pages)
    in_target = {t.incident.id: _in_target(t, evaluation.rows) for t in ended}
    closed = paged(ended, state, plan, last=pages, in_target=in_target)
    by_event = {(t.incident.id, t.event): t for t in (*fired, *closed)}
    transitions = [by_event[t.incident.id, t.event] for t in happened]
    if updates.transitions:
        transitions = sorted([*transitions, *updates.transitions], key=lambda t: t.at)
    pages |= {t.incident.id: t.incident.page for t in closed}
    after = {
        key: replace(one, page=pages[one.id]) if one.id in pages else one
        for key, one in incidents.items()
    }
    return tuple(transitions), after, (*advices, *updates.advices)


def paged(
    transitions: Sequence[Transition],
    state: State,
    plan: Plan,
    findings: Mapping[str, Finding] | None = None,
    last: Mapping[str, Mapping[str, Any] | None] | None = None,
    in_target: Mapping[str, bool | None] | None = None,
) -> tuple[Transition, ...]:
    """Each transition's incident with its page: diagnosed when it fires, closed when it ends.

    Args:
        last: incident id → its page before, where its incident does not carry it.
        in_target: incident id → whether the targets were kept when it ended, None = unknown.
    """
    rules, pages = {rule.id: rule for rule in plan.rules}, last or {}
    with_page = []
    for transition in transitions:
        incident, fires = transition.incident, transition.event == "firing"
        if not fires and incident.id in pages:
            incident = replace(incident, page=pages[incident.id])
        rule = rules.get(incident.rule)
        page = build_page(
            (findings or {}).get(incident.id) if fires else None,
            incident,
            "firing" if fires else "resolved",
            transition.at,
            annotations=rule.annotations if rule else {},
            form=rule.page if rule else None,
            external_url=plan.external_url,
            slo=_slo_of(incident, state, plan),
            resolved_reason=transition.reason,
            ended_in_target=(in_target or {}).get(incident.id),
        )
        with_page.append(replace(transition, incident=replace(incident, page=page)))
    return tuple(with_page)


def _in_target(transition: Transition, rows: pl.DataFrame) -> bool | None:
    """Whether every server of an incident kept its targets in the minute; None = unknown."""
    labels = transition.incident.target
    names = [name for name in ("instance", "engine", "pool") if name in labels][:2]
    here = rows.filter(pl.col("end") == transition.at, *(pl.col(n) == labels[n] for n in names))
    missed = here["slo_missed"]
    return None if missed.is_empty() or missed.null_count() else not missed.any()


def _slo_of(incident: Incident, state: State, plan: Plan) -> Slo | None:
    if "instance" not in incident.target:
        return None
    target = state.targets.get(TargetKey(incident.target["instance"], incident.target["engine"]))
    return None if target is None else plan.slo_of(target)


@dataclass(frozen=True, slots=True)
class Updates:
    """What asking again brought."""

    transitions: tuple[Transition, ...] = ()  # follow-ups, in order of time
    # incident id → its page as it is now
    pages: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    advices: tuple[TargetAdvice, ...] = ()


@dataclass(slots=True)
class _Waiting:
    incident: Incident  # with its page
    since: datetime
    until: datetime | None  # resolved then

    def asks(self, at: datetime) -> bool:
        return self.since < at and (self.until is None or at < self.until)

    def turn(self) -> tuple[bool, str, str]:
        """Pages first; then who was to be asked before the others."""
        page = self.incident.page or {}
        return self.incident.severity != "page", str(page[AGAIN]), self.incident.key


def asked_again(
    before: Mapping[str, Incident],
    happened: Sequence[Transition],
    advices: Sequence[TargetAdvice],
    span: tuple[datetime, datetime],
    simulations: int,
    ask: Ask,
) -> Updates:
    """The answers that pages wait for, minute of the grid by minute."""
    waiting = {one.incident.id: one for one in _waiting(before, happened, span[0])}
    if not waiting or not simulations:
        return Updates()
    used = Counter(answer.at for answer in advices)
    follow_ups: list[Transition] = []
    pages: dict[str, Mapping[str, object]] = {}
    answers: list[TargetAdvice] = []
    at = next_time(span[0])
    while at <= span[1] and waiting:
        here = sorted((one for one in waiting.values() if one.asks(at)), key=_Waiting.turn)
        here = here[: max(0, simulations - used[at])]
        findings: Mapping[str, Finding] = {}
        new: Sequence[TargetAdvice] = ()
        if here:
            findings, new = ask([Transition(one.incident, "advised", at) for one in here])
        answers += new
        with_answers = {answer.incident_id for answer in new}
        for one in here:
            id_ = one.incident.id
            finding = findings.get(id_) if id_ in with_answers else None
            page, changed = _updated(one.incident, finding, at)
            one.incident = replace(one.incident, page=page)
            pages[id_] = page
            if AGAIN not in page:
                del waiting[id_]
            if changed is not None:
                sent = replace(one.incident, page=follow_up(page, "advised", at, changed))
                follow_ups.append(Transition(sent, "advised", at))
        at += EVERY
    return Updates(tuple(follow_ups), pages, tuple(answers))


def _waiting(
    before: Mapping[str, Incident], happened: Sequence[Transition], first: datetime
) -> Iterator[_Waiting]:
    ended = {t.incident.id: t.at for t in happened if t.event == "resolved"}
    fired = [(t.incident, t.at) for t in happened if t.event == "firing"]
    for incident, since in [*((one, first) for one in before.values()), *fired]:
        if incident.page is not None and incident.page.get(AGAIN) is not None:
            yield _Waiting(incident, since, ended.get(incident.id))


def _updated(
    incident: Incident, finding: Finding | None, at: datetime
) -> tuple[Mapping[str, Any], str | None]:
    """The page after an answer, None where there was none; and what its receivers are told of it.

    They are sent one other answer only: one that more minutes may change waits for the next time,
    and that no knob helps by the first minutes of a drift would use it up.
    """
    page, advice = incident.page or {}, None if finding is None else finding.recommendation
    stays = advice is not None and advice.action not in ("insufficient", "none")
    if finding is None or (finding.asked_again and not stays):
        return later(page, next_time(at)), None
    changed = what_changed(page.get("recommendation"), advice)
    if says_less(page.get("recommendation"), advice):
        return later(page, None), changed
    return with_answer(page, finding, incident, at), changed


def _ask_again(
    evaluation: Evaluation, waiting: Sequence[Transition]
) -> tuple[Mapping[str, Finding], Sequence[TargetAdvice]]:
    """Each page is asked about by the target that it shows; those that are gone are left out."""
    rules = {rule.id for rule in evaluation.plan.rules}
    by_name = {key.text: target for key, target in evaluation.state.targets.items()}
    about = []
    for transition in waiting:
        labels, page = transition.incident.target, transition.incident.page or {}
        if labels.get("instance"):
            name = TargetKey(labels["instance"], labels.get("engine", "0")).text
        else:
            name = (page.get("concerned") or {}).get("first", [""])[0]
        if name in by_name and transition.incident.rule in rules:
            about.append(as_of_target(transition, by_name[name]))
    return advised(evaluation, about, findings_at(evaluation, about), again=True)
