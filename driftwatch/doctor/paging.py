"""Do pages reach somebody? Receivers, routes, and what the database of ``driftwatch run`` says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path

from driftwatch.doctor.rules import Check, Setting, Status
from driftwatch.incidents.planner import FIRST_RECEIVER, Routes
from driftwatch.model import Severity, TargetKey
from driftwatch.notify.minute_line import speed_line
from driftwatch.numbers import plural
from driftwatch.rulebook.rules import Rule
from driftwatch.settings.problems import UNREAD_FIX, others_can_read
from driftwatch.store.progress import BatchProgress, unwatched
from driftwatch.store.store import Store

_TICKS = "start more driftwatch run, or read in their logs why ticks fail"
_DELIVERIES = "driftwatch doctor --send-test {name}; what it missed is in driftwatch incidents"
# given-up deliveries of so long count
_DEAD_FOR = timedelta(days=7)
_MINUTE, _MOMENT = timedelta(minutes=1), timedelta(minutes=10)
# a minute without a verdict for one of these waits for a baseline; other reasons pass by themselves
_WAITS = frozenset(("learning", "no_baseline", "other_server"))


def speed_waits(store: Store) -> Mapping[TargetKey, str]:
    """Target → what its speed waits for, as its newest minute says; "" where it is judged.

    ``explain`` and the web print the same text. Raises StoreError: the database does not serve.
    """
    reach = store.minutes_reach()
    if reach is None:
        return {}
    last = store.past(reach[1] - _MOMENT, reach[1] + _MOMENT)
    newest = last.sort("end").group_by("instance", "engine").last()
    return {
        TargetKey(row["instance"], row["engine"]): speed_line(row)
        if row["speed_unknown_code"] in _WAITS
        else ""
        for row in newest.iter_rows(named=True)
    }


def database_checks(store: Store, now: datetime) -> Iterator[Check]:
    """A check of each batch where there are several, and of each receiver that missed something.

    Raises StoreError: the database does not serve.
    """
    batches = store.batches()
    silent = set(unwatched(batches, now)) if len(batches) > 1 else set()
    for one in batches if len(batches) > 1 else ():
        where = f"batch {one.number}"
        if one.number in silent:
            what = "nobody has ticked it yet"
            if one.ticked_at is not None:
                what = f"nobody has ticked it for {(now - one.ticked_at) // _MINUTE} min"
            yield Check("MISSING", where, what, ("every rule",), _TICKS)
        else:
            yield Check("ok", where, _reached(one))
    for name, waiting in store.backlog(now - _DEAD_FOR).items():
        if waiting.dead:
            what = f"{plural(waiting.dead, 'message')} given up in 7 days"
            fix = _DELIVERIES.format(name=name)
            yield Check("WARNING", name, what, ("pages to this receiver",), fix)


def _reached(one: BatchProgress) -> str:
    until = one.evaluated_until
    reached = "no minute yet" if until is None else f"evaluated until {until:%H:%M} UTC"
    seconds = "" if one.seconds is None else f", a tick takes {one.seconds:.2f} s"
    return f"{one.targets} targets, {reached}{seconds}"


def receiver_checks(receivers: Mapping[str, Mapping[Setting, str]]) -> list[Check]:
    """Whether somebody gets the pages.

    ``receivers``: name → where its files are named that cannot be read, and why.
    """
    lost = ("pages to this receiver",)
    checks = [
        Check("MISSING", name, f"receiver: {reason}", lost, UNREAD_FIX, setting=location)
        for name, unreadable in receivers.items()
        for location, reason in unreadable.items()
    ]
    fit = (name for name, unreadable in receivers.items() if not unreadable)
    checks += [Check("ok", name, "receiver: its secrets can be read") for name in fit]
    what, fix = "none configured, so pages reach nobody", FIRST_RECEIVER
    setting = ("receivers",)
    return checks or [Check("MISSING", "receivers", what, ("every page",), fix, setting=setting)]


def secret_file_checks(files: Iterable[Path]) -> list[Check]:
    """Secret files that every user of the machine can read."""
    return [
        Check("WARNING", str(file), "other users can read this secret", fix=f"chmod 0400 {file}")
        for file in files
        if others_can_read(file)
    ]


def route_checks(routes: Routes, rules: Iterable[Rule]) -> list[Check]:
    """Whether pages and tickets reach somebody, whatever their labels, and who gets them."""
    checks, taken = [], dict[str, list[str]]()
    severities: tuple[Severity, ...] = ("page", "ticket")
    variants = [one for rule in rules for one in rule.variants]
    for severity in severities:
        rest = routes.of_severity(severity)
        if not any(one.severity == severity for one in variants):
            continue
        if rest.reaches_nobody:
            what = f"{severity}s reach nobody: {rest.why}"
            fix = "put the severity among a receiver's severities"
            status: Status = "MISSING" if severity == "page" else "WARNING"
            lost = (f"every {severity}",)
            checks.append(Check(status, "routes", what, lost, fix, setting=("receivers",)))
        else:
            taken.setdefault(_routes_text(routes, severity), []).append(f"{severity}s")
    texts = (f"{' and '.join(each)}: {text}" for text, each in taken.items())
    return [*checks, *(Check("ok", "routes", text) for text in texts)]


def _routes_text(routes: Routes, severity: Severity) -> str:
    """``chat → hook; every other pool → log, hook``."""
    rules, pools = (
        [n for n, own in of.items() if own] for of in (routes.of_rules, routes.of_pools)
    )
    of = {f"rule {name}": routes.of_alert(severity, rule=name) for name in rules}
    of |= {name: routes.of_alert(severity, pool=name) for name in pools}
    of |= {"every other pool" if of else "every pool": routes.of_severity(severity)}
    return "; ".join(f"{name} → {', '.join(one.receivers)}" for name, one in of.items())
