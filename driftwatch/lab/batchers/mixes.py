"""What is offered at each load: the same requests in the same order, only closer together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from driftwatch.simulate.requests import NEVER, Requests, make_requests

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

MOST_TOKENS = 1_000_000  # a batch keeps a time for each token of its longest member


@dataclass(frozen=True, slots=True, eq=False)
class Mix:
    """Lengths in their order, cycled where more are needed."""

    prompt_tokens: Integers  # of each request
    generation_tokens: Integers  # of each request
    seed: int = 0  # of the arrivals and of who gives up
    cancel_ratio: float = 0.0  # share of clients that give up of themselves, 0 … 1
    cancel_after_seconds: float = 1.0  # mean time (exponential) after which those do

    def at_rate(self, requests_per_second: float, count: int) -> Requests:
        """``count`` requests with Poisson arrivals: of another rate, the gaps alone differ."""
        gaps = np.random.default_rng((self.seed, 1)).exponential(size=count)
        return self.at(np.cumsum(gaps) / requests_per_second)

    def at_once(self, count: int) -> Requests:
        """``count`` requests that are all there from the start."""
        return self.at(np.zeros(count))

    def at(self, arrival_seconds: Floats) -> Requests:
        """The mix at sorted times.

        Raises ValueError: generations above `MOST_TOKENS`.
        """
        if (longest := int(self.generation_tokens.max())) > MOST_TOKENS:
            raise ValueError(f"a generation of {longest:,} tokens; at most {MOST_TOKENS:,}")
        count = len(arrival_seconds)
        rng = np.random.default_rng((self.seed, 2))
        gives_up = rng.random(count) < self.cancel_ratio
        after = rng.exponential(self.cancel_after_seconds, count)
        return make_requests(
            arrival_seconds,
            np.resize(self.prompt_tokens, count),
            np.resize(self.generation_tokens, count),
            cancel_seconds=np.where(gives_up, arrival_seconds + after, NEVER),
        )


def lognormal_lengths(
    mean_tokens: float, cv: float, count: int, seed: int | tuple[int, ...] | np.random.Generator
) -> Integers:
    """Log-normal lengths in tokens, whole and at least 1, with this mean and sd / mean.

    Rounded to whole tokens: a mean of a few tokens is met less exactly.

    Raises ValueError: a mean below 1, a negative cv.
    """
    if not 1.0 <= mean_tokens < np.inf or not 0.0 <= cv < np.inf:
        raise ValueError(f"mean must be at least 1 token and cv not negative: {mean_tokens}, {cv}")
    spread = np.log1p(cv * cv)
    lengths = np.random.default_rng(seed).lognormal(
        np.log(mean_tokens) - spread / 2, np.sqrt(spread), count
    )
    return np.maximum(1, np.rint(lengths)).astype(np.int64)
