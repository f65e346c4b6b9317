"""A condition taken apart."""

from __future__ import annotations

import polars as pl

from driftwatch.condition import parse_condition
from driftwatch.rulebook.comparisons import Comparison, Joined, parts_of


def test_not_goes_into_what_it_is_about() -> None:
    part = parts_of(parse_condition("NOT (restarted OR scrapes > 3 AND slo_missed IS NULL)"))
    assert isinstance(part, Joined) and part.how == "all"
    outer, inner = part.parts
    assert isinstance(outer, Comparison) and outer.columns == ("restarted",)
    assert isinstance(inner, Joined) and inner.how == "any"
    row = pl.DataFrame(
        [{"restarted": False, "scrapes": 4.0, "slo_missed": None}],
        schema={"restarted": pl.Boolean, "scrapes": pl.Float64, "slo_missed": pl.Boolean},
    )
    truths = [row.select(one.truth).item() for one in (outer, *inner.parts)]  # type: ignore[union-attr]
    assert truths == [True, False, False]
