"""The page of an incident: receivers get it, the store keeps it, the web and ``--json`` show it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from driftwatch.documents import Document
from driftwatch.model import Advice, Diagnosis, Severity, Slo
from driftwatch.verify.verification import Verification

# open pages are refreshed, and missing answers computed again, this often
REFRESH_EVERY = timedelta(minutes=10)
# a page names so many servers and counts the others
NAMED_SERVERS = 5

Event = Literal["firing", "updated", "verified", "resolved"]


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a page's body."""

    label: str  # its first words, set bold in Slack
    text: str  # the rest, plain: not escaped
    # a time before the text; receivers that know the reader's time zone use it
    at: datetime | None = None
    weight: int = 5  # where room is short, lines of the smallest weight go first


class Times(Document):
    """When things happened, UTC."""

    started_at: datetime  # when the condition became true
    firing_at: datetime | None = None
    resolved_at: datetime | None = None
    last_true_at: datetime | None = None  # once it is over: when the condition was last true
    evaluated_at: datetime  # end of the page's minute
    measured_at: datetime  # end of the minute of its numbers


class Servers(Document):
    """The servers that the incident concerns."""

    concerned: int
    of: int  # known servers of the pool
    first: tuple[str, ...]  # names of at most five; the first is the worst, with the page's numbers


class Amount(Document):
    """The value of one evidence column."""

    value: bool | int | float | str | None = None
    unit: str  # base unit, 1 for ratios
    # why the value is unknown or only a bound
    reason: str | None = None
    upper: float | None = None  # upper bound of a share; ``value`` is the lower one
    source: str | None = None  # of a count or a setting
    names: str | None = None  # of lost GPUs
    of: float | None = None  # the server's GPUs


class Baseline(Document):
    """The "before" of the evidence."""

    kind: str  # "baseline" (a measured window), "tuned_for" (lengths from the configuration), ...
    since: datetime | None = None
    until: datetime | None = None
    values: Mapping[str, Any]  # evidence column → value


class Links(Document):
    """Known addresses, and commands quoted for a shell."""

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
    via: str | None = None  # command line, web, a receiver's name; None = not stored


class Phrases(Document):
    """The rule's templates, filled for this incident; empty = none applies."""

    problem: tuple[str, ...] = ()  # the longest first
    since: str = ""  # text behind the start time
    cause: str = ""
    also: tuple[str, ...] = ()  # further actions
    advice: str = ""  # the action where neither a leaf nor the advice has one
    over: str = ""  # of a resolve: what is good again


class WorstMissed(Document):
    """The worst share of requests that missed a target."""

    ratio: float  # upper bound
    gave_up: float = 0.0  # lower bound of the share whose client gave up
    problem: str  # ``75–81 % of requests miss TTFT 2 s``


class First(Document):
    """The first page of an incident."""

    at: datetime  # end of its minute
    summary: str  # line 1
    lines: tuple[Line, ...]
    diagnosis: Diagnosis | None = None
    baseline: Baseline | None = None


class Page(Document):
    """One message about an incident: firing, updated, verified or resolved."""

    schema_version: Literal[3] = 3
    event: Event
    test: bool = False
    summary: str = ""  # line 1: state, place, problem, action
    lines: tuple[Line, ...] = ()  # the body, in reading order
    incident: str  # id of the incident
    key: str  # of the incident: rule and pool
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
    # a change on its servers shortly before, in words; None = none known
    recent_change: str | None = None
    baseline: Baseline | None = None
    # servers of the pool, the slower ones, and the speed of the others; None where unknown
    peers: Mapping[str, float] | None = None
    also_missing: Mapping[str, float] = {}  # other server → share that misses
    lengths_moved_at: Mapping[str, datetime] = {}  # prompt, generation → start
    phrases: Phrases = Phrases()
    first_problem: str = ""  # of the incident's first page
    first: First | None = None  # the first page; None = this one
    lengths: Literal["mean", "day"] = "mean"  # the ratio of lengths that the rule compares
    family: str | None = None  # kind of drift in the weekly report
    annotations: Mapping[str, str] = {}
    links: Links = Links()
    repeat: int = 0  # 0 the first page, 1 its first repeat
    changed: str | None = None  # an update's news
    acknowledgement: Acknowledgement | None = None
    verification: Verification | None = None  # of the change that the page advised
    asked_again_at: datetime | None = None  # when the advice is computed again
    resolved_reason: str | None = None  # why it closed without a measured recovery
    ended_because: str = ""  # what changed until its end, and what did not
    worst_missed: WorstMissed | None = None  # of all its pages and refreshes
    ended_in_target: bool | None = None  # whether the latency targets were met at its end

    def value(self, column: str) -> Any:
        """An evidence value; None where it is unknown or missing."""
        entry = self.evidence.get(column)
        return None if entry is None else entry.value

    @property
    def baseline_values(self) -> Mapping[str, Any]:
        """The baseline's column → value; empty without one."""
        return {} if self.baseline is None else self.baseline.values

    @property
    def as_first(self) -> First:
        """The incident's first page: the kept one, else this one."""
        return self.first or First(
            at=self.times.evaluated_at,
            summary=self.summary,
            lines=self.lines,
            diagnosis=self.diagnosis,
            baseline=self.baseline,
        )

    @property
    def leaf(self) -> str | None:
        """The leaf of the diagnosis; None without one."""
        return None if self.diagnosis is None else self.diagnosis.leaf

    @property
    def is_of_many(self) -> bool:
        """Whether the page is about several servers."""
        return self.servers.concerned > 1


def next_refresh(at: datetime) -> datetime:
    """The next refresh after a time, on the clock's ten minutes.

    >>> [next_refresh(datetime(2026, 3, 1, 12, minute)).minute for minute in (3, 20)]
    [10, 30]
    """
    midnight = at.replace(hour=0, minute=0, second=0, microsecond=0)
    return midnight + ((at - midnight) // REFRESH_EVERY + 1) * REFRESH_EVERY


def web_address(external_url: str | None, path: str) -> str | None:
    """The address of a web page; None without an external_url in the configuration."""
    address = http_url(external_url)
    return None if address is None else address.rstrip("/") + path


def http_url(text: str | None) -> str | None:
    """The address if it is a plain http(s) one, else None: no other scheme becomes a link."""
    if text is None or not text.isprintable() or any(ch in text for ch in " <>|\"'`"):
        return None
    return text if text.lower().startswith(("http://", "https://")) else None
