"""Why more prompt tokens are computed than in the reference: requests, longer prompts, lost hits.

With R requests per second, P prompt tokens a request and h the prefix-cache hit ratio, a server
computes R·P·(1 - h) prompt tokens per second. Against the reference (R₀, P₀, h₀) that is a product:

    R/R₀  x  P·(1 - h₁) / (P₀·(1 - h₀))  x  (1 - h) / (1 - h₁)

``h₁ = h₀ · min(1, P₀/P)`` is the ratio at which a request still finds as many tokens as before: a
prompt that grows behind the same prefix has a lower ratio and has lost nothing. The last factor is
what lost hits bring; its share is by logarithms, among the factors that rise. A factor that falls
takes part in none of it: a full batch lets fewer requests finish, and they explain no extra work.
"""

from __future__ import annotations

import polars as pl


def extra_prefill_columns(at_least: float) -> dict[str, pl.Expr]:
    """Expressions of the evidence columns on computed prompt tokens, by name.

    Args:
        at_least: first tokens in the window; a ratio of fewer requests is unknown.

    They read a row's ``ttft_seconds_count`` and ``prompt_tokens_total`` (both booked at a request's
    first token), ``duration_seconds``, ``prefix_cache_hit_ratio``, and of the reference
    ``requests_per_second``, ``prompt_tokens_mean`` and ``prefix_cache_hit_ratio``.
    """
    requests = pl.col("ttft_seconds_count")
    enough = (requests >= at_least) & (pl.col("duration_seconds") > 0)
    hit, hit_before = pl.col("prefix_cache_hit_ratio"), pl.col("reference_prefix_cache_hit_ratio")
    longer = pl.col("prompt_tokens_total") / requests / pl.col("reference_prompt_tokens_mean")
    rate = requests / pl.col("duration_seconds") / pl.col("reference_requests_per_second")
    hit_expected = hit_before / longer.clip(lower_bound=1.0)
    by_prompts = longer * _missed(hit_expected) / _missed(hit_before)
    by_hits = _missed(hit) / _missed(hit_expected)
    lost = _rise(by_hits)
    rises = lost + _rise(by_prompts) + _rise(rate)
    known = {
        "computed_prompt_tokens_ratio": rate * by_prompts * by_hits,
        "lost_prefix_hits_prefill_ratio": by_hits,
        "lost_prefix_hits_share_ratio": pl.when(rises > 0).then(lost / rises).otherwise(0.0),
    }
    every = pl.all_horizontal(enough, *(value.is_finite() for value in (rate, by_prompts, by_hits)))
    return {name: pl.when(every).then(value) for name, value in known.items()}


def _missed(hit: pl.Expr) -> pl.Expr:
    return 1.0 - hit


def _rise(factor: pl.Expr) -> pl.Expr:
    """Logarithm of a factor above 1; 0 of one that is not."""
    return factor.clip(lower_bound=1.0).log()
