"""What the page of a target shows."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from driftwatch.web.incident_view import Line, PathStep
from driftwatch.web.open_answers import OpenAnswer
from driftwatch.web.page import Link, Part, View


class LengthShares(Part):
    """How long requests are, over the baseline."""

    length: str = Field(description="prompt_tokens or generation_tokens")
    text: str = Field(description="what moved, in a sentence")
    edges_tokens: tuple[float | None, ...] = Field(description="upper edges; null: no upper edge")
    share: tuple[float, ...] = Field(description="of requests in each cell, of 10 min")
    requests: float
    baseline_share: tuple[float, ...] | None
    baseline_requests: float | None


class Usual(Part):
    """What nine in ten of the baseline's ten-minute means lie between."""

    signal: str
    low: float
    high: float


class Span(Part):
    """Means of one span of the time axis; null: unknown."""

    end: datetime
    tokens_per_second_per_gpu: float | None
    generation_tokens_per_second: float | None
    requests_per_forward_pass: float | None
    batch_assembly_wait_seconds: float | None
    prompt_tokens_mean: float | None
    generation_tokens_mean: float | None


class Episode(Part):
    """An incident of the target or its pool in the range."""

    started_at: datetime
    resolved_at: datetime | None = Field(description="null: it is open")
    link: Link


class Change(Part):
    """A restart, or a change of settings or release."""

    at: datetime
    what: str


class Recent(Part):
    """A mean of the last ten minutes."""

    signal: str
    value: float | None


class Signals(Part):
    """Four signals on one time axis."""

    span_seconds: int
    spans: tuple[Span, ...]
    recent: tuple[Recent, ...] = Field(description="of the ten minutes that the answer is of")
    usual: tuple[Usual, ...]
    without_usual: str | None = Field(description="why there is no baseline's band")
    episodes: tuple[Episode, ...]
    changes: tuple[Change, ...]


class LimitCells(Part):
    """One limit: requests that it has room for, those in use, what is left; texts beside."""

    name: str
    allows_requests: float | None
    in_flight_requests: float | None
    margin_ratio: float | None
    is_full: bool | None
    room_for: str
    in_use: str
    margin: str
    remark: str


class TargetView(View):
    """A target over a range of time."""

    target: str
    pool: Link
    state: str | None = Field(description="null: the range does not end now")
    text: str = Field(description="the answer, in a sentence")
    lines: tuple[Line, ...] = Field(description="what to do, or why nothing")
    answer: OpenAnswer | None = Field(description="what the worst open incident says")
    incidents: tuple[Link, ...] = Field(description="open ones that fired, worst first")
    pending: int = Field(description="incidents that wait, for their time or because of another")
    since: datetime = Field(description="start of the range")
    until: datetime
    is_newest: bool = Field(description="whether the range ends with the newest minute")
    is_stale: bool = Field(description="whether the newest minute is more than 5 minutes ago")
    no_data: str | None = Field(description="why the range has none; null: it has")
    data: Link | None = Field(description="where there is some, if the range has none")
    ranges: tuple[Link, ...] = Field(description="the same target over other ranges")
    engine: str | None = Field(description="model, GPUs, settings")
    window: str | None = Field(description="the ten minutes that the answer is of")
    facts: tuple[Line, ...]
    path: tuple[PathStep, ...] = Field(description="how it was decided")
    lengths: tuple[LengthShares, ...]
    without_lengths: str | None
    signals: Signals | None
    limits: tuple[LimitCells, ...]
    grafana: str | None
