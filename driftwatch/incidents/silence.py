"""Silences hold back messages until a time. Pure; matchers as in Alertmanager."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer

from driftwatch.documents import Document
from driftwatch.errors import UsageError
from driftwatch.incidents.incident import Incident
from driftwatch.matchers import MATCHER_HELP, Matcher, parse_matcher

MOST_MATCHERS, LONGEST = 20, timedelta(days=30)
# labels of every server of an incident, besides the rule's own
LABELS = ("alert", "engine", "instance", "model_name", "pool", "rule", "severity")


WrittenMatcher = Annotated[
    Matcher,
    BeforeValidator(lambda one: parse_matcher(one) if isinstance(one, str) else one),
    PlainSerializer(lambda one: one.text, return_type=str),
]


class Silence(Document):
    """Messages about servers whose labels match are held back from ``starts_at`` to ``until``."""

    id: str  # short id
    matchers: tuple[WrittenMatcher, ...]  # all must match
    until: datetime  # planned end
    created_by: str
    created_at: datetime
    starts_at: datetime
    comment: str = ""  # the reason
    expired_at: datetime | None = None  # when a person ended it early; None otherwise

    @property
    def ends_at(self) -> datetime:
        """The end: planned, or earlier by a person."""
        return self.until if self.expired_at is None else min(self.until, self.expired_at)

    def active(self, at: datetime) -> bool:
        """Whether the silence holds: from ``starts_at`` until its end, without the end."""
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
    # as in Alertmanager: matchers that accept missing labels would silence everything
    if all(matcher.matches({}) for matcher in matchers):
        raise UsageError(
            "these matchers match every incident, whatever its labels",
            help_text="add one that asks for a label, e.g. alert=BatchLimitBinding",
        )
    return matchers


def matches(silence: Silence, labels: Mapping[str, str]) -> bool:
    """Whether all matchers of the silence match these labels."""
    return all(matcher.matches(labels) for matcher in silence.matchers)


def silences_incident(silence: Silence, incident: Incident) -> bool:
    """Whether the silence matches a server of the incident."""
    return any(matches(silence, labels) for labels in incident.server_labels())


def silence_matchers(incident: Incident) -> tuple[Matcher, ...]:
    """Matchers for the incident's alert on its only server, else in its pool."""
    keys = incident.concerned
    labels = {"pool": incident.pool}
    if len(keys) == 1:
        labels = {"instance": keys[0].instance, "engine": keys[0].engine}
    matchers = [Matcher("alert", "=", incident.alert)]
    return (*matchers, *(Matcher(name, "=", label) for name, label in labels.items()))


def silenced_by(incident: Incident, silences: Iterable[Silence], at: datetime) -> str | None:
    """Id of the silence that holds back an incident's messages; None unless each of its servers is
    silenced.

    Of a server's silences the longest counts. Of all servers' silences, the one that ends first.
    """
    active = [silence for silence in silences if silence.active(at)]
    if not active:
        return None
    each = []
    for labels in incident.server_labels():
        matching = [silence for silence in active if matches(silence, labels)]
        if not matching:
            return None
        each.append(min(matching, key=lambda s: (-s.until.timestamp(), s.id)))
    return min(each, key=lambda s: (s.until, s.id)).id
