"""The weekly report in ``driftwatch run``: made once a week, even over restarts, and delivered.

A week's report and who is to be sent it are written in one transaction, so that a crash leaves
both or neither; deliveries are tried as those of pages are. What was missed while nobody watched
is made at the next start, as long as the week's minutes are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from driftwatch.errors import NoVerdict
from driftwatch.notify.page import web_address
from driftwatch.pipeline.plan import Plan
from driftwatch.report.document import week_document
from driftwatch.report.week import Week, last_whole, week_named
from driftwatch.service.report_material import gather
from driftwatch.settings import Settings
from driftwatch.settings.receivers.taken_events import takes
from driftwatch.store.store import Store

WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
# minutes are kept 35 days: of an older week little is left to tell
MOST_MISSED = 4
# The last minutes of a week come late, and its last day is written down by the next prune.
SETTLED_MINUTE = 10
SETTLED = timedelta(minutes=SETTLED_MINUTE)
# Without any report yet, only one that is due now: nobody asked for those before the first start.
FIRST_WITHIN = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Schedule:
    """When reports are made and who gets them."""

    weekday: str = "monday"  # of :data:`WEEKDAYS`
    hour: int = 7  # 0 to 23, UTC
    receivers: tuple[str, ...] = ()
    external_url: str | None = None

    def due_at(self, week: Week) -> datetime:
        """When the report of a week is due: the first such day and hour after it, and settled."""
        return week.end + timedelta(days=WEEKDAYS.index(self.weekday), hours=self.hour) + SETTLED


def schedule_of(settings: Settings) -> Schedule | None:
    """What a configuration says of reports; None where it wants none."""
    report = settings.report
    if report is None:
        return None
    return Schedule(
        weekday=report.weekday,
        hour=report.hour,
        receivers=tuple(
            one.name
            for one in settings.receivers
            if takes(one.form, "report") and (not report.receivers or one.name in report.receivers)
        ),
        external_url=settings.external_url,
    )


def due_weeks(schedule: Schedule, names: Sequence[str], now: datetime) -> list[Week]:
    """Weeks whose report is due and was not made, oldest first."""
    newest = last_whole(now)
    if schedule.due_at(newest) > now:
        newest = newest.before
    starts = [week_named(name).start for name in names]
    if not starts:
        recent = now - schedule.due_at(newest) < FIRST_WITHIN
        return [newest] if recent else []
    weeks: list[Week] = []
    while newest.start > max(starts) and len(weeks) < MOST_MISSED:
        weeks.append(newest)
        newest = newest.before
    return weeks[::-1]


def make_due(store: Store, plan: Plan, schedule: Schedule, now: datetime) -> list[Week]:
    """Make every report that is due, and say of which weeks; a week without a minute has none.

    Raises:
        StoreError: the store does not serve; what was made before is kept.
    """
    made = []
    for week in due_weeks(schedule, store.report_weeks(), now):
        try:
            material = gather(store, plan, week)
        except NoVerdict:
            continue
        document = week_document(material)
        linked = {**document, "links": _links(schedule, week)}
        if store.write_report(week.name, linked, schedule.receivers, now):
            made.append(week)
    return made


def _links(schedule: Schedule, week: Week) -> dict[str, str | None]:
    return {
        "driftwatch": web_address(schedule.external_url, f"/reports/{week.name}"),
        "command": f"driftwatch report --week {week.name}",
    }
