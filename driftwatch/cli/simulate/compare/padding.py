"""``driftwatch simulate compare --padding``: what padding wastes of a set of lengths."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from driftwatch.cli.simulate.screen import print_json, say
from driftwatch.lab.padding import Padding, batches_padding, padding, used_ratios


def print_padding(
    lengths_tokens: npt.ArrayLike,
    batch_size: int,
    bucket_tokens: tuple[int, ...],
    in_batches: bool,
    as_json: bool,
) -> None:
    """Print the waste of one batch of given lengths, or of a mix in batches of a size.

    Raises ValueError: lengths or buckets that cannot be.
    """
    lengths = np.asarray(lengths_tokens, dtype=np.int64)

    def waste(buckets: tuple[int, ...]) -> Padding:
        if in_batches:
            return batches_padding(lengths, batch_size, buckets)
        return padding(lengths, buckets)

    wastes = {
        "without_buckets": waste(()),
        **({"with_buckets": waste(bucket_tokens)} if bucket_tokens else {}),
    }
    used = used_ratios(lengths, bucket_tokens)
    if as_json:
        document: dict[str, Any] = {
            "schema_version": 1,
            "lengths": len(lengths),
            "batch_size": batch_size if in_batches else len(lengths),
            "bucket_tokens": list(bucket_tokens) or None,
        }
        for name, one in wastes.items():
            document[name] = {
                "useful_tokens": one.useful_tokens,
                "padded_tokens": one.padded_tokens,
                "waste_ratio": one.waste_ratio,
            }
        if not in_batches and len(lengths) <= 1000:
            document["used_ratios"] = used.tolist()
        print_json(document)
        return
    how = f"in batches of {batch_size}, in their order" if in_batches else "in one batch"
    say(f"{len(lengths):,} lengths, mean {lengths.mean():,.0f} tokens, {how}")
    for name, one in wastes.items():
        label = "no buckets" if name == "without_buckets" else f"buckets {_list(bucket_tokens)}"
        say(f"{label}: {100 * one.waste_ratio:.3g} % of {one.padded_tokens:,} tokens are padding")
    if not in_batches and len(lengths) <= 10:
        shares = ", ".join(f"{n:,}: {100 * u:.3g} %" for n, u in zip(lengths, used, strict=True))
        say(f"Share of its padded length that each length fills: {shares}")
    say("vLLM pads nothing: it packs tokens of all lengths into one step.")


def _list(tokens: tuple[int, ...]) -> str:
    return ", ".join(f"{n:,}" for n in tokens)
