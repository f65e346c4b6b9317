"""What a column of the evidence table is, and phrases that several of them share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

DType = Literal["float", "bool", "string", "time"]
# What a column needs besides what the scrapes show.
Need = Literal[
    "prompt_tokens_reference",  # tuned_for, or a baseline
    "generation_tokens_reference",
    "lengths_reference",  # one of both
    "baseline",
    "gpu_count",  # declared, or read
    "gpu_reading",
    "slo",  # one of both targets
    "slo_ttft",
    "slo_tpot",
    "max_num_seqs",  # said, else inferred once it binds
    "max_num_batched_tokens",
    "pool_of_several",
    "pool_of_three",
    "speed_pin",  # an armed pin of its own or of its pool
    "release",  # of vLLM, its image or the driver
    "own_past",  # hours to days of its own minutes
]


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the evidence table.

    Attributes:
        name: column name, unit in the name.
        dtype: float, bool, string or time.
        unit: base unit, ``1`` for ratios.
        meaning: definition in the field's words.
        sources: scrape columns it is computed from (see the metric registry), or other inputs.
        disabled_by: what makes it NULL besides a missing source.
        aliases: words people search by.
        needs: what it is NULL without, besides its sources.
        optional: those of its sources that it does without, or that something stands in for.
    """

    name: str
    dtype: DType
    unit: str
    meaning: str
    sources: tuple[str, ...] = ()
    disabled_by: str = ""
    aliases: tuple[str, ...] = ()
    needs: tuple[Need, ...] = ()
    optional: tuple[str, ...] = ()


# why a column is unknown
NO_REFERENCE = "no reference (a pin, --baseline FROM..TO, or tuned_for in the configuration)"
NO_PAST = "too little of its own past, its pool's or a shipped table for this layout of buckets"
NO_TWINS = "a pool of fewer than three, or too few finished requests within 60 min"
NO_PIN = "no armed pin (driftwatch baseline list says what is missing)"
NO_DAY_PINNED = "no pin of a whole day with a distribution, or less than 24 h of minutes"

# what a column is made of
STEPS = ("itl_seconds", "ttft_seconds", "iteration_tokens")
LOAD = (*STEPS, "generation_tokens_total", "prompt_tokens_total", "kv_cache_usage_ratio")


def column(
    name: str,
    unit: str,
    meaning: str,
    *sources: str,
    off: str = "",
    alias: tuple[str, ...] = (),
    dtype: DType = "float",
    needs: tuple[Need, ...] = (),
    optional: tuple[str, ...] = (),
) -> Column:
    """A :class:`Column`: a ratio is of unit 1; ``off`` says what makes it unknown."""
    return Column(name, dtype, unit, meaning, sources, off, alias, needs, optional)
