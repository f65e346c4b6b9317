"""The simulated settings as a table: today's first, then each that was tried, ``>`` the advised."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from driftwatch.cli.printer import table_lines
from driftwatch.numbers import figure
from driftwatch.recommend.advice import Answer, Candidate
from driftwatch.recommend.words import what_if_text

_HEADER = ("settings", "in target", "TTFT p95", "ITL p99", "KV peak", "req/s")
_UNKNOWN = "?"
# what a cell is called where it is unknown
_CELLS = {
    "in_target_ratio": "share in target",
    "ttft_p95_seconds": "TTFT p95",
    "itl_p99_seconds": "ITL p99",
    "kv_cache_peak_ratio": "KV peak",
    "capacity_requests_per_second": "capacity",
}


def candidates(advice: Answer) -> Mapping[str, Candidate]:
    """What was simulated, by what it is called: today, each setting, each what-if."""
    swept = [one for one in advice.candidates if one.knobs]
    advised = advice.advised
    # a page's advice comes without its table
    if advised is not None and advised.knobs and not any(_same(one, advised) for one in swept):
        swept.append(advised)
    swept.sort(key=lambda one: sorted(one.knobs.items()))
    changed = [one.knobs for one in (advised, *swept) if one is not None and one.knobs]
    today = {name: advice.settings.get(name) for name in (changed[0] if changed else ())}
    texts = [name if at is None else what_if_text(name, at) for name, at in today.items()]
    now = ", ".join(texts)
    named = {} if advice.today is None else {f"{now} now" if now else "now": advice.today}
    for one in (*swept, *advice.what_ifs):
        name = ", ".join(what_if_text(*pair) for pair in sorted(one.knobs.items())) or "today"
        named[f"> {name}" if _same(one, advised) else name] = one
    return named


def table(advice: Answer, *, piped: bool) -> Iterator[str]:
    """A row a candidate; nothing where nothing was simulated."""
    rows = [
        (name if piped else _short(name), *_cells(one)) for name, one in candidates(advice).items()
    ]
    return table_lines(_HEADER, rows, headed=True, is_terminal=not piped)


def _short(name: str) -> str:
    """The settings in which rows differ, so that a cut row can still be told from the others."""
    if ", " not in name:
        return name
    return name.replace("max_num_", "").replace("_token_threshold", "")


def _cells(one: Candidate) -> tuple[str, ...]:
    if one.refused is not None:
        return ("refused", *[""] * (len(_HEADER) - 2))
    share, rate = one.in_target_ratio, one.capacity_requests_per_second
    return (
        _UNKNOWN if share is None else f"{100 * share:.1f} %",
        _cell(one.ttft_p95_seconds, 1, " s"),
        _cell(one.itl_p99_seconds, 1000, " ms"),
        _cell(one.kv_cache_peak_ratio, 100, " %"),
        _UNKNOWN if rate is None else figure(rate),
    )


def _cell(value: float | None, scale: float, unit: str) -> str:
    return _UNKNOWN if value is None else f"{figure(scale * value, 2)}{unit}"


def reasons(advice: Answer) -> Iterator[str]:
    """Why rows are refused, and cells not known: each reason once, with what it keeps back."""
    unknown: dict[str, dict[str, None]] = {}
    for name, one in candidates(advice).items():
        if one.refused is not None:
            yield f"{name.removeprefix('> ')} not simulated: {one.refused}"
        for cell, why in one.reasons.items():
            if cell in _CELLS and getattr(one, cell) is None:
                unknown.setdefault(why, {})[_CELLS[cell]] = None
    for why, cells in unknown.items():
        yield f"{_UNKNOWN} of {', '.join(cells)}: {why}"


def _same(one: Candidate, other: Candidate | None) -> bool:
    return other is not None and dict(one.knobs) == dict(other.knobs)
