"""Doctor, from the database alone: which rules can fire, what is missing, what fixes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Literal

from pydantic import Field

from driftwatch.doctor.checks import Check, Checkup
from driftwatch.doctor.checkup import Inputs, checkup
from driftwatch.doctor.waits import baseline_waits
from driftwatch.model import Target, TargetKey
from driftwatch.notify.numbers import clean, cut
from driftwatch.pipeline.stored_state import newest
from driftwatch.web.page import Page, Part, View, Visit
from driftwatch.web.paging import Paged, Slice, address, part_of

PATH = "/doctor"
_ORDER = ("MISSING", "WRONG", "WARNING", "LEARNING", "OFF", "ok")
_RECENT = timedelta(minutes=5)
# of more targets doctor takes longer than a page may: then some of each pool are checked
_MOST_TARGETS, _LONGEST = 200, 400
_CHECKED_OF_MANY, _RECENT_OF_MANY = 60, timedelta(minutes=1)
_NOT_CHECKED = (
    "whether the sources answer now, how often they are scraped, and their clocks",
    "what contradicts in the configuration's serving settings",
    "whether receivers' secrets can be read, and whether routes reach somebody",
)


class DoctorQuery(Paged):
    """Which checks are listed."""

    status: Literal["MISSING", "WRONG", "WARNING", "LEARNING", "OFF", "ok", ""] = ""
    pool: Annotated[str, Field(max_length=300)] = ""


class CheckRow(Part):
    """One check."""

    status: str
    where: str = Field(description="target, pool or source")
    what: str
    disables: tuple[str, ...] = Field(description="rules or answers that this costs")
    fix: str | None


class DoctorView(View):
    """The checks, troubles first."""

    is_ready: bool | None = Field(description="null: no verdict, no target is stored")
    verdict: str
    at: datetime | None = Field(description="of the newest scrape; null: there is none")
    is_stale: bool
    targets: int
    checked_targets: int
    counts: dict[str, int] = Field(description="checks by status")
    paths: dict[str, str] = Field(description="address of the checks of one status")
    rows: tuple[CheckRow, ...]
    part: Slice
    query: DoctorQuery
    not_checked: tuple[str, ...] = Field(description="what only driftwatch doctor checks")


def load(visit: Visit) -> DoctorView:
    """The checkup of the newest stored scrapes."""
    query: DoctorQuery = visit.query
    store = visit.store
    targets = visit.web.fleet.current(store).targets
    chosen = _chosen(targets, query.pool)
    until = newest(store)
    result = Checkup(())
    if until is not None and chosen:
        state = until, store.baselines_in_force()
        result = visit.web.answer_cache.get(
            ("doctor", query.pool), state, lambda: _checked(visit, chosen, len(targets), until)
        )
    checks = sorted(result.checks, key=lambda one: (_ORDER.index(one.status), one.where, one.what))
    wanted = query.status
    shown_checks = [c for c in checks if c.status == wanted or (not wanted and c.status != "ok")]
    rows, part = part_of([_row(check) for check in shown_checks], query, PATH)
    counts: Counter[str] = Counter(check.status for check in checks)
    return DoctorView(
        title="Doctor",
        is_ready=result.ready if result.targets else None,
        verdict=_verdict(result),
        at=until,
        is_stale=until is None or visit.now - until > _RECENT,
        targets=len(targets),
        checked_targets=len(chosen),
        counts={status: counts[status] for status in _ORDER},
        paths={
            status: address(PATH, DoctorQuery(pool=query.pool), status=status) for status in _ORDER
        },
        rows=tuple(rows),
        part=part,
        query=query,
        not_checked=_NOT_CHECKED,
    )


def _checked(
    visit: Visit, chosen: Mapping[TargetKey, Target], targets: int, until: datetime
) -> Checkup:
    """The checkup of some of so many targets."""
    store, plan = visit.store, visit.web.plan
    is_large = targets > _MOST_TARGETS
    since = until - (_RECENT_OF_MANY if is_large else _RECENT)
    scrapes = store.scrapes_of(chosen, since, until + timedelta(seconds=1))
    gpus = store.gpus(since, until + timedelta(seconds=1))
    waits = None if is_large else baseline_waits(store, plan)
    return checkup(scrapes, chosen, plan, Inputs(gpus=gpus if len(gpus) else None, waits=waits))


def _chosen(targets: Mapping[TargetKey, Target], pool: str) -> dict[TargetKey, Target]:
    """The targets that are looked at: all, or as many of each pool as there is time for."""
    own = {key: one for key, one in targets.items() if not pool or (one.pool or "default") == pool}
    if len(targets) <= _MOST_TARGETS:
        return own
    by_pool: dict[str, list[TargetKey]] = {}
    for key, one in own.items():
        by_pool.setdefault(one.pool or "default", []).append(key)
    each = max(1, _CHECKED_OF_MANY // len(by_pool)) if by_pool else 0
    keys = [key for members in by_pool.values() for key in members[:each]]
    return {key: own[key] for key in sorted(keys[:_CHECKED_OF_MANY])}


def _row(check: Check) -> CheckRow:
    return CheckRow(
        status=check.status,
        where=clean(check.where),
        what=cut(clean(check.what), _LONGEST),
        disables=_alerts(check.disables),
        fix=None if check.fix is None else cut(clean(check.fix), _LONGEST),
    )


def _alerts(names: Sequence[str]) -> tuple[str, ...]:
    """Rules by their alert, with how many where several share it."""
    counts = Counter(clean(name.partition("{")[0]) for name in names)
    return tuple(f"{name} ({n} rules)" if n > 1 else name for name, n in counts.items())


def _verdict(result: Checkup) -> str:
    """How many rules can fire, in a sentence."""
    if not result.targets:
        return "no verdict: no target is stored"
    able = sum(result.rules.values())
    where = "on every target" if result.targets > 1 else "on the target"
    text = f"{able} of {len(result.rules)} rules can fire {where}"
    blind = len(result.rules) - able - len(result.learning) - len(result.off)
    states = {
        "learning": len(result.learning),
        "off": len(result.off),
        "without an input": blind,
    }
    return ", ".join([text, *(f"{number} {word}" for word, number in states.items() if number)])


PAGE = Page(PATH, "Doctor", "doctor.html", DoctorView, load, DoctorQuery, place=6)
