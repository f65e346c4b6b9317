"""Matchers: conditions on labels, of silences and of routes. Pure; syntax as in Alertmanager."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from driftwatch.errors import UsageError

Operator = Literal["=", "!=", "=~", "!~"]

LONGEST_MATCHER = 512

_MATCHER = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)\s*(=~|!~|!=|=)(.*)", re.DOTALL)
MATCHER_HELP = (
    'write name=value, name!=value, name=~regex or name!~regex, e.g. instance=~"gpu-7:.*"'
)


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


def parse_matcher(text: str) -> Matcher:
    """Read one matcher; the value may stand in double quotes.

    Raises UsageError: it is not a matcher, or its regular expression is not one.
    """
    if len(text) > LONGEST_MATCHER:
        raise UsageError(f"a matcher is at most {LONGEST_MATCHER} characters long")
    match = _MATCHER.fullmatch(text)
    if match is None:
        raise UsageError(f"{text!r} is not a matcher", help_text=MATCHER_HELP)
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
