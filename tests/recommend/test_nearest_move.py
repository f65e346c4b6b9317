"""Where the data do not tell two settings apart, the nearer is taken."""

from __future__ import annotations

import pytest

from driftwatch.recommend.nearest_move import served_alike
from driftwatch.recommend.replaying import Measured

TIES = 0.02


@pytest.mark.parametrize(
    ("nearer", "further", "alike"),
    [
        ((0.95, 0.95, 0.95), (0.96, 0.96, 0.96), True),  # less than a tie
        ((0.80, 0.80, 0.80), (0.90, 0.90, 0.90), False),  # in every world the same
        ((0.95, 0.80, 1.00), (1.00, 0.99, 1.00), True),  # in one world no difference at all
        ((0.60, 0.50, 0.70), (0.95, 0.90, 1.00), False),  # much in each
        ((1.00, 1.00, 1.00), (0.90, 0.90, 0.90), True),  # the further one serves fewer
    ],
)
def test_a_further_setting_must_serve_more_in_one_and_the_same_world(
    nearer: tuple[float, ...], further: tuple[float, ...], alike: bool
) -> None:
    one, other = ([Measured(share) for share in shares] for shares in (nearer, further))
    assert served_alike(one, other, TIES) is alike


def test_what_never_fits_is_like_nothing() -> None:
    assert not served_alike([None], [Measured(1.0)], TIES)
