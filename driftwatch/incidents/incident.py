"""An incident: a rule and a pool, with the servers concerned and its messages. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import model_validator

from driftwatch.documents import Document
from driftwatch.model import Severity, TargetKey
from driftwatch.notify.page import Acknowledgement, Line, Page

IncidentState = Literal["pending", "firing", "acknowledged", "resolved"]
Event = Literal["firing", "updated", "verified", "resolved"]

_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_:.-/")


def identity(rule: str, pool: str) -> str:
    """Rule and pool as one text, without any measured value.

    >>> identity("BatchLimitBinding", "rag-8b")
    'BatchLimitBinding{pool="rag-8b"}'
    """
    name = rule if rule and _PLAIN.issuperset(rule) else json.dumps(rule, ensure_ascii=False)
    return f"{name}{{pool={json.dumps(pool, ensure_ascii=False)}}}"


def incident_id(key: str, minute_start: datetime) -> str:
    """Twelve hex digits of a hash of the key and the start of the first true minute."""
    text = key + minute_start.astimezone(UTC).isoformat()
    return hashlib.sha256(text.encode()).hexdigest()[:12]


class ServerCondition(Document):
    """A rule's condition on one server. Unknown minutes count neither as true nor as false."""

    instance: str
    engine: str = "0"
    since: datetime  # when the condition became true
    last_true_at: datetime  # end of the last minute in which it was true
    true_seconds: float = 0.0
    false_seconds: float = 0.0  # since it was last true
    met: bool = False  # true for the rule's `for`
    recovered: bool = False  # false for the rule's `keep_firing_for`
    inhibited_by: str | None = None  # the alert that fires here, or in the pool, in its place
    waited: bool = False  # another alert inhibited it before it met the rule

    @property
    def key(self) -> TargetKey:
        """The server."""
        return TargetKey(self.instance, self.engine)

    @property
    def is_concerned(self) -> bool:
        """Whether the incident's messages count this server."""
        return self.met and not self.recovered and self.inhibited_by is None


class LastMessage(Document):
    """The facts of the last message."""

    at: datetime
    servers: int  # servers it counted
    cause: str = ""  # leaf of the diagnosis and full limit
    # causes of all messages so far: two limits that fill by turns are no news
    causes: tuple[str, ...] = ()
    last_cause: str = ""  # the same at the last refresh: an update needs a change that lasts
    last_problem: str = ""  # at the last refresh
    last_at: datetime | None = None  # when it was measured
    # the load of its advice: mean lengths and rate of requests (evidence column → value)
    load: Mapping[str, float] = {}
    replicas: int | None = None  # that it asked for, all together
    # lower bounds of shares of requests, the worst of all messages so far; None = unknown
    missed_ratio: float | None = None  # missed a target
    given_up_ratio: float | None = None  # the client gave up


class Message(Document):
    """The text of a page or an update, delivered or not."""

    at: datetime
    event: Event
    summary: str  # line 1
    lines: tuple[Line, ...] = ()
    servers: tuple[str, ...] = ()  # names of the servers it counted, the worst first


class Incident(Document):
    """A rule that is true on servers of a pool; each rule has at most one open one per pool."""

    id: str  # short and stable: a hash of the key and the start of its first minute
    rule: str  # rule id
    alert: str  # the rule's alert name
    severity: Severity
    pool: str
    labels: Mapping[str, str] = {}  # the rule's, and model_name where all servers share one
    servers: tuple[ServerCondition, ...] = ()  # by instance and engine
    started_at: datetime  # when the condition became true on the first server
    firing_at: datetime | None = None  # None while pending
    resolved_at: datetime | None = None  # None while open
    silenced_by: str | None = None  # id of the silence that holds back its messages
    inhibited_by: str | None = None  # alert that speaks for all of its servers
    told: LastMessage | None = None  # None before the first message
    messages: tuple[Message, ...] = ()  # in order
    # written by people, never by the tick
    acknowledgement: Acknowledgement | None = None
    page: Page | None = None  # as last built; None while pending

    @model_validator(mode="before")
    @classmethod
    def _without_computed(cls, values: Any) -> Any:
        if isinstance(values, Mapping):
            return {name: v for name, v in values.items() if name not in ("key", "state")}
        return values

    def document(self) -> dict[str, Any]:
        """JSON values, with the key and the state."""
        return {**super().document(), "key": self.key, "state": self.state}

    @property
    def key(self) -> str:
        """Rule and pool as one text."""
        return identity(self.rule, self.pool)

    @property
    def state(self) -> IncidentState:
        """pending (no server met the rule), firing, acknowledged or resolved."""
        if self.resolved_at is not None:
            return "resolved"
        if self.firing_at is None:
            return "pending"
        return "firing" if self.acknowledgement is None else "acknowledged"

    @property
    def state_word(self) -> str:
        """The state; "silenced" while a silence holds back a firing incident's messages."""
        is_silenced = self.state == "firing" and self.silenced_by is not None
        return "silenced" if is_silenced else self.state

    @property
    def is_firing(self) -> bool:
        """Whether the incident fired and is not resolved; an acknowledged one fires too."""
        return self.firing_at is not None and self.resolved_at is None

    @property
    def acknowledged_by(self) -> str | None:
        """The person who acknowledged it; None without one."""
        return None if self.acknowledgement is None else self.acknowledgement.by

    @property
    def concerned(self) -> tuple[TargetKey, ...]:
        """The servers that its messages count."""
        return tuple(one.key for one in self.servers if one.is_concerned)

    def with_message(self, page: Page) -> Incident:
        """The incident with this page among its messages."""
        worst = page.servers.first
        others = sorted({key.text for key in self.concerned} - set(worst))
        message = Message(
            at=page.times.evaluated_at,
            event=page.event,
            summary=page.summary,
            lines=page.lines,
            servers=(*worst, *others),
        )
        return self.model_copy(update={"messages": (*self.messages, message)})

    @property
    def last_true_at(self) -> datetime:
        """End of the last minute in which the condition was true on a server."""
        return max((one.last_true_at for one in self.servers), default=self.started_at)

    @property
    def true_seconds(self) -> float:
        """The longest time for which the condition was true on a server."""
        return max((one.true_seconds for one in self.servers), default=0.0)

    @property
    def name(self) -> str:
        """The name of its only server, else of the pool."""
        keys = self.concerned or tuple(one.key for one in self.servers)
        return keys[0].text if len(keys) == 1 else self.pool

    def server_labels(self) -> tuple[dict[str, str], ...]:
        """The labels that silences match, one set per server; its own where it has no server."""
        own = {
            **self.labels,
            "pool": self.pool,
            "alert": self.alert,
            "rule": self.rule,
            "severity": self.severity,
        }
        keys = self.concerned or tuple(one.key for one in self.servers)
        return tuple({**own, "instance": k.instance, "engine": k.engine} for k in keys) or (own,)


def shown_first(
    incidents: Iterable[tuple[Incident, Collection[TargetKey]]], *, of_pool: bool
) -> list[tuple[Incident, Collection[TargetKey]]]:
    """Incidents with the servers that they concern, in the order in which a command shows them: by
    severity; then for a pool those of several servers first, for a server its own.
    """

    def order(one: tuple[Incident, Collection[TargetKey]]) -> tuple[int, bool, str]:
        incident, keys = one
        severity = ("page", "ticket", "notice").index(incident.severity)
        return severity, (len(keys) > 1) != of_pool, str(incident.firing_at or "")

    return sorted(incidents, key=order)


@dataclass(frozen=True, slots=True)
class Transition:
    """An incident fired, changed or resolved."""

    incident: Incident  # after the event
    event: Event
    at: datetime  # end of the minute that decided it
    # why it closed without a measured recovery; None otherwise
    reason: str | None = None
