"""``driftwatch recommend`` for people: the answer, the table, how far to trust it, the change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import date, timedelta

from driftwatch.cli.printer import table_lines, wrapped
from driftwatch.notify.advice import change_texts, setting_change, vllm_arguments
from driftwatch.numbers import change, figure, percent, rate, span
from driftwatch.recommend.advice import FIGURES, TOLERANCE, Answer, Candidate
from driftwatch.recommend.alternatives import REPLICAS
from driftwatch.recommend.verdict import CAN_WAIT
from driftwatch.recommend.words import aims, what_if_text

_UNKNOWN_CELL = "?"
_LABEL = 9  # columns of a label and what follows it
_LONGER = ("a longer window (--window 6h) or a busier time (--at T)",)
_STEADIER = ("a steadier window (--at T)", "the GPU and the model (--gpu NAME --model NAME)")
# check → what would settle it; one that no command line settles is not among them
_SETTLES: Mapping[str, tuple[str, ...]] = {
    "busy_windows": _LONGER,
    "requests": _LONGER,
    "fit_in_target": ("--requests FILE (exact arrivals)", *_STEADIER[:1]),
    "fit_itl": _STEADIER,
    "fit_running": ("--requests FILE (exact arrivals)", *_STEADIER[:1]),
    "settings": ("--max-num-seqs N --max-num-batched-tokens N, or --startup-log FILE",),
}


def rendered(
    advice: Answer,
    name: str,
    *,
    today: date | None = None,
    next_command: str | None = None,
    piped: bool = False,
) -> str:
    """The whole answer, at most 80 columns; ``piped``: whole lines, and rows between tabs.

    ``name``: of the target; ``today``: the day whose times are printed without a date;
    ``next_command``: what to type next.
    """
    labelled = [f"{label:<{_LABEL}}{text}" for label, text in _details(advice)]
    out = [*_lines([_answer(advice, name)], "  ", piped)]
    out += [*_lines(labelled, " " * _LABEL, piped), ""]
    out += [*basis(advice, name, today, piped=piped), ""]
    moves = advice.advice.moves
    if moves:
        out += [f"vLLM     {vllm_arguments(moves)}", ""]
    if next_command is not None:
        after = "after the restart: " if moves else ""
        out += _lines([f"next:    {after}{next_command}"], " " * _LABEL, piped)
    return "\n".join(out).strip("\n")


def basis(
    advice: Answer, name: str, today: date | None = None, *, piped: bool = False
) -> Iterator[str]:
    """What the answer rests on: the table and what it leaves out, then how far to trust it."""
    below = [
        *table(advice, piped=piped),
        *_lines((*reasons(advice), *_loads(advice)), "  ", piped),
    ]
    yield from [*below, ""] if below else []
    trust = (*_check(advice), _traffic(advice, name, today), *_targets(advice), *_notes(advice))
    yield from _lines(trust, "  ", piped)


def _lines(texts: Iterable[str], indent: str, piped: bool) -> Iterator[str]:
    for text in texts:
        yield from wrapped(text, indent, piped=piped)


def settles(advice: Answer) -> str | None:
    """What would settle the checks of a refusal; None where nothing on the command line does."""
    failed = [gate.name for gate in advice.gates if not gate.passed]
    ways = [way for name in failed for way in _SETTLES.get(name, ())]
    if advice.source != "metrics":
        ways = [way for way in ways if not way.startswith("--requests")]
    return ", or ".join(dict.fromkeys(ways)) or None


def _answer(advice: Answer, name: str) -> str:
    answer = advice.advice
    if advice.traffic_of and not advice.traffic_of.startswith(f"{name},"):
        name = f"{name} (by the load of {advice.traffic_of})"
    if answer.reason.code == CAN_WAIT:
        set_to = setting_change(answer)
        return f"{name}: nothing to do now, {answer.why}. Before more load comes, set {set_to}"
    if answer.action == "change":
        do, brings = change_texts(answer)[0], next(_effects(advice), answer.why)
        return f"{name}: {do[:1].lower()}{do[1:]}. {brings[:1].upper()}{brings[1:]}"
    if answer.action == "insufficient":
        ways = settles(advice)
        return f"No advice for {name}: {answer.why}{f'. Give {ways}' if ways else ''}"
    if answer.instead:
        return f"{name}: {answer.instead[0]}"
    lead = "nothing to do: " if answer.action == "no_action" else ""
    return f"{name}: {lead}{answer.why}"


def _effects(advice: Answer) -> Iterator[str]:
    """What the change brings: first with its replicas, then alone, from today's share in target."""
    answer, today = advice.advice, advice.today
    share = None if today is None else today.in_target_ratio
    before = "" if share is None else f"{percent(share).removesuffix(' %')} → "
    if answer.instead:
        yield answer.instead[0].partition(": ")[2].replace("forecast ", f"forecast: {before}", 1)
    alone = "alone, " if answer.instead else ""
    for text in answer.effect:
        yield f"{alone}{text.replace('forecast: ', f'forecast: {before}', 1)}"


def _details(advice: Answer) -> Iterator[tuple[str, str]]:
    """What a page says of it under line 1, by the labels of a page; every failed check."""
    answer = advice.advice
    if answer.action == "insufficient":
        texts = [gate.said for gate in advice.gates if not gate.passed]
        yield from (("Also", text) for text in texts if text and text not in answer.reason.text)
        for label, text in (("Queue", answer.queue), ("Settings", advice.contradiction)):
            if text:
                yield label, text
        return
    undo = answer.undo and f"{answer.undo}{f' if {answer.wrong_if}' if answer.wrong_if else ''}"
    for label, text in (
        ("Change", "; ".join([*_effects(advice)][answer.reason.code != CAN_WAIT :])),
        ("Value", answer.value_reason),
        ("Queue", answer.queue),
        ("Or", "; ".join(answer.instead[1:])),
        ("Why", answer.why if answer.instead and not answer.moves else None),
        ("Cost", "; ".join(answer.price)),
        ("Undo", undo),
        ("Also", "; ".join((*answer.not_cured, *answer.later))),
        ("Settings", advice.contradiction),
    ):
        if text:
            yield label, text


def _loads(advice: Answer) -> Iterator[str]:
    """The load of the table's figures, and what its capacity column is."""
    if advice.today is None or advice.offered_requests_per_second is None:
        return
    used = advice.utilization_ratio
    share = "its capacity is unknown" if used is None else f"{percent(used)} of its capacity now"
    yield f"load: {rate(advice.offered_requests_per_second)} per server, {share}"
    yield "in target: the mean at this load, a fifth less and a fifth more; the rest: at this load"
    most = "a full server completes"
    if advice.slo is not None:
        most = f"one server takes with {percent(advice.slo.share)} of requests in target"
    yield f"capacity: the most req/s that {most}"


def _check(advice: Answer) -> Iterator[str]:
    """How the simulation of today's settings compares with what was observed."""
    fit, check = advice.step_time, advice.check
    if fit is None or check is None:
        return
    parts = [f"{FIGURES[name]} {change(1 + one.off_ratio)}" for name, one in check.compared.items()]
    limit = f"limit {percent(TOLERANCE)}"
    figures = f"simulated against observed: {', '.join(parts)}; {limit}" if parts else ""
    failed = [FIGURES[name] for name in check.failed]
    word = "failed on" if check.refused else "off on"
    verdict = f"{word} {' and '.join(failed)}" if failed else "good"
    yield f"model check: {verdict} ({figures or 'nothing to compare was observed'})"
    if not fit.is_known:
        yield f"step times fitted to the minutes alone, {fit.source}"


def _traffic(advice: Answer, name: str, today: date | None) -> str:
    if advice.window_seconds is None:
        when = f"until {advice.at:%H:%M} UTC"
    else:
        when = span(advice.at - timedelta(seconds=advice.window_seconds), advice.at)
    if advice.at.date() != today and " – " not in when:
        when = f"{advice.at:%Y-%m-%d} {when}"
    if not advice.requests:
        return f"traffic of {name}, {when}: not simulated"
    source = "rebuilt from metrics" if advice.source == "metrics" else f"from the {advice.source}"
    of = advice.traffic_of or name
    return f"from {advice.requests:,} requests of {of}, {when}, {source}"


def _targets(advice: Answer) -> Iterator[str]:
    slo = advice.slo
    if slo is None:
        if advice.requests:
            yield "targets: none given; --slo ttft=1s,tpot=50ms sets them"
        return
    if advice.slo_source != "configuration":
        derived = "no slo given: twice the baseline's p95"
        source = "command line" if advice.slo_source == "command line" else derived
        share = f"{100 * slo.share:.4g} % of requests"
        yield f"targets: {aims(slo, ', ')}, for {share} ({source})"


def _notes(advice: Answer) -> Iterator[str]:
    if advice.notes:
        yield f"assumptions: {'; '.join(advice.notes)}"


_HEADER = ("settings", "in target", "TTFT p95", "ITL p99", "KV peak", "capacity")
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
        name += ", settings as now" if set(one.knobs) == {REPLICAS} else ""
        named[f"> {name}" if _same(one, advised) else name] = one
    return named


def table(advice: Answer, *, piped: bool) -> Iterator[str]:
    """A row a candidate; nothing where nothing was simulated."""
    rows = [(name, *_cells(one)) for name, one in candidates(advice).items()]
    return table_lines(_HEADER, rows, headed=True, is_terminal=not piped)


def _cells(one: Candidate) -> tuple[str, ...]:
    if one.refused is not None:
        return ("refused", *[""] * (len(_HEADER) - 2))
    share, rate = one.in_target_ratio, one.capacity_requests_per_second
    return (
        _UNKNOWN_CELL if share is None else f"{100 * share:.1f} %",
        _cell(one.ttft_p95_seconds, 1, " s"),
        _cell(one.itl_p99_seconds, 1000, " ms"),
        _cell(one.kv_cache_peak_ratio, 100, " %"),
        _UNKNOWN_CELL if rate is None else figure(rate),
    )


def _cell(value: float | None, scale: float, unit: str) -> str:
    return _UNKNOWN_CELL if value is None else f"{figure(scale * value, 2)}{unit}"


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
        yield f"{_UNKNOWN_CELL} of {', '.join(cells)}: {why}"


def _same(one: Candidate, other: Candidate | None) -> bool:
    return other is not None and dict(one.knobs) == dict(other.knobs)
