"""Matchers: conditions on labels, of silences. Pure; syntax as in Alertmanager.

A regular expression is searched in time that grows with the label alone, as in Alertmanager's RE2:
what somebody writes into a silence is compared with every incident, each minute.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from driftwatch.errors import UsageError

Operator = Literal["=", "!=", "=~", "!~"]

LONGEST_MATCHER = 512
# of one label and one expression the answer is kept, unless the label is longer than any usual one
_KEPT_ANSWERS, _LONGEST_KEPT = 8192, 1024

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
        """Whether these labels satisfy it; of an expression that cannot be searched none do."""
        label = labels.get(self.name, "")
        equal: bool | None = label == self.value
        if self.operator in ("=~", "!~"):
            is_short = len(label) <= _LONGEST_KEPT
            equal = (_is_like if is_short else _is_like.__wrapped__)(self.value, label)
        return equal is not None and equal == (self.operator in ("=", "=~"))


@lru_cache(_KEPT_ANSWERS)
def _is_like(expression: str, label: str) -> bool | None:
    """Whether the whole label is like the expression; None: it is none that is searched."""
    import polars as pl
    from polars.exceptions import ComputeError

    try:
        is_like = pl.Series([label]).str.contains(rf"\A(?s:{expression})\z")
    except ComputeError:
        return None
    return bool(is_like[0])


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
        if _is_like(value, "") is None:
            raise UsageError(
                f"{text!r}: this regular expression is not searched",
                help_text="no look-around, no back-reference, no comment, no huge repetition",
            )
    return Matcher(name=name, operator=operator, value=value)  # type: ignore[arg-type]
