"""``driftwatch verify``: did a change work? Matched traffic before and after it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import click

from driftwatch.cli.history import History
from driftwatch.cli.main import EXIT_NO_VERDICT
from driftwatch.cli.options import (
    history_options,
    json_option,
    on_its_day,
    option,
    refuse_file,
)
from driftwatch.cli.printer import (
    id_text,
    print_json,
    print_note,
    print_table,
    print_wrapped,
    time_text,
)
from driftwatch.clock import SystemClock
from driftwatch.errors import NoVerdict, UsageError
from driftwatch.model import Slo
from driftwatch.notify.rollout import IN_PART, OUTCOMES, outcome_of, outcome_text, rollouts
from driftwatch.notify.verification_line import (
    difference_text,
    minutes_text,
    value_text,
    verification_line,
)
from driftwatch.numbers import clean, knob, moment
from driftwatch.verify.figures import WORDS
from driftwatch.verify.verdict import SLOWER

if TYPE_CHECKING:
    from driftwatch.pipeline.plan import Plan
    from driftwatch.verify.verification import Effect, Verification

_HEADER = ("ID", "VERDICT", "SINCE UTC", "SERVER", "CHANGE")
_FIGURES = ("figure", "before", "after", "limits of the difference", "forecast")
_EXIT = {OUTCOMES["PASS"]: 0, OUTCOMES["FAIL"]: 1, IN_PART: 1, SLOWER: 1}  # else no verdict
_LISTED_FOR = timedelta(days=56)  # as far back as the weekly report's track record
_EVER, _DAY = timedelta(days=400), timedelta(days=1)


@click.command(name="verify")
@click.argument("target", metavar="[SERVER|POOL|ID]", required=False)
@option(
    "--setting settings",
    str,
    "Record first what SERVER or POOL runs since its restart at --at: max_num_seqs=64; repeat it "
    "for several.",
    multiple=True,
    metavar="KNOB=VALUE",
)
@option("--by", str, "Who confirms --setting; default: this user.", metavar="NAME")
@json_option
@history_options("at", "recordings", "db", "pools")
def command(
    target: str | None, settings: tuple[str, ...], by: str | None, as_json: bool, history: History
) -> int:
    """Say whether a change of a setting or a release worked, at matched traffic.

    Without a name: every verification of the last eight weeks. With it: the newest one of that
    server, of a pool that of each server; with an ID that one. With --recording: the changes in it.

    No metric shows a setting that nobody wrote into driftwatch.yaml. --setting keeps it with who
    and when; verify, explain, recommend and the report read the stored minutes since that restart
    with it. For the minutes to come, correct driftwatch.yaml.

    A list has id, verdict, time of the change, server and change. Exit code 0: it worked (of a
    pool: on most of its servers), or all were listed; 1: it did not, or only in part; 4: it cannot
    be judged, it has not ended, or there is no usable scrape.
    """
    if target is not None:
        refuse_file(target, "server")
    recorded: list[str] = []
    if settings:
        if not (recorded := _confirm(target, settings, by, history)):
            return 0
        history = replace(history, at=None)
    verifications, outcomes = _verifications(target, history, recorded)
    is_list = target is None and history.is_stored
    last, now = verifications[0] if len(verifications) == 1 else None, SystemClock().now()
    if as_json:
        every = [one.document() for one in verifications]
        list_document = {"schema_version": 1, "verifications": every}
        print_json(list_document if is_list or last is None else last.document())
    elif last is not None and not is_list:
        print_verification(last, now)
    elif verifications:
        for _, text in outcomes:
            print_wrapped(text)
        print_verifications(verifications, now)
    else:
        click.echo("no change of a setting or a release in the last eight weeks", err=True)
    if is_list or (target is None and last is None):
        return 0
    words = [word for word, _ in outcomes] or [OUTCOMES[one.verdict] for one in verifications]
    codes = [_EXIT.get(word, EXIT_NO_VERDICT) for word in words]
    return 1 if 1 in codes else max(codes)


def _confirm(
    name: str | None, texts: tuple[str, ...], by: str | None, history: History
) -> list[str]:
    """Keep what servers run since a restart, and open the verifications of what that changed: their
    ids.

    Raises UsageError: an option is missing or cannot be, or no server restarted then.
    """
    from driftwatch.cli.database import last_scraped, person
    from driftwatch.cli.recommend import knob_values
    from driftwatch.cli.target import members_of
    from driftwatch.knobs import COLUMN_KNOBS, refusal
    from driftwatch.pipeline.confirmed import NotRestarted, confirm_settings, verification_of
    from driftwatch.pipeline.stored_state import stored_targets

    values = knob_values(texts, "--setting", COLUMN_KNOBS)
    if name is None or history.at is None or not history.is_stored:
        raise UsageError(
            "--setting needs SERVER or POOL and the restart, and a database",
            help_text="e.g. driftwatch verify rag-8b --setting max_num_seqs=64 --at 11:00",
        )
    if (why := refusal(values)) is not None:
        raise UsageError(f"--setting: {why}")
    who, now, others, ids = person(by), SystemClock().now(), list[NotRestarted](), list[str]()
    text, wrong = ", ".join(f"{name} {knob(value)}" for name, value in values.items()), set[str]()
    with history.store() as store, store.one_transaction():
        last = last_scraped(store)
        plan, at = history.plan_of(store), on_its_day(history.at, last) or last
        members = members_of(name, plan.assign(stored_targets(store)))
        for target in members.values():
            try:
                note = confirm_settings(store, target, values, at, who, now)
            except NotRestarted as error:
                others.append(error)
                continue
            store.note_action("note", who, now, subject=note.text())
            one = verification_of(store, note, target, plan.slo_of(target), last)
            if one is not None:
                store.write_verification(one)
                ids.append(one.id)
            same = "" if one is not None else ", as before"
            since = moment(note.since, None)
            print_note(f"recorded: {target.key.text} runs {text} since {since}{same} (says {who})")
            serving = plan.serving_of(target)
            wrong |= {
                f"correct serving.{name} of pool {target.pool}: {set_now.value:g} is configured"
                for name, value in values.items()
                if (set_now := serving.setting(name)) is not None and set_now.value != value
            }
        if len(others) == len(members):
            raise others[0]
    for note_text in [*(one.message for one in others), *sorted(wrong)]:
        print_note(note_text)
    return ids


def _verifications(
    name: str | None, history: History, recorded: Sequence[str]
) -> tuple[list[Verification], list[tuple[str, str]]]:
    """What the store says; of a pool the newest of each server, with what came of each change: in
    a word, and in a line. ``recorded``: ids of those just recorded, and no others.
    """
    from driftwatch.cli.database import last_scraped
    from driftwatch.cli.replay_summary import with_proposals
    from driftwatch.cli.target import members_of
    from driftwatch.pipeline.minutes import PastMinutes
    from driftwatch.pipeline.stored_state import stored_targets
    from driftwatch.verify.before_after import judge_at

    # what was advised is what is verified
    with history.store(with_proposals(history.plan)) as store:
        last = last_scraped(store)
        end = min(on_its_day(history.at, last) or last, last)
        plan, past = history.plan_of(store), PastMinutes(store)
        targets = plan.assign(stored_targets(store))
        since = end - (_LISTED_FOR if name is None else _EVER)
        verifications = store.verifications(since, end + timedelta(seconds=1))
        ids = (*recorded, *([name] if name and len(name) >= 8 else []))
        of_id = [v for v in verifications if v.id.startswith(ids)]
        members = None if name is None else members_of(name, targets) if not of_id else {}
        if of_id:
            verifications = of_id
        elif members is not None:
            newest = {one.key: one for one in verifications if one.key in members}
            verifications = list(newest.values())
        if not verifications and not (store.past(end - _DAY, end)["scrapes"] > 0).any():
            raise NoVerdict(
                f"no usable scrape in the day up to {moment(end, None)}",
                help_text="driftwatch doctor says what is missing",
            )
        if not verifications and (name is not None or not history.is_stored):
            where = name or (history.recordings or ("the history",))[0]
            raise NoVerdict(
                f"no change of a setting or a release found in {where}",
                help_text="a restart that no metric explains? driftwatch verify SERVER|POOL "
                "--setting max_num_seqs=64 --at TIME records what it brought",
            )
        if members is None:
            return verifications, []
        # one that is open is judged by the minutes so far
        judged = [
            judge_at(one, past.minutes, end, plan.slo_of(targets[one.key]))
            if (one.closed_at is None or one.closed_at > end) and one.key in targets
            else one
            for one in verifications
        ]
        return judged, list(_of_pools(judged, plan))


def _of_pools(verifications: Sequence[Verification], plan: Plan) -> Iterator[tuple[str, str]]:
    """What came of each change of a pool, as the weekly report says it."""
    slos = {pool.name: pool.slo for pool in plan.every_pool}
    for rollout in rollouts(verifications):
        pool = rollout[0].pool
        share = slos.get(pool, Slo()).share
        yield outcome_of(rollout, share), f"{pool}: {outcome_text(rollout, share)}"


def print_verifications(verifications: Sequence[Verification], now: datetime) -> None:
    """A row each."""
    rows = []
    for one in verifications:
        at = time_text(one.change.at, now)
        rows.append((id_text(one.id), one.verdict, at, one.key.text, _changed(one)))
    print_table(_HEADER, rows)


def _changed(one: Verification) -> str:
    what = one.change.what.items()
    text = ", ".join(f"{name} {was} → {now}" for name, (was, now) in what) or "no known change"
    return f"{text} (says {clean(one.confirmed_by)})" if one.confirmed_by else text


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
