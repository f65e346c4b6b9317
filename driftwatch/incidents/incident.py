"""An incident, and what happened to it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from driftwatch.model import Severity, TargetKey
from driftwatch.notify.page import Page

IncidentState = Literal["pending", "firing", "resolved"]
Event = Literal["firing", "updated", "verified", "resolved"]


@dataclass(frozen=True, slots=True)
class Incident:
    """One (rule, target group) being true for a while; at most one open per identity."""

    id: str  # stable short id, a hash of the identity and the start of the first true minute
    key: str  # identity: rule id and target group labels, never values
    rule: str  # rule id
    alert: str  # the rule's alert name
    severity: Severity  # page, ticket or notice
    target: Mapping[str, str]  # labels of the target group (instance, engine, pool, model_name)
    state: IncidentState  # pending (``for`` not over), firing, resolved
    started_at: datetime  # when the condition became true
    last_true_at: datetime  # end of the last minute in which the condition was true
    firing_at: datetime | None = None  # when it fired, None while pending
    resolved_at: datetime | None = None  # when it resolved, None while open
    acknowledged_at: datetime | None = None  # when a person took it, None before
    acknowledged_by: str | None = None  # who
    page: Page | None = None  # as last rendered, None while pending
    # how long it was seen true; unknown minutes and downtime do not count
    true_seconds: float = 0.0
    false_seconds: float = 0.0  # how long it was seen false since it was last true
    # id of the silence that holds its firing page back, None without one
    silenced_by: str | None = None
    # alert because of which it waits instead of firing, None without one
    inhibited_by: str | None = None
    acknowledged_comment: str | None = None  # what who took it said, None or empty = nothing
    # key of the incident that speaks for it and for others of its pool, None = it speaks itself
    part_of: str | None = None
    # of an incident that speaks for a pool's targets: how many its last message was about (0 before
    # the first), and when that was; None of any other
    extent: int | None = None
    extent_at: datetime | None = None

    @property
    def is_quiet(self) -> bool:
        """Whether a silence holds its firing page back."""
        return self.silenced_by is not None


@dataclass(frozen=True, slots=True)
class Transition:
    """An incident changed state in a way somebody is told of."""

    incident: Incident  # the incident after the change
    # firing or resolved; of a follow-up updated (an answer that the page had to go without, or a
    # pool's incident that has grown) or verified (what came of the change that it advised)
    event: Event
    at: datetime  # end of the minute that decided it
    # why it resolved although its condition was not seen false, else None
    reason: str | None = None
    # of an incident that speaks for several targets of a pool, those targets
    concerned: tuple[TargetKey, ...] = ()
    of_targets: int | None = None  # how many targets that pool has, None for one target's incident
