"""The report of a week: the one model that is stored, printed by ``--json`` and drawn."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from driftwatch.documents import Document

Floats = tuple[float | None, ...]
DecisionKind = Literal["page", "retune", "ticket", "advice", "verification", "question", "setting"]


ELSEWHERE = "another row has them"  # reason of requests that another cause cost


class Range(Document):
    """A figure with the bounds that the data leave; None beside a reason."""

    low: float | None = None
    high: float | None = None
    reason: str | None = None  # why it is unknown


class Span(Document):
    """The week, and which part of it has data."""

    name: str  # 2026-W47
    title: str  # Week 47, Mon 16 – Sun 22 Nov 2026 UTC
    start: datetime
    end: datetime
    data_from: datetime  # start of the first stored row
    data_to: datetime  # end of the last one, or of the report


class Decision(Document):
    """What waits for a person."""

    kind: DecisionKind
    subject: str  # server or pool
    what: str  # to decide, in a sentence
    since: datetime


class ReportedIncident(Document):
    """An incident as it stood at the week's end."""

    id: str
    alert: str
    severity: str  # page or ticket
    subject: str  # server or pool
    start: datetime
    paged_at: datetime
    end: datetime | None  # None = open
    is_silenced: bool
    acknowledged_by: str | None
    useful: bool | None  # what somebody marked; None = nobody
    marked_by: str | None
    because: str | None


class Stretch(Document):
    """A stretch in which lengths were far from the usual ones: a drift."""

    start: datetime
    end: datetime
    ratio: float  # of the two means
    mean: float  # tokens


class Moved(Document):
    """One cause: what moved, what it cost, what was done, whether that worked."""

    subject: str  # the server, or the pool
    pool: str
    family: str  # of its rule: traffic, speed, stuck …
    what: str  # prompts ×2.3 (of the whole stretch); 19 % slower (as its page); token budget full
    start: datetime  # when the first of its incidents began
    end: datetime | None  # when the last was over; None = open
    is_still: bool = False  # lengths were still far from the usual ones at the report's end
    drift: Stretch | None  # in which lengths were far from the usual ones; None = they were not
    is_followed: bool = False  # then lengths moved once more: another cause
    counted_from: datetime  # what it cost is counted in ten minutes from here
    counted_to: datetime
    counted_hours: float  # in so many hours between them
    missed: Range  # requests over a target, and those without an answer
    gpu_hours_lost: Range  # Σ (1 - speed) · GPUs · hours
    speed_lost: Range = Range()  # share of its speed that a slower engine lost
    in_target: Range  # share of the pool's requests meanwhile
    unanswered: Range  # requests of a hang that got no answer; part of ``missed``
    done: str
    result: str
    decided_by: str | None  # incident that advised the change; None = none did
    incidents: tuple[ReportedIncident, ...]  # by start


class Outside(Document):
    """What requests missed outside of pages and tickets; where a pool missed its targets for
    longest, with the stretch.
    """

    missed: Range
    pool: str | None = None  # None = no ten minutes of any pool missed more than its targets allow
    start: datetime | None = None
    end: datetime | None = None
    missed_there: float = 0.0  # at most


class Pages(Document):
    """How loud the week was."""

    pages: int
    pages_last_week: int | None  # None = not all of that week is stored
    silenced: int
    marked_useful: int = 0
    marked_not_useful: int | None  # None = nobody marked a page
    is_sent: bool = True  # some receiver gets pages
    budget: float  # false pages a week that the configuration allows
    notices: dict[str, int]  # "alert, pool" → how many


class ForecastError(Document):
    """How far forecasts of one figure were off: measured / forecast - 1, of a share the points."""

    median: float  # of the absolute errors
    n: int


class Record(Document):
    """What came of the settings that incidents advised in eight weeks."""

    since: datetime  # eight weeks before the report's end, or what is stored
    advised: int  # the sum of:
    outcomes: dict[str, int]  # worked, not confirmed, not made … → how many
    forecast_errors: dict[str, ForecastError]


class Unjudged(Document):
    """A stretch in which servers of a pool were under load without a verdict on speed, or not
    scraped.
    """

    pool: str
    servers: tuple[str, ...]
    start: datetime
    end: datetime
    reason: str  # the most frequent one
    ratio: float = 1.0  # of its servers' time from start to end


class Blind(Document):
    """Where driftwatch could not judge."""

    server_minutes: float
    not_judged_ratio: float | None  # of them, without a verdict on speed
    by_reason: dict[str, float]  # reason → share of the server-minutes
    unjudged: tuple[Unjudged, ...]  # of an hour and longer, unscraped ones, the longest first
    doubled_lengths_unseen: tuple[str, ...]  # servers on which a doubling would not show


class Event(Document):
    """A change or restart."""

    at: datetime
    what: str  # with its servers


class Hours(Document):
    """A pool by hours of the week: lists with one entry an hour, None is unknown."""

    requests: Floats  # first tokens
    missed_low: Floats  # over a target, or without an answer
    missed_high: Floats
    speed: Floats  # at equal load, of the median server
    slowest: Floats  # of the slowest
    prompts: Floats  # mean length over the usual one, else over the week's
    generations: Floats
    events: tuple[Event, ...]


class Lengths(Document):
    """Lengths of a pool over the week."""

    mean: float | None  # tokens; None = no finished request
    n: float | None  # requests
    usual: float | None  # what the pool was tuned for, tokens
    stretches: tuple[Stretch, ...] = ()  # hours that were farther off than a quarter; most first


class PoolWeek(Document):
    """A pool's week."""

    pool: str
    servers: int
    share: float  # of requests that must meet the latency targets
    requests: float | None  # first tokens
    missed: Range  # over a target, or without an answer
    tuned_for: str | None  # where the usual lengths come from
    prompts: Lengths
    generations: Lengths
    hours: Hours | None  # None = one of many pools, not drawn


class Links(Document):
    """Where to read on."""

    driftwatch: str | None
    command: str
    options: str = ""  # " --db FILE" where commands need it


class Report(Document):
    """A week: open decisions first. ``event`` and ``rule``: it goes the way of a page."""

    schema_version: Literal[10] = 10
    event: Literal["report"] = "report"
    rule: Literal["weekly report"] = "weekly report"
    summary: str = ""  # one line, for a phone
    # the top screen as {label, text}, for receivers that know no columns
    lines: tuple[dict[str, str], ...] = ()
    links: Links
    week: Span
    servers: int
    for_you: tuple[Decision, ...]
    moved: tuple[Moved, ...]  # the costliest first
    outside: Outside | None  # what they do not cover; None = no request missed there
    pages: Pages
    advice: Record
    blind: Blind
    pools: tuple[PoolWeek, ...]

    @property
    def is_quiet(self) -> bool:
        """Whether the top screen says all."""
        return not (self.for_you or self.moved or self.pages.silenced)
