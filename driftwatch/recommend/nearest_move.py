"""Which of two settings to take where the data do not say that the further one serves more.

What is open of the law is common to both: in each world they serve the same requests, and what
counts is by how much they differ in one and the same world. Where that is less than what it varies
by from world to world, the nearer setting is taken: another seed, or the next minute, would have
told them apart the other way. What every world agrees on is not open, however much they differ
beyond it.
"""

from __future__ import annotations

from collections.abc import Sequence


def served_alike(
    nearer: Sequence[float | None], further: Sequence[float | None], ties: float
) -> bool:
    """The further setting puts no more requests in target, as far as can be told.

    Args:
        nearer: share in target in each world; None = vLLM would refuse the setting.
        further: … in the same worlds.
        ties: of the share in target: less is no difference anyway.
    """
    more = []
    for one, other in zip(nearer, further, strict=True):
        if one is None or other is None:
            return False
        more.append(other - one)
    if not more:
        return False
    return min(more) <= ties and sum(more) / len(more) <= max(ties, (max(more) - min(more)) / 2)
