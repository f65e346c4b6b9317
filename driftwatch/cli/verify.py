"""``driftwatch verify``: did a change work? Matched traffic before and after it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import click

from driftwatch.cli.history import History
from driftwatch.cli.main import EXIT_NO_VERDICT
from driftwatch.cli.options import (
    history_options,
    json_option,
    on_its_day,
    refuse_file,
)
from driftwatch.cli.printer import id_text, print_json, print_table, print_wrapped, time_text
from driftwatch.clock import SystemClock
from driftwatch.errors import NoVerdict
from driftwatch.model import Slo
from driftwatch.notify.verification_line import (
    difference_text,
    minutes_text,
    value_text,
    verification_line,
)
from driftwatch.numbers import moment
from driftwatch.verify.figures import WORDS

if TYPE_CHECKING:
    from driftwatch.pipeline.plan import Plan
    from driftwatch.verify.verification import Effect, Verification

_HEADER = ("ID", "VERDICT", "SINCE UTC", "SERVER", "CHANGE")
_FIGURES = ("figure", "before", "after", "limits of the difference", "forecast")
_EXIT = {"PASS": 0, "FAIL": 1}
_LISTED_FOR = timedelta(days=56)  # as far back as the weekly report's track record
_EVER = timedelta(days=400)


@click.command(name="verify")
@click.argument("target", metavar="[SERVER|POOL]", required=False)
@json_option
@history_options("at", "recordings", "db", "pools")
def command(target: str | None, as_json: bool, history: History) -> int:
    """Say whether a change of a setting or a release worked, at matched traffic.

    Without a name: every verification of the last eight weeks. With it: the newest one of that
    server, of a pool that of each server. With --recording: the changes in it.

    A list has id, verdict, time of the change, server and change. Exit code 0: PASS, or every
    verification was listed; 1: FAIL; 4: INCONCLUSIVE, or the verification has not ended.
    """
    if target is not None:
        refuse_file(target, "server")
    verifications, lines = _verifications(target, history)
    is_list = target is None and history.is_stored
    last, now = verifications[0] if len(verifications) == 1 else None, SystemClock().now()
    if as_json:
        every = [one.document() for one in verifications]
        list_document = {"schema_version": 1, "verifications": every}
        print_json(list_document if is_list or last is None else last.document())
    elif last is not None and not is_list:
        print_verification(last, now)
    elif verifications:
        for line in lines:
            print_wrapped(line)
        print_verifications(verifications, now)
    else:
        click.echo("no change of a setting or a release in the last eight weeks", err=True)
    if is_list or (target is None and last is None):
        return 0
    codes = [_EXIT.get(one.verdict, EXIT_NO_VERDICT) for one in verifications]
    return 1 if 1 in codes else max(codes)


def _verifications(name: str | None, history: History) -> tuple[list[Verification], list[str]]:
    """What the store says; of a pool the newest of each server, with what came of each change."""
    from driftwatch.cli.database import last_scraped
    from driftwatch.cli.replay_summary import with_proposals
    from driftwatch.cli.target import members_of
    from driftwatch.pipeline.minutes import PastMinutes
    from driftwatch.pipeline.stored_state import stored_targets
    from driftwatch.verify.before_after import judged_at

    # what was advised is what is verified
    with history.store(with_proposals(history.plan)) as store:
        last = last_scraped(store)
        end = min(on_its_day(history.at, last) or last, last)
        plan, past = history.plan_of(store), PastMinutes(store)
        targets = plan.assign(stored_targets(store))
        members = None if name is None else members_of(name, targets)
        since = end - (_LISTED_FOR if members is None else _EVER)
        verifications = store.verifications(since, end + timedelta(seconds=1))
        if members is not None:
            newest = {one.key: one for one in verifications if one.key in members}
            verifications = list(newest.values())
        if not verifications and (name is not None or not history.is_stored):
            where = name or (history.recordings or ("the history",))[0]
            raise NoVerdict(
                f"no change of a setting or a release is known in {where}",
                help_text="driftwatch explain SERVER --baseline FROM..TO compares two stretches",
            )
        if members is None:
            return verifications, []
        # one that is open is judged by the minutes so far
        judged = [
            judged_at(one, past.minutes, end, plan.slo_of(targets[one.key]))
            if one.verdict == "open" and one.key in targets
            else one
            for one in verifications
        ]
        return judged, list(_of_pools(judged, plan))


def _of_pools(verifications: Sequence[Verification], plan: Plan) -> Iterator[str]:
    """What came of each change of a pool, as the weekly report says it."""
    from driftwatch.notify.rollout import outcome_text, rollouts

    slos = {pool.name: pool.slo for pool in plan.every_pool}
    for rollout in rollouts(verifications):
        pool = rollout[0].pool
        yield f"{pool}: {outcome_text(rollout, slos.get(pool, Slo()).share)}"


def print_verifications(verifications: Sequence[Verification], now: datetime) -> None:
    """A row each."""
    rows = []
    for one in verifications:
        at = time_text(one.change.at, now)
        rows.append((id_text(one.id), one.verdict, at, one.key.text, _changed(one)))
    print_table(_HEADER, rows)


def _changed(one: Verification) -> str:
    what = one.change.what.items()
    return ", ".join(f"{name} {was} → {now}" for name, (was, now) in what) or "no known change"


def print_verification(one: Verification, now: datetime) -> None:
    """The verdict, what changed, what was compared, the figures, the notes."""
    print_wrapped(f"{one.verdict}: {verification_line(one, now.date())}")
    promise = "" if one.forecast is not None else "; driftwatch had not advised it"
    since = moment(one.change.at, now.date())
    print_wrapped(f"{one.key.text}: {_changed(one)} at {since}{promise}")
    if one.effects:
        print_wrapped(minutes_text(*one.matched_minutes))
        print_table(_FIGURES, [_row(effect) for effect in one.effects], headed=True)
    for note in one.notes:
        print_wrapped(note)
    if any(effect.low <= -effect.before < 0 < effect.after for effect in one.effects):
        print_wrapped("a lower limit of minus the mean before: too few minutes for a closer one")


def _row(effect: Effect) -> tuple[str, ...]:
    return (
        WORDS.get(effect.name, effect.name),
        value_text(effect.before, effect),
        value_text(effect.after, effect),
        difference_text(effect),
        "not forecast" if effect.forecast is None else value_text(effect.forecast, effect),
    )
