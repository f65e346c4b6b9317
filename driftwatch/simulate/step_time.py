"""Step times: models that are linear in features of a step.

t = c0 + c1 · max(prefill_tokens − hinge, 0) + c2 · decode_seqs + c3 · kv_tokens_read
  + c4 · prefill_pairs

prefill_tokens: prompt tokens computed in the step; decode_seqs: requests that decode in it;
kv_tokens_read: context tokens that they read (prompt and generated so far, with the step's own
token); prefill_pairs: Σ over prefill chunks of n·C + n·(n+1)/2 with n new tokens after C computed
ones (quadratic attention). With ``capture_sizes`` a step that only decodes pads its decode_seqs up
to the next size (CUDA graphs, vLLM ``config/vllm.py``).
"""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass

from driftwatch.errors import UsageError


@dataclass(frozen=True, slots=True)
class StepTime:
    """A step-time model."""

    c0_seconds: float  # every step
    c1_seconds_per_prefill_token: float  # each prompt token computed above the hinge
    c2_seconds_per_decode_seq: float  # each decoding request
    c3_seconds_per_kv_token: float  # each context token that decoding reads
    # prompt tokens a step that cost nothing (memory-bound until then); 0 = linear
    hinge_tokens: int = 0
    # each (new token, earlier token) pair of prefill attention
    c4_seconds_per_prefill_pair: float = 0.0
    capture_sizes: tuple[int, ...] = ()  # sorted CUDA-graph sizes; empty = no padding

    def seconds(
        self,
        prefill_tokens: int,
        decode_seqs: int,
        kv_tokens_read: int,
        prefill_pairs: float = 0.0,
    ) -> float:
        """The time of one step; the kernel computes the same, in the same order."""
        decoding = decode_seqs
        if prefill_tokens == 0:
            decoding = next((s for s in self.capture_sizes if s >= decode_seqs), decode_seqs)
        return (
            self.c0_seconds
            + self.c1_seconds_per_prefill_token * max(prefill_tokens - self.hinge_tokens, 0)
            + self.c2_seconds_per_decode_seq * decoding
            + self.c3_seconds_per_kv_token * kv_tokens_read
            + self.c4_seconds_per_prefill_pair * prefill_pairs
        )


_MOST = 1e6  # seconds of a step, tokens of a hinge: a clock loses tokens beyond it
_TERMS = (
    "c0 (seconds of every step)",
    "c1 (seconds a prefill token)",
    "c2 (seconds a decoding request)",
    "c3 (seconds a context token)",
    "hinge_tokens",
    "c4 (seconds a pair of prefill attention)",
)


def parse_step_time(text: str) -> StepTime:
    """``c0,c1,c2,c3`` in seconds, optionally ``,hinge_tokens`` and ``,c4`` → a step-time model.

    Raises:
        UsageError: every problem of the text.

    >>> parse_step_time("0.005,3e-5,2e-5,1e-7").c0_seconds
    0.005
    """
    words = [word.strip() for word in text.split(",")]
    numbers, problems = [], []
    if not 4 <= len(words) <= len(_TERMS):
        problems.append(f"needs c0,c1,c2,c3[,hinge_tokens[,c4]], not {len(words)} values")
    for name, word in zip(_TERMS, words, strict=False):
        try:
            numbers.append(float(word))
        except ValueError:
            numbers.append(math.nan)
        number, whole = numbers[-1], name == "hinge_tokens"
        if not 0 <= number <= _MOST or (whole and number % 1):
            wanted = f"a {'whole ' if whole else ''}number from 0 to {_MOST:g}"
            problems.append(f"{name}: {word!r} is not {wanted}")
    if not problems and numbers[0] + min(numbers[1], numbers[2]) <= 0:
        problems.append("c0 and c1 or c2 are 0: a step would take no time")
    if problems:
        raise UsageError(
            f"--step-time: {'; '.join(problems)}",
            help_text="four numbers of seconds: 0.006,2.4e-5,2.5e-5,4.9e-8 (c0,c1,c2,c3)",
        )
    c0, c1, c2, c3, hinge, c4 = (*numbers, 0.0, 0.0)[:6]
    return StepTime(c0, c1, c2, c3, int(hinge), c4)


def describe(step_time: StepTime) -> str:
    """The step-time model as ``--step-time`` takes it."""
    *values, _ = astuple(step_time)  # without the capture sizes
    while len(values) > 4 and not values[-1]:
        values.pop()
    return ",".join(f"{value:.6g}" for value in values)
