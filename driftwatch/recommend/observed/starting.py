"""Requests that were running when a window began, as requests that arrive at its second 0."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Start:
    """Those that were running when the stretch began: what they had, and their rest.

    Attributes:
        prompt_tokens: prompt and what had been generated.
        generation_tokens: the rest, at least 1.
        cached_tokens: all but the last token: what a scheduler does not compute again.
    """

    prompt_tokens: Integers
    generation_tokens: Integers
    cached_tokens: Integers


def running_start(prompt: Integers, generation: Integers, done: Integers) -> Start:
    """What ran, as requests of which all but the rest is a cached prompt.

    Args:
        prompt: whole prompts of those that ran, tokens.
        generation: whole generations.
        done: what had been generated of each, below the generation.
    """
    done = np.minimum(done, generation - 1)
    return Start(prompt + done, generation - done, np.maximum(prompt + done - 1, 0))


def any_share(generation: Integers, rng: np.random.Generator) -> Integers:
    """Seen at a random moment of its life, a request has any share of its generation done."""
    shares: Integers = np.floor(rng.random(len(generation)) * generation).astype(np.int64)
    return shares
