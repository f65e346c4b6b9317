"""The weekly report's JSON field by field: what ``docs/report.schema.json`` is made of.

:func:`driftwatch.report.document.week_document` makes the document; a test holds it against these
models, in which no field may be missing.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from driftwatch.report.schema_of_pools import (
    Comparison,
    DayRow,
    MonthRow,
    PoolRow,
    Timeline,
)
from driftwatch.report.schema_parts import Ratio, ReportPart, Severity, Time, WeekName


class LabelledLine(ReportPart):
    """A line of the top screen; an empty label belongs to the line above."""

    label: str
    text: str


class WeekSpan(ReportPart):
    """Which week, Monday to Sunday."""

    name: WeekName = Field(description="as ISO 8601 names it")
    title: str
    from_: Time = Field(alias="from")
    to: Time
    until: Time = Field(description="end of the minutes that the report covers")
    data_from: Time | None = Field(description="start of the first data in the week; null: none")
    data_to: Time | None = Field(description="end of the last")
    whole: bool = Field(description="false while the week is not over")


class FleetSize(ReportPart):
    """Pools and servers with a minute in the week."""

    pools: int
    servers: int


class Decision(ReportPart):
    """What waits for a person."""

    kind: Literal["retune", "page", "ticket", "advice", "verification", "setting", "pin"]
    subject: str
    text: str
    since: Time


class CostOfCells(ReportPart):
    """Requests over target and lost GPU-hours, with the reason of what is unknown."""

    requests_over_target_low: float | None
    requests_over_target_high: float | None
    requests_over_target_reason: str | None
    requests_over_target_low_ratio: Ratio | None = Field(
        description="of all requests of the week in the same pools"
    )
    requests_over_target_high_ratio: Ratio | None
    targets_derived: bool = Field(
        description="a target is twice the baseline's p95, as none is configured"
    )
    gpu_hours_lost: float | None
    gpu_hours_lost_reason: str | None
    server_hours_lost: float = Field(ge=0)
    waited_hours: float | None = Field(
        description="how long requests waited for their first step, all of them together"
    )
    money: float | None
    currency: str | None


class GpuHourPrice(ReportPart):
    """Of one GPU for one hour."""

    amount: float = Field(gt=0)
    currency: str


class WeekCost(CostOfCells):
    """Of the whole week and fleet."""

    gpu_hour_price: GpuHourPrice | None = Field(description="null: none is configured")


class DriftCost(CostOfCells):
    """Of one row of the drift table."""

    kind: Literal["gpu_hours", "requests"] = Field(description="which figure counts for it")


class DriftRow(ReportPart):
    """A cause with every incident that it explains."""

    subject: str
    pool: str | None
    family: str = Field(description="traffic, speed, stuck, or the name of the alert")
    figure: str = Field(description="what moved, in a few words")
    alerts: list[str]
    incidents: list[str] = Field(description="ids")
    consequences: list[str] = Field(
        description="ids of those that are of other alerts, as the backlog of a hang"
    )
    from_: Time = Field(alias="from")
    open: bool
    cost: DriftCost
    done: str
    verifications: list[str] = Field(description="ids")
    result: str


class PagesSent(ReportPart):
    """Pages sent, against the week before, and the budget of false episodes."""

    pages: int
    pages_last_week: int
    tickets: int
    tickets_last_week: int
    notices: int
    silenced: int = Field(description="held back by a silence")
    budget_false_episodes: float = Field(description="of these servers in this time")
    over_budget: bool = Field(
        description="more pages than the budget: those marked not useful, or all where nobody "
        "marked any"
    )
    false_episodes_per_server_month: float = Field(description="as configured")
    marked: int = Field(description="pages that somebody marked as useful or not")
    marked_not_useful: int | None = Field(description="null: nobody marked any")
    marked_not_useful_reason: str | None


class Verdicts(ReportPart):
    """Verdicts on advised changes."""

    passed: int = Field(alias="PASS")
    failed: int = Field(alias="FAIL")
    inconclusive: int = Field(alias="INCONCLUSIVE")


class ForecastError(ReportPart):
    """How far forecasts of one figure were off."""

    median_ratio: float
    median_signed_ratio: float
    n: int


class AdviceRecord(ReportPart):
    """Eight weeks of verdicts on advised changes, and how far forecasts were off."""

    weeks: int
    verdicts: Verdicts
    changes_not_advised: int
    open: int
    forecast_errors: dict[str, ForecastError] = Field(description="by figure")


class CannotShow(ReportPart):
    """Servers whose lengths could double without a word."""

    prompt_tokens: int
    generation_tokens: int
    either: int
    servers: list[str] = Field(description="at most 20")


class BlindServer(ReportPart):
    """A server without a verdict for a twentieth of its time, or whose lengths could double."""

    server: str
    pool: str | None
    without_verdict_ratio: Ratio
    without_verdict_hours: float
    main_reason: str | None
    doubled_lengths_missed: list[Literal["prompt_tokens", "generation_tokens"]]


class Blindness(ReportPart):
    """Server-minutes without a verdict on the engine's speed, by reason."""

    server_minutes: float
    without_verdict_ratio: Ratio | None
    without_verdict_reason: str | None
    by_reason: dict[str, Ratio | None] = Field(description="as shares of all server-minutes")
    cannot_show_doubled_lengths: CannotShow
    by_server: list[BlindServer] = Field(description="the blindest 20")
    servers: int
    longest_gap_hours: float = Field(description="nobody watched")


class IncidentRow(ReportPart):
    """An incident that was open in some of the week, as it stood at its end."""

    id: str
    severity: Severity
    alert: str
    rule: str
    subject: str
    pool: str | None
    started_at: Time
    firing_at: Time | None
    resolved_at: Time | None
    open: bool
    true_seconds: float
    leaf: str | None = Field(description="null: its rule has no tree")
    action: str | None = Field(description="what was advised: change, none, no_action, ...")
    summary: str | None = Field(description="line 1 of its page")
    acknowledged_by: str | None
    silenced: bool
    useful: bool | None
    useful_reason: str | None
    marked_by: str | None
    marked_because: str | None


class NoticeCount(ReportPart):
    """Notices of one alert and pool."""

    alert: str
    pool: str
    notices: int
    servers: int | None = Field(description="null: notices of the pool")
    first: Time
    last: Time


class Silenced(ReportPart):
    """An incident that a silence held back."""

    alert: str
    silence: str
    id: str


class SilenceOfWeek(ReportPart):
    """A silence that held in some of the week."""

    id: str
    matchers: str
    by: str
    comment: str


class Inhibited(ReportPart):
    """An incident that another alert held back."""

    alert: str
    by: str
    id: str


class Abstained(ReportPart):
    """Why no answer was given, and how often."""

    reason: str
    times: int


class Suppressed(ReportPart):
    """What was silenced or inhibited, and where no answer was given."""

    silenced: list[Silenced]
    silences: list[SilenceOfWeek]
    inhibited_now: list[Inhibited]
    abstained: list[Abstained]


class RulesOfWeek(ReportPart):
    """What was watched for."""

    sha256: str = Field(description="the same rules have the same")
    enabled: int
    disabled: int


class RegionOfWeek(ReportPart):
    """A driftwatch of its own whose week is in a merged report."""

    name: str = Field(description="before the names of its pools, servers and ids, with a slash")
    reason: str | None = Field(description="why it could not be read; null: it was")
    pools: int
    servers: int
    until: Time | None = Field(description="end of the minutes of it; null: it was not read")
    rules_sha256: str | None


class ReportLinks(ReportPart):
    """Of a delivered report."""

    report: str | None = Field(description="its HTML file; null: no report.directory")
    driftwatch: str | None = Field(description="its web page; null: no external_url")
    command: str = Field(description="makes it again")


class WeekDocument(ReportPart):
    """One week of one fleet, as `driftwatch report --json` prints it and receivers get it.

    Within a schema version fields are only added: ignore those that you do not know. Units stand
    in the names; null is unknown, with a reason beside it where there can be several. A report of
    an earlier release may lack fields.
    """

    schema_version: Literal[1] = Field(description="version of this schema")
    event: Literal["report"] = Field(description="what tells a report from a page at a receiver")
    rule: str = Field(description="the same in words")
    summary: str = Field(min_length=1, description="one line for a phone's preview")
    lines: list[LabelledLine] = Field(description="the top screen")
    quiet: bool = Field(description="no page, no drift, no decision: the top screen is all")
    week: WeekSpan
    fleet: FleetSize
    for_you: list[Decision] = Field(
        description="what waits for a person, by kind and then the oldest first"
    )
    drift: list[DriftRow] = Field(description="a row for each cause, the costliest first")
    pages: PagesSent
    advice: AdviceRecord
    blind: Blindness
    cost: WeekCost
    incidents: list[IncidentRow] = Field(description="pages first, then tickets")
    notices: list[NoticeCount] = Field(description="the most frequent first")
    pools: list[PoolRow]
    timelines: list[Timeline] = Field(
        description="at most 8 pools, those with most pages and tickets first"
    )
    comparison: Comparison
    month: list[MonthRow] = Field(description="a row a pool and week of the last 28 days")
    days: list[DayRow] = Field(description="a row a pool and day of the same")
    suppressed: Suppressed
    rules: RulesOfWeek
    regions: list[RegionOfWeek] = Field(
        description="of `report --merge`, by name; empty: one driftwatch alone"
    )
    links: ReportLinks | None = Field(default=None, description="of a delivered report alone")
