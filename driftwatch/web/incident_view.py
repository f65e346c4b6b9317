"""What the page of an incident shows."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from driftwatch.web.incident_change import ChangeTexts
from driftwatch.web.page import Link, Part, View


class Line(Part):
    """A line of the page, as it was sent."""

    label: str
    text: str


class PathStep(Part):
    """A question of the walk, and what decided it."""

    question: str
    answer: str
    baseline: str
    now: str
    also: tuple[str, ...]


class LimitRow(Part):
    """How many requests one limit allows, and how many there are."""

    name: str
    allows_requests: float | None
    in_flight_requests: float | None
    margin_ratio: float | None
    is_full: bool | None
    note: str | None


class Evidence(Part):
    """One measured column; null beside its reason."""

    column: str
    meaning: str
    value: float | bool | str | None
    text: str
    reason: str | None


class DeliveryRow(Part):
    """One message to one receiver."""

    at: datetime
    event: str
    receiver: str
    reason: str
    status: str
    status_text: str


class ActionRow(Part):
    """What somebody did or wrote."""

    at: datetime
    action: str
    by: str
    comment: str
    via: str


class Holding(Part):
    """What holds its messages back, or did."""

    text: str


class Holder(Part):
    """Who has it."""

    by: str
    at: datetime
    comment: str | None


class Marked(Part):
    """What somebody says of its page."""

    mark: str
    by: str
    at: datetime
    because: str


class IncidentView(View):
    """One incident."""

    incident_id: str
    state: str = Field(description="pending, firing, taken, silenced, ticket, notice, resolved")
    severity: str
    alert: str
    rule: str
    target: dict[str, str]
    summary: str = Field(description="line 1 of its page")
    headline: str = Field(description="the same without its first word, the state")
    lines: tuple[Line, ...] = Field(description="the rest of its page")
    commands: tuple[str, ...]
    runbook: str | None
    started_at: datetime
    firing_at: datetime | None
    resolved_at: datetime | None
    holder: Holder | None
    holding: tuple[Holding, ...]
    part_of: Link | None
    members: tuple[Link, ...] = Field(description="incidents that it speaks for")
    path: tuple[PathStep, ...]
    has_baseline: bool = Field(description="whether any step has a number of a baseline")
    leaf: str | None
    meaning: str | None
    limits: tuple[LimitRow, ...]
    evidence: tuple[Evidence, ...]
    deliveries: tuple[DeliveryRow, ...]
    actions: tuple[ActionRow, ...]
    mark: Marked | None
    verification: str | None
    change: ChangeTexts | None = Field(description="what its page changes; null: no setting")
    silencing: str = Field(description="matchers of a silence of this alert on this target")
    may_acknowledge: bool
    news: str | None = Field(description="what the form that was just sent came to")
