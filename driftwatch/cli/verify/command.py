"""``driftwatch verify``: did a change work? Matched traffic before and after it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from driftwatch.cli.history import History
from driftwatch.cli.history_options import history_options, json_option
from driftwatch.cli.main import EXIT_NO_VERDICT
from driftwatch.cli.options import Span
from driftwatch.cli.output import print_json
from driftwatch.cli.recommend.options import SloText
from driftwatch.clock import SystemClock
from driftwatch.errors import NoVerdict, UsageError

if TYPE_CHECKING:
    from driftwatch.model import Slo, Target
    from driftwatch.pipeline.explain import Window
    from driftwatch.pipeline.plan import Plan
    from driftwatch.verify.verification import Verification

_EXIT = {"PASS": 0, "FAIL": 1}
_LISTED_FOR = timedelta(days=56)  # as far back as the weekly report's track record
_EVER = timedelta(days=400)


@click.command(name="verify")
@click.argument("target", required=False)
@click.option("--before", type=Span(), help="Window before the change; needs --after.")
@click.option("--after", type=Span(), help="Window after the change; the settings need not differ.")
@click.option(
    "--record", is_flag=True, help="Print the track record: forecasts beside measurements."
)
@click.option("--slo", type=SloText(), help="Latency targets to judge by: ttft=1s,tpot=50ms.")
@json_option
@history_options("at", "recordings", "db", "serving")
def command(
    target: str | None,
    before: Window | None,
    after: Window | None,
    record: bool,
    slo: Slo | None,
    as_json: bool,
    history: History,
) -> None:
    """Say whether a change of a setting or a release worked, at matched traffic.

    Without TARGET: every verification of the last eight weeks. With it: the newest one of that
    target. With --before and --after: those two windows. With --recording: the changes in it.

    A list has id, verdict, time of the change, target and change; piped also when it closed, and
    the reason. Exit code 0: PASS, or a list was printed; 1: FAIL; 4: INCONCLUSIVE,
    or the verification has not ended.
    """
    from driftwatch.cli.verify.text import one_in_full, record_document, record_lines
    from driftwatch.verify.verification import VERIFICATION, track_record

    if (before is None) != (after is None):
        raise UsageError("--before and --after belong together")
    windows = None if before is None or after is None else (before, after)
    verifications = _verifications(target, windows, slo, record, history)
    many = target is None and before is None
    if record:
        forecasts = track_record(verifications)
        _print(record_document(forecasts), record_lines(forecasts), as_json)
    elif many and (history.is_stored or len(verifications) != 1):
        _print_list(verifications, as_json)
    else:
        last = verifications[-1]
        lines = one_in_full(last, SystemClock().now())
        _print(VERIFICATION.document(last), lines, as_json)
        click.get_current_context().exit(_EXIT.get(last.verdict, EXIT_NO_VERDICT))


def configured_slo(plan: Plan, target: Target) -> Slo | None:
    """Latency targets of the target's pool; None where none are configured."""
    slo = plan.pool_of(target).slo
    return slo if slo.ttft_seconds is not None or slo.tpot_seconds is not None else None


def _verifications(
    name: str | None,
    windows: tuple[Window, Window] | None,
    slo: Slo | None,
    record: bool,
    history: History,
) -> list[Verification]:
    """What the store says, or two named stretches of it compared."""
    from driftwatch.cli.database import last_scraped
    from driftwatch.cli.proposal_notice import with_proposals
    from driftwatch.pipeline.explain import target_named
    from driftwatch.pipeline.minutes import PastMinutes
    from driftwatch.pipeline.stored_state import stored_targets
    from driftwatch.service.requested_verifications import asked_now, compared

    plan, limit = history.plan, 8 if sys.stderr.isatty() else None
    # what was advised is what is verified; nothing of it is read where two stretches are compared
    with history.store(None if windows else with_proposals(plan)) as store:
        last = last_scraped(store)
        end = min(history.at or last, last)
        past, targets = PastMinutes(store=store), plan.assign(stored_targets(store))
        target = target_named(name, targets, limit) if windows or name is not None else None
        slo = slo or (None if target is None else configured_slo(plan, target))
        if windows is not None and target is not None:
            before, after = windows
            ran = store.past(before.start, after.end)
            return [compared(target, past, before, after, slo, rows=ran)]
        key = None if target is None else target.key
        since = end - (_EVER if record or key is not None else _LISTED_FOR)
        verifications = store.verifications(since, end + timedelta(seconds=1), key)
        if not verifications and (key is not None or not history.is_stored):
            where = (history.recordings or ("the history",))[0]
            raise NoVerdict(
                f"no setting and no release is known to have changed in {where}"
                if key is None
                else f"no change of {key.text} is known",
                help_text="--before FROM..TO --after FROM..TO compares two stretches",
            )
        if key is not None and verifications[-1].verdict == "open":
            verifications[-1] = asked_now(verifications[-1], past, end, slo)
        return verifications


def _print(document: Mapping[str, Any], lines: Iterable[str], as_json: bool) -> None:
    if as_json:
        print_json(document)
        return
    for line in lines:
        click.echo(line)


def _print_list(verifications: Sequence[Verification], as_json: bool) -> None:
    from driftwatch.cli.verify.text import listed
    from driftwatch.verify.verification import VERIFICATION

    documents = [VERIFICATION.document(one) for one in verifications]
    lines = filter(None, listed(verifications, SystemClock().now()))
    _print({"schema_version": 1, "verifications": documents}, lines, as_json)
    if not verifications and not as_json:
        click.echo("no change of a setting or a release in the last eight weeks", err=True)
