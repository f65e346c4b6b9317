"""What kind of engine it is, whether it sleeps, and what speculative decoding brings."""

from __future__ import annotations

from driftwatch.evidence.schema import NO_REFERENCE, Column, column

_DRAFTS = ("spec_decode_accepted_tokens_total", "spec_decode_draft_tokens_total")
_OUTPUTS = ("generation_tokens_total", "ttft_seconds", "itl_seconds")
_NO_DRAFTS = "no speculative decoding, or nothing was drafted in the window"

ENGINE: tuple[Column, ...] = (
    column(
        "engine_kind",
        "1",
        "generate; pooling (embedding, reranking, classification: no token is generated); "
        "prefill_only (one token a request); decode_only (the KV cache of most prompt tokens comes "
        "from a KV connector): by all requests since the engine started",
        *_OUTPUTS,
        "prompt_tokens_total",
        "prompt_tokens_transferred_total",
        off="too few requests since the engine started",
        alias=("runner", "embedding", "reranking", "disaggregated prefill", "kv_role"),
        dtype="string",
        optional=(
            "generation_tokens_total",
            "ttft_seconds",
            "prompt_tokens_total",
            "prompt_tokens_transferred_total",
        ),
    ),
    column(
        "engine_asleep",
        "1",
        "the engine sleeps: weights offloaded or discarded, requests are held",
        "engine_awake",
        alias=("sleep mode",),
        dtype="bool",
    ),
    column(
        "spec_decode_acceptance_ratio",
        "1",
        "drafted tokens that were accepted over those drafted by speculative decoding",
        *_DRAFTS,
        off=_NO_DRAFTS,
        alias=("speculative decoding", "acceptance rate"),
    ),
    column(
        "reference_spec_decode_acceptance_ratio",
        "1",
        "the reference's acceptance ratio",
        *_DRAFTS,
        off=NO_REFERENCE,
        needs=("baseline",),
    ),
    column(
        "tokens_per_output",
        "tokens",
        "generated tokens of an output after the first: 1, and more with speculative decoding",
        *_OUTPUTS,
        off="no second token in the window",
        alias=("speculative decoding", "acceptance length"),
    ),
    column(
        "reference_tokens_per_output",
        "tokens",
        "the reference's tokens of an output after the first",
        *_OUTPUTS,
        off=NO_REFERENCE,
        needs=("baseline",),
    ),
)
