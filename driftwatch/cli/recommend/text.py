"""``driftwatch recommend`` for people: what was simulated, the table, the verdict, the change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from driftwatch.cli.recommend.table import others, reasons, tabbed, table
from driftwatch.model import KnobMove, Slo
from driftwatch.notify.layout import fit, spell, wrap
from driftwatch.notify.numbers import change, clean, figure, milliseconds, percent, seconds, span
from driftwatch.notify.todo import change_text
from driftwatch.recommend.advice import Advice, Gate
from driftwatch.recommend.change_text import helm_values_diff, pod_args_diff, vllm_arguments
from driftwatch.recommend.gates import BOUNDS

_WIDTH = 80
_FIT = (
    ("generation_tokens_per_second", "tokens/s"),
    ("itl_seconds", "ITL"),
    ("ttft_seconds", "TTFT"),
)
_SATURATED_FIT = (*_FIT[:2], ("running_requests", "running"), ("kv_cache_usage_ratio", "KV"))
# what a verdict begins with, by its action or by the code of its reason
_SAY = {
    "none": "NO KNOB",
    "not_worth_a_restart": "NO KNOB is worth a restart",
    "not_sure_to_help": "NO KNOB is sure to help",
    "no_action": "NO ACTION",
}

_LOG = "exact arrivals: --requests FILE"
_LONGER = ("a longer window: --window 6h, --at a busier time, or some minutes more",)
_STEADIER = "a steadier window: --at T"
# gate → what would settle it; a gate that no command line settles is not among them
_SETTLES: Mapping[str, tuple[str, ...]] = {
    "busy_windows": _LONGER,
    "requests": _LONGER,
    "forecast": _LONGER,
    "fit_ttft": (_LOG, "a window with less waiting: --at T"),
    "fit_itl": (f"{_STEADIER}; or the GPU and model: --gpu NAME --model NAME",),
    "fit_running": (_LOG, _STEADIER),
    "fit_kv_cache": (f"the true KV block count, or {_STEADIER}",),
    "fit_generation_tokens": (_LOG, _STEADIER),
    "identifiable": ("a window in which the load varies: --window 6h; or --gpu NAME --model NAME",),
    "prefix_hits": ("hits by request: --requests FILE with cached_tokens or prefix_group",),
    "kv_blocks": ("the KV block count: vLLM's cache_config_info, or --startup-log FILE",),
    "settings": ("--max-num-seqs N --max-num-batched-tokens N, or --startup-log FILE",),
}


@dataclass(frozen=True, slots=True)
class AdviceContext:
    """What is told of an advice besides itself."""

    name: str  # the target, as a person reads it
    model: str | None  # name under which it is served; None = unknown
    today: date | None = None  # the day whose times are told without a date
    next_command: str | None = None  # what to type next


def rendered(
    advice: Advice, context: AdviceContext, *, ascii: bool = False, piped: bool = False
) -> str:
    """The whole answer, verdict after the table, change last.

    ``advice``: the answer; ``context``: what it was asked of; ``ascii``: spell everything in ASCII;
    ``piped``: whole lines and rows between tabs instead of 80 columns.
    """
    out = [*basis(advice, context, ascii=ascii, piped=piped), ""]
    out += _lines((*_verdict(advice), *_gates(advice)), " " * 9, ascii, piped)
    moves = advice.recommendation.moves
    if moves:
        out += ["", *(spell(line, ascii) for line in change_lines(moves, context.model))]
    if context.next_command is not None:
        word = "then:    after the restart: " if moves else "next:    "
        out += _lines((f"{word}{context.next_command}",), " " * 9, ascii, piped)
    return "\n".join(out).strip("\n")


def basis(
    advice: Advice, context: AdviceContext, *, ascii: bool = False, piped: bool = False
) -> Iterator[str]:
    """What the answer rests on: traffic, fit, targets, table, capacity, what was taken instead.

    Arguments as of :func:`rendered`.
    """
    head = (_traffic(advice, context), *_fit(advice), *_targets(advice))
    yield from _lines(head, "  ", ascii, piped)
    if piped:
        yield from (spell(line, ascii) for line in tabbed(advice))
    else:
        yield from (fit(spell(line, ascii), _WIDTH) for line in table(advice))
        yield from _lines(others(advice), "  ", ascii, piped)
    notes = (*reasons(advice), *_capacity(advice), *_notes(advice))
    yield from _lines(notes, "  ", ascii, piped)


def _lines(texts: Iterable[str], indent: str, ascii: bool, piped: bool) -> Iterator[str]:
    for text in texts:
        line = spell(clean(text), ascii)
        yield from [line] if piped else wrap(line, _WIDTH, indent)


def change_lines(moves: Sequence[KnobMove], model: str | None) -> Iterator[str]:
    """The change as vLLM arguments, as Helm values and as a pod's args."""
    arguments = vllm_arguments(moves)
    if arguments:
        yield f"vLLM     {' '.join(arguments)}"
    yield "Helm     values of vLLM's production stack:"
    yield from helm_values_diff(moves, model)
    yield "Pod      without the chart:"
    yield from pod_args_diff(moves)


def settles(advice: Advice) -> str | None:
    """What would settle the gates of a refusal; None where nothing on the command line does."""
    if advice.recommendation.action != "insufficient":
        return None
    mentioned: set[str] = set() if advice.source == "metrics" else {_LOG}  # the log was given
    ways = []
    for gate in advice.gates:
        new = [
            one for one in _SETTLES.get(gate.name, ()) if not gate.passed and one not in mentioned
        ]
        mentioned.update(new)
        ways += [", or ".join(new)] if new else []
    return "; ".join(ways) or None


def _notes(advice: Advice) -> Iterator[str]:
    if advice.notes:
        yield f"notes: {'; '.join(advice.notes)}"


def _traffic(advice: Advice, context: AdviceContext) -> str:
    if advice.window_seconds is None:
        when = f"until {advice.at:%H:%M} UTC"
    else:
        when = span(advice.at - timedelta(seconds=advice.window_seconds), advice.at)
    if advice.at.date() != context.today and " – " not in when:
        when = f"{advice.at:%Y-%m-%d} {when}"
    source = {"metrics": "rebuilt from metrics"}.get(advice.source, f"from the {advice.source}")
    if not advice.requests:
        return f"traffic: {context.name}, {when}, not simulated"
    return f"traffic: {context.name}, {when}, {advice.requests:,} requests {source}"


def _fit(advice: Advice) -> Iterator[str]:
    """How the simulation of today's settings compares with what was observed."""
    fit = advice.calibration
    if fit is None:
        return
    parts, bounds = [], []
    for name, label in _SATURATED_FIT if fit.saturated else _FIT:
        residual = fit.best.residuals.get(name)
        parts.append(f"{label} {'not compared' if residual is None else _signed(residual)}")
        bounds.append(f"{100 * BOUNDS[name]:.0f}")
    names = {gate.name for gate in advice.gates}
    # a request log is simulated exactly, a backlog included
    compared = "fit_ttft" in names and advice.source != "metrics"
    left_out = "; TTFT not compared: saturated" if fit.saturated and not compared else ""
    if not fit.saturated and "fit_itl" in names and "fit_ttft" not in names:
        left_out = "; TTFT not asked for: requests waited"
    gates = ", ".join(bounds)
    yield f"fit of today's settings: {', '.join(parts)}  (gates {gates}{left_out})"
    if not fit.prior_known:
        yield f"prior: {fit.prior}"


def _signed(ratio: float) -> str:
    """``-2 %``; 0 without a sign."""
    whole = round(100 * ratio)
    return "0 %" if whole == 0 else f"{whole:+} %"


def _targets(advice: Advice) -> Iterator[str]:
    slo = advice.slo
    if slo is None:
        if advice.requests:
            yield "targets: none known, see notes; --slo ttft=1s,tpot=50ms sets them"
        return
    if advice.slo_source != "configuration":
        source = {"command line": "command line"}.get(advice.slo_source, "derived from the pin")
        how = "2× its p95" if source.startswith("derived") else ""
        yield f"targets: {slo_text(slo)} ({source}{': ' + how if how else ''})"


def slo_text(slo: Slo) -> str:
    """``TTFT 1.0 s, TPOT 50 ms, for 95 % of requests``."""
    parts = []
    if slo.ttft_seconds is not None:
        parts.append(f"TTFT {seconds(slo.ttft_seconds)}")
    if slo.tpot_seconds is not None:
        parts.append(f"TPOT {milliseconds(slo.tpot_seconds)}")
    return f"{', '.join(parts)}, for {percent(slo.share)} of requests"


def _capacity(advice: Advice) -> Iterator[str]:
    """Capacity now, at the reference's lengths, and how much of it is asked for."""
    if advice.today is None:
        return
    now, offered = advice.today.capacity_requests_per_second, advice.offered_requests_per_second
    parts = []
    if now is None:
        parts.append("capacity of today's settings not told")
    else:
        full = " when full" if advice.slo is None else ""
        parts.append(f"capacity {figure(now)} req/s of a replica{full} at these lengths")
        before = advice.capacity_reference_requests_per_second
        if before is not None and advice.capacity_ratio is not None:
            parts.append(f"{figure(before)} at the reference's ({change(advice.capacity_ratio)})")
    if offered is not None:
        used = advice.utilization_ratio
        share = "" if used is None else f", {100 * used:,.0f} % of it"
        parts.append(f"offered {figure(offered)}{share}")
        if used is not None and used < 1:
            parts += _waves(advice)
    yield "; ".join(parts)


def _waves(advice: Advice) -> Iterator[str]:
    """Why requests wait below the capacity of a full server: a mean rate hides the peaks."""
    share = None if advice.today is None else advice.today.in_target_ratio
    if advice.slo is None and share is not None and share < Slo().share:
        yield f"{percent(1 - share)} wait longer than 1 s: the load comes in waves"


def _verdict(advice: Advice) -> Iterator[str]:
    answer = advice.recommendation
    if answer.action == "change":
        yield f"do:      {change_text(answer)}"
        if answer.basis != "simulation" or not answer.effect:  # which says why
            yield f"why      {answer.why}"
    elif answer.action == "insufficient":
        yield f"NO VERDICT {answer.why}"
    elif answer.basis == "measured":
        yield f"CAPACITY {answer.why}"
    else:
        yield f"{_SAY.get(answer.reason.code, _SAY[answer.action])}: {answer.reason.text}"
    for label, parts in (
        ("instead", answer.instead),
        ("effect", answer.effect),
        ("price", answer.price),
        ("not cured", answer.not_cured),
    ):
        if parts:
            yield f"{label:<8} {'; '.join(parts)}"
    if answer.undo and answer.action == "change":
        yield f"undo     {answer.undo}"
    if answer.wrong_if:
        yield f"wrong if {answer.wrong_if}"


def _gates(advice: Advice) -> Iterator[str]:
    """Of a refusal: gates that failed besides the one that the reason names."""
    if advice.recommendation.action != "insufficient":
        return
    for gate in _failed(advice.gates):
        if gate.said and gate.said != advice.recommendation.reason.text:
            yield f"gate     {gate.said}"


def _failed(gates: Sequence[Gate]) -> Iterator[Gate]:
    yield from (gate for gate in gates if not gate.passed)
