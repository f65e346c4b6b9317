"""A finding and its incident → the page. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal
from urllib.parse import quote

from driftwatch.incidents.incident import Incident, shown_first
from driftwatch.incidents.silence import silence_matchers
from driftwatch.model import (
    Finding,
    Slo,
    TargetKey,
)
from driftwatch.notify.advice import NOTHING_TO_DO
from driftwatch.notify.facts import amounts, baseline_of, json_value, slo_in, with_reasons
from driftwatch.notify.headline import given_pool, rendered
from driftwatch.notify.page import (
    NAMED_SERVERS,
    Links,
    Page,
    Phrases,
    Servers,
    Times,
    http_url,
    next_refresh,
    web_address,
)
from driftwatch.notify.phrases import fill
from driftwatch.numbers import clean
from driftwatch.rulebook.values import PageForm

SILENCE_FOR = "2h"

# templates for a rule whose form has no `says` and that has no summary
_USUAL = (
    "{harm}",
    "since {began} {moved}, {unchanged}",
    "since {began} {moved}",
)


def build_page(
    finding: Finding | None,
    incident: Incident,
    event: Literal["firing", "resolved"],
    at: datetime,
    *,
    annotations: Mapping[str, str] | None = None,
    form: PageForm | None = None,
    external_url: str | None = None,
    slo: Slo | None = None,
    resolved_reason: str | None = None,
    ended_because: str = "",
    ended_in_target: bool | None = None,
    others: Collection[Incident] = (),
) -> Page:
    """The page of an incident that fired or resolved, with its texts.

    ``finding``: None = a resolve, with the facts of the incident's page; ``at``: end of the minute
    that decided it; ``form``: the rule's templates, None = the usual ones; ``slo``: None = the
    targets of the evidence row; ``resolved_reason``: why it closed without a measured recovery;
    ``ended_because``: what changed, in words; ``ended_in_target``: whether the latency targets were
    met at its end, None = unknown; ``others``: open incidents of its pool.
    """
    page = Page(
        event=event,
        incident=incident.id,
        key=incident.key,
        rule=incident.rule,
        alert=incident.alert,
        severity=incident.severity,
        pool=incident.pool,
        labels=dict(sorted({**incident.labels, "pool": incident.pool}.items())),
        servers=_servers(finding, incident),
        times=Times(
            started_at=incident.started_at,
            firing_at=incident.firing_at,
            resolved_at=incident.resolved_at,
            last_true_at=incident.last_true_at if event == "resolved" else None,
            evaluated_at=at,
            measured_at=at,
        ),
        annotations=dict(sorted((annotations or {}).items())),
        resolved_reason=resolved_reason,
        ended_because=ended_because,
        ended_in_target=ended_in_target,
    )
    page = _with_content(page, finding, incident.page, slo, form or PageForm())
    page = page.model_copy(update={"links": _links(incident, page, external_url, others)})
    return rendered(page.model_copy(update={"phrases": _phrases(page, form)}))


# fields that a resolve takes from the incident's page
_KEPT = (
    *("evidence", "slo", "diagnosis", "advice", "baseline", "recent_change"),
    *("also_missing", "lengths_moved_at"),
    *("peers", "phrases", "verification", "lengths", "family", "first_problem", "worst_missed"),
)


def _with_content(
    page: Page, finding: Finding | None, last: Page | None, slo: Slo | None, form: PageForm
) -> Page:
    if finding is None:
        if last is None:
            return page
        kept = {name: getattr(last, name) for name in _KEPT}
        return page.model_copy(update={**kept, "first": last.as_first})
    diagnosis, at = finding.diagnosis, page.times.evaluated_at
    return page.model_copy(
        update={
            "evidence": amounts(finding),
            "slo": _slo(slo, finding.evidence),
            "diagnosis": None if diagnosis is None else with_reasons(diagnosis, finding.reasons),
            "advice": finding.advice,
            "recent_change": finding.recent_change,
            "baseline": baseline_of(finding),
            "peers": json_value(finding.peers),
            "also_missing": dict(finding.also_missing),
            "lengths_moved_at": dict(finding.lengths_moved_at),
            "lengths": form.lengths,
            "family": form.family,
            "asked_again_at": next_refresh(at) if finding.asked_again else None,
        }
    )


def _phrases(page: Page, form: PageForm | None) -> Phrases:
    """The rule's templates, filled; a resolve keeps those of its page and adds ``over``."""
    usual, last = form or PageForm(), page.phrases
    over = next(fill(page, usual.over), "")
    if page.event == "resolved" and last.problem:
        return last.model_copy(update={"over": over})
    summary = page.annotations.get("summary")
    says = usual.says or (() if summary else _USUAL)
    own = [usual.advice_of_many if page.is_of_many else None, usual.advice]
    advice = next(fill(page, filter(None, own)), "")
    if page.value("slo_missed") and advice.startswith(NOTHING_TO_DO):
        advice = ""  # users miss a target
    return Phrases(
        problem=tuple(fill(page, says)) or (clean(summary or f"{page.alert} is true"),),
        since=next(fill(page, usual.since), ""),
        cause=next(fill(page, usual.cause), ""),
        also=tuple(text for one in usual.also for text in fill(page, [one])),
        advice=advice,
        over=over,
    )


def _servers(finding: Finding | None, incident: Incident) -> Servers:
    """The finding's servers, the worst first; for a resolve all that the incident concerned."""
    if finding is None:
        last = None if incident.page is None else incident.page.servers
        keys = tuple(one.key for one in incident.servers if one.met)
        of = len(keys) if last is None else max(len(keys), last.of)
        found = Servers(concerned=len(keys), of=of, first=_named(keys))
        return last if last and not keys else found
    return Servers(
        concerned=len(finding.concerned),
        of=max(finding.of_targets or 1, len(finding.concerned)),
        first=_named(finding.concerned),
    )


def _named(keys: Sequence[TargetKey]) -> tuple[str, ...]:
    return tuple(key.text for key in keys[:NAMED_SERVERS])


def _slo(slo: Slo | None, evidence: Mapping[str, Any]) -> Slo | None:
    """The given targets, else those of the evidence row; None without any."""
    if slo is None:
        return slo_in(evidence)
    return None if slo.ttft_seconds is None and slo.tpot_seconds is None else slo


def _links(
    incident: Incident, page: Page, external_url: str | None, others: Collection[Incident]
) -> Links:
    """Addresses where they exist, and commands, quoted for a shell.

    The name in ``explain`` is the pool's or the server's where that shows this page first, else the
    incident's id.
    """
    matchers = [m.text for m in silence_matchers(incident) if m.text != "engine=0"]
    about = given_pool(page) if page.is_of_many or not page.servers.first else None
    server = next(iter(page.servers.first), "")
    every = [(one, one.concerned) for one in (incident, *others)]
    here = [(o, keys) for o, keys in every if about or server in {key.text for key in keys}]
    first = next(iter(shown_first(here, of_pool=about is not None)), None)
    name = about or server if first is None or first[0] is incident else incident.id
    explain = ["driftwatch", "explain", name]
    return Links(
        runbook=http_url(page.annotations.get("runbook_url"))
        or web_address(external_url, f"/runbook#{quote(incident.alert, safe='')}"),
        driftwatch=web_address(external_url, f"/incidents/{incident.id}"),
        explain=shlex.join(filter(None, explain)),
        ack=shlex.join(["driftwatch", "ack", incident.id]),
        silence=shlex.join(["driftwatch", "silence", *matchers, "--for", SILENCE_FOR]),
    )
