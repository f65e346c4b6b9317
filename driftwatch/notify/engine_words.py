"""A line about the engine and a line about its GPUs. Pure.

Power and GPU_UTIL stand side by side, so that the reader sees 96 % at idle watts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from driftwatch.numbers import change, clean, count, is_as_before, percent

Values = Mapping[str, Any]

# GPU_UTIL is the share of time with a kernel; a hanging kernel counts as well
_NOT_WORK = "only shows that a kernel is loaded"
_CLOCK, _POWER = "gpu_sm_clock_hertz", "gpu_power_watts"
_BUSY, _EVENTS = "gpu_utilization_ratio", "gpu_clock_event_reasons"


def gpus_text(now: Values, before: Values | None = None, *, on_page: bool = False) -> str | None:
    """``SM clock 1,980 → 1,155 MHz, GPU_UTIL 99 %, …``, and why the clock is low; None without any
    reading. ``before``: the baseline's; ``on_page``: only what a person acts on.
    """
    before = before or {}
    busy, usual, lost = now.get(_BUSY), before.get(_BUSY), now.get("gpus_lost")
    readings = {
        "SM clock {} MHz": _moved(now.get(_CLOCK), before.get(_CLOCK), 1e6),
        "GPU_UTIL {}": None if on_page or busy is None else percent(busy),
        "power {} W": _moved(now.get(_POWER), before.get(_POWER), 1.0),
        "{} lost": None if on_page or not lost else count(lost),
    }
    numbers = ", ".join(text.format(one) for text, one in readings.items() if one is not None)
    notes = [*_clock_notes(now, before)]
    if on_page:
        if now.get("seconds_since_last_token") and busy:
            notes.append(f"GPU_UTIL {percent(busy)} {_NOT_WORK}")
        return "; ".join(filter(None, [_gpus_gone(now, before), numbers, *notes])) or None
    fewer = now.get("tokens_per_second_per_gpu_ratio")
    stays = busy and usual and (busy >= usual or is_as_before(busy / usual))
    if stays and fewer is not None and fewer < 1 and not is_as_before(fewer):
        notes.append(f"GPU_UTIL stays while tokens/s/GPU {change(fewer)}: it {_NOT_WORK}")
    return "; ".join([numbers, *notes]) if numbers else None


_SHOWN = re.compile(r"declared ([\d.]+), (\w+) shows ([\d.]+)")


def _gpus_gone(now: Values, before: Values) -> str | None:
    """``DCGM shows 1 of 2 GPUs``: a GPU that fell off the bus may leave no XID.

    A source may read only one node of several, so while tokens come a lower count is no loss.
    """
    shown = _SHOWN.match(now.get("gpu_count_source") or "")
    if shown is not None and now.get("seconds_since_last_token"):
        is_gone = float(shown[3]) < float(shown[1])
        return f"{shown[2]} shows {shown[3]} of {shown[1]} GPUs" if is_gone else None
    gpus, usual = now.get("gpu_count"), before.get("gpu_count")
    if not gpus or not usual or gpus >= usual:
        return None
    return f"{count(gpus)} of {count(usual)} GPUs are read"


def gpu_count_text(now: Values) -> str:
    """``8 GPUs``, with the source where sources differ or no count is declared."""
    gpus, source = now.get("gpu_count"), now.get("gpu_count_source")
    if gpus is None:
        return "GPU count unknown"
    text = f"{count(gpus)} {'GPU' if gpus == 1 else 'GPUs'}"
    parts = [part for part in clean(source or "").split("; ") if not part.endswith(" agrees")]
    return f"{text} ({'; '.join(parts)})" if any(parts) else text


def _moved(now: float | None, before: float | None, unit: float) -> str | None:
    """From → to in whole units; one number where both print the same."""
    if now is None:
        return None
    text = f"{now / unit:,.0f}"
    was = None if before is None else f"{before / unit:,.0f}"
    return text if was in (None, text) else f"{was} → {text}"


def _clock_notes(now: Values, before: Values) -> Iterator[str]:
    """Why the SM clock is low, or that it is unknown; nothing at a steady clock."""
    events, clock, was = now.get(_EVENTS), now.get(_CLOCK), before.get(_CLOCK)
    if events not in (None, "none"):
        yield f"clock held down by {clean(events)}"
    elif events is None and clock is not None and was is not None and round(clock / was, 2) < 1:
        yield "the reason is not collected (clock events)"


# kind of engine → its words
ENGINE_WORDS: Mapping[str, str] = {
    "pooling": "pooling engine (it generates no tokens)",
    "prefill_only": "prefill-only engine (one token a request)",
    "decode_only": "decode-only engine (its prompts' KV cache comes from a connector)",
}
# kind → results that do not exist for it
NOT_APPLICABLE: Mapping[str, str] = {
    "pooling": "speed at equal load, time per output token and generation lengths",
    "prefill_only": "speed at equal load, time per output token and generation lengths",
    "decode_only": "tickets for deferred requests: here they wait for their KV cache",
}
# kind → inputs that stay empty
NEVER_FILLED: Mapping[str, frozenset[str]] = {
    "pooling": frozenset(("itl_seconds", "tpot_seconds", "generation_tokens")),
    "prefill_only": frozenset(("itl_seconds", "tpot_seconds")),
}
ASLEEP = "the engine sleeps"


def engine_text(evidence: Values) -> str:
    """The engine's peculiarities; "" for an awake engine that generates as usual."""
    parts = []
    if evidence.get("engine_asleep"):
        parts.append(f"{ASLEEP}: requests are held until it is woken")
    kind = evidence.get("engine_kind") or ""
    if kind in ENGINE_WORDS:
        parts.append(f"{ENGINE_WORDS[kind]}; not applicable: {NOT_APPLICABLE[kind]}")
    accepted = evidence.get("spec_decode_acceptance_ratio")
    if accepted is not None:
        before = evidence.get("reference_spec_decode_acceptance_ratio")
        was = "" if before is None else f" (baseline {100 * before:.0f} %)"
        tokens = evidence.get("tokens_per_output")
        each = "" if tokens is None else f", {tokens:.2f} tokens a decode step"
        parts.append(
            f"speculative decoding: {100 * accepted:.0f} % of drafted tokens accepted{was}{each}"
        )
    return "; ".join(parts)
