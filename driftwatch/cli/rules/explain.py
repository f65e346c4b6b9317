"""``driftwatch rules explain``: one rule in words, over the evidence that is there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from driftwatch.cli.history_options import history_options, json_option
from driftwatch.cli.main import EXIT_ANSWERED, EXIT_NO_VERDICT
from driftwatch.cli.options import Progress
from driftwatch.cli.output import print_json, print_wrapped
from driftwatch.errors import DriftwatchError, UsageError

if TYPE_CHECKING:
    import polars as pl

    from driftwatch.cli.history import History
    from driftwatch.pipeline.plan import Plan
    from driftwatch.rulebook.rules import Rule

_WEEK = timedelta(days=7)
# Targets whose week is in memory at once.
_AT_ONCE = 8


@click.command("explain")
@click.argument("name", metavar="RULE")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path), metavar="[FILES...]")
@json_option
@history_options("recordings", "db", "serving")
def command(name: str, files: tuple[Path, ...], as_json: bool, history: History) -> None:
    """Say what a rule asks, how often it held in a week, and how near it came.

    RULE is an alert, with its labels where several rules have that name; it stands in FILES
    (files, folders or globs), without any in the configuration's, else in the shipped rules. The
    week ends with the newest minute of the database; --recording takes the whole recording. Exit
    code 4: there is no minute with a verdict.
    """
    from driftwatch.cli.database import config_here
    from driftwatch.cli.rules.rule_text import document, lines
    from driftwatch.pipeline.rule_history import rule_history

    plan = history.plan_with(files)
    try:
        rule = rule_named(name, plan.rules)
    except UsageError as error:
        if files or history.config_file is not None or config_here() is None:
            raise
        help_text = "driftwatch.yaml is not read with a recording: give -c driftwatch.yaml"
        raise UsageError(error.message, help_text=help_text) from error
    why, rows, fired = None, None, 0
    try:
        rows, fired = _evidence(rule, history, plan)
    except DriftwatchError as error:
        if not history.is_stored or isinstance(error, UsageError):
            raise
        why = str(error)
    past = None if rows is None or rows.is_empty() else rule_history(rule, rows)
    if past is None and why is None:
        why = "no minute of any target is stored"
    if as_json:
        print_json(document(rule, past, fired, why))
    else:
        for text, indent in lines(rule, past, fired, why, stored=history.is_stored):
            print_wrapped(text, indent)
    has_verdict = past is not None and past.judged > 0
    click.get_current_context().exit(EXIT_ANSWERED if has_verdict else EXIT_NO_VERDICT)


def rule_named(name: str, rules: Sequence[Rule]) -> Rule:
    """The rule of an id, or the only one of an alert.

    Raises UsageError: there is none, or more than one.
    """
    named = [rule for rule in rules if rule.id == name] or [r for r in rules if r.alert == name]
    if not named:
        raise _no_such_rule(name, rules)
    if len(named) > 1:
        ids = ", ".join(f"'{rule.id}'" for rule in named)
        raise UsageError(f"{name} is {len(named)} rules", help_text=f"name one: {ids}")
    return named[0]


def _no_such_rule(name: str, rules: Sequence[Rule]) -> UsageError:
    """The error, with the nearest name, else all."""
    from driftwatch.yaml_models import near

    help_text = near(name, {*(r.id for r in rules), *(r.alert for r in rules)})
    listed = f"rules: {', '.join(dict.fromkeys(rule.alert for rule in rules))}"
    return UsageError(f"there is no rule {name}", help_text=help_text or listed)


def _evidence(rule: Rule, history: History, plan: Plan) -> tuple[pl.DataFrame, int]:
    """The rule's columns of a week, or of all of a recording, and how many incidents fired."""
    import polars as pl

    from driftwatch.cli.database import last_scraped
    from driftwatch.cli.proposal_notice import TakenProposals, with_proposals
    from driftwatch.pipeline.explain import reference_of
    from driftwatch.pipeline.rule_history import slim
    from driftwatch.pipeline.stored_evidence import TEN_MINUTES, by_clock, stored_evidence
    from driftwatch.pipeline.stored_state import stored_targets

    with history.store(replace(with_proposals(plan), simulations=0)) as store:
        until = last_scraped(store)
        since = until - _WEEK
        if not history.is_stored and (reach := store.minutes_reach()) is not None:
            since = reach[0]
            TakenProposals().note_stored(store, until).tell()
        targets = plan.assign(stored_targets(store))
        gpus = store.gpus(until - timedelta(hours=1), until)
        reference = reference_of(store, targets, plan, gpus=gpus)
        keys, parts, progress = sorted(targets), [], Progress("reading")
        for first in range(0, len(keys), _AT_ONCE):
            some = {key: targets[key] for key in keys[first : first + _AT_ONCE]}
            rows = store.past(since, until, some)
            if len(rows):
                windows = by_clock(rows, TEN_MINUTES)
                parts.append(slim(rule, stored_evidence(rows, windows, some, plan, reference)))
            progress(first + len(some), len(keys))
        progress.close()
        incidents = store.incidents(since=since, limit=100_000)
    fired = [i for i in incidents if i.rule == rule.id and i.firing_at is not None]
    rows = pl.concat(parts) if parts else pl.DataFrame()
    return rows, sum(1 for i in fired if i.firing_at is not None and i.firing_at >= since)
