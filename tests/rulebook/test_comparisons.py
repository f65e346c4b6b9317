"""A condition taken apart: its words, and how far a row is from it."""

from __future__ import annotations

import random
from collections.abc import Iterator

import polars as pl
import pytest

from driftwatch.condition import Condition, parse_condition
from driftwatch.evidence import BY_NAME
from driftwatch.rulebook.book import Rulebook, load_rulebook
from driftwatch.rulebook.comparisons import Comparison, comparisons, failing, parts_of


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("waiting_requests > 20", "waiting_requests is above 20 requests"),
        ("20 <= waiting_requests", "waiting_requests is at least 20 requests"),
        ("NOT (waiting_requests > 20)", "waiting_requests is at most 20 requests"),
        ("NOT NOT kv_cache_usage_ratio < 0.8", "kv_cache_usage_ratio is below 0.8"),
        ("NOT (20 < waiting_requests)", "waiting_requests is at most 20 requests"),
        ("restarted", "restarted is true"),
        ("NOT restarted", "restarted is false"),
        ("restarted = FALSE", "restarted is equal to FALSE"),
        ("slo_missed IS NULL", "slo_missed is unknown"),
        ("slo_missed IS NOT NULL", "slo_missed is not unknown"),
        ("binding_limit IN ('kv_cache', 'none')", "binding_limit is one of 'kv_cache', 'none'"),
        ("binding_limit NOT IN ('none')", "binding_limit is none of 'none'"),
        ("scrapes NOT BETWEEN 1 AND 5", "scrapes is outside 1 and 5 scrapes"),
        (
            "speed_at_equal_load_ratio <= speed_threshold_ratio",
            "speed_at_equal_load_ratio is at most speed_threshold_ratio",
        ),
        ("preemptions_per_second * 60 > 3", "preemptions_per_second * 60 is above 3"),
        ("itl_seconds_mean > 0.1", "itl_seconds_mean is above 0.1 s"),
    ],
)
def test_words_of_one_comparison(text: str, words: str) -> None:
    part = parts_of(parse_condition(text))
    assert isinstance(part, Comparison)
    assert f"{part.subject} is {part.wanted}" == words


def test_not_goes_into_what_it_is_about() -> None:
    part = parts_of(parse_condition("NOT (restarted OR scrapes > 3 AND slo_missed IS NULL)"))
    assert not isinstance(part, Comparison)
    assert part.how == "all"
    words = [f"{one.subject} is {one.wanted}" for one in comparisons(part)]
    assert words == [
        "restarted is false",
        "scrapes is at most 3 scrapes",
        "slo_missed is not unknown",
    ]
    (_, inner) = part.parts
    assert not isinstance(inner, Comparison) and inner.how == "any"


def _conditions(book: Rulebook) -> Iterator[Condition]:
    for rule in book.rules:
        yield from (c for c in (rule.when, rule.precondition, rule.until) if c is not None)
    for tree in book.trees.values():
        yield from (node.when for node in tree.nodes.values())


def _value(name: str, dice: random.Random) -> object:
    if dice.random() < 0.2:
        return None
    match BY_NAME[name].dtype:
        case "bool":
            return dice.random() < 0.5
        case "string":
            return dice.choice(["none", "kv_cache", "max_num_seqs", "x"])
    return dice.choice([0.0, 0.1, 0.4, 0.5, 0.85, 1.0, 1.5, 30.0, 600.0])


def test_no_cost_is_true_and_a_cost_is_not() -> None:
    """Of every shipped condition, over random rows; what fails is wrong, and is all that is."""
    dice, checked = random.Random(5), 0
    for condition in _conditions(load_rulebook()):
        part, names = parts_of(condition), sorted(condition.columns)
        rows = pl.DataFrame(
            [{name: _value(name, dice) for name in names} for _ in range(200)],
            infer_schema_length=None,
        )
        truths = rows.select(truth=condition.expression, cost=part.cost)
        assert truths.filter(pl.col("truth").fill_null(False) != (pl.col("cost") == 0)).is_empty()
        for number in range(0, 200, 20):
            row = rows.slice(number, 1)
            wrong = failing(part, row)
            assert bool(wrong) is not bool(truths["truth"][number])
            assert not any(row.select(one.truth).item() for one in wrong)
            if truths["truth"][number] is False and truths["cost"][number] < 2:
                assert len(wrong) == 1
            checked += 1
    assert checked > 300


def test_fewest_then_lightest() -> None:
    part = parts_of(parse_condition("scrapes > 10 AND waiting_requests > 10"))
    rows = pl.DataFrame(
        {"scrapes": [9.0, 20.0, 20.0, 5.0], "waiting_requests": [9.9, 2.0, 9.0, 20.0]}
    )
    assert rows.select(part.cost.arg_sort()).to_series().to_list() == [2, 3, 1, 0]
