"""What must hold before an answer is given; a check that fails says its number and its limit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import NormalDist

import numpy as np

from driftwatch.errors import ImpossibleConfiguration, NoVerdict
from driftwatch.model import Slo
from driftwatch.recommend.advice import Gate
from driftwatch.recommend.calibration.fits import Arrivals, Calibration, Fit, redrawn
from driftwatch.recommend.capacity import FEWEST_REQUESTS
from driftwatch.recommend.ground import TIES, Ground
from driftwatch.recommend.scenarios import Scenario
from driftwatch.recommend.simulation import Judged, simulated
from driftwatch.recommend.traffic.observed import Observed, Server
from driftwatch.recommend.words import digits
from driftwatch.simulate.requests import LOOK_UP, NO_GROUP, Requests

# from fewer minutes the noise of a minute cannot be told from the model, nor a burst from a rate
FEWEST_MINUTES = 3
PREFIX_HITS = 0.05
KV_ROOM = 0.5  # of the cache, where its size is unknown: twice the batch would fit
# TTFT not where the window is saturated: a backlog integrates every error. Running requests are ITL
# times throughput (Little's law).
BOUNDS = {
    "generation_tokens_per_second": 0.05,
    "itl_seconds": 0.10,
    "ttft_seconds": 0.15,
    "running_requests": 0.10,
    "kv_cache_usage_ratio": 0.25,
}
MOST_CHANCE = 3.0
QUEUED_SHARE = 0.2
_BY_CHANCE = 0.05  # of windows that a right step-time model is refused in
LEAST_OF_TOKENS = 0.05  # of the window, in a level of load that is compared by itself
_ALWAYS = ("generation_tokens_per_second", "itl_seconds")
_SATURATED = (*_ALWAYS, "running_requests", "kv_cache_usage_ratio")
_GATE = {
    "generation_tokens_per_second": ("fit_generation_tokens", "tokens/s"),
    "itl_seconds": ("fit_itl", "ITL"),
    "ttft_seconds": ("fit_ttft", "TTFT"),
    "running_requests": ("fit_running", "running requests"),
    "kv_cache_usage_ratio": ("fit_kv_cache", "KV use"),
}


def traffic_gates(observed: Observed, now: Observed) -> list[Gate]:
    """Enough is known of the engine, and enough of the traffic as it is ``now`` to judge by it."""
    gates = _enough(observed, ("busy_windows", "requests"), "")
    if now is not observed:
        since = f" since the traffic changed at {now.start:%H:%M} UTC"
        gates += _enough(now, ("recent_minutes", "recent_requests"), since)
    return gates


def _enough(observed: Observed, names: tuple[str, str], since: str) -> list[Gate]:
    have = (observed.busy_windows, len(observed.requests))
    needed = ((FEWEST_MINUTES, "min under load"), (FEWEST_REQUESTS, "requests"))
    return [
        Gate(name, count >= least, f"needs {least} {noun}{since}, has {count:,}")
        for name, count, (least, noun) in zip(names, have, needed, strict=True)
    ]


def hits_known(observed: Observed) -> bool:
    """Prefix hits are too few to matter, or known request by request."""
    hits = observed.prefix_hit_ratio
    if hits is None or hits <= PREFIX_HITS:
        return True
    requests = observed.requests
    by_request = (requests.cached_tokens != LOOK_UP) | (requests.prefix_group != NO_GROUP)
    return observed.source == "request log" and bool(by_request.all())


def hits_gate(observed: Observed, off: Mapping[str, float] | None) -> Gate:
    """Who hit the prefix cache is known, or it makes no difference to today's simulation.

    ``off``: figure → today's simulation with whole prompts hit over the one with equal parts, minus
    1; None = not needed.
    """
    hits = observed.prefix_hit_ratio
    if off is None:
        share = "not on the page" if hits is None else f"{100 * hits:.1f} % of prompt tokens"
        return Gate("prefix_hits", True, f"prefix hits {share}")
    worst = max(off, key=lambda name: abs(off[name]) / BOUNDS[name])
    return Gate(
        "prefix_hits",
        abs(off[worst]) <= BOUNDS[worst],
        f"{100 * (hits or 0.0):.1f} % of prompt tokens hit the prefix cache (limit "
        f"{100 * PREFIX_HITS:.0f} %), of which requests is unknown: {_GATE[worst][1]} "
        f"{100 * off[worst]:+.0f} % if they were whole prompts (limit {100 * BOUNDS[worst]:.0f} %)",
    )


def server_gates(server: Server, missing: Sequence[str]) -> list[Gate]:
    """The settings are known, and nothing runs that no simulation here knows."""
    text = f"{' and '.join(missing)} unknown" if missing else "settings known"
    gates = [Gate("settings", not missing, text)]
    if server.unsupported:
        text = f"driftwatch does not simulate {', '.join(server.unsupported)}"
        gates.append(Gate("unsupported", False, text))
    return gates


def kv_gate(observed: Observed, scenarios: Sequence[Scenario]) -> Gate:
    """A block count that is unknown does no harm where KV use says that it cannot bind."""
    if all(scenario.configuration.num_gpu_blocks is not None for scenario in scenarios):
        return Gate("kv_blocks", True, "KV block count known")
    use = _most_kv(observed)
    preempted = float(observed.chunks["preemptions_per_second"].drop_nulls().sum())
    full = "how full the KV cache was is unknown too"
    if use is not None:
        full = f"the KV cache was up to {100 * use:.0f} % full (limit {100 * KV_ROOM:.0f} %)"
    passed = use is not None and use <= KV_ROOM and preempted == 0.0
    return Gate("kv_blocks", passed, f"the number of KV blocks is unknown, and {full}")


def _most_kv(observed: Observed) -> float | None:
    most = observed.chunks["kv_cache_usage_ratio"].max()
    return float(most) if isinstance(most, int | float) else None


def fit_gates(
    fit: Fit, *, saturated: bool, observed: Observed, chance: Mapping[str, float] | None = None
) -> list[Gate]:
    """The simulation of today's settings against what was observed.

    ``chance``: figure → standard deviation of what is drawn; two of them may be added up to, but
    never more than :data:`MOST_CHANCE` times the bound; None = nothing is.
    """
    figures = _SATURATED if saturated else (*_ALWAYS, "ttft_seconds")
    gates = []
    for name in figures:
        gate, words = _GATE[name]
        off = fit.residuals.get(name)
        if off is None:
            if name in _ALWAYS:
                gates.append(Gate(gate, False, f"{words} was not observed"))
            continue
        bound = BOUNDS[name]
        if name == "kv_cache_usage_ratio" and not _kv_matters(observed, off):
            continue
        bound = max(bound, min(2.0 * (chance or {}).get(name, 0.0), MOST_CHANCE * bound))
        gates.append(Gate(gate, abs(off) <= bound, _off_by(words, off, bound)))
    return [*gates, *load_gates(fit)]


def load_gates(fit: Fit) -> list[Gate]:
    """The time between tokens at each level of load that matters: it must not bend another way."""
    gates = []
    bands = [band for band in fit.bands if band.tokens_ratio >= LEAST_OF_TOKENS]
    for band in bands:
        bound = max(BOUNDS["itl_seconds"], _deviations(len(bands)) * band.log_sd)
        what = f"ITL at {digits(band.running_requests)} running requests"
        passed = abs(band.off_ratio) <= bound
        gates.append(Gate("fit_itl_by_load", passed, _off_by(what, band.off_ratio, bound)))
    return gates


def _off_by(what: str, off: float, bound: float) -> str:
    return (
        f"the model of this server is off by {100 * abs(off):.0f} % on {what} "
        f"(limit {100 * bound:.0f} %)"
    )


def _deviations(levels: int) -> float:
    """Standard deviations that chance alone exceeds in one of so many levels in 1 of 20 windows."""
    return NormalDist().inv_cdf(1.0 - _BY_CHANCE / (2 * levels))


def identifiable_gate(calibration: Calibration) -> Gate:
    """The data say enough of the step-time model to forecast another batch."""
    text = "step times are known closely enough"
    if not calibration.identifiable:
        text = calibration.why_not or "the batch hardly varied"
    return Gate("identifiable", calibration.identifiable, text)


def passing(
    scenarios: Iterable[Scenario],
    *,
    saturated: bool,
    observed: Observed,
    chance: Mapping[str, float] | None = None,
) -> list[Scenario]:
    """The scenarios whose simulation of today is within the bounds; given step-time models pass."""
    return [
        scenario
        for scenario in scenarios
        if scenario.fit is None
        or all(
            gate.passed
            for gate in fit_gates(
                scenario.fit, saturated=saturated, observed=observed, chance=chance
            )
        )
    ]


def is_queued(observed: Observed) -> bool:
    """A backlog builds up in a part of the window that is no longer small.

    Where requests wait in most scrapes the window is saturated; a backlog in a fifth of it makes
    its mean TTFT as impossible to simulate from counts.
    """
    if observed.saturated:
        return True
    waiting = observed.chunks["waiting_requests"].drop_nulls()
    return len(waiting) > 0 and int((waiting >= 1.0).sum()) >= QUEUED_SHARE * len(waiting)


def ttft_is_skipped(observed: Observed) -> bool:
    """The simulated TTFT cannot be held against the observed one: nor is another forecast."""
    return is_queued(observed) and observed.source == "metrics"


def nobody_waited(observed: Observed, slo: Slo | None) -> bool:
    """No scrape saw a waiting request, nothing was preempted, and the targets are met.

    Then no limit binds, even with the settings unknown.
    """
    chunks = observed.chunks
    waiting = chunks["waiting_requests"]
    if waiting.null_count() == len(waiting) or float(waiting.drop_nulls().sum()) > 0.0:
        return False
    if float(chunks["preemptions_per_second"].drop_nulls().sum()) > 0.0:
        return False
    if slo is None:
        return True
    meets = met_in_window(observed, slo)
    targets = [aim for aim in (slo.ttft_seconds, slo.tpot_seconds) if aim is not None]
    return len(meets) == len(targets) and all(meets.values())


def met_in_window(observed: Observed, slo: Slo) -> dict[str, bool]:
    """Target → whether the window's p95 met it; what was not observed is not in it."""
    pairs = {
        "ttft": (slo.ttft_seconds, observed.ttft_p95_seconds),
        "tpot": (slo.tpot_seconds, observed.tpot_p95_seconds),
    }
    return {
        name: p95 <= aim
        for name, (aim, p95) in pairs.items()
        if aim is not None and p95 is not None
    }


def failed_first(gates: Iterable[Gate]) -> tuple[Gate, ...]:
    """Those that failed lead."""
    return tuple(sorted(gates, key=lambda gate: gate.passed))


def _kv_matters(observed: Observed, off: float) -> bool:
    """Use is so high, as observed or as simulated, that the cache might bind."""
    most = _most_kv(observed)
    return most is not None and most * max(1.0, 1.0 + off) > KV_ROOM


_DRAWS = 6
_COMPARED = (*_ALWAYS, "ttft_seconds", "running_requests")


def spread_by_chance(
    observed: Observed, scenario: Scenario, arrivals: Arrivals, seed: int
) -> Mapping[str, float]:
    """Figure → relative standard deviation of its mean over the window.

    ``observed``: the window; of a request log nothing is drawn, and nothing is left to chance;
    ``arrivals``: how they come inside a minute, as the calibration has it.
    """
    if observed.source != "metrics":
        return {}
    rng = np.random.default_rng(seed)
    judged = Judged(None, np.nextafter(0.0, 1.0), observed.seconds)
    by_figure: dict[str, list[float]] = {name: [] for name in _COMPARED}
    for _ in range(_DRAWS):
        try:
            one = simulated(
                redrawn(observed.requests, rng, arrivals),
                scenario.configuration,
                scenario.step_time,
                judged,
                scraped=True,
            )
        except (ImpossibleConfiguration, NoVerdict):
            return {}
        for name, values in by_figure.items():
            value = getattr(one, name)
            if value is not None:
                values.append(float(value))
    return {
        name: float(np.std(values, ddof=1) / np.mean(values))
        for name, values in by_figure.items()
        if len(values) == _DRAWS and np.mean(values) > 0
    }


def with_unknown_hits(ground: Ground, observed: Observed, seed: int) -> tuple[Ground, Gate]:
    """The ground with the other scenario where hits are unknown, and what the gate says of them."""
    if hits_known(observed):
        return ground, hits_gate(observed, None)
    block = ground.scenarios[0].configuration.block_size
    rng = np.random.default_rng(seed)
    requests = as_whole_prompts(ground.requests, block, rng)
    other = replace(ground.scenarios[0], whole_hits=True)
    both = replace(ground, scenarios=[*ground.scenarios, other], whole_hits=requests)
    even = both.measured(ground.scenarios[0], {}, scraped=True)
    whole = both.measured(other, {}, scraped=True)
    off: dict[str, float] = {}
    shares = [0.0 if one is None else one.in_target_ratio for one in (even, whole)]
    alike = abs(shares[0] - shares[1]) <= TIES
    for name in _COMPARED:
        if name == "ttft_seconds" and (observed.saturated or alike):
            continue  # what matters of it is who is in target
        before = None if even is None else getattr(even, name)
        after = None if whole is None else getattr(whole, name)
        if before and after is not None:
            off[name] = after / before - 1.0
    if not off:
        off = {"itl_seconds": float("inf")}
    assert set(off) <= set(BOUNDS)  # noqa: S101 - names of one table
    return both, hits_gate(observed, off)


def as_whole_prompts(requests: Requests, block_size: int, rng: np.random.Generator) -> Requests:
    """As many cached tokens in all, but as whole prompts of requests drawn at random.

    ``block_size``: a hit is whole blocks, and never a prompt's last token.
    """
    total = int(np.maximum(requests.cached_tokens, 0).sum())
    whole = (requests.prompt_tokens - 1) // block_size * block_size
    order = rng.permutation(len(requests))
    before = np.cumsum(whole[order]) - whole[order]
    cached = np.zeros(len(requests), dtype=np.int64)
    cached[order] = np.clip(total - before, 0, whole[order]) // block_size * block_size
    return replace(requests, cached_tokens=cached)
