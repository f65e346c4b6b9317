"""Routes: which incidents go to which receivers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Self, get_args

from pydantic import AfterValidator, Field, field_validator, model_validator

from driftwatch.errors import UsageError
from driftwatch.matchers import Matcher, parse_matcher
from driftwatch.model import Severity
from driftwatch.settings.values import Name
from driftwatch.yaml_models import Duration, Part, fault, near

SEVERITIES: tuple[Severity, ...] = get_args(Severity)
SHORTEST_REPEAT_SECONDS = 60.0


def _matcher(text: str) -> str:
    """A matcher; one of severities names one that there is."""
    try:
        matcher = parse_matcher(text)
    except UsageError as error:
        raise fault("matcher", error.message, error.help_text) from None
    if matcher.name == "severity" and not any(_of_severity(matcher, one) for one in SEVERITIES):
        message = f"no severity matches {text}"
        help_text = near(matcher.value, SEVERITIES) or f"severities: {', '.join(SEVERITIES)}"
        raise fault("unknown-severity", message, help_text)
    return text


def _of_severity(matcher: Matcher, severity: Severity) -> bool:
    return matcher.matches({"severity": severity})


MatcherText = Annotated[str, AfterValidator(_matcher)]
Names = Annotated[tuple[Name, ...], Field(min_length=1)]


def each_once(names: Sequence[str]) -> None:
    """Refuse a list in which a name stands twice."""
    for position, name in enumerate(names):
        if name in names[:position]:
            raise fault("duplicate", f"{name} is named twice", inner=(position,))


class RouteSettings(Part):
    """Which incidents go to which receivers; the first route that matches decides."""

    matchers: tuple[MatcherText, ...] = Field(
        (), description="conditions on labels, all of them; without any every incident"
    )
    receivers: Names = Field(description="names of the receivers that get them")
    repeat_every: Duration | None = Field(
        None, description="time between pages until one is acknowledged; 0 = one page alone"
    )

    @field_validator("receivers")
    @classmethod
    def _check_names(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        each_once(names)
        return names

    @field_validator("repeat_every")
    @classmethod
    def _check_repeat(cls, seconds: float | None) -> float | None:
        if seconds is not None and 0 < seconds < SHORTEST_REPEAT_SECONDS:
            raise ValueError("a page is repeated once a minute at most; 0 = never")
        return seconds

    @model_validator(mode="after")
    def _check(self) -> Self:
        parsed = self.parsed
        for position, one in enumerate(parsed):
            fixed = [other for other in parsed if other.operator == "="]
            for other in fixed:
                if other.name == one.name and not one.matches({one.name: other.value}):
                    message = f"no incident has both {other.text} and {one.text}"
                    raise fault("unreachable-route", message, inner=("matchers", position))
        return self

    @property
    def parsed(self) -> tuple[Matcher, ...]:
        """The matchers."""
        return tuple(parse_matcher(text) for text in self.matchers)


def never_reached(routes: Sequence[RouteSettings]) -> Mapping[int, int]:
    """Position of a route that no incident reaches → position of the route that takes them all.

    A route takes whatever another one matches where each of its matchers is one of the other's, or
    follows from a label that the other one fixes; severities are tried one by one.
    """
    unreached: dict[int, int] = {}
    matchers = [route.parsed for route in routes]
    for position, own in enumerate(matchers):
        takers = []
        for severity in SEVERITIES:
            if all(one.matches({"severity": severity}) for one in own if one.name == "severity"):
                fixed = {one.name: one.value for one in own if one.operator == "="}
                fixed["severity"] = severity
                taker = next(
                    (at for at in range(position) if _takes_all(matchers[at], own, fixed)), None
                )
                takers.append(taker)
        if takers and None not in takers:
            unreached[position] = max(taker for taker in takers if taker is not None)
    return unreached


def _takes_all(
    earlier: Sequence[Matcher], own: Sequence[Matcher], fixed: Mapping[str, str]
) -> bool:
    """Whether every label set that ``own`` matches is one that ``earlier`` matches."""
    return all(
        one in own or (one.name in fixed and one.matches({one.name: fixed[one.name]}))
        for one in earlier
    )
