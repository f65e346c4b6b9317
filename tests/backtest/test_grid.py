"""What a grid may vary, and that it varies that alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from driftwatch.backtest.grid import axis_of
from driftwatch.condition import parse_condition
from driftwatch.errors import UsageError
from driftwatch.rulebook.book import load_rulebook
from driftwatch.rulebook.rules import Override, Rule

RULE = Rule(
    "Queue",
    "Queue",
    "mine",
    "page",
    parse_condition(
        "waiting_requests > 20 AND kv_cache_usage_ratio < 0.8 AND (waiting_requests > 20 OR "
        "requests_per_second_ratio >= 1 OR requests_per_second_ratio >= 2) "
        "AND 2*running_requests >= 3"
    ),
)


def test_a_threshold_is_varied_wherever_the_column_is_compared() -> None:
    axis = axis_of("Queue.waiting_requests=5, 40", [RULE])
    assert axis.values == ("5", "40")
    assert axis.applied(RULE, "5").when.text == RULE.when.text.replace(
        "waiting_requests > 20", "waiting_requests > 5"
    )
    assert axis.applied(RULE, "20") == RULE


def test_for_is_varied() -> None:
    axis = axis_of("Queue.for=0s,90s", [RULE])
    assert axis.applied(RULE, "90s") == replace(RULE, for_seconds=90.0)


def test_an_override_follows_where_it_says_nothing_else() -> None:
    same = replace(RULE, keep_firing_for_seconds=60.0)
    other = replace(RULE, for_seconds=300.0)
    rule = replace(RULE, overrides=(Override(("a",), same), Override(("b",), other)))
    varied = axis_of("Queue.for=0s,90s", [rule]).applied(rule, "90s")
    assert [one.rule.for_seconds for one in varied.overrides] == [90.0, 300.0]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("Queue", "is no axis"),
        ("Queue.for=", "is no axis"),
        ("Queue.for=5", "5 is not a duration"),
        ("Que.for=5m", "there is no rule Que"),
        ("Queue.prompt_tokens_mean=1,2", "compares no number with prompt_tokens_mean"),
        ("Queue.running_requests=1,2", "compares no number with running_requests"),
        ("Queue.requests_per_second_ratio=1", "compares requests_per_second_ratio with 1, 2"),
        ("Queue.waiting_requests=many", "'many' is not a number"),
        ("Queue.waiting_requests=1 OR 1", "'1 OR 1' is not a number"),
    ],
)
def test_what_is_no_axis(text: str, why: str) -> None:
    with pytest.raises(UsageError) as error:
        axis_of(text, [RULE])
    assert why in error.value.message
    assert error.value.help_text


def test_rules_of_one_alert_are_told_apart_by_their_ids() -> None:
    rules = load_rulebook().rules
    with pytest.raises(UsageError) as error:
        axis_of("LengthDrift.for=5m", rules)
    first = 'LengthDrift{direction="longer", signal="prompt_tokens"}'
    assert first in (error.value.help_text or "")
    assert axis_of(f"{first}.for=5m", rules).rule == first
