"""What the judge is given: truth episodes, findings, and which stretch of which servers was seen.

All times are unix seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

DAY_SECONDS = 86_400.0
# 365.25 / 12 days
MONTH_SECONDS = 30.4375 * DAY_SECONDS
# The windows that the rules judge reach back 10 min and a flapping incident is kept for 5: what
# fires up to so long after an episode's end is still of the episode, unless its truth says else.
GRACE_SECONDS = 900.0

SPEED = "speed_at_equal_load_ratio"

Block = tuple[str, int]  # (what is drawn together: seed and traffic, day)
Said = tuple[str, str]  # (severity, rule)


def _with(severity: str, rules: frozenset[str]) -> frozenset[Said]:
    return frozenset((severity, rule) for rule in rules)


@dataclass(frozen=True, slots=True)
class Episode:
    """Something that was injected, or that is known to be of no harm.

    Attributes:
        kind: what happened (``slowdown``, ``prompts``, …).
        start_seconds: when it began.
        end_seconds: when it was over.
        size: how large (0.15 = 15 % slower, 4.0 = times four); None where it has none.
        instances: which servers; empty = all of the stretch.
        pages: rules of which a page is expected.
        tickets: rules of which a ticket is expected.
        notices: rules that should inform. Nothing in the three: nobody should be told.
        leaf: where the diagnosis should end; None = the truth does not say.
        knob: the setting that should be advised; None = none helps.
        allowed: rules that may speak, of any severity, and need not.
        also: leaves that are right as well, where two limits bind together.
        grace_seconds: how long after its end a finding still counts as its own.
        visible_seconds: from when on it could be seen at all (enough changed requests had
            finished); None = from its start on.
        waited: of a limit, server → the minutes in which requests waited, each with the limits that
            were full; the server that was saturated longest is the first.
    """

    kind: str
    start_seconds: float
    end_seconds: float
    size: float | None = None
    instances: frozenset[str] = frozenset()
    pages: frozenset[str] = frozenset()
    tickets: frozenset[str] = frozenset()
    notices: frozenset[str] = frozenset()
    leaf: str | None = None
    knob: str | None = None
    allowed: frozenset[str] = frozenset()
    also: frozenset[str] = frozenset()
    grace_seconds: float = GRACE_SECONDS
    visible_seconds: float | None = None
    waited: Mapping[str, Sequence[tuple[float, frozenset[str]]]] = field(
        default_factory=dict, hash=False
    )

    @property
    def rules(self) -> frozenset[str]:
        """The rules that may speak of it."""
        return self.pages | self.tickets | self.notices

    @property
    def expected(self) -> frozenset[Said]:
        """All that may speak of it, each with its severity."""
        return _with("page", self.pages) | _with("ticket", self.tickets) | self._informs

    @property
    def asked(self) -> frozenset[Said]:
        """Of which one must speak: pages, where none is expected tickets, else notices."""
        return _with("page", self.pages) or _with("ticket", self.tickets) or self._informs

    @property
    def _informs(self) -> frozenset[Said]:
        return _with("notice", self.notices)

    @property
    def until_seconds(self) -> float:
        """End and grace."""
        return self.end_seconds + self.grace_seconds

    @property
    def cell(self) -> str:
        """Kind and size: what detection is counted by."""
        return self.kind if self.size is None else f"{self.kind} {self.size:g}"

    def concerns(self, *instances: str) -> bool:
        """Whether it is about one of these servers; none given = all of the pool."""
        return not (instances and self.instances) or not self.instances.isdisjoint(instances)


@dataclass(frozen=True, slots=True)
class Finding:
    """One event of one incident.

    Attributes:
        event: ``firing``, ``updated`` or ``resolved`` of a page that ``driftwatch replay --json``
            prints; ``joined`` where ``driftwatch incidents --json`` lists a server that met the
            rule after the page, and that no page names.
        instances: the servers that it names; empty where there are more than a page names.
    """

    event: str
    rule: str
    severity: str
    at_seconds: float
    started_seconds: float
    instances: frozenset[str] = frozenset()
    leaf: str | None = None
    knob: str | None = None
    before: float | None = None
    after: float | None = None
    speed_ratio: float | None = None

    @property
    def said(self) -> Said:
        """Severity and rule: a notice is no page, whichever rule it is of."""
        return self.severity, self.rule


@dataclass(frozen=True, slots=True)
class Stretch:
    """Some servers over some time, as one replay saw them."""

    name: str
    draw: str
    start_seconds: float
    end_seconds: float
    instances: tuple[str, ...]
    episodes: tuple[Episode, ...] = ()
    findings: tuple[Finding, ...] = ()
    present: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)

    def block(self, at_seconds: float) -> Block:
        """The bootstrap's block of a moment."""
        return self.draw, int(at_seconds // DAY_SECONDS)

    def stays(self, instance: str) -> Sequence[tuple[float, float]]:
        """From when to when a server was there."""
        return self.present.get(instance, ((self.start_seconds, self.end_seconds),))


def seconds_of(text: str) -> float:
    """ISO 8601 → unix seconds."""
    return datetime.fromisoformat(text).timestamp()


def finding_of(page: Mapping[str, Any]) -> Finding:
    """One line of ``driftwatch replay --json`` (``driftwatch schema page``)."""
    times, diagnosis, servers = page["times"], page["diagnosis"] or {}, page["servers"]
    change: Mapping[str, Any] = next(iter((page["advice"] or {}).get("moves") or ()), {})
    every = servers["concerned"] <= len(servers["first"])
    return Finding(
        event=page["event"],
        rule=page["alert"],
        severity=page["severity"],
        at_seconds=seconds_of(times["evaluated_at"]),
        started_seconds=seconds_of(times["started_at"]),
        instances=frozenset(servers["first"] if every else ()),
        leaf=diagnosis.get("leaf"),
        knob=change.get("knob"),
        before=change.get("from_value"),
        after=change.get("to_value"),
        speed_ratio=page["evidence"].get(SPEED, {}).get("value"),
    )


def findings_of(pages: Iterable[Mapping[str, Any]]) -> tuple[Finding, ...]:
    """All of them, oldest first."""
    return tuple(sorted((finding_of(page) for page in pages), key=lambda f: f.at_seconds))


def joined_of(
    incidents: Iterable[Mapping[str, Any]], findings: Sequence[Finding]
) -> tuple[Finding, ...]:
    """Servers that joined an incident without a page that names them.

    ``incidents``: of ``driftwatch incidents --all --json``. A server that left and came back
    counts from when it came back: the incident keeps no earlier time.
    """
    joined = []
    for incident in incidents:
        if incident["firing_at"] is None:
            continue
        firing = seconds_of(incident["firing_at"])
        over = incident["resolved_at"] and seconds_of(incident["resolved_at"])
        named = frozenset[str]().union(
            *(
                f.instances
                for f in findings
                if f.rule == incident["alert"]
                and f.event in ("firing", "updated")
                and firing <= f.at_seconds
                and (over is None or f.at_seconds <= over)
            )
        )
        for server in incident["servers"]:
            since, instance = seconds_of(server["since"]), server["instance"]
            if server["met"] and not server["inhibited_by"] and instance not in named:
                joined.append(
                    Finding(
                        "joined",
                        incident["alert"],
                        incident["severity"],
                        max(firing, since),
                        since,
                        frozenset({instance}),
                    )
                )
    return tuple(joined)
