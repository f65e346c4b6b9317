"""Lengths of prompts and generations: what they are, and how far they moved."""

from __future__ import annotations

from driftwatch.evidence.schema import (
    NO_DAY_PINNED,
    NO_PAST,
    NO_REFERENCE,
    NO_TWINS,
    Column,
    Need,
    column,
)

_REF_BUCKETS = (
    "no reference with a distribution (a pin or --baseline; tuned_for declares means only), "
    "other bucket edges, or fewer than 100 finished requests"
)

_DISTANCES = (
    ("js_distance", "Jensen-Shannon distance"),
    ("w1_ratio", "exp of the Wasserstein-1 distance in ln tokens"),
    ("w1_upper_ratio", "the largest w1_ratio that the buckets allow"),
    ("psi", "population stability index"),
    ("ks_distance", "Kolmogorov-Smirnov distance at the bucket edges"),
    ("chi2_p_value", "p of the chi-square test of equal shares; bursts make it small"),
    ("cramers_v", "Cramer's V of the same table"),
)


def _drift(stem: str, what: str) -> tuple[Column, ...]:
    """Scores against contexts and twins: a distance over what is usual for it (1 = the 99 %)."""
    return (
        column(
            f"{stem}_drift_score",
            "1",
            f"how far the pool's {what}s are from the nearest of its contexts (previous hour, "
            "trailing 24 h, same hour of earlier days and weeks), over what is usual",
            stem,
            off=NO_PAST,
            alias=("length drift", "traffic shift"),
            needs=("own_past",),
        ),
        column(
            f"{stem}_drift_ratio",
            "1",
            f"the pool's mean {what} over that of the nearest context",
            stem,
            off=NO_PAST,
            alias=("length drift", "traffic shift"),
            needs=("own_past",),
        ),
        column(
            f"{stem}_peer_score",
            "1",
            f"how far the target's {what}s are from its twins' of the same minutes, over what is "
            "usual",
            stem,
            off=NO_TWINS,
            alias=("sticky client",),
            needs=("pool_of_three",),
        ),
        column(
            f"{stem}_peer_ratio",
            "1",
            f"mean {what} over that of the twins, same minutes",
            stem,
            off=NO_TWINS,
            alias=("sticky client",),
            needs=("pool_of_three",),
        ),
        column(
            f"{stem}_pin_score",
            "1",
            f"{what}s of the last 24 h against the pin, over what is usual",
            stem,
            off=NO_DAY_PINNED,
            needs=("baseline", "own_past"),
        ),
        column(
            f"{stem}_pin_ratio",
            "1",
            f"mean {what} of the last 24 h over the pin's",
            stem,
            off="no pin, or less than 24 h of minutes",
            needs=("baseline", "own_past"),
        ),
        column(
            f"{stem}_smallest_detectable_ratio",
            "1",
            f"the smallest factor of the pool's {what}s that the drift score would show in 95 of "
            "100 of its last day's windows",
            stem,
            off=NO_PAST,
            needs=("own_past",),
        ),
        column(
            f"{stem}_calibration",
            "1",
            "whose past the scores are measured in: own, pool or shipped (uncalibrated); of peer "
            "and drift score the less certain",
            stem,
            dtype="string",
        ),
    )


def _length(stem: str, what: str, reference: tuple[Need, ...], *alias: str) -> tuple[Column, ...]:
    """Mean and quantiles, against the reference, and against what is usual."""
    rows = [
        column(f"{stem}_mean", "tokens", f"mean {what} of finished requests", stem, alias=alias)
    ]
    for q in ("p50", "p95"):
        rows += [
            column(
                f"{stem}_{q}", "tokens", f"{q} {what}, linear inside its bucket", stem, alias=alias
            ),
            column(f"{stem}_{q}_lower", "tokens", "lower edge of the bucket that holds it", stem),
            column(f"{stem}_{q}_upper", "tokens", "upper edge of the bucket that holds it", stem),
        ]
    rows += [
        column(
            f"{stem}_mean_ratio",
            "1",
            f"mean {what} over that of the reference",
            *dict.fromkeys((stem, "prompt_tokens")),  # which counts the finished requests
            off=NO_REFERENCE,
            alias=("length drift", *alias),
            needs=reference,
        ),
        column(
            f"{stem}_mean_2m_ratio",
            "1",
            "the same over the last 2 min",
            stem,
            off=f"{NO_REFERENCE}; fewer than 100 finished requests in the 2 min",
            alias=("length drift", *alias),
            needs=reference,
        ),
        column(
            f"{stem}_mean_10m_ratio",
            "1",
            "the same over the last 10 min",
            stem,
            off=f"{NO_REFERENCE}; fewer than 100 finished requests in the 10 min",
            alias=("length drift", *alias),
            needs=reference,
        ),
        column(
            f"{stem}_usual_ratio",
            "1",
            f"how far the mean {what} of 10 min goes from the baseline's by itself, up or down, "
            "about once a month",
            stem,
            off="no baseline of an hour or more; of less than a day it answers for as long again",
            needs=("speed_pin",),
        ),
        *(
            column(
                f"{stem}_{name}",
                "1",
                f"{meaning} of {what}, against the reference's distribution",
                stem,
                off=_REF_BUCKETS,
                alias=("distribution shift", "length drift"),
                needs=("baseline",),
            )
            for name, meaning in _DISTANCES
        ),
        column(
            f"{stem}_moved",
            "1",
            f"which {what}s gained and lost most of the share, against the reference",
            stem,
            off=_REF_BUCKETS,
            dtype="string",
            needs=("baseline",),
        ),
        *_drift(stem, what),
    ]
    return tuple(rows)


LENGTHS: tuple[Column, ...] = (
    *_length("prompt_tokens", "prompt length", ("prompt_tokens_reference",), "input length"),
    *_length(
        "generation_tokens", "generation length", ("generation_tokens_reference",), "output length"
    ),
)

# those that the detectors add
DRIFT: tuple[Column, ...] = (
    *_drift("prompt_tokens", "prompt length"),
    *_drift("generation_tokens", "generation length"),
)
