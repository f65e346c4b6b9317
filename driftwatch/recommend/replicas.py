"""How many replicas a demand takes."""

from __future__ import annotations

import math


def replicas_for(demand: float, capacity: float) -> int:
    """Replicas whose load stays at or below their capacity.

    ``demand``: requests a second of all together; ``capacity``: of one, above 0.

    >>> replicas_for(30.0, 10.0), replicas_for(0.0, 10.0)
    (3, 1)
    """
    return max(1, math.ceil(demand / capacity))
