"""Pages of incidents that fire or resolve, and their updates. Pure.

Pages are built minute by minute, so they do not depend on how minutes are split over ticks. Every
:data:`driftwatch.notify.page.REFRESH_EVERY`, on the clock, the page of each firing incident is
refreshed: built again for the server that is the worst then. A refresh sends an update only where
the number of servers has doubled, the cause has changed for two refreshes, or the advice changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import groupby
from typing import Any

import polars as pl

from driftwatch.collect.schema import KEY_COLUMNS
from driftwatch.detect.lengths import LENGTHS
from driftwatch.diagnose.tree import UNDETERMINED
from driftwatch.incidents.follow_up import follow_up
from driftwatch.incidents.incident import Incident, LastMessage, Transition
from driftwatch.model import Finding, TargetKey
from driftwatch.notify.page import REFRESH_EVERY, Page
from driftwatch.notify.phrases.limits import worst_missed
from driftwatch.numbers import count
from driftwatch.pipeline.advice import advise
from driftwatch.pipeline.build_page import build_page
from driftwatch.pipeline.evaluation import Evaluation
from driftwatch.pipeline.findings import Findings, Found, findings_of, with_last_load
from driftwatch.pipeline.news import (
    advice_news,
    cause_changed,
    ended_because,
    is_final,
    is_other_cause,
    is_undetermined,
    is_worse,
    load_of,
    message_facts,
    reported_missed,
    rests_on_another_load,
    worse_news,
)
from driftwatch.pipeline.onset import COLUMNS as ONSET_COLUMNS
from driftwatch.pipeline.onset import LOOK_BACK, condition_onset
from driftwatch.pipeline.plan import Plan
from driftwatch.pipeline.recent_change import COLUMNS, WITHIN, recent_change, release_since
from driftwatch.store.history import TargetAdvice

_KEY = list(KEY_COLUMNS)


def with_pages(
    evaluation: Evaluation,
    happened: Sequence[Transition],
    incidents: Mapping[str, Incident],
    refreshes: Sequence[Transition] = (),
) -> tuple[tuple[Transition, ...], dict[str, Incident], tuple[TargetAdvice, ...]]:
    """Transitions with their pages, updates among them; open incidents with theirs; the advice.

    Args:
        happened: what fired and what resolved, in order.
        refreshes: firing incidents, each in a minute in which its page is due; empty = none.
    """
    fired = [t for t in happened if t.event == "firing"]
    ended = [t for t in happened if t.event == "resolved"]
    refreshed = [t for t in refreshes if t.incident.severity != "notice" and t.incident.concerned]
    every = sorted([*fired, *refreshed], key=lambda t: (t.at, t.event != "firing"))
    pages = _OpenPages(evaluation, {t.incident.id: t.at for t in ended})
    found = zip(every, findings_of(evaluation, every), strict=True)
    news: list[Transition] = []
    for at, here in groupby(found, lambda pair: pair[0].at):
        pairs = [(t, one) for t, one in here if one is not None]
        news += pages.open_new([pair for pair in pairs if pair[0].event == "firing"], at)
        news += pages.refresh([pair for pair in pairs if pair[0].event != "firing"], at)
    for t in ended:
        last = replace(t, incident=pages.latest(t.incident))
        theirs = _rows_at(t, evaluation.rows)
        because = ended_because(last.incident.page, theirs, pages.change_until_end(t))
        in_target = _in_target(theirs)
        if in_target is False:
            because = "; ".join(filter(None, (pages.still_missed(last.incident, theirs), because)))
        news.append(with_resolve_page(evaluation.plan, last, in_target, because))
    after = {key: pages.latest(one) for key, one in incidents.items()}
    # transitions come before updates of the same minute
    ordered = sorted(news, key=lambda t: (t.at, t.event == "updated"))
    return tuple(ordered), after, tuple(pages.advices)


class _OpenPages:
    """The pages of open incidents as of a minute; minutes come in order.

    Args:
        ended: incident id → when it resolves.
    """

    def __init__(self, evaluation: Evaluation, ended: Mapping[str, datetime]) -> None:
        self._evaluation, self._ended = evaluation, ended
        self._rules = {rule.id: rule for rule in evaluation.plan.rules}
        self._open = {
            one.id: one
            for one in evaluation.state.incidents.values()
            if one.is_firing and one.page is not None
        }
        self._simulated = Counter[datetime]()  # questions simulated in a minute
        self.advices: list[TargetAdvice] = []

    def latest(self, incident: Incident) -> Incident:
        """The incident with its last page and message."""
        if (last := self._open.get(incident.id)) is None:
            return incident
        names = ("page", "told", "started_at", "messages")
        kept = {name: getattr(last, name) for name in names}
        return incident.model_copy(update=kept)

    def change_until_end(self, ended: Transition) -> str:
        """The change on an incident's servers while it lasted; empty = none known."""
        incident = self.latest(ended.incident)
        keys = {one.key for one in incident.servers if one.met}
        minutes = self._evaluation.past.rows(keys, incident.started_at, ended.at, COLUMNS)
        change = recent_change(minutes, len(keys), (), None, None, ended.at.date())
        return change or ""

    def still_missed(self, ended: Incident, here: pl.DataFrame) -> str:
        """The queue at an incident's end (``here``: its rows), and the page about the miss."""
        theirs = {one.key for one in ended.servers}
        pages = (one for one in self._open.values() if one.severity == "page")
        open_ones = (o for o in pages if o.pool == ended.pool and o.id not in self._ended)
        other = next((one for one in open_ones if theirs & {s.key for s in one.servers}), None)
        see = "" if other is None else f", see {other.alert} {other.id}"
        waiting = float(here["waiting_requests"].sum() or 0.0)
        queue = f", {count(waiting)} requests queue" if waiting >= 2 else ""
        return f"a latency target is still missed{queue}{see}"

    def open_new(self, found: Sequence[tuple[Transition, Found]], at: datetime) -> list[Transition]:
        """The incidents that fired in a minute, with their pages."""
        sent = []
        self._read_ahead(found, at - LOOK_BACK, at)
        findings = self._advised(found, at)
        for t, (bare, _) in found:
            finding = findings.get(t.incident.id, bare)
            incident = self._with_onset(t.incident, finding, at)
            finding = self._with_recent_change(incident, finding, incident.started_at, at)
            incident = self._with_page(incident, finding, at)
            if incident.page is not None:
                incident = incident.with_message(incident.page)
            incident = self._keep(incident, message_facts(incident, finding, at))
            sent.append(replace(t, incident=incident))
        return sent

    def refresh(self, found: Sequence[tuple[Transition, Found]], at: datetime) -> list[Transition]:
        """Refresh pages; returns the updates to send."""
        here = [
            (t, one)
            for t, one in found
            if t.incident.id in self._open
            and not self._ended.get(t.incident.id, at + REFRESH_EVERY) <= at
            and self._may_refresh(t, one)
        ]
        eased = {t.incident.id for t, found in here if self._has_eased(t, found)}
        asking = [p for p in here if p[0].incident.id not in eased and self._needs_answer(*p)]
        asking.sort(key=lambda pair: (pair[0].incident.severity != "page", *self._order(pair[0])))
        answers = self._advised(asking, at, again=True)
        self._read_ahead(here, at, at)
        updates = (
            self._refresh(t, one, answers.get(t.incident.id), at, eased=t.incident.id in eased)
            for t, (one, _) in here
        )
        return [one for one in updates if one is not None]

    def _refresh(
        self,
        refresh: Transition,
        finding: Finding,
        answer: Finding | None,
        at: datetime,
        *,
        eased: bool,
    ) -> Transition | None:
        """Refresh one page; returns the update to send.

        ``answer``: new advice, None = not computed; ``eased``: send nothing.
        """
        before = self._open[refresh.incident.id]
        if before.page is None or before.told is None:
            return None
        old, told = before.page, before.told
        load, changes = told.load or load_of(finding), list[str]()
        if is_undetermined(finding, old):
            finding = replace(finding, diagnosis=old.diagnosis)
        kept = replace(
            finding,
            advice=old.advice,
            peers=with_last_load(finding.peers, old.peers),
            asked_again=answer is not None and not is_final(answer),
        )
        if answer is not None and (news := advice_news(old, answer, told)) is not None:
            room = with_last_load(answer.peers, old.peers)
            kept, load = replace(answer, peers=room, asked_again=False), load_of(answer)
            changes += filter(None, [news])
        incident = self.latest(refresh.incident)
        kept = replace(kept, recent_change=old.recent_change)
        finding = self._with_recent_change(incident, kept, at, at)
        incident = self._with_page(incident, finding, at)
        now = message_facts(incident, finding, at).model_copy(update={"load": load})
        if (worse := worse_news(incident, finding, at, has_news=bool(changes))) is not None:
            changes.insert(0, worse)
        elif now.servers >= 2 * told.servers:
            changes.insert(0, f"spread from {told.servers} to {now.servers} servers")
        is_other = is_other_cause(now.cause, told.cause) and now.cause not in told.causes
        if is_other and now.cause == told.last_cause:
            changes.insert(0, cause_changed(told.cause, now.cause, incident.page))
        if eased:
            changes.clear()
        if not changes:
            now = told.model_copy(update={"last_cause": now.cause, "load": load})
        if not changes or incident.page is None:
            self._keep(incident, now)
            return None
        page = follow_up(incident.page, "updated", at, "; ".join(changes))
        incident = self._keep(incident.with_message(page), now)
        return Transition(incident.model_copy(update={"page": page}), "updated", at)

    def _may_refresh(self, refresh: Transition, found: Found) -> bool:
        """Whether to refresh: not with an unknown cause, unless clearly more requests suffer."""
        (finding, row), incident = found, self._open[refresh.incident.id]
        page, told = incident.page, incident.told
        if finding.diagnosis is None or page is None or told is None:
            return True
        is_unknown = is_undetermined(finding, page) and page.leaf != UNDETERMINED
        is_news = not is_unknown or is_worse(told, finding)
        return is_news and bool(row.get("observed_10m_seconds"))

    def _has_eased(self, refresh: Transition, found: Found) -> bool:
        """Whether a missed target is met again, or the incident only waits for its end."""
        finding, row = found
        told = self._open[refresh.incident.id].told
        if row.get("target_missed") is not False:  # unknown is not met
            return False
        return _is_false(self._evaluation, refresh) or reported_missed(told, finding)

    def _needs_answer(self, refresh: Transition, found: Found) -> bool:
        """Whether a page needs new advice: it waits for it, or its own is outdated."""
        before, (finding, row) = self._open[refresh.incident.id], found
        if (page := before.page) is None or (told := before.told) is None:
            return False
        if page.asked_again_at is not None:
            return True
        leaf = "" if finding.diagnosis is None else finding.diagnosis.leaf
        is_other = leaf == told.last_cause.partition(" ")[0] != told.cause.partition(" ")[0]
        moves = () if page.advice is None else page.advice.moves
        is_outdated = any(
            None not in (move.from_value, row.get(move.knob)) and move.from_value != row[move.knob]
            for move in moves
        )
        is_another = is_worse(told, finding) or rests_on_another_load(page, told, finding)
        return is_other or is_outdated or is_another

    def _order(self, refresh: Transition) -> tuple[str, str]:
        page = self._open[refresh.incident.id].page
        return str(page.asked_again_at if page else ""), refresh.incident.key

    def _advised(
        self, found: Sequence[tuple[Transition, Found]], at: datetime, *, again: bool = False
    ) -> dict[str, Finding]:
        """Incident id → finding with advice."""
        if not found:
            return {}
        findings: Findings = {t.incident.id: one for t, one in found}
        these = [replace(t, incident=self.latest(t.incident)) for t, _ in found]
        every = [*self._open.values(), *(t.incident for t in these)]
        firing = [one for one in every if self._ended.get(one.id, at + REFRESH_EVERY) > at]
        used = self._simulated[at]
        advised, answers = advise(self._evaluation, these, findings, firing, again=again, used=used)
        self.advices += answers
        self._simulated[at] += len(answers)
        return advised

    def _read_ahead(
        self, found: Sequence[tuple[Transition, Found]], since: datetime, at: datetime
    ) -> None:
        """Read the minutes that the pages need at once."""
        keys = {
            key
            for t, (one, _) in found
            for key in (*t.incident.concerned, *self._servers_of_page(t.incident, one))
        }
        if keys:
            columns = dict.fromkeys((*ONSET_COLUMNS, *COLUMNS))
            self._evaluation.past.read_ahead(keys, since - WITHIN, at, tuple(columns))

    def _servers_of_page(self, incident: Incident, finding: Finding) -> set[TargetKey]:
        """The servers whose changes a page names: its only one, else all of the pool."""
        if len(finding.concerned) < 2:
            return {finding.target.key}
        targets = self._evaluation.state.targets.values()
        return {finding.target.key, *(o.key for o in targets if o.pool == incident.pool)}

    def _with_onset(self, incident: Incident, finding: Finding, at: datetime) -> Incident:
        """The incident, started when the rule's measure left its normal level, if that is known."""
        rule, past = self._rules[incident.rule], self._evaluation.past
        since = condition_onset(rule.columns, incident.concerned, at, finding.evidence, past)
        return incident if since is None else incident.model_copy(update={"started_at": since})

    def _with_recent_change(
        self, incident: Incident, finding: Finding, since: datetime, at: datetime
    ) -> Finding:
        """The finding with the change from an hour before ``since`` on, on its server or in its
        pool; unchanged without one, and without a change that is no cause.
        """
        keys = self._servers_of_page(incident, finding)
        minutes = self._evaluation.past.rows(keys, since - WITHIN, at, COLUMNS)
        release = finding.evidence.get("release_change")
        began, hit = incident.started_at, finding.concerned
        change = recent_change(minutes, len(keys), hit, began, release, at.date())
        is_speed = self._rules[incident.rule].page.family == "speed"
        if change is None and finding.recent_change is None and is_speed:
            change = release_since(finding, self._evaluation.past, keys, at)
        return finding if change is None else replace(finding, recent_change=change or None)

    def _with_page(self, incident: Incident, finding: Finding, at: datetime) -> Incident:
        here = [o for o in self._open.values() if o.pool == incident.pool and o.id != incident.id]
        others = [o for o in here if self._ended.get(o.id, at + REFRESH_EVERY) > at]
        moved_at = {
            name.removesuffix("_tokens"): one.started_at
            for one in others
            for name in LENGTHS
            if f"{name}_drift" in self._rules[one.rule].when.columns
        }
        finding = replace(finding, lengths_moved_at=moved_at)
        page = _build(self._evaluation.plan, incident, finding, at, others=others)
        if incident.page is not None:
            last = incident.page
            kept = {n: getattr(last, n) for n in ("verification", "first_problem", "worst_missed")}
            page = page.model_copy(update={**kept, "first": last.as_first})
        page = page.model_copy(update={"worst_missed": worst_missed(page)})
        return incident.model_copy(update={"page": page})

    def _keep(self, incident: Incident, told: LastMessage) -> Incident:
        if (page := incident.page) is not None:
            now = {"last_problem": page.phrases.problem[0], "last_at": page.times.measured_at}
            told = told.model_copy(update=now)
        incident = incident.model_copy(update={"told": told})
        self._open[incident.id] = incident
        return incident


def _build(
    plan: Plan, incident: Incident, finding: Finding | None, at: datetime, **of_resolve: Any
) -> Page:
    rule = next((rule for rule in plan.rules if rule.id == incident.rule), None)
    return build_page(
        finding,
        incident,
        "resolved" if finding is None else "firing",
        at,
        annotations=rule.annotations if rule else {},
        form=rule.page if rule else None,
        external_url=plan.external_url,
        slo=None if finding is None else plan.slo_of(finding.target),
        **of_resolve,
    )


def with_resolve_page(
    plan: Plan, ended: Transition, in_target: bool | None = None, because: str = ""
) -> Transition:
    """A resolve with its page.

    ``in_target``: whether the latency targets were met at its end, None = unknown; ``because``:
    what changed since its page, in words.
    """
    why = {"resolved_reason": ended.reason, "ended_because": because}
    over = _build(plan, ended.incident, None, ended.at, ended_in_target=in_target, **why)
    incident = ended.incident.with_message(over).model_copy(update={"page": over})
    return replace(ended, incident=incident)


def _rows_at(transition: Transition, rows: pl.DataFrame) -> pl.DataFrame:
    """The rows of an incident's servers in its minute."""
    servers = [one.key for one in transition.incident.servers]
    keys = pl.DataFrame(servers, schema=dict.fromkeys(_KEY, pl.String), orient="row")
    return rows.filter(pl.col("end") == transition.at).join(keys, on=_KEY, how="semi")


def _is_false(evaluation: Evaluation, refresh: Transition) -> bool:
    """Whether the incident's rule is false on each of its servers in this minute."""
    true = evaluation.verdicts[refresh.incident.rule]
    here = _rows_at(refresh, evaluation.rows.with_columns(true=true))["true"]
    return len(here) > 0 and not here.fill_null(value=True).any()


def _in_target(here: pl.DataFrame) -> bool | None:
    """Whether all servers of these rows met their latency targets; None = unknown."""
    missed = here["slo_missed"]
    return None if missed.is_empty() or missed.null_count() else not missed.any()
