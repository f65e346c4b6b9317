"""A comparison of batchers as tables, sentences and JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import click

from driftwatch.cli.table import encodable, lines
from driftwatch.lab.batchers.comparison import Fit, Knee, Point
from driftwatch.lab.batchers.policies import Settings
from driftwatch.lab.batchers.steady import DEFINITION
from driftwatch.notify.layout import spell, wrap
from driftwatch.notify.numbers import figure
from driftwatch.notify.stdout import needs_ascii
from driftwatch.simulate.step_time import StepTime

if TYPE_CHECKING:
    from driftwatch.lab.batchers.comparison import Variant


@dataclass(frozen=True, slots=True)
class Comparison:
    """All that was asked and found."""

    settings: Settings  # of the policies
    step_time: StepTime  # of the steps
    closed: bool  # loads are clients, not requests per second
    loads: tuple[float, ...]  # rising
    points: tuple[Point, ...]  # a point a policy and load
    # policy → requests per second while there is always more to do
    capacities: dict[str, float | None]
    limit_seconds: float  # on the p99 end-to-end time
    limit_source: str  # where that comes from
    knees: tuple[Knee, ...]  # one a policy
    fits: tuple[Fit, ...]  # which is best where
    requests: int  # lengths in the mix
    mean_prompt_tokens: float  # of the mix
    mean_generation_tokens: float  # of the mix
    seed: int  # of arrivals
    notes: tuple[str, ...]  # what was taken because no option says it

    @property
    def unit(self) -> str:
        """Of the loads."""
        return "clients" if self.closed else "req/s"


_HEADER = ("req/s", "tok/s", "p50", "p99", "p99.9", "max", "mean", "TTFT p99", "note")
# piped: what the JSON calls them
_LOADS = {True: "concurrency", False: "requests_per_second"}
_FULL_HEADER = (
    *("throughput_requests_per_second", "throughput_generation_tokens_per_second"),
    *(f"e2e_seconds_{one}" for one in ("p50", "p99", "p999", "max", "mean")),
    *("ttft_seconds_p99", "note"),
)

_CAUSES_HEADER = (
    *("variant", "capacity_requests_per_second", "capacity_factor", "e2e_seconds_mean"),
    *("latency_factor", "e2e_seconds_p99", "note"),
)


def print_comparison(comparison: Comparison, as_json: bool) -> None:
    """The whole answer."""
    if as_json:
        click.echo(json.dumps(document(comparison), indent=2))
        return
    if sys.stdout.isatty():
        _say(
            f"{comparison.requests:,} lengths, mean prompt "
            f"{figure(comparison.mean_prompt_tokens)}, mean generation "
            f"{figure(comparison.mean_generation_tokens)} tokens. Latencies end to end, in "
            f"seconds; {DEFINITION}"
        )
    policies = tuple(dict.fromkeys(p.policy for p in comparison.points))
    if sys.stdout.isatty():
        for policy in policies:
            click.echo("")
            _say(f"{policy}, load in {comparison.unit}")
            rows = [_row(p) for p in comparison.points if p.policy == policy]
            for line in lines(("load", *_HEADER), rows, rows):
                click.echo(line)
        click.echo("")
    else:
        click.echo("\t".join(("policy", _LOADS[comparison.closed], *_FULL_HEADER)))
        for p in comparison.points:
            click.echo(encodable("\t".join(_full(p))))
    for sentence in sentences(comparison):
        _say(sentence)


def _say(text: str) -> None:
    spelt = spell(text, needs_ascii(sys.stdout))
    for line in wrap(spelt, 80, "  ") if sys.stdout.isatty() else [spelt]:
        click.echo(encodable(line))


def _number(value: float | None) -> str:
    return "unknown" if value is None else figure(value)


def _row(p: Point) -> tuple[str, ...]:
    load = f"{p.load:g}"
    if p.steady is None:
        return (load, *["-"] * 8, "no figures")
    s = p.steady
    return (
        load,
        figure(s.throughput_requests_per_second),
        figure(s.throughput_generation_tokens_per_second),
        *(_short(v) for v in (s.e2e.p50, s.e2e.p99, s.e2e.p999, s.e2e.max, s.e2e.mean)),
        _short(s.ttft.p99),
        "" if s.keeps_up else "behind",
    )


def _short(value: float | None) -> str:
    return "?" if value is None else figure(value)


def _note(p: Point) -> str:
    if p.steady is None:
        return p.reason
    notes = [] if p.steady.keeps_up else ["behind"]
    notes += [f"{number:,} {status}" for status, number in p.steady.ended_otherwise.items()]
    return ", ".join(notes)


def _full(p: Point) -> tuple[str, ...]:
    if p.steady is None:
        return (p.policy, str(p.load), *["unknown"] * 8, p.reason)
    s = p.steady
    values = (
        s.throughput_requests_per_second,
        s.throughput_generation_tokens_per_second,
        *(s.e2e.p50, s.e2e.p99, s.e2e.p999, s.e2e.max, s.e2e.mean, s.ttft.p99),
    )
    note = "; ".join(part for part in (_note(p), s.e2e.reason) if part)
    cells = ("unknown" if v is None else str(v) for v in values)
    return (p.policy, str(p.load), *cells, note)


def title(comparison: Comparison) -> str:
    """The finding in one line: where each policy's knee is."""
    holding = sorted(
        (k for k in comparison.knees if k.holds_at is not None),
        key=lambda k: -(k.holds_at or 0),
    )
    if not holding:
        return f"No policy holds p99 within {figure(comparison.limit_seconds)} s at these loads"
    best = holding[0]
    same = [k.policy for k in holding if k.holds_at == best.holds_at]
    rest = [f"{k.policy} to {k.holds_at:g}" for k in holding if k.holds_at != best.holds_at]
    tail = f", {', '.join(rest)}" if rest else ""
    verb = "holds" if len(same) == 1 else "hold"
    return f"{_and(same)} {verb} to {best.holds_at:g} {comparison.unit}{tail}"


def sentences(comparison: Comparison) -> list[str]:
    """Capacity, batch figures, knees, and which policy fits when: all from this run's numbers."""
    texts = [_capacity_text(comparison)]
    texts += _batches_texts(comparison)
    texts += _others_texts(comparison)
    texts.append(
        f"knee: the largest load tried that is kept up with while p99 stays within "
        f"{figure(comparison.limit_seconds)} s ({comparison.limit_source})."
    )
    for k in comparison.knees:
        if k.holds_at is None:
            texts.append(f"  {k.policy}: none ({k.reason})")
        elif k.fails_at is None:
            texts.append(f"  {k.policy}: not reached, holds at {k.holds_at:g} {comparison.unit}")
        else:
            texts.append(
                f"  {k.policy}: {k.holds_at:g} {comparison.unit}; at {k.fails_at:g} {k.reason}"
            )
    if any(p.steady is not None and not p.steady.keeps_up for p in comparison.points):
        texts.append("behind: work arrives faster than it is done, latency grows with the run")
    texts.append("which fits when (lowest p99 of those that keep up, 5 % counts as equal):")
    texts += [f"  {_fit_text(fit, comparison.unit)}" for fit in comparison.fits]
    return texts


def _capacity_text(comparison: Comparison) -> str:
    capacities = {
        n: c for n, c in comparison.capacities.items() if c is not None and n != "back-pressure"
    }
    if not capacities:
        return "capacity: unknown (all requests end at one time)"
    lowest = min(capacities.values())
    parts = [
        f"{name} {figure(c)} req/s" + (f" ({figure(c / lowest)}×)" if c > lowest else "")
        for name, c in capacities.items()
    ]
    return f"capacity, always more to do: {', '.join(parts)}"


def _others_texts(comparison: Comparison) -> list[str]:
    """Who did not finish, and which points have no figures; piped, the rows say it."""
    if not sys.stdout.isatty():
        return []
    texts = []
    for p in comparison.points:
        if p.steady is None:
            texts.append(f"{p.policy} at {p.load:g}: no figures, {p.reason}")
        elif p.steady.ended_otherwise:
            ended = ", ".join(f"{n:,} {s}" for s, n in p.steady.ended_otherwise.items())
            texts.append(f"{p.policy} at {p.load:g}: {ended}")
    return texts


def _batches_texts(comparison: Comparison) -> list[str]:
    texts = []
    for policy in dict.fromkeys(p.policy for p in comparison.points):
        points = [p for p in comparison.points if p.policy == policy]
        ratios = [p.batch_efficiency_ratio for p in points if p.batch_efficiency_ratio is not None]
        wastes = [
            p.prompt_padding_waste_ratio for p in points if p.prompt_padding_waste_ratio is not None
        ]
        if not ratios:
            reason = next((p.batch_reason for p in points if p.batch_reason), "")
            texts.append(f"batch_efficiency of {policy}: none ({reason})")
            continue
        texts.append(
            f"batch_efficiency of {policy}: {_span(ratios)}; of its prompt tokens "
            f"{_span([100 * w for w in wastes])} % are padding"
        )
    return texts


def _span(values: Sequence[float]) -> str:
    low, high = figure(min(values), 2), figure(max(values), 2)
    return low if low == high else f"{low} to {high}"


def _fit_text(fit: Fit, unit: str) -> str:
    same = fit.lowest == fit.highest
    where = f"at {fit.lowest:g}" if same else f"{fit.lowest:g} to {fit.highest:g}"
    if fit.p99_seconds is None:
        return f"{where} {unit}: none keeps up"
    low, high = (f"{figure(v)} s" for v in fit.p99_seconds)
    p99 = low if same else f"{low} → {high}"
    text = f"{where} {unit}: {_and(fit.best)}, p99 {p99}"
    if fit.behind:
        others = ", ".join(f"{name} {figure(ratio, 2)}×" for name, ratio in fit.behind)
        text += f"; at {fit.highest:g} {others}"
    if fit.fail:
        text += f"; {_and(fit.fail)} {'does' if len(fit.fail) == 1 else 'do'} not keep up"
    return text


def _and(names: Sequence[str]) -> str:
    return " and ".join((", ".join(names[:-1]), names[-1]) if len(names) > 1 else names)


def document(comparison: Comparison) -> dict[str, Any]:
    """The answer as one JSON document."""
    policies: dict[str, Any] = {}
    for k in comparison.knees:
        points = []
        for p in comparison.points:
            if p.policy == k.policy:
                row = asdict(p)
                steady = row.pop("steady")
                row.pop("policy")
                load = row.pop("load")
                key = "concurrency" if comparison.closed else "requests_per_second"
                points.append({key: load, **row, **(steady or {})})
        policies[k.policy] = {
            "capacity_requests_per_second": comparison.capacities.get(k.policy),
            "knee": {"holds_at": k.holds_at, "fails_at": k.fails_at, "reason": k.reason},
            "points": points,
        }
    return {
        "schema_version": 1,
        "finding": title(comparison),
        "load_unit": "clients" if comparison.closed else "requests_per_second",
        "requests_in_mix": comparison.requests,
        "prompt_tokens_mean": comparison.mean_prompt_tokens,
        "generation_tokens_mean": comparison.mean_generation_tokens,
        "seed": comparison.seed,
        "step_time": asdict(comparison.step_time),
        "settings": asdict(comparison.settings),
        "notes": list(comparison.notes),
        "steady_part": DEFINITION,
        "limit_e2e_p99_seconds": comparison.limit_seconds,
        "limit_from": comparison.limit_source,
        "policies": policies,
        "fits": [asdict(fit) for fit in comparison.fits],
    }


def print_causes(rate: float, variants: Sequence[Variant], as_json: bool) -> None:
    """Static to continuous, cause by cause."""
    if as_json:
        rows = [asdict(one) for one in variants]
        head = {"schema_version": 1, "requests_per_second": rate, "steady_part": DEFINITION}
        click.echo(json.dumps({**head, "variants": rows}, indent=2))
        return
    if sys.stdout.isatty():
        _say(f"latency at {rate:g} req/s; factors against the line above (only: against static)")
    header = ("variant", "capacity req/s", "factor", "mean s", "factor", "p99 s", "note")
    short, full = [], []
    for one in variants:
        values = (
            *(one.capacity_requests_per_second, one.capacity_factor),
            *(one.e2e_seconds_mean, one.latency_factor, one.e2e_seconds_p99),
        )
        note = "" if one.keeps_up else "behind"
        cells = [
            "" if v is None and i in (1, 3) and not one.compared_with else _number(v)
            for i, v in enumerate(values)
        ]
        short.append((one.name, *cells, note))
        full.append((one.name, *("unknown" if v is None else str(v) for v in values), note))
    if not sys.stdout.isatty():
        click.echo("\t".join(_CAUSES_HEADER))
    for line in lines(header, short, full):
        click.echo(line)
