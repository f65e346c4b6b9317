"""The page of an incident: what every receiver is given, what the store keeps, what the web and
``--json`` show.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from driftwatch.documents import Document
from driftwatch.model import Advice, Diagnosis, Severity, Slo
from driftwatch.verify.verification import Verification

# an answer that needs more minutes is computed again in each minute of this grid
REFRESH_EVERY = timedelta(minutes=10)
# of a pool's incident so many servers are named, the others are counted
NAMED_SERVERS = 5

Event = Literal["firing", "updated", "verified", "resolved"]


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a page's body."""

    label: str  # its first words, set bold in Slack
    text: str  # the rest, plain: not escaped
    # a time that stands before the text, for a receiver that knows the reader's clock
    at: datetime | None = None
    weight: int = 5  # where room is short, the line of the smallest weight goes first


class Times(Document):
    """When things happened, UTC."""

    started_at: datetime  # when the condition became true
    firing_at: datetime | None = None
    resolved_at: datetime | None = None
    last_true_at: datetime | None = None  # once it is over: when the condition was last true
    evaluated_at: datetime  # end of the minute that this page is about
    measured_at: datetime  # end of the minute whose numbers it has


class Servers(Document):
    """The servers that the incident is about."""

    concerned: int
    of: int  # servers of the pool, as far as known
    first: tuple[str, ...]  # names of at most five, the worst first: the page shows its numbers


class Amount(Document):
    """The value of one evidence column."""

    value: bool | int | float | str | None = None
    unit: str  # base unit, 1 for ratios
    # why the value is unknown, or a bound
    reason: str | None = None
    upper: float | None = None  # of a share that is known within bounds: the upper one
    source: str | None = None  # where a count or a setting was read
    names: str | None = None  # which GPUs were lost
    of: float | None = None  # of how many GPUs


class Baseline(Document):
    """What "before" means."""

    kind: str  # "baseline" (a measured window), "tuned_for" (lengths from the configuration), ...
    since: datetime | None = None
    until: datetime | None = None
    values: Mapping[str, Any]  # evidence column → value


class Links(Document):
    """Addresses where they exist, and commands, quoted for a shell."""

    runbook: str | None = None
    driftwatch: str | None = None  # the incident's web page
    explain: str | None = None
    ack: str | None = None
    silence: str | None = None


class Acknowledgement(Document):
    """Who acknowledged the incident."""

    by: str
    at: datetime
    comment: str = ""  # empty = none
    via: str | None = None  # command line, a receiver's name; None = not kept


class Phrases(Document):
    """What the rule says of this incident: its templates, filled. Empty = nothing to say."""

    problem: tuple[str, ...] = ()  # how bad, the longest first
    since: str = ""  # what stands beside the time at which it began
    cause: str = ""
    also: tuple[str, ...] = ()  # what else a person acts on
    advice: str = ""  # what to do where neither a leaf nor the advice says it
    over: str = ""  # once it is over: what is so again


class WorstMissed(Document):
    """How many requests missed a target when it was worst."""

    ratio: float  # of the requests, at most
    gave_up: float = 0.0  # share of the requests that began, at least
    problem: str  # ``75–81 % of requests miss TTFT 2 s``


class First(Document):
    """What the first page of an incident said, and why."""

    at: datetime  # end of the minute that it tells of
    summary: str  # line 1
    lines: tuple[Line, ...]
    diagnosis: Diagnosis | None = None
    baseline: Baseline | None = None


class Page(Document):
    """One message about an incident: firing, updated, verified or resolved."""

    schema_version: Literal[3] = 3
    event: Event
    test: bool = False
    summary: str = ""  # line 1: the state, where, how bad, do what
    lines: tuple[Line, ...] = ()  # the body, in reading order
    incident: str  # id of the incident
    key: str  # identity of the incident: never a value in it
    rule: str
    alert: str
    severity: Severity
    pool: str | None = None
    labels: Mapping[str, str]  # of the incident: instance, engine, pool, model_name, signal
    servers: Servers
    times: Times
    evidence: Mapping[str, Amount] = {}
    slo: Slo | None = None
    diagnosis: Diagnosis | None = None
    advice: Advice | None = None
    # what was changed on its first server shortly before, in words; None = nothing known
    recent_change: str | None = None
    baseline: Baseline | None = None
    # servers of the pool, how many are slower, and the speed of the others; None where unknown
    peers: Mapping[str, float] | None = None
    phrases: Phrases = Phrases()
    first_problem: str = ""  # what the first page of the incident said
    first: First | None = None  # the whole first page; None: this is it
    lengths: Literal["mean", "day"] = "mean"  # which ratio of lengths the rule compares
    family: str | None = None  # which kind of drift the weekly report counts it as
    annotations: Mapping[str, str] = {}
    links: Links = Links()
    repeat: int = 0  # 0 the first page, 1 its first repeat
    changed: str | None = None  # of an update: what is otherwise than on the page before
    acknowledgement: Acknowledgement | None = None
    verification: Verification | None = None  # what came of the change that the page advised
    asked_again_at: datetime | None = None  # when the advice is computed once more
    resolved_reason: str | None = None  # why it resolved although no recovery was measured
    ended_because: str = ""  # what is otherwise than on its page, and what is not
    worst_missed: WorstMissed | None = None  # of the page and of every look at it
    ended_in_target: bool | None = None  # whether the targets were met at its end

    def value(self, column: str) -> Any:
        """One evidence value, None where it is unknown or not carried."""
        entry = self.evidence.get(column)
        return None if entry is None else entry.value

    @property
    def baseline_values(self) -> Mapping[str, Any]:
        """Column → value of the baseline; empty without one."""
        return {} if self.baseline is None else self.baseline.values

    @property
    def as_first(self) -> First:
        """The first page of the incident: as it is kept, else this one."""
        return self.first or First(
            at=self.times.evaluated_at,
            summary=self.summary,
            lines=self.lines,
            diagnosis=self.diagnosis,
            baseline=self.baseline,
        )

    @property
    def leaf(self) -> str | None:
        """Where the diagnosis ended, None without one."""
        return None if self.diagnosis is None else self.diagnosis.leaf

    @property
    def is_of_many(self) -> bool:
        """Whether the page is about several servers."""
        return self.servers.concerned > 1


def next_refresh(at: datetime) -> datetime:
    """The minute of the grid after a time.

    >>> [next_refresh(datetime(2026, 3, 1, 12, minute)).minute for minute in (3, 20)]
    [10, 30]
    """
    midnight = at.replace(hour=0, minute=0, second=0, microsecond=0)
    return midnight + ((at - midnight) // REFRESH_EVERY + 1) * REFRESH_EVERY


def web_address(external_url: str | None, path: str) -> str | None:
    """The address of a page of the web; None where the configuration has no external_url."""
    address = http_url(external_url)
    return None if address is None else address.rstrip("/") + path


def http_url(text: str | None) -> str | None:
    """The address where it is a plain http(s) one, else None: no other scheme becomes a link."""
    if text is None or not text.isprintable() or any(ch in text for ch in " <>|\"'`"):
        return None
    return text if text.lower().startswith(("http://", "https://")) else None
