"""Claims about ways of batching: measured on one clock and one step-time law."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from claims_book import Claim, Ran

from driftwatch.notify.numbers import figure, percent


def used(ran: Sequence[Ran]) -> tuple[str, str]:
    ratios = ran[0].json["used_ratios"]
    short, middle = ratios[0], ratios[2]
    verdict = "Holds in part" if abs(middle - 0.10) > 0.02 else "Holds"
    return verdict, (
        f"Padded to the longest, the short one uses {percent(short)} of its row, the middle one "
        f"{percent(middle)}."
    )


def waste(ran: Sequence[Ran]) -> tuple[str, str]:
    plain = ran[0].json["without_buckets"]["waste_ratio"]
    fine, coarse = (r.json["with_buckets"]["waste_ratio"] for r in ran)
    verdict = "Holds in part"
    return verdict, (
        f"{percent(plain)} of the padded tokens are waste; in buckets of 128, 256, 512, 1024 and "
        f"2048 {percent(fine)}, of 128, 512 and 1024 {percent(coarse)}."
    )


SHOWN: tuple[Any, ...] = (figure,)
CLAIMS = (
    Claim(
        "What padding leaves of a short prompt",
        "Padding prompts of 10, 1,000 and 50 tokens to 1,000 uses 1 % and 10 % of the short rows.",
        ("driftwatch simulate compare --padding --lengths 10,1000,50 --json",),
        used,
        "the engine that is watched does not pad prompts: padding exists in the classic batchers "
        "of the simulator only.",
        cheap=True,
    ),
    Claim(
        "Padding waste and bucketing",
        "Prompts of 64, 128, 256, 512 and 1,024 tokens, two of each, waste 67 % when padded; "
        "bucketing brings 25 to 35 %.",
        tuple(
            "driftwatch simulate compare --padding "
            f"--lengths 64,64,128,128,256,256,512,512,1024,1024 --buckets {buckets} --json"
            for buckets in ("128,256,512,1024,2048", "128,512,1024")
        ),
        waste,
        "`driftwatch simulate compare --padding` computes both for your lengths.",
        cheap=True,
    ),
)
