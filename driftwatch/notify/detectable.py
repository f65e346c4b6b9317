"""How small a change would be seen here: said wherever nothing is said to have changed. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from driftwatch.evidence import BY_NAME
from driftwatch.notify.numbers import clean, percent, times

_COLUMNS: Mapping[str, tuple[str, str]] = {
    "prompts": ("prompt_tokens_smallest_detectable_ratio", "a change of prompts below {}"),
    "generations": (
        "generation_tokens_smallest_detectable_ratio",
        "a change of generations below {}",
    ),
    "speed": ("speed_smallest_detectable_loss_ratio", "a loss of speed below {}"),
}
EVERYTHING = tuple(_COLUMNS)


def detectable_text(
    now: Mapping[str, Any], reasons: Mapping[str, str], of: Sequence[str] = EVERYTHING
) -> str:
    """``a change of prompts below ×1.3, a loss of speed below 12 %``: what would not be seen.

    Where it is not known, why: silence is then no sign of health.

    Args:
        now: evidence column → value.
        reasons: column → why it is unknown.
        of: prompts, generations, speed.
    """
    seen: list[str] = []
    unknown: dict[str, list[str]] = {}
    for word in of:
        column, text = _COLUMNS[word]
        least = now.get(column)
        if least is None:
            unknown.setdefault(_reason(column, reasons), []).append(word)
        else:
            seen.append(text.format(percent(least) if word == "speed" else times(least)))
    parts = [", ".join(seen)] if seen else []
    if unknown:
        whys = (f"{' and '.join(words)} ({why})" for why, words in unknown.items())
        parts.append(f"how small a change is not known: {', '.join(whys)}")
    return "; ".join(parts)


def _reason(column: str, reasons: Mapping[str, str]) -> str:
    why = reasons.get(column) or BY_NAME[column].disabled_by or "not on the page"
    return clean(why).split(" (")[0]
