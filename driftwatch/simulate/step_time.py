"""How long a step takes: the laws, all linear in features of the step's composition.

t = c0 + c1 · max(prefill_tokens − hinge, 0) + c2 · decode_seqs + c3 · kv_tokens_read
  + c4 · prefill_pairs

prefill_tokens: prompt tokens computed in the step; decode_seqs: requests that decode in it;
kv_tokens_read: context tokens read by those (prompt and generated so far, the step's own token
included); prefill_pairs: Σ over prefill chunks of n·C + n·(n+1)/2 with n new tokens after C
computed ones (quadratic attention). With ``capture_sizes`` a step that only decodes counts its
decode_seqs padded up to the next size (CUDA graphs, vLLM ``config/vllm.py``).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StepTime:
    """A step-time law.

    Attributes:
        c0_seconds: every step.
        c1_seconds_per_prefill_token: each prompt token computed above the hinge.
        c2_seconds_per_decode_seq: each decoding request.
        c3_seconds_per_kv_token: each context token that decoding reads.
        hinge_tokens: prompt tokens a step that cost nothing (memory-bound until then); 0 = linear.
        c4_seconds_per_prefill_pair: each (new token, earlier token) pair of prefill attention.
        capture_sizes: sorted CUDA-graph sizes; empty = no padding.
    """

    c0_seconds: float
    c1_seconds_per_prefill_token: float
    c2_seconds_per_decode_seq: float
    c3_seconds_per_kv_token: float
    hinge_tokens: int = 0
    c4_seconds_per_prefill_pair: float = 0.0
    capture_sizes: tuple[int, ...] = ()

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
