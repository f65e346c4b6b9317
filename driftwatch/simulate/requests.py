"""Requests to an engine: one row each, in the order of arrival."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from driftwatch.arrays import Flags, Floats, Integers

NO_GROUP = -1  # the prompt shares no prefix
LOOK_UP = -1  # cached tokens are found in the simulated block cache, not given
NO_ADAPTER = -1
NEVER = np.inf  # the client does not cancel


@dataclass(frozen=True, slots=True, eq=False)
class Requests:
    """Arrays of one length, sorted by arrival (equal times keep their order)."""

    arrival_seconds: Floats  # at the server, on the simulation's clock
    prompt_tokens: Integers  # at least 1
    generation_tokens: Integers  # at least 1
    priority: Integers  # lower is served first under the priority policy
    prefix_group: Integers  # requests of one group (>= 0) begin with the same text; NO_GROUP = none
    # length of the group's common text, at the start of the prompt
    shared_prefix_tokens: Integers
    # prefix hit at the first admission, if given (then later admissions hit nothing);
    # LOOK_UP = ask the simulated block cache
    cached_tokens: Integers
    cancel_seconds: Floats  # when the client gives up, on the same clock; NEVER = it does not
    adapter: Integers  # LoRA adapter (>= 0); NO_ADAPTER = the base model

    def __len__(self) -> int:
        return len(self.arrival_seconds)

    def take(self, which: Flags | Integers | slice) -> Requests:
        """Some of them, by mask, index or slice."""
        return Requests(**{f.name: getattr(self, f.name)[which] for f in fields(self)})

    def at(self, arrival_seconds: Floats) -> Requests:
        """These requests, repeated in order, at these sorted times; none cancels."""
        count = len(arrival_seconds)
        return replace(
            self.take(np.arange(count, dtype=np.int64) % len(self)),
            arrival_seconds=arrival_seconds,
            cancel_seconds=np.full(count, NEVER),
        )


# values of a request that are not given
_NEUTRAL = {
    **{"priority": 0, "prefix_group": NO_GROUP, "shared_prefix_tokens": 0},
    **{"cached_tokens": LOOK_UP, "cancel_seconds": NEVER, "adapter": NO_ADAPTER},
}


def make_requests(
    arrival_seconds: npt.ArrayLike,
    prompt_tokens: npt.ArrayLike,
    generation_tokens: npt.ArrayLike,
    **others: npt.ArrayLike | None,
) -> Requests:
    """Requests from array-likes; ``others``: by the names of :class:`Requests`, None = neutral.

    Raises ValueError: lengths differ, times are unsorted, negative or not finite, lengths below 1.
    """
    arrival = np.ascontiguousarray(arrival_seconds, dtype=np.float64)
    given = {"prompt_tokens": prompt_tokens, "generation_tokens": generation_tokens}
    given |= {name: values for name, values in others.items() if values is not None}
    neutral = {name: np.full(len(arrival), value) for name, value in _NEUTRAL.items()}
    columns: dict[str, Any] = {
        name: np.ascontiguousarray(
            values, dtype=np.float64 if name == "cancel_seconds" else np.int64
        )
        for name, values in (neutral | given).items()
    }
    for name, values in columns.items():
        if len(values) != len(arrival):
            raise ValueError(f"{name} has another length than arrival_seconds")
    if len(arrival):
        if not np.isfinite(arrival).all() or arrival[0] < 0 or (np.diff(arrival) < 0).any():
            raise ValueError("arrival_seconds must be finite, not negative, and sorted")
        for name in ("prompt_tokens", "generation_tokens"):
            if columns[name].min() < 1:
                raise ValueError(f"{name} must be at least 1")
    return Requests(arrival, **columns)
