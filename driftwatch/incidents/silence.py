"""Silences: which pages are held back, and until when. Pure; matchers as in Alertmanager."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from driftwatch.errors import UsageError
from driftwatch.incidents.incident import Incident
from driftwatch.matchers import MATCHER_HELP, Matcher, parse_matcher

MOST_MATCHERS = 20
# what every incident carries; a rule may group by other labels, which then stand in incidents
LABELS = ("alert", "engine", "instance", "model_name", "pool", "rule", "severity")


@dataclass(frozen=True, slots=True)
class Silence:
    """Firing pages of matching incidents are held back from ``starts_at`` to ``until``."""

    id: str  # short id
    matchers: tuple[Matcher, ...]  # all must match
    until: datetime  # when it ends by itself
    created_by: str  # who asked for it
    created_at: datetime  # when it was asked for
    starts_at: datetime  # from when it holds
    comment: str = ""  # why
    expired_at: datetime | None = None  # when a person ended it early, None otherwise

    @property
    def ends_at(self) -> datetime:
        """When it ends, by itself or because a person ended it."""
        return self.until if self.expired_at is None else min(self.until, self.expired_at)

    def active(self, at: datetime) -> bool:
        """Whether it holds at this time (from ``starts_at``, up to and without its end)."""
        return self.starts_at <= at < self.ends_at


def parse_matchers(texts: Iterable[str]) -> tuple[Matcher, ...]:
    """Read the matchers of one silence.

    Raises UsageError: one is wrong, there is none, there are more than :data:`MOST_MATCHERS`, or
    together they would match every incident.
    """
    each = tuple(texts)
    if len(each) > MOST_MATCHERS:
        raise UsageError(f"a silence has at most {MOST_MATCHERS} matchers")
    matchers = tuple(parse_matcher(text) for text in each)
    if not matchers:
        raise UsageError("a silence needs at least one matcher", help_text=MATCHER_HELP)
    # as in Alertmanager: what matches a missing label alone would quieten everything
    if all(matcher.matches({}) for matcher in matchers):
        raise UsageError(
            "these matchers match every incident, whatever its labels",
            help_text="add one that asks for a label, e.g. alert=BatchLimitBinding",
        )
    return matchers


def matches(silence: Silence, labels: Mapping[str, str]) -> bool:
    """Whether every matcher of the silence is satisfied by these labels."""
    return all(matcher.matches(labels) for matcher in silence.matchers)


def labels_of(incident: Incident) -> dict[str, str]:
    """What silences match on: the target's labels, and alert, rule and severity."""
    return {
        **incident.target,
        "alert": incident.alert,
        "rule": incident.rule,
        "severity": incident.severity,
    }


def unknown_label_names(
    incidents: Iterable[Incident], matchers: Iterable[Matcher]
) -> list[tuple[str, str | None]]:
    """Label names that no incident carries, each with a close one that some do."""
    labels = set(LABELS).union(*(one.target for one in incidents))
    unknown = sorted({matcher.name for matcher in matchers} - labels)
    return [
        (name, next(iter(difflib.get_close_matches(name, labels, n=1)), None)) for name in unknown
    ]


def silencing(incident: Incident) -> tuple[Matcher, ...]:
    """The alert on this target alone: other engines of its server are other targets."""
    names = ("instance", "engine") if incident.target.get("instance") else ("pool",)
    labels = {name: incident.target.get(name, "") for name in names}
    matchers = [Matcher("alert", "=", incident.alert)]
    matchers += [Matcher(name, "=", label) for name, label in labels.items() if label]
    return tuple(matchers)


def silenced_by(incident: Incident, silences: Iterable[Silence], at: datetime) -> str | None:
    """Id of the silence that holds this incident's page back at this time, else None.

    Where several do, the one that lasts longest is named (then the smallest id).
    """
    labels = labels_of(incident)
    in_force = [s for s in silences if s.active(at) and matches(s, labels)]
    return min(in_force, key=lambda s: (-s.until.timestamp(), s.id)).id if in_force else None
