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
from driftwatch.cli.options import DURATION, WINDOW_OPTIONS, history_options, json_option, option
from driftwatch.cli.printer import print_json, print_wrapped
from driftwatch.cli.target import TargetWindow, target_window
from driftwatch.errors import NoVerdict, UsageError
from driftwatch.numbers import clean, moment

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
@option("--window length", DURATION, "Length of the window.", default="10m")
@option(
    "--symptom",
    click.Choice(["batch", "latency", "throughput", "gpu-idle"]),
    "Symptom at which the diagnosis starts; default: that of the rule that fires, else batch.",
)
@json_option
@history_options(*WINDOW_OPTIONS)
def command(
    target: str | None, length: timedelta, symptom: str | None, as_json: bool, history: History
) -> None:
    """Explain the state of a server (host:8000, host:8000/1), a pool or an incident.

    Leave the name out where there is only one server. The answer begins with the page of the
    incident, else with one that fires then: for a pool the gravest of several servers. A line for
    each server of the pool follows, then the numbers of the one with the longest queue. An
    incident that is over is explained at the moment of its page. driftwatch reads --recording,
    else the database.
    Exit code 0: answered; 4: no verdict, and the output names what is missing.
    """
    from driftwatch.clock import SystemClock

    today = SystemClock().now().date()
    target, named, history = _of_incident(target, history)
    with target_window(target, history, length, today=today, incident=named) as scope:
        _explain(scope, symptom, as_json)


_INCIDENT = re.compile(r"[0-9a-f]{4,12}")


def _of_incident(name: str | None, history: History) -> tuple[str | None, Incident | None, History]:
    """The first server of the incident that is named, the incident, and once it is over the moment
    of its page; else what was given.
    """
    if name is None or not history.is_stored or _INCIDENT.fullmatch(name) is None:
        return name, None, history
    with history.store() as store, suppress(UsageError):
        incident = store.incident(name)
        is_over = incident.resolved_at is not None
        is_past = is_over or incident.severity == "notice"  # nobody measures a notice again
        at = history.at or (incident.firing_at if is_past else None)
        met = sorted((one for one in incident.servers if one.met), key=lambda one: one.since)
        first = [one.key.text for one in met]
        sent = [one for one in incident.messages if at is not None and one.at <= at]
        if at is None and incident.page is not None:
            first = [*incident.page.servers.first, *first]
        elif sent or incident.messages:
            first = [*[*incident.messages[:1], *sent][-1].servers, *first]
        if first:
            return first[0], incident, replace(history, at=at)
    return name, None, history


def _explain(scope: TargetWindow, symptom: str | None, as_json: bool) -> None:
    from driftwatch.notify.explanation import explanation, is_healthy
    from driftwatch.pipeline.advice import advise_finding

    history = scope.history
    incidents = scope.incidents()
    evaluated = _evaluated(scope, _tree(scope, symptom, incidents), () if as_json else incidents)
    window, finding = evaluated.window, evaluated.finding
    assert finding is not None  # noqa: S101 - evaluated() raises without one
    made = [(one, page) for one in incidents if (page := page_at(scope, one, finding)) is not None]
    pages = [page for _, page in made]
    if pages and pages[0].severity != "notice" and pages[0].advice and _is_answered(pages[0]):
        finding = replace(finding, advice=pages[0].advice)  # a moment has one answer
    else:
        finding = advise_finding(finding, evaluated.moment.row, scope.plan, evaluated.moment)
        pages = [page if _is_answered(page) else _with_advice(page, finding) for page in pages]
    pages = [_as_of_now(scope, page, finding) for page in pages]
    # what a notice said is never measured again
    texts = pages[0] if pages else None
    if texts is not None and texts.severity == "notice" and texts.times.measured_at < window.end:
        texts = None
    if as_json:
        first = {"state": texts.summary, "lines": texts.lines} if texts else {}
        one = explanation(finding, window.start, window.end).model_copy(update=first)
        print_json(one.document())
    else:
        at = history.at or (None if history.is_stored else window.end)
        also = [_also(scope, one, page) for (one, _), page in zip(made, pages, strict=True)]
        do = _next(finding, pages, at, is_stored=history.is_stored)
        notes = [*scope.server_lines(), *also[texts is not None :]]
        _print(scope, finding, window, texts, notes, do)
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
    """The window; where it has no scrape, what was sent by then is printed before the error."""
    try:
        return scope.evaluated(_TRAFFIC, tree)
    except NoVerdict:
        at = scope.history.at
        for one in incidents:
            sent = [m for m in one.messages if m.event != "resolved" and (at is None or m.at <= at)]
            if sent:
                print_wrapped(sent[-1].summary)
        raise


def page_at(scope: TargetWindow, incident: Incident, finding: Finding) -> Page | None:
    """The page of an incident as last made by the window's end; None where the store has none."""
    from driftwatch.notify.headline import headline, rendered
    from driftwatch.notify.page import REFRESH_EVERY, Line

    at, last = scope.window.end, incident.page
    if last is None or (incident.resolved_at is not None and incident.resolved_at <= at):
        return last
    rule = next((rule for rule in scope.plan.rules if rule.id == incident.rule), None)
    if rule is not None and (text := _recovering(scope, incident, rule, finding)) is not None:
        began = Line("Began", last.first_problem, last.times.started_at)
        summary = f"RECOVERING {text}"
        return last.model_copy(update={"summary": summary, "lines": (began,), "advice": None})
    if scope.history.at is None or (last.event != "resolved" and last.times.measured_at <= at):
        by = incident.acknowledgement
        if by is not None and last.acknowledgement != by:
            last = rendered(last.model_copy(update={"acknowledgement": by}))
        return last.model_copy(update={"summary": headline(last, None)})
    sent = [one for one in incident.messages if one.at <= at and one.event != "resolved"]
    if not sent:
        return last
    since, until = incident.firing_at or at, sent[-1].at + timedelta(seconds=1)
    answers = [o.answer for o in scope.store.advices(since, until) if o.incident_id == incident.id]
    made_at, lines = sent[-1].at, sent[-1].lines
    if at - made_at > REFRESH_EVERY:  # facts that are old have their time
        lines = tuple(one if one.at else replace(one, at=made_at) for one in lines)
    # a later answer is none of this moment
    advice = answers[-1].advice if answers else None if _is_answered(last) else last.advice
    return last.model_copy(
        update={
            "event": "firing",
            "summary": sent[-1].summary,
            "lines": lines,
            "times": last.times.model_copy(update={"measured_at": made_at}),
            "advice": advice,
        }
    )


def _also(scope: TargetWindow, incident: Incident, page: Page) -> str:
    """An open incident beside the answer: what its message said need not hold any more."""
    from driftwatch.notify.advice import few

    by = page.acknowledgement
    state = {"page": "firing"}.get(page.severity, str(page.severity))
    state = state if by is None else f"acknowledged by {clean(by.by)}"
    state = "recovering" if page.summary.startswith("RECOVERING") else state
    names = [o.key.text for o in incident.servers if o.met and o.since <= scope.window.end]
    sent = [one.at for one in incident.messages if one.at <= scope.window.end]
    since = moment(incident.started_at, scope.today)
    told = f"; its last message is of {moment(sent[-1], scope.today)}" if sent else ""
    return (
        f"{'Also':<8} {incident.alert}, {state}, since {since} on {few(names[:1], len(names))}"
        f"{told}: driftwatch incidents {incident.id}"
    )


def _as_of_now(scope: TargetWindow, page: Page, finding: Finding) -> Page:
    """The page, opened with what holds now; last when it was made."""
    from driftwatch.notify.explanation import now_text
    from driftwatch.notify.headline import line_1_action, opening, where
    from driftwatch.notify.page import Line

    made_at, summary = page.times.measured_at, page.summary
    if made_at >= scope.window.end:
        return page
    now = now_text(finding) if page.severity != "notice" and page.event == "firing" else None
    # a rule that has only a summary says what is wrong in its own words
    of_summary = any(one.id == page.rule and not one.page.says for one in scope.plan.rules)
    if now is not None and not (of_summary or summary.startswith("RECOVERING")):
        on = f" on {finding.target.key.text}" if page.is_of_many else ""
        do = "".join(f". {text}" for text in line_1_action(summary))
        summary = f"{opening(page)} {where(page)}: now {now}{on}{do}"
    age = Line("Page", f"made {moment(made_at, scope.today)}")
    return page.model_copy(update={"summary": summary, "lines": (*page.lines, age)})


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
    """When the page's incident began, with the numbers and the advice of this moment."""
    from driftwatch.notify.explanation import state_text, what_to_do
    from driftwatch.notify.headline import opening, where

    since = [line for line in page.lines if line.label == "Since"]  # it names what moved
    do = [line for line in what_to_do(finding) if not since or line.label != "Moved"]
    state = state_text(finding)
    summary = f"{opening(page)} {where(page)}: {state[:1].lower()}{state[1:]}"
    return page.model_copy(
        update={
            "summary": summary,
            "lines": (*since, *do),
            "advice": finding.advice,
            "times": page.times.model_copy(
                update={"measured_at": finding.minute + timedelta(minutes=1)}
            ),
        }
    )


def _next(
    finding: Finding, pages: Sequence[Page], at: datetime | None, *, is_stored: bool
) -> str | None:
    """What to type now: what supplies a lacking input, what prices the ways out, or who takes it;
    None where all is well. A command that looks at the past looks at ``at``.
    """
    from driftwatch.cli.options import NOT_OF_INCIDENTS, repeat_options
    from driftwatch.notify.explanation import is_healthy

    advice, missing = finding.advice, finding.diagnosis.missing if finding.diagnosis else ()
    is_bad = not is_healthy(finding)
    if missing and is_bad and not finding.evidence.get("slo_missed"):
        return f"driftwatch evidence {missing[0]}"
    is_priced = advice is not None and (
        advice.basis == "simulation" or advice.action == "insufficient"
    )
    if is_priced or (missing and is_bad):
        return f"driftwatch recommend {finding.target.key.text}{repeat_options(at=at)}"
    firing = [one for one in pages if one.event != "resolved"]
    if firing and is_stored:
        (first, *_), options = firing, repeat_options(without=NOT_OF_INCIDENTS)
        is_new = first.acknowledgement is None and first.severity != "notice"
        return f"{first.links.ack if is_new else f'driftwatch incidents {first.incident}'}{options}"
    return "driftwatch evidence queue" if is_bad else None


def _print(
    scope: TargetWindow,
    finding: Finding,
    window: Window,
    page: Page | None,
    beside: Sequence[str],
    next_command: str | None,
) -> None:
    """The answer on stdout; ``page``: whose texts it has; ``beside``: other open incidents."""
    from driftwatch.collect.identity import ALSO_LABEL
    from driftwatch.notify.explanation import render_explained
    from driftwatch.receivers.stdout import wants_colour

    name, notes = scope.target.key.text, [*beside]
    if (silence := scope.silence) is not None:
        notes.append(f"NO DATA {name}: {silence}")
    if also := scope.target.labels.get(ALSO_LABEL):
        many = also.count("; ") + 1
        scrapes = "1 more scrape" if many == 1 else f"{many} more scrapes"
        notes.append(f"READ ONCE {name}: {scrapes} of it left out: {also}")
    click.echo(
        render_explained(
            finding,
            window.start,
            window.end,
            page=page,
            today=scope.today,
            colour=wants_colour(sys.stdout),
            next_command=next_command,
            piped=not sys.stdout.isatty(),
            notes=notes,
        )
    )
