"""``driftwatch verify``: did a change work? Matched traffic before and after it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from driftwatch.cli.history import History
from driftwatch.cli.history_options import history_options, json_option
from driftwatch.cli.main import EXIT_NO_VERDICT
from driftwatch.cli.options import SloText, Span
from driftwatch.cli.printer import id_text, print_json, table_lines, time_text
from driftwatch.clock import SystemClock
from driftwatch.errors import NoVerdict, UsageError
from driftwatch.notify.layout import wrap
from driftwatch.notify.verification_line import difference_text, effect_text, value_text
from driftwatch.numbers import moment
from driftwatch.verify.figures import WORDS

if TYPE_CHECKING:
    from driftwatch.model import Slo, Target
    from driftwatch.pipeline.explain import Window
    from driftwatch.pipeline.plan import Plan
    from driftwatch.verify.verification import Effect, Verification

HEADER = ("ID", "VERDICT", "SINCE UTC", "TARGET", "CHANGE")
_WIDTH = 80


def target_of(verification: Verification) -> str:
    """``host:8000``, or ``host:8000/1`` for another engine than 0."""
    from driftwatch.model import TargetKey

    return TargetKey(verification.instance, verification.engine).text


def changed_text(verification: Verification) -> str:
    """What changed."""
    what = verification.change.what.items()
    return ", ".join(f"{name} {was} → {now}" for name, (was, now) in what) or "no known change"


def one_in_full(verification: Verification, now: datetime) -> Iterator[str]:
    """Lines of one verification, at most 80 columns on a terminal; piped not cut."""
    for line in _lines(verification, now):
        if sys.stdout.isatty():
            yield from (short for short in wrap(line, _WIDTH, "  "))
        else:
            yield line


_WORKED = {
    "PASS": "IT WORKED, same traffic before and after",
    "FAIL": "IT DID NOT WORK, same traffic before and after",
}


def _lines(verification: Verification, now: datetime) -> Iterator[str]:
    effects = verification.effects
    closed = verification.closed_at
    head = f"{verification.verdict}{'' if closed is None else f' {moment(closed, now.date())}'}: "
    worked = _WORKED.get(verification.verdict)
    if worked is None or not effects:
        yield f"{head}{verification.reason}"
    else:
        yield f"{head}{worked}: {effect_text(effects[0])}"
    since = moment(verification.change.at, now.date())
    yield f"{target_of(verification)}: {changed_text(verification)} at {since}"
    if worked is not None and effects:
        yield f"why: {verification.reason}"
    if verification.forecast is None:
        yield "forecast: none, driftwatch had not advised this change"
    rows = [_row(effect) for effect in effects]
    if rows:
        minutes_before, minutes_after = verification.matched_minutes
        yield (
            f"compared: {minutes_before} min before with {minutes_after} min after, at the same "
            "lengths and load; means and the limits of their difference"
        )
        header = ("figure", "before", "after", "difference", "forecast")
        yield from table_lines(header, rows, headed=True)
    yield from verification.notes
    if any(effect.low <= -effect.before < 0 < effect.after for effect in verification.effects):
        yield "a lower limit of minus the mean before: too few minutes to bound it closer"


def _row(effect: Effect) -> tuple[str, ...]:
    return (
        WORDS.get(effect.name, effect.name),
        value_text(effect.before, effect),
        value_text(effect.after, effect),
        difference_text(effect),
        "not forecast" if effect.forecast is None else value_text(effect.forecast, effect),
    )


def listed(verifications: Sequence[Verification], now: datetime) -> Iterator[str]:
    """A line each: id, verdict, since, target, change; whole rows when piped."""
    rows = [
        (
            *(id_text(one.id), one.verdict, time_text(one.change.at, now)),
            *(target_of(one), changed_text(one)),
        )
        for one in verifications
    ]
    return table_lines(HEADER, rows)


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
) -> None:
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
    if many and (history.is_stored or len(verifications) != 1):
        _print_list(verifications, as_json)
    else:
        last = verifications[-1]
        _print(last.document(), one_in_full(last, SystemClock().now()), as_json)
        click.get_current_context().exit(_EXIT.get(last.verdict, EXIT_NO_VERDICT))


def configured_slo(plan: Plan, target: Target) -> Slo | None:
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
        asked, slo = slo, slo or (None if target is None else configured_slo(plan, target))
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


def _print(document: Mapping[str, Any], lines: Iterable[str], as_json: bool) -> None:
    if as_json:
        print_json(document)
        return
    for line in lines:
        click.echo(line)


def _print_list(verifications: Sequence[Verification], as_json: bool) -> None:
    documents = [one.document() for one in verifications]
    lines = listed(verifications, SystemClock().now())
    _print({"schema_version": 1, "verifications": documents}, lines, as_json)
    if not verifications and not as_json:
        click.echo("no change of a setting or a release in the last eight weeks", err=True)
