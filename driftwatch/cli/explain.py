"""``driftwatch explain``: the page of a moment, how it was decided, the numbers."""

from __future__ import annotations

import re
import sys
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import click

from driftwatch.cli.history import History
from driftwatch.cli.main import EXIT_NO_VERDICT
from driftwatch.cli.options import DURATION, WINDOW_OPTIONS, history_options, json_option
from driftwatch.cli.printer import print_json, print_wrapped
from driftwatch.cli.target import TargetWindow, target_window
from driftwatch.errors import NoVerdict, UsageError
from driftwatch.numbers import moment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from driftwatch.cli.target import Evaluated
    from driftwatch.incidents.incident import Incident
    from driftwatch.model import Finding
    from driftwatch.notify.page import Page
    from driftwatch.pipeline.explain import Window
    from driftwatch.rulebook.rules import Rule

_TRAFFIC = timedelta(hours=1)  # of which an advice is made, at most


@click.command(name="explain")
@click.argument("target", metavar="[SERVER|POOL|ID]", required=False)
@click.option(
    "--window",
    "length",
    type=DURATION,
    default="10m",
    show_default=True,
    help="Length of the window.",
)
@click.option(
    "--symptom",
    type=click.Choice(["batch", "latency", "throughput", "gpu-idle"]),
    help="Symptom at which the diagnosis starts; default: that of the rule that fires, else batch.",
)
@json_option
@history_options(*WINDOW_OPTIONS)
def command(
    target: str | None, length: timedelta, symptom: str | None, as_json: bool, history: History
) -> None:
    """Explain the state of a server (host:8000, host:8000/1), a pool or an incident.

    Leave the name out where there is only one server. Of a pool, driftwatch explains a server that
    an open page concerns, else the one with the longest queue; of an incident that is over, its
    first server at the moment of the page. The answer begins with the page of an incident that
    fires then. Read is --recording, else --prometheus, else the database of driftwatch run. Exit
    code 0: answered; 4: no verdict, and the output names what is missing.
    """
    from driftwatch.clock import SystemClock

    today = SystemClock().now().date()
    target, named, history = _of_incident(target, history)
    with target_window(target, history, length, today=today) as scope:
        _explain(scope, named, symptom, as_json)


_INCIDENT = re.compile(r"[0-9a-f]{4,12}")


def _of_incident(name: str | None, history: History) -> tuple[str | None, str | None, History]:
    """The first server of the incident that is named, its id, and once it is over the moment of its
    page; else what was given.
    """
    if name is None or not history.is_stored or _INCIDENT.fullmatch(name) is None:
        return name, None, history
    with history.store() as store, suppress(UsageError):
        incident = store.incident(name)
        is_over = incident.resolved_at is not None
        at = history.at or (incident.firing_at if is_over else None)
        met = sorted((one for one in incident.servers if one.met), key=lambda one: one.since)
        first = [one.key.text for one in met]
        if incident.page is not None and not is_over:
            first = [*incident.page.servers.first, *first]
        elif incident.messages:
            first = [*incident.messages[0].servers, *first]
        if first:
            return first[0], incident.id, replace(history, at=at)
    return name, None, history


def _explain(scope: TargetWindow, named: str | None, symptom: str | None, as_json: bool) -> None:
    from driftwatch.notify.explanation import explanation, is_healthy
    from driftwatch.pipeline.advice import explained

    history = scope.history
    incidents = sorted(scope.incidents(), key=lambda one: one.id != named)
    evaluated = _evaluated(scope, _tree(scope, symptom, incidents), () if as_json else incidents)
    window, finding = evaluated.window, evaluated.finding
    assert finding is not None  # noqa: S101 - evaluated() raises without one
    pages = [page for one in incidents if (page := page_at(scope, one, finding)) is not None]
    if pages and pages[0].severity != "notice" and pages[0].advice and _is_answered(pages[0]):
        finding = replace(finding, advice=pages[0].advice)  # a moment has one answer
    else:
        finding = explained(finding, evaluated.row, scope.plan, evaluated.moment)
        pages = [page if _is_answered(page) else _with_advice(page, finding) for page in pages]
    if as_json:
        print_json(explanation(finding, window.start, window.end).document())
    else:
        at = history.at or (None if history.is_stored else window.end)
        _print(scope, finding, window, pages, at)
    diagnosis = finding.diagnosis
    undetermined = diagnosis is not None and diagnosis.leaf == "undetermined"
    no_verdict = undetermined and not is_healthy(finding)
    click.get_current_context().exit(EXIT_NO_VERDICT if no_verdict else 0)


def _tree(scope: TargetWindow, symptom: str | None, incidents: Sequence[Incident]) -> str:
    """The tree of the symptom, else of the rule that fires."""
    from driftwatch.pipeline.explain import DEFAULT_TREE, SYMPTOMS

    rules = {rule.id: rule.tree for rule in scope.plan.rules}
    if symptom is not None:
        return SYMPTOMS[symptom]
    return next(filter(None, (rules.get(one.rule) for one in incidents)), DEFAULT_TREE)


def _evaluated(scope: TargetWindow, tree: str, incidents: Sequence[Incident]) -> Evaluated:
    """The window; where it has no scrape, what is open is printed before the error."""
    try:
        return scope.evaluated(_TRAFFIC, tree)
    except NoVerdict:
        for one in incidents:
            if one.page is not None and one.page.event != "resolved":
                print_wrapped(one.page.summary)
        raise


def page_at(scope: TargetWindow, incident: Incident, finding: Finding) -> Page | None:
    """The page of an incident as of the window's end: as it was sent, else made of the finding.

    None where neither it nor its rule is known.
    """
    from driftwatch.notify.page import Line, Page
    from driftwatch.pipeline.build_page import build_page
    from driftwatch.pipeline.findings import peer_speeds, with_room

    at, last = scope.window.end, incident.page
    if last is None:
        return None
    rule = next((rule for rule in scope.plan.rules if rule.id == incident.rule), None)
    if rule is not None and (text := _recovering(scope, incident, rule, finding)) is not None:
        began = Line("Began", last.first_problem, last.times.started_at)
        summary = f"RECOVERING {text}"
        return last.model_copy(update={"summary": summary, "lines": (began,), "advice": None})
    if scope.history.at is None or (last.event != "resolved" and last.times.evaluated_at <= at):
        return last
    sent = [
        one.payload
        for one in scope.store.deliveries(incident.id)
        if isinstance(one.payload, Page) and one.payload.event in ("firing", "updated")
        if one.payload.times.evaluated_at <= at
    ]
    if sent:
        return sent[-1]
    key, minute = scope.target.key, scope.store.past(at - timedelta(minutes=1), at)
    of_pool = [one for one in scope.targets.values() if one.pool == incident.pool]
    answers = scope.store.advices(incident.firing_at or at, at + timedelta(seconds=1))
    own = [one.answer.advice for one in answers if one.incident_id == incident.id]
    then = incident.model_copy(update={"resolved_at": None, "acknowledgement": None})
    of_rule = replace(
        finding,
        rule=incident.rule,
        concerned=(key,),  # the numbers are those of this server
        of_targets=len(of_pool),
        peers=with_room(peer_speeds(key, at, minute), last.peers),
        advice=own[-1] if own else last.advice,
    )
    page = build_page(
        of_rule,
        then,
        "firing",
        at,
        annotations=rule.annotations if rule else last.annotations,
        form=rule.page if rule else None,
        external_url=scope.plan.external_url,
        slo=scope.plan.slo_of(scope.target),
    )
    said = next((one for one in incident.messages if one.at == at), None)
    texts = {} if said is None else {"summary": said.summary, "lines": said.lines}
    return page.model_copy(update=texts)


def _recovering(
    scope: TargetWindow, incident: Incident, rule: Rule, finding: Finding
) -> str | None:
    """``pool: in target since 11:07 UTC, resolves at 11:12 UTC if it stays so``; None before its
    condition was last true, and while it is unknown.
    """
    from driftwatch.rulebook.rules import MISSED

    at, since, day = scope.window.end, incident.last_true_at, scope.today
    is_false = all(one.false_seconds for one in incident.servers if one.met)
    is_closed = incident.page is not None and incident.page.resolved_reason
    if at <= since or not is_false or is_closed:
        return None
    holds = timedelta(seconds=rule.in_pool(incident.pool).keep_firing_for_seconds)
    is_met = rule.columns & MISSED and finding.evidence.get("slo_missed") is False
    over = [text for text in rule.page.over if "{" not in text]
    what = "in target" if is_met else next(iter(over), "its condition is false")
    ends = moment(incident.resolved_at or since + holds, day)
    return f"{incident.name}: {what} since {moment(since, day)}; resolves at {ends} if it stays so"


def _is_answered(page: Page) -> bool:
    """Whether the page leaves no question to this command."""
    return page.advice is None or page.advice.reason.code != "not_asked"


def _with_advice(page: Page, finding: Finding) -> Page:
    """The page with the advice of this moment."""
    from driftwatch.notify.headline import rendered

    return rendered(page.model_copy(update={"advice": finding.advice}))


def _print(
    scope: TargetWindow,
    finding: Finding,
    window: Window,
    pages: Sequence[Page],
    at: datetime | None,
) -> None:
    """The answer on stdout; commands that it names look at the moment ``at``."""
    from driftwatch.cli.options import repeat_options
    from driftwatch.collect.identity import ALSO_LABEL
    from driftwatch.notify.explanation import render_explained
    from driftwatch.receivers.stdout import wants_colour

    name, notes = scope.target.key.text, list[str]()
    if (silent := scope.silence) is not None:
        notes.append(f"NO DATA {name}: {silent.text(scope.today)}")
    if also := scope.target.labels.get(ALSO_LABEL):
        many = also.count("; ") + 1
        scrapes = "1 more scrape" if many == 1 else f"{many} more scrapes"
        notes.append(f"READ ONCE {name}: {scrapes} of it left out: {also}")
    click.echo(
        render_explained(
            finding,
            window.start,
            window.end,
            pages=pages,
            today=scope.today,
            colour=wants_colour(sys.stdout),
            where=repeat_options(at=at),
            piped=not sys.stdout.isatty(),
            notes=notes,
        )
    )
