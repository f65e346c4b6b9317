"""``driftwatch verify``: did a change work? Matched traffic before and after it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import click

from driftwatch.cli.history import History
from driftwatch.cli.history_options import history_options, json_option
from driftwatch.cli.main import EXIT_NO_VERDICT
from driftwatch.cli.options import SloText, Span
from driftwatch.cli.printer import id_text, print_json, print_table, print_wrapped, time_text
from driftwatch.clock import SystemClock
from driftwatch.errors import NoVerdict, UsageError
from driftwatch.model import TargetKey
from driftwatch.notify.verification_line import difference_text, effect_text, value_text
from driftwatch.numbers import moment
from driftwatch.verify.figures import WORDS

if TYPE_CHECKING:
    from driftwatch.model import Slo, Target
    from driftwatch.pipeline.explain import Window
    from driftwatch.pipeline.plan import Plan
    from driftwatch.verify.verification import Effect, Verification

_HEADER = ("ID", "VERDICT", "SINCE UTC", "TARGET", "CHANGE")
_FIGURES = ("figure", "before", "after", "difference", "forecast")
_WORKED = {
    "PASS": "IT WORKED, same traffic before and after",
    "FAIL": "IT DID NOT WORK, same traffic before and after",
}
_EXIT = {"PASS": 0, "FAIL": 1}
_LISTED_FOR = timedelta(days=56)  # as far back as the weekly report's track record
_EVER = timedelta(days=400)


@click.command(name="verify")
@click.argument("target", required=False)
@click.option("--before", type=Span(), help="Window before the change; needs --after.")
@click.option("--after", type=Span(), help="Window after the change; the settings need not differ.")
@click.option("--slo", type=SloText(), help="Latency targets to judge by: ttft=1s,tpot=50ms.")
@json_option
@history_options("at", "recordings", "db", "pools")
def command(
    target: str | None,
    before: Window | None,
    after: Window | None,
    slo: Slo | None,
    as_json: bool,
    history: History,
) -> int:
    """Say whether a change of a setting or a release worked, at matched traffic.

    Without TARGET: every verification of the last eight weeks. With it: the newest one of that
    target. With --before and --after: those two windows. With --recording: the changes in it.

    A list has id, verdict, time of the change, target and change. Exit code 0: PASS, or a list was
    printed; 1: FAIL; 4: INCONCLUSIVE, or the verification has not ended.
    """
    if (before is None) != (after is None):
        raise UsageError("--before and --after belong together")
    if slo is not None and target is None and before is None and history.is_stored:
        raise UsageError("--slo judges one change", help_text="driftwatch verify TARGET --slo …")
    windows = None if before is None or after is None else (before, after)
    verifications = _verifications(target, windows, slo, history)
    many = target is None and before is None
    many = many and (history.is_stored or len(verifications) != 1)
    last, now = (None if many else verifications[-1]), SystemClock().now()
    if as_json and last is None:
        documents = [one.document() for one in verifications]
        print_json({"schema_version": 1, "verifications": documents})
    elif as_json and last is not None:
        print_json(last.document())
    elif last is not None:
        print_verification(last, now)
    elif verifications:
        print_verifications(verifications, now)
    else:
        click.echo("no change of a setting or a release in the last eight weeks", err=True)
    return 0 if last is None else _EXIT.get(last.verdict, EXIT_NO_VERDICT)


def _configured_slo(plan: Plan, target: Target) -> Slo | None:
    """Latency targets of the target's pool; None where none are configured."""
    slo = plan.pool_of(target).slo
    return slo if slo.ttft_seconds is not None or slo.tpot_seconds is not None else None


def _verifications(
    name: str | None,
    windows: tuple[Window, Window] | None,
    slo: Slo | None,
    history: History,
) -> list[Verification]:
    """What the store says, or two named stretches of it compared."""
    from driftwatch.cli.database import last_scraped
    from driftwatch.cli.replay_summary import with_proposals
    from driftwatch.pipeline.explain import target_named
    from driftwatch.pipeline.minutes import PastMinutes
    from driftwatch.pipeline.stored_state import stored_targets
    from driftwatch.verify.before_after import compared, judged_at

    plan, limit = history.plan, 8 if sys.stderr.isatty() else None
    # what was advised is what is verified; nothing of it is read where two stretches are compared
    with history.store(None if windows else with_proposals(plan)) as store:
        last = last_scraped(store)
        end = min(history.at or last, last)
        past, targets = PastMinutes(store), plan.assign(stored_targets(store))
        target = target_named(name, targets, limit) if windows or name is not None else None
        asked, slo = slo, slo or (None if target is None else _configured_slo(plan, target))
        if windows is not None and target is not None:
            before, after = windows
            ran = store.past(before.start, after.end)
            spans = (before.start, before.end), (after.start, after.end)
            return [compared(target, past.minutes, *spans, slo, rows=ran)]
        key = None if target is None else target.key
        since = end - (_LISTED_FOR if key is None else _EVER)
        verifications = store.verifications(since, end + timedelta(seconds=1), key)
        if not verifications and (key is not None or not history.is_stored):
            where = (history.recordings or ("the history",))[0]
            raise NoVerdict(
                f"no setting and no release is known to have changed in {where}"
                if key is None
                else f"no change of {key.text} is known",
                help_text="--before FROM..TO --after FROM..TO compares two stretches",
            )
        if asked is None and (key is None or verifications[-1].verdict != "open"):
            return verifications
        # a verdict has the targets of its time: others judge its minutes anew
        return [
            judged_at(one, past.minutes, one.closed_at or end, slo) for one in verifications[-1:]
        ]


def print_verifications(verifications: Sequence[Verification], now: datetime) -> None:
    """A row each."""
    rows = []
    for one in verifications:
        at, of = time_text(one.change.at, now), TargetKey(one.instance, one.engine)
        rows.append((id_text(one.id), one.verdict, at, of.text, _changed(one)))
    print_table(_HEADER, rows)


def _changed(one: Verification) -> str:
    what = one.change.what.items()
    return ", ".join(f"{name} {was} → {now}" for name, (was, now) in what) or "no known change"


def print_verification(one: Verification, now: datetime) -> None:
    """The verdict, what changed, what was compared, the figures, the notes."""
    closed = "" if one.closed_at is None else f" {moment(one.closed_at, now.date())}"
    worked = _WORKED.get(one.verdict) if one.effects else None
    answer = one.reason if worked is None else f"{worked}: {effect_text(one.effects[0])}"
    print_wrapped(f"{one.verdict}{closed}: {answer}")
    since, of = moment(one.change.at, now.date()), TargetKey(one.instance, one.engine)
    print_wrapped(f"{of.text}: {_changed(one)} at {since}")
    if worked is not None:
        print_wrapped(f"why: {one.reason}")
    if one.forecast is None:
        print_wrapped("forecast: none, driftwatch had not advised this change")
    if one.effects:
        before, after = one.matched_minutes
        print_wrapped(
            f"compared: {before} min before with {after} min after, at the same lengths and load; "
            "means and the limits of their difference"
        )
        print_table(_FIGURES, [_row(effect) for effect in one.effects], headed=True)
    for note in one.notes:
        print_wrapped(note)
    if any(effect.low <= -effect.before < 0 < effect.after for effect in one.effects):
        print_wrapped("a lower limit of minus the mean before: too few minutes to bound it closer")


def _row(effect: Effect) -> tuple[str, ...]:
    return (
        WORDS.get(effect.name, effect.name),
        value_text(effect.before, effect),
        value_text(effect.after, effect),
        difference_text(effect),
        "not forecast" if effect.forecast is None else value_text(effect.forecast, effect),
    )
