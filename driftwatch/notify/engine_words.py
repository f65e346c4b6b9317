"""What kind of engine a server runs, in words: the same in ``explain`` and in ``doctor``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# kind → in a few words, and what does not apply to it
ENGINE_WORDS: Mapping[str, str] = {
    "pooling": "pooling engine (it generates no tokens)",
    "prefill_only": "prefill-only engine (one token a request)",
    "decode_only": "decode-only engine (its prompts' KV cache comes from a connector)",
}
NOT_APPLICABLE: Mapping[str, str] = {
    "pooling": "speed at equal load, time per output token and generation lengths",
    "prefill_only": "speed at equal load, time per output token and generation lengths",
    "decode_only": "tickets for deferred requests: here they wait for their KV cache",
}
# kind → inputs that its requests never fill
NEVER_FILLED: Mapping[str, frozenset[str]] = {
    "pooling": frozenset(("itl_seconds", "tpot_seconds", "generation_tokens")),
    "prefill_only": frozenset(("itl_seconds", "tpot_seconds")),
}
ASLEEP = "the engine sleeps"


def engine_text(evidence: Mapping[str, Any]) -> str:
    """What a person must know of the engine; "" where it is awake and generates as any other."""
    said = []
    if evidence.get("engine_asleep"):
        said.append(f"{ASLEEP}: requests are held until it is woken")
    kind = evidence.get("engine_kind") or ""
    if kind in ENGINE_WORDS:
        said.append(f"{ENGINE_WORDS[kind]}; not applicable: {NOT_APPLICABLE[kind]}")
    accepted = evidence.get("spec_decode_acceptance_ratio")
    if accepted is not None:
        before = evidence.get("reference_spec_decode_acceptance_ratio")
        was = "" if before is None else f" (reference {100 * before:.0f} %)"
        tokens = evidence.get("tokens_per_output")
        each = "" if tokens is None else f", {tokens:.2f} tokens an output"
        said.append(
            f"speculative decoding: {100 * accepted:.0f} % of drafted tokens accepted{was}{each}"
        )
    return "; ".join(said)
