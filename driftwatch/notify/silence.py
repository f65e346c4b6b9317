"""Silences: which pages are held back, and until when. Pure; matchers as in Alertmanager."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from driftwatch.errors import UsageError
from driftwatch.model import Incident

Operator = Literal["=", "!=", "=~", "!~"]

LONGEST_MATCHER = 512

_MATCHER = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)\s*(=~|!~|!=|=)(.*)", re.DOTALL)
_HELP = 'write name=value, name!=value, name=~regex or name!~regex, e.g. instance=~"gpu-7:.*"'


@dataclass(frozen=True, slots=True)
class Matcher:
    """One condition on one label; a label that is missing reads as the empty string."""

    name: str  # label name; besides the target's labels there are alert, rule and severity
    operator: Operator  # ``=``, ``!=``, ``=~`` or ``!~``
    value: str  # text or regular expression (the whole label must match it)

    @property
    def text(self) -> str:
        """As it is written on the command line."""
        return f"{self.name}{self.operator}{self.value}"

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether these labels satisfy it."""
        label = labels.get(self.name, "")
        if self.operator in ("=", "!="):
            equal = label == self.value
        else:
            equal = re.fullmatch(self.value, label, re.DOTALL) is not None
        return equal == (self.operator in ("=", "=~"))


@dataclass(frozen=True, slots=True)
class Silence:
    """Firing pages of matching incidents are held back from ``created_at`` to ``until``."""

    id: str  # short id
    matchers: tuple[Matcher, ...]  # all must match
    until: datetime  # when it ends by itself
    created_by: str  # who asked for it
    created_at: datetime  # from when it holds
    comment: str = ""  # why
    expired_at: datetime | None = None  # when a person ended it early, None otherwise

    def active(self, at: datetime) -> bool:
        """Whether it holds at this time (from ``created_at``, up to and without its end)."""
        end = self.until if self.expired_at is None else min(self.until, self.expired_at)
        return self.created_at <= at < end


def parse_matcher(text: str) -> Matcher:
    """Read one matcher; the value may stand in double quotes.

    Raises UsageError: it is not a matcher, or its regular expression is not one.
    """
    if len(text) > LONGEST_MATCHER:
        raise UsageError(f"a matcher is at most {LONGEST_MATCHER} characters long")
    match = _MATCHER.fullmatch(text)
    if match is None:
        raise UsageError(f"{text!r} is not a matcher", help_text=_HELP)
    name, operator, value = match.groups()
    value = value.strip()
    if len(value) >= 2 and value[0] == value[-1] == '"':
        value = value[1:-1]
    if operator in ("=~", "!~"):
        try:
            re.compile(value)
        except re.error as error:
            raise UsageError(f"{text!r}: not a regular expression: {error}") from None
    return Matcher(name=name, operator=operator, value=value)  # type: ignore[arg-type]


def parse_matchers(texts: Iterable[str]) -> tuple[Matcher, ...]:
    """Read the matchers of one silence.

    Raises UsageError: one is wrong, there is none, or together they would match every incident.
    """
    matchers = tuple(parse_matcher(text) for text in texts)
    if not matchers:
        raise UsageError("a silence needs at least one matcher", help_text=_HELP)
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


def silenced_by(incident: Incident, silences: Iterable[Silence], at: datetime) -> str | None:
    """Id of the silence that holds this incident's page back at this time, else None.

    Where several do, the one that lasts longest is named (then the smallest id).
    """
    labels = labels_of(incident)
    in_force = [s for s in silences if s.active(at) and matches(s, labels)]
    return min(in_force, key=lambda s: (-s.until.timestamp(), s.id)).id if in_force else None
