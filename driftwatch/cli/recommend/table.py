"""The swept values as a table: 80 columns on a terminal, whole rows between tabs piped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from driftwatch.cli.recommend.axis import Axis, Point, axis_of, by_knobs
from driftwatch.notify.numbers import figure, knob
from driftwatch.recommend.advice import Advice, Candidate
from driftwatch.recommend.words import gain_bounds, span, what_if_text

_KNOB = 15  # columns of the knob's name, which may take two lines
# head, unit, columns
_COLUMNS = (("in target", "%", 9), ("TTFT p95", "s", 8), ("ITL p99", "ms", 7), ("KV peak", "%", 7))
_NO_GAIN_RATIO = 0.02  # less capacity than that is none

TABBED_HEADER = (
    "knobs",
    "in_target_ratio",
    "capacity_requests_per_second",
    "capacity_low_requests_per_second",
    "capacity_high_requests_per_second",
    "ttft_p95_seconds",
    "itl_p99_seconds",
    "tpot_p95_seconds",
    "kv_cache_peak_ratio",
    "kv_blocks",
    "generation_tokens_per_second",
    "state",
)


def table(advice: Advice) -> Iterator[str]:
    """Lines of at most 80 columns: head, and a row a value."""
    axis = axis_of(advice)
    if axis is not None and axis.points:
        yield from _rows(advice, axis)


def others(advice: Advice) -> Iterator[str]:
    """Sentences: what the other knobs bring, and the what-ifs, all in one line."""
    axis = axis_of(advice)
    sentences = [] if axis is None else [*_others(advice, axis)]
    sentences += [_what_if(candidate) for candidate in advice.what_ifs]
    if sentences:
        yield ". ".join(sentences)


def tabbed(advice: Advice) -> Iterator[str]:
    """A row a candidate under :data:`TABBED_HEADER`; ``?`` where it is not known."""
    kinds = [(c, "now" if not c.knobs else "") for c in advice.candidates]
    if advice.today is not None and not any(not c.knobs for c in advice.candidates):
        kinds.insert(0, (advice.today, "now"))
    knobs = [dict(c.knobs) for c in advice.candidates]
    if advice.advised is not None and dict(advice.advised.knobs) not in knobs:
        kinds.append((advice.advised, ""))  # a page's advice comes without its table
    kinds += [(c, "what if") for c in advice.what_ifs]
    if kinds:
        yield "\t".join(TABBED_HEADER)
    for candidate, state in kinds:
        if advice.advised is not None and dict(candidate.knobs) == dict(advice.advised.knobs):
            state = f"{state} advised".strip()
        if candidate.refused is not None:
            state = f"refused: {candidate.refused}"
        named = ",".join(f"{name}={knob(v)}" for name, v in sorted(candidate.knobs.items()))
        values = [getattr(candidate, name) for name in TABBED_HEADER[1:-1]]
        cells = ["?" if value is None else f"{value:.6g}" for value in values]
        yield "\t".join((named or "today", *cells, state))


def reasons(advice: Advice) -> Iterator[str]:
    """Why rows are refused, and cells not known: each reason once, with what it keeps back."""
    axis = axis_of(advice)
    points = () if axis is None else axis.points
    name = "" if axis is None else " and ".join(axis.knobs)
    by_reason: dict[str, dict[str, list[str]]] = {}
    for point in points:
        row = _values(point)
        if point.candidate.refused is not None:
            yield f"{name} {row} not simulated: {point.candidate.refused}"
        for cell, why in point.candidate.reasons.items():
            if cell in _CELL_NAMES and getattr(point.candidate, cell) is None:
                by_reason.setdefault(why, {}).setdefault(_CELL_NAMES[cell], []).append(row)
    for why, names in by_reason.items():
        for rows, columns in _alike(names).items():
            of = "" if len(rows) == len(points) else f" for {name} {' and '.join(rows)}"
            yield f"no {', '.join(columns)}{of}: {why}"


def _alike(names: Mapping[str, Sequence[str]]) -> dict[tuple[str, ...], list[str]]:
    """Rows → what is not known of just these."""
    by_rows: dict[tuple[str, ...], list[str]] = {}
    for name, rows in names.items():
        by_rows.setdefault(tuple(rows), []).append(name)
    return by_rows


_CELL_NAMES = {
    "in_target_ratio": "share in target",
    "ttft_p95_seconds": "TTFT p95",
    "itl_p99_seconds": "ITL p99",
    "kv_cache_peak_ratio": "KV peak",
    "capacity_requests_per_second": "capacity",
}


def _rows(advice: Advice, axis: Axis) -> Iterator[str]:
    first, second = _head(axis.knobs)
    wide = max(_KNOB, len(first), len(second), *(len(_place(p)) for p in axis.points))
    yield _line(first, wide, [head for head, _, _ in _COLUMNS], "capacity")
    # without a target no rate is "in target": it is the one of a server that is never idle
    of = "req/s when full" if advice.slo is None else "req/s in target"
    yield _line(second, wide, [unit for _, unit, _ in _COLUMNS], of)
    for point in axis.points:
        c = point.candidate
        if c.refused is not None:
            yield f"{_place(point):<{wide}} {'refused':>9}"
            continue
        cells = [
            _cell(c.in_target_ratio, 100, 1),
            _cell(c.ttft_p95_seconds, 1, 2),
            _cell(c.itl_p99_seconds, 1000, 0),
            _cell(c.kv_cache_peak_ratio, 100, 0),
        ]
        capacity = "?"
        if c.capacity_requests_per_second is not None:
            capacity = figure(c.capacity_requests_per_second)
            if point.advised and not point.now:
                capacity += f" ({span(*gain_bounds(advice.today, c))})" if advice.today else ""
        yield _line(_place(point), wide, cells, capacity)


def _head(knobs: Sequence[str]) -> tuple[str, str]:
    """The knob's name on two lines where it is long."""
    name = ", ".join(knobs) or "today"
    if len(name) <= _KNOB:
        return name, ""
    at = max(name.rfind(", ", 0, _KNOB + 1) + 2, name.rfind("_", 0, _KNOB + 1))
    if at <= 1:
        at = _KNOB
    return name[:at].rstrip(), name[at:]


def _place(point: Point) -> str:
    return f"{'>' if point.advised else ' '}{_values(point):>5}{' now' if point.now else ''}"


def _values(point: Point) -> str:
    return ", ".join("?" if v is None else knob(v) for v in point.values)


def _line(head: str, wide: int, cells: Sequence[str], last: str) -> str:
    sizes = [size for _, _, size in _COLUMNS]
    row = " ".join(f"{cell:>{size}}" for cell, size in zip(cells, sizes, strict=True))
    return f"{head:<{wide}} {row} {last}".rstrip()


def _cell(value: float | None, scale: float, digits: int) -> str:
    """Never finer than what people compare, and never 0 for what is only small."""
    if value is None:
        return "?"
    scaled = value * scale
    if scaled >= 100:
        digits = min(digits, 1) if scale == 100 else 0
    text = f"{scaled:,.{digits}f}"
    if scale == 100 and digits and scaled < 100 and text == "100.0":
        return "99.9"  # what is nearly all is not all
    if scaled > 0 and float(text.replace(",", "")) == 0:
        return figure(scaled, 2) if digits else "<1"
    return text


def _others(advice: Advice, axis: Axis) -> Iterator[str]:
    """``max_num_seqs 128 to 512: no gain``, one for each further knob."""
    for names, candidates in by_knobs(axis.others).items():
        able = [c for c in candidates if c.refused is None]
        label = " and ".join(names)
        if len(names) == 1:
            values = sorted(c.knobs[names[0]] for c in candidates)
            low, high = knob(values[0]), knob(values[-1])
            label += f" {low}" if low == high else f" {low} to {high}"
        best = max(able, key=_capacity, default=None)
        before = None if advice.today is None else advice.today.capacity_requests_per_second
        if best is None:
            yield f"{label}: refused"
        elif not _capacity(best) or not before:
            yield f"{label}: capacity unknown"
        elif _capacity(best) <= before * (1 + _NO_GAIN_RATIO):
            yield f"{label}: no gain"
        else:
            at = ", ".join(knob(best.knobs[name]) for name in names)
            yield f"{label}: up to {figure(_capacity(best))} at {at}"


def _capacity(candidate: Candidate) -> float:
    return candidate.capacity_requests_per_second or 0.0


def _what_if(c: Candidate) -> str:
    """``With 50 % of the prompt tokens cached: capacity 27.0 req/s``."""
    named = [what_if_text(name, value) for name, value in sorted(c.knobs.items())]
    label = f"With {', '.join(named)}" if named else "Today"
    if c.refused is not None:
        return f"{label}: refused: {c.refused}"
    figures = []
    if c.in_target_ratio is not None:
        figures.append(f"{100 * c.in_target_ratio:.1f} % in target")
    if c.capacity_requests_per_second is not None:
        each = " each" if "replicas" in c.knobs else ""
        figures.append(f"capacity {figure(c.capacity_requests_per_second)} req/s{each}")
    whys = "; ".join(dict.fromkeys(c.reasons.values()))
    return f"{label}: {', '.join(figures) or 'unknown' + (f' ({whys})' if whys else '')}"
