"""The weekly report in ``driftwatch run``: made once a week, even over restarts, and delivered.

A week's report and who is to be sent it are written in one transaction, so that a crash leaves
both or neither; deliveries are tried as those of pages are. What was missed while nobody watched
is made at the next start, as long as the week's minutes are kept.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from driftwatch.errors import NoVerdict
from driftwatch.notify.page import web_address
from driftwatch.pipeline.plan import Plan
from driftwatch.report.document import week_document
from driftwatch.report.forms import as_html
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
    directory: Path | None = None  # where HTML files go; None = none is written
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
        directory=report.directory,
        external_url=settings.external_url,
    )


@dataclass(frozen=True, slots=True)
class WrittenReport:
    """A report that was made."""

    week: Week
    file: Path | None = None  # where its HTML lies; None = nowhere
    problem: str | None = None


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


def make_due(store: Store, plan: Plan, schedule: Schedule, now: datetime) -> list[WrittenReport]:
    """Make every report that is due; a week without a minute has none.

    Raises:
        StoreError: the store does not serve; what was made before is kept.
    """
    reports = []
    for week in due_weeks(schedule, store.report_weeks(), now):
        try:
            material = gather(store, plan, week)
        except NoVerdict:
            continue
        document = week_document(material)
        file, problem = _written(schedule.directory, document)
        linked = {**document, "links": _links(schedule, week, file)}
        # the file first: it can be written again, a report that was sent cannot be sent again
        if store.write_report(week.name, linked, schedule.receivers, now):
            reports.append(WrittenReport(week, file, problem))
    return reports


def _written(directory: Path | None, document: dict[str, Any]) -> tuple[Path | None, str | None]:
    """The HTML file; that it cannot be written must not keep the report from its receivers."""
    if directory is None:
        return None, None
    file = directory / f"driftwatch-{document['week']['name']}.html"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        write_whole(file, as_html(document))
    except OSError as error:
        return None, f"{file}: {error.strerror or error}"
    return file, None


def _links(schedule: Schedule, week: Week, file: Path | None) -> dict[str, str | None]:
    return {
        "report": None if file is None else str(file),
        "driftwatch": web_address(schedule.external_url, f"/reports/{week.name}"),
        "command": f"driftwatch report --week {week.name}",
    }


def write_whole(path: Path, text: str) -> None:
    """Put the text in the file's place; who reads it meanwhile reads the old one or the new one.

    Raises:
        OSError: it cannot be written there.
    """
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        # as any new file of this process: a web server may have to read it
        umask = os.umask(0)
        os.umask(umask)
        Path(name).chmod(0o666 & ~umask)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
