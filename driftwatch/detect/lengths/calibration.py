"""Every number that the length scores start from, each with where it comes from.

They hold until a target's or a pool's own past says more; which of them answered is a column
(``*_calibration``: own, pool, shipped).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Shipped:
    """A number and its source.

    Attributes:
        value: the number.
        source: the measurement it was read from.
    """

    value: float
    source: str


PEER_SCALE: Final = Shipped(
    4.0,
    "99 % quantile of JS x sqrt(n_eff), one server against its twins: 3.3 (prompts) and 3.7 "
    "(generations) on ServeGen m-small days 1-7, 3.9 and 3.9 on Azure conv 2023; 1.9 to 2.3 on "
    "the same traffic thinned to 1 in 10 or 20",
)
UNCALIBRATED: Final = Shipped(
    2.0,
    "own scales of five days: 2.2 to 2.8 (ServeGen m-small days 8-14), 2.7 to 3.5 (m-mid days "
    "8-14, even clients), 4.4 to 4.6 (Azure conv at 5 requests a second): traffic that nobody "
    "measured may be a factor of 2 apart. Of 20 false episodes on m-mid before it had a scale of "
    "its own the highest score was 2.0; prompts x1.4 at one of six servers score 3.6 to 5.6",
)
CONTEXT_SCALE: Final = Shipped(
    10.5,
    "99 % quantile of JS x sqrt(m) of a pool's nearest context on ServeGen m-small days 2-7 "
    "(prompts 10.5, generations 9.6); Azure conv 2023 with a season has 2",
)
PEER_TAIL: Final = Shipped(
    2.6,
    "99 % quantile over median of the same statistic: 2.5 and 2.8 (ServeGen), 2.0 and 2.4 (Azure), "
    "1.5 to 1.9 (thinned)",
)
# The 99 % quantile counts up to so many times the tail that bursty traffic has.
MOST_TAIL: Final = 1.4
PEER_THRESHOLD: Final = Shipped(
    1.4,
    "0.6 false episodes a server-month (3 in 4.7 of ServeGen days 1-7, 2.9 requests a second a "
    "server; 2 in 2.3 of Azure conv) with a part of a distribution counting 0.7; the design's 1.3 "
    "for any move gives 5 to 19 on these bursts",
)
CONTEXT_THRESHOLD: Final = Shipped(
    2.0, "detection.md; the largest of six ServeGen days is 1.6 times its 99 % quantile"
)
# What the weekly reset may do to a threshold, as multiples of the design's (detection.md: 1.3, 2.0)
DESIGN_PEER: Final = 1.3
DESIGN_CONTEXT: Final = 2.0
LEAST_FACTOR: Final = 0.8
MOST_FACTOR: Final = 3.0

# Where more requests make a pool's own drift no better known: JS of adjacent hours has a floor
# that no sample size removes (ServeGen: 0.04 in the median at 130,000 requests a window).
CONTEXT_REQUESTS: Final = 4000.0
