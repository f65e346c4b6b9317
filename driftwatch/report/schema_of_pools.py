"""The parts of the weekly report's JSON schema that speak about pools."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from driftwatch.report.schema_parts import Ratio, ReportPart, Severity, Time, WeekName

Numbers = list[float | None]


class PoolTargets(ReportPart):
    """Latency targets of a pool."""

    ttft_seconds: float | None
    tpot_seconds: float | None
    share: Ratio
    derived: bool = Field(description="twice the baseline's p95, as none is configured")


class OverTarget(ReportPart):
    """Requests over each target; a target inside a histogram bucket gives a range."""

    ttft_low: float | None
    ttft_high: float | None
    tpot_low: float | None
    tpot_high: float | None


class Lengths(ReportPart):
    """Prompt or generation lengths of the week, in tokens."""

    mean: float | None
    n: float | None = Field(description="requests")
    reference_mean: float | None
    ratio: Ratio | None = Field(description="mean over the reference's")
    reason: str | None = Field(description="why the mean is unknown")
    p50: float | None
    p50_lower: float | None = Field(description="edge of the bucket that it lies in")
    p50_upper: float | None
    p95: float | None
    p95_lower: float | None
    p95_upper: float | None


class BatchOfPool(ReportPart):
    """Requests per forward pass: quantiles of ten-minute means, each weighing its passes."""

    reference_mean: float | None
    cells: int = Field(description="ten minutes with a pass")
    p05: float | None
    p50: float | None
    p95: float | None
    reason: str | None


class Caps(ReportPart):
    """How far the limits were used; means of ten minutes, so peaks are higher."""

    max_num_seqs: list[float] = Field(description="every value of the week; empty: unknown")
    max_num_seqs_inferred: bool
    max_num_seqs_reason: str | None
    max_num_seqs_since: str | None = Field(description="the value after its last change")
    running_requests_peak: float | None
    queued_hours: float
    never_reached: bool | None = Field(description="null: unknown")
    max_num_batched_tokens: list[float]
    kv_cache_usage_peak_ratio: Ratio | None
    preemptions: float | None


class Band(ReportPart):
    """Latency while a forward pass computed so many requests."""

    from_requests: float
    to_requests: float
    requests_mean: float
    hours: float
    tokens: float
    requests: float
    itl_seconds_mean: float | None
    ttft_seconds_mean: float | None
    queue_seconds_mean: float | None


class PoolRow(ReportPart):
    """Lengths, batch, limits and latency by batch of one pool."""

    pool: str
    servers: int
    slo: PoolTargets | None
    finished_requests: float | None
    requests_over_target: OverTarget
    tuned_for: str | None = Field(description="what the reference is")
    prompt_tokens: Lengths
    generation_tokens: Lengths
    requests_per_forward_pass: BatchOfPool
    caps: Caps
    bands: list[Band] = Field(description="smallest batch first")


class BaselineRanges(ReportPart):
    """5th and 95th percentile of the half hours of the baseline; null: fewer than six."""

    speed_median_ratio: Numbers | None
    in_target_ratio: Numbers | None
    tokens_per_second: Numbers | None
    from_: Time = Field(alias="from")
    to: Time


class IncidentSpan(ReportPart):
    """A page or ticket about drift, cut to the week."""

    id: str
    alert: str
    severity: Severity
    subject: str
    from_: Time = Field(alias="from")
    to: Time


class PoolEvent(ReportPart):
    """A changed setting or release, or a restart."""

    kind: Literal["change", "restart"]
    at: Time
    text: str


class Timeline(ReportPart):
    """The week of one pool: a value a half hour, null is unknown."""

    pool: str
    from_: Time = Field(alias="from")
    step_seconds: float
    speed_median_ratio: Numbers = Field(description="speed at equal load, of the middle server")
    speed_lowest_ratio: Numbers = Field(description="of the slowest")
    in_target_ratio: Numbers
    in_target_reason: str | None
    tokens_per_second: Numbers
    target_share: Ratio | None
    baseline: BaselineRanges | None
    incidents: list[IncidentSpan]
    events: list[PoolEvent] = Field(description="at most 60")


class WeekFigures(ReportPart):
    """Figures of a week."""

    server_hours: float
    requests: float
    requests_over_target_low: float | None
    requests_over_target_high: float | None
    requests_over_target_low_ratio: Ratio | None
    requests_over_target_high_ratio: Ratio | None
    requests_over_target_reason: str | None
    prompt_tokens_mean: float | None
    generation_tokens_mean: float | None
    generation_tokens: float
    speed_at_equal_load_ratio: Ratio | None
    gpu_hours_lost: float | None
    gpu_hours_lost_reason: str | None
    without_verdict_ratio: Ratio | None


class ThisAndLast(ReportPart):
    """The same figures of this week and the last; a week without data is null."""

    this: WeekFigures | None
    last: WeekFigures | None


class PoolThisAndLast(ThisAndLast):
    """Those of one pool."""

    pool: str


class Comparison(ReportPart):
    """This week beside the last one, of the fleet and of each pool."""

    last_week: WeekName
    last_week_reason: str | None = Field(description="why it is null")
    fleet: ThisAndLast
    pools: list[PoolThisAndLast]


class MonthRow(ReportPart):
    """A pool's week: means weigh requests (lengths) or minutes."""

    pool: str
    week: WeekName
    server_days: int
    finished_requests: float | None
    prompt_tokens_mean: float | None
    generation_tokens_mean: float | None
    requests_per_forward_pass_p50: float | None
    tokens_per_second_per_gpu: float | None
    speed_at_equal_load_ratio: Ratio | None
    slo_missed_ratio: Ratio | None
    ttft_seconds_p95: float | None
    ttft_seconds_p95_lower: float | None
    ttft_seconds_p95_upper: float | None


class DayRow(ReportPart):
    """A pool's day."""

    pool: str
    day: Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}$")]
    prompt_tokens_mean: float | None
    generation_tokens_mean: float | None
    requests_per_forward_pass_p50: float | None
