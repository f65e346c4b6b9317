"""A comparison of batchers as tables, sentences and JSON."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from driftwatch.cli.simulate.screen import (
    echo,
    number,
    print_json,
    rows_between_tabs,
    say,
    table,
    together,
)
from driftwatch.lab.batchers.comparison import Fit, Knee, Point
from driftwatch.lab.batchers.policies import Settings
from driftwatch.lab.batchers.steady import DEFINITION
from driftwatch.notify.numbers import figure
from driftwatch.simulate.step_time import StepTime

if TYPE_CHECKING:
    from driftwatch.lab.batchers.comparison import Variant


@dataclass(frozen=True, slots=True)
class Comparison:
    """Policies over loads."""

    settings: Settings
    step_time: StepTime
    closed: bool  # loads are clients, not requests per second
    loads: tuple[float, ...]  # rising
    points: tuple[Point, ...]  # one a policy and load
    capacities: dict[str, float | None]  # policy → requests/s while there is always more to do
    limit_seconds: float  # on the p99 end-to-end time
    limit_source: str  # where that comes from
    knees: tuple[Knee, ...]  # one a policy
    fits: tuple[Fit, ...]  # which is best where
    requests: int  # lengths in the mix
    mean_prompt_tokens: float
    mean_generation_tokens: float
    seed: int  # of arrivals
    notes: tuple[str, ...]  # defaults that no option sets

    @property
    def unit(self) -> str:
        """Of the loads."""
        return "clients" if self.closed else "req/s"

    @property
    def load_name(self) -> str:
        """Of the loads, in JSON."""
        return "concurrency" if self.closed else "requests_per_second"

    @property
    def policies(self) -> tuple[str, ...]:
        """In the order of the points."""
        return tuple(dict.fromkeys(p.policy for p in self.points))

    def points_of(self, policy: str) -> list[Point]:
        """Its points, by load."""
        return [p for p in self.points if p.policy == policy]


_HEADER = ("load", "req/s", "tok/s", "p50", "p99", "p99.9", "max", "mean", "TTFT p99", "note")
# piped: what the JSON calls them
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
        print_json(document(comparison))
        return
    if sys.stdout.isatty():
        say(
            f"{comparison.requests:,} lengths, mean prompt "
            f"{figure(comparison.mean_prompt_tokens)} tokens, mean generation "
            f"{figure(comparison.mean_generation_tokens)} tokens. Latencies are end to end, in "
            f"seconds, of the {DEFINITION}"
        )
        for policy in comparison.policies:
            echo()
            say(f"{policy}, load in {'clients' if comparison.closed else 'arriving req/s'}")
            table(_HEADER, [_row(p) for p in comparison.points_of(policy)], gap=False)
        echo()
    else:
        rows_between_tabs([("policy", comparison.load_name, *_FULL_HEADER)])
        rows_between_tabs([_full(p) for p in comparison.points])
    for sentence in sentences(comparison):
        say(sentence)


def _figures(p: Point) -> tuple[float | None, ...]:
    if p.steady is None:
        return (None,) * 8
    s = p.steady
    return (
        s.throughput_requests_per_second,
        s.throughput_generation_tokens_per_second,
        *(s.e2e.p50, s.e2e.p99, s.e2e.p999, s.e2e.max, s.e2e.mean, s.ttft.p99),
    )


def _row(p: Point) -> tuple[str, ...]:
    if p.steady is None:
        return (f"{p.load:g}", *["-"] * 8, "no figures")
    cells = ("?" if value is None else figure(value) for value in _figures(p))
    return (f"{p.load:g}", *cells, "" if p.steady.keeps_up else "behind")


def _full(p: Point) -> tuple[str, ...]:
    note = p.reason
    if p.steady is not None:
        ended = [f"{n:,} {status}" for status, n in p.steady.ended_otherwise.items()]
        notes = ", ".join([*([] if p.steady.keeps_up else ["behind"]), *ended])
        note = "; ".join(part for part in (notes, p.steady.e2e.reason) if part)
    cells = ("unknown" if v is None else str(v) for v in _figures(p))
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
    return f"{together(same)} {verb} to {best.holds_at:g} {comparison.unit}{tail}"


def sentences(comparison: Comparison) -> list[str]:
    """Capacity, batch figures, knees, and the best policy by load."""
    texts = [_capacity_text(comparison), *_batches_texts(comparison)]
    if sys.stdout.isatty():  # piped, the rows hold it
        texts += _others_texts(comparison)
    texts.append(
        "Knee: the largest load that a policy keeps up with while p99 stays within "
        f"{figure(comparison.limit_seconds)} s ({comparison.limit_source})."
    )
    for k in comparison.knees:
        if k.holds_at is None:
            texts.append(f"  {k.policy}: none ({k.reason})")
        elif k.fails_at is None:
            texts.append(f"  {k.policy}: above {k.holds_at:g} {comparison.unit}, the last load")
        else:
            texts.append(
                f"  {k.policy}: {k.holds_at:g} {comparison.unit}; at {k.fails_at:g} {k.reason}"
            )
    if sys.stdout.isatty() and any(p.steady and None in _figures(p) for p in comparison.points):
        texts.append("?: too few requests finished for this figure.")
    if any(p.steady is not None and not p.steady.keeps_up for p in comparison.points):
        texts.append(
            "behind: requests arrive faster than they are served, so latency grows with the run."
        )
    texts.append("Best policy by load (lowest p99 of those that keep up, 5 % counts as equal):")
    texts += [f"  {_fit_text(fit, comparison.unit)}" for fit in comparison.fits]
    return texts


def _capacity_text(comparison: Comparison) -> str:
    capacities = {
        n: c for n, c in comparison.capacities.items() if c is not None and n != "back-pressure"
    }
    if not capacities:
        return "Capacity unknown: all requests end at one time."
    lowest = min(capacities.values())
    parts = [
        f"{name} {figure(c)} req/s" + (f" ({figure(c / lowest)}×)" if c > lowest else "")
        for name, c in capacities.items()
    ]
    head = "Capacity (throughput while the queue never empties, each a run of its own)"
    return f"{head}: {', '.join(parts)}."


def _others_texts(comparison: Comparison) -> list[str]:
    """Which requests did not finish, and which points have no figures."""
    texts = []
    for p in comparison.points:
        if p.steady is None:
            texts.append(f"{p.policy} at {p.load:g}: no figures, {p.reason}")
        elif p.steady.ended_otherwise:
            ended = (
                f"{n:,} requests {s.replace('_', ' ')}" for s, n in p.steady.ended_otherwise.items()
            )
            texts.append(f"{p.policy} at {p.load:g}: {', '.join(ended)}")
    return texts


def _batches_texts(comparison: Comparison) -> list[str]:
    texts = [
        "Batch efficiency: generated tokens, over batch size times longest generation of the batch."
    ]
    without = []
    for policy in comparison.policies:
        points = comparison.points_of(policy)
        ratios = [p.batch_efficiency_ratio for p in points if p.batch_efficiency_ratio is not None]
        wastes = [
            100 * p.prompt_padding_waste_ratio
            for p in points
            if p.prompt_padding_waste_ratio is not None
        ]
        if not ratios:
            without.append(policy)
            continue
        texts.append(
            f"  {policy}: {_span(ratios)}; {_span(wastes)} % of its prompt tokens are padding."
        )
    if without:
        texts.append(
            f"  {together(without)}: not defined, as no request waits for the longest of its batch."
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
    text = f"{where} {unit}: {together(fit.best)}, p99 {low if same else f'{low} → {high}'}"
    if fit.behind:
        others = ", ".join(f"{figure(ratio, 2)}× with {name}" for name, ratio in fit.behind)
        text += f"; at {fit.highest:g} {unit} p99 is {others}"
    if fit.fail:
        text += f"; {together(fit.fail)} {'does' if len(fit.fail) == 1 else 'do'} not keep up"
    return text


def document(comparison: Comparison) -> dict[str, Any]:
    """The answer as one JSON document."""
    policies: dict[str, Any] = {}
    for k in comparison.knees:
        points = []
        for p in comparison.points_of(k.policy):
            row = asdict(p)
            steady = row.pop("steady")
            row.pop("policy")
            points.append({comparison.load_name: row.pop("load"), **row, **(steady or {})})
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
        print_json({**head, "variants": rows})
        return
    short, full = [], []
    for one in variants:
        values = (
            *(one.capacity_requests_per_second, one.capacity_factor),
            *(one.e2e_seconds_mean, one.latency_factor, one.e2e_seconds_p99),
        )
        note = "" if one.keeps_up else "behind"
        cells = [
            "" if v is None and i in (1, 3) and not one.compared_with else number(v)
            for i, v in enumerate(values)
        ]
        short.append((one.name, *cells, note))
        full.append((one.name, *("unknown" if v is None else str(v) for v in values), note))
    if not sys.stdout.isatty():
        rows_between_tabs([_CAUSES_HEADER, *full])
        return
    say(
        f"Latency at {rate:g} requests/s. Each factor is against the line above, and in lines that "
        "begin with only against static; above 1 is better. No wait to fill: a batch starts "
        "before it is full. Replies not held: a request is answered when it finishes. Join any "
        "step: requests are admitted at every step, as vLLM does. Seats: max_num_seqs."
    )
    header = ("variant", "capacity req/s", "factor", "mean s", "factor", "p99 s", "note")
    table(header, short, gap=False)
