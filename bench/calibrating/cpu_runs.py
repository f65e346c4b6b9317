"""Real servers on a CPU: run_cap's first half forecasts its second; the effects in run_main.

The noise is the run's own: ITL and steps a second of stretches that were sent the same thing. In
run_main that are three baselines at a quarter of what the server can do; a phase near saturation
repeats itself far worse, as its queue multiplies every slow second. So each phase has its own noise
beside it: of its mean, by the means of its pieces of half a minute (batch means).
"""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
from recorded_runs import Seen, cpu_server, phases, rows_between, seen_in

from driftwatch.recommend.calibration.calibrate import calibrate, with_bursts
from driftwatch.recommend.calibration.fits import Calibration, Fit, redrawn
from driftwatch.recommend.calibration.prior import prior_of
from driftwatch.recommend.scenarios import configurations_of
from driftwatch.recommend.traffic.from_minutes import observed_from_minutes
from driftwatch.recommend.traffic.observed import Observed
from driftwatch.recommend.traffic.waits import as_waited
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.engine import Observe, simulate

SEEDS = (0, 1, 2)
SETTLE_SECONDS = 2.0  # after the first request of a run
PIECE_SECONDS = 30.0  # longer than the longest request of run_main


def fitted(
    rows: pl.DataFrame, max_num_seqs: int, seed: int
) -> tuple[Observed, SchedulerConfiguration, Calibration]:
    """Laws of a stretch of minutes."""
    server = cpu_server(max_num_seqs)
    observed = observed_from_minutes(rows, server, seed=seed)
    configuration = configurations_of(server, observed).configurations[0]
    prior = prior_of(server, observed, configuration)
    found = calibrate(observed, configuration, prior, at=rows["end"][-1], seed=seed)
    return _as_it_came(observed, configuration, found, seed), configuration, found


def _as_it_came(
    observed: Observed, configuration: SchedulerConfiguration, found: Calibration, seed: int
) -> Observed:
    """The requests where they must have come to wait as they did, as the advice has them."""
    drawn = with_bursts(observed, found.arrivals, seed=seed).requests
    return as_waited(
        observed,
        configuration,
        found.best.step_time,
        found.best.ttft_overhead_seconds,
        in_bursts=None if drawn is observed.requests else drawn,
        evenly=[redrawn(observed.requests, np.random.default_rng([seed, n])) for n in range(3)],
        wander_log_sd=found.wander_log_sd,
        seed=seed,
    )


def forecast(observed: Observed, configuration: SchedulerConfiguration, fit: Fit) -> Seen:
    """What these requests would see under a step-time model and settings."""
    times = np.arange(0.0, observed.seconds + 1e-9, 5.0)
    run = simulate(
        observed.requests,
        configuration,
        fit.step_time,
        observe=Observe(times),
        until_seconds=float(times[-1]),
    )
    scrapes = run.scrapes
    assert scrapes is not None
    last = scrapes.tail(1)
    own = run.requests.filter(pl.col("arrival_seconds") > 0)
    return Seen(
        float(last["itl_seconds_sum"][0]) / float(last["itl_seconds_count"][0]),
        float(last["steps_observed"][0]) / float(times[-1]),
        float(own["ttft_seconds"].mean()) + fit.ttft_overhead_seconds,  # type: ignore[arg-type]
        float(scrapes["running"].mean()),  # type: ignore[arg-type]
    )


def noise_of_segments(folder: Path) -> tuple[float, float]:
    """run_cap: relative sd of ITL and steps a second between segments of one rate and settings.

    Each half repeats the rates of its segments, and both halves are sent the same requests; light
    segments, where no cap binds, count as one group over both halves.
    """
    groups: dict[tuple[str, float], list[tuple[float, float]]] = {}
    for phase in json.loads((folder / "phase_summary.json").read_text()):
        heavy = phase["phase"] if "heavy" in phase["phase"] else "light"
        for one in phase.get("segments", ()):
            key = (heavy, one["offered_rate"])
            groups.setdefault(key, []).append((one["itl_mean_ms"], one["steps_s"]))
    several = [np.log(np.array(g)) for g in groups.values() if len(g) > 1]
    count = sum(len(g) - 1 for g in several)
    pooled = sum(((g - g.mean(axis=0)) ** 2).sum(axis=0) for g in several)
    itl, steps = np.sqrt(pooled / count)
    return float(itl), float(steps)


def report_cap(folder: Path) -> bool:
    """Print the figures of run_cap."""
    spans = phases(folder)
    first = (spans["cap8_light"][0] + SETTLE_SECONDS, spans["cap8_light_after"][1])
    second = (spans["cap64_light"][0] + SETTLE_SECONDS, spans["cap64_light_after"][1])
    before, after = rows_between(folder, *first), rows_between(folder, *second)
    noise = noise_of_segments(folder)
    was = seen_in(after)
    today = seen_in(before)
    print(f"run_cap: repeat noise ITL {100 * noise[0]:.1f} %, steps/s {100 * noise[1]:.1f} %")
    print(f"  with 8: {_words(today)}; with 64: {_words(was)}")
    off = []
    for seed in SEEDS:
        observed, configuration, found = fitted(before, 8, seed)
        said = _mean(
            [forecast(observed, replace(configuration, max_num_seqs=64), fit) for fit in found.fits]
        )
        off.append((said.itl / was.itl - 1, said.steps / was.steps - 1))
        right = (said.itl > today.itl) == (was.itl > today.itl) and said.ttft < today.ttft
        print(
            f"  seed {seed}: {_words(said)}  ITL {100 * off[-1][0]:+.1f} %, "
            f"steps/s {100 * off[-1][1]:+.1f} %, directions {'right' if right else 'WRONG'}"
        )
    worst = np.abs(np.array(off)).max(axis=0)
    good = bool(worst[0] <= 2 * noise[0] and worst[1] <= 2 * noise[1])
    print(f"  goal: within twice the noise: {'reached' if good else 'missed'}")
    return good


def noise_of_mean(folder: Path, span: tuple[float, float]) -> tuple[float, float]:
    """Relative sd of the mean of a phase: ITL and steps a second of its pieces, as independent."""
    many = max(2, int((span[1] - span[0]) // PIECE_SECONDS))
    edges = np.linspace(span[0] + SETTLE_SECONDS, span[1], many + 1)
    pieces = [
        seen_in(rows_between(folder, float(low), float(high)))
        for low, high in itertools.pairwise(edges)
    ]
    logs = np.log([(piece.itl, piece.steps) for piece in pieces])
    itl, steps = logs.std(axis=0, ddof=1) / np.sqrt(len(pieces))
    return float(itl), float(steps)


def report_main(folder: Path) -> bool:
    """Print the figures of run_main: models of the whole run, each phase simulated."""
    spans = {name: span for name, span in phases(folder).items() if name != "idle0"}
    parts = {
        name: rows_between(folder, span[0] + SETTLE_SECONDS, span[1])
        for name, span in spans.items()
    }
    whole = rows_between(
        folder, spans["baseline"][0] + SETTLE_SECONDS, spans["rate_drop_to_25pct"][1]
    )
    base = [seen_in(parts[name]) for name in ("baseline", "baseline2", "baseline3")]
    noise = [
        float(np.std(np.log([getattr(one, key) for one in base]), ddof=1))
        for key in ("itl", "steps")
    ]
    print(f"run_main: repeat noise ITL {100 * noise[0]:.1f} %, steps/s {100 * noise[1]:.1f} %")
    good, direction = True, True
    inside: list[bool] = []
    _, configuration, found = fitted(whole, 64, 0)
    was_base = seen_in(parts["baseline"])
    said_base = _of_phase(parts["baseline"], configuration, found)
    for name, rows in parts.items():
        was, said = seen_in(rows), _of_phase(rows, configuration, found)
        off = said.itl / was.itl - 1, said.steps / was.steps - 1
        good &= abs(off[0]) <= 2 * noise[0] and abs(off[1]) <= 2 * noise[1]
        if not name.startswith("baseline"):
            direction &= all(
                (getattr(said, key) > getattr(said_base, key))
                == (getattr(was, key) > getattr(was_base, key))
                for key in ("itl", "steps", "running", "ttft")
            )
        own = noise_of_mean(folder, spans[name])
        inside += [abs(np.log1p(a)) <= 2 * b for a, b in zip(off, own, strict=True)]
        print(
            f"  {name:20s} {_words(said)} was {_words(was)}  "
            f"ITL {100 * off[0]:+.0f} % (own noise {100 * own[0]:.0f} %), "
            f"steps/s {100 * off[1]:+.0f} % (own noise {100 * own[1]:.0f} %)"
        )
    print(
        f"  directions {'right' if direction else 'WRONG'}; "
        f"within twice the noise of the baselines: {'reached' if good else 'missed'}; "
        f"within twice the phase's own: {sum(inside)} of {len(inside)}"
    )
    return direction


def _of_phase(
    rows: pl.DataFrame, configuration: SchedulerConfiguration, found: Calibration
) -> Seen:
    observed = observed_from_minutes(rows, cpu_server(64), seed=0)
    observed = _as_it_came(observed, configuration, found, 0)
    return forecast(observed, configuration, found.best)


def _mean(seen: list[Seen]) -> Seen:
    return Seen(
        *(
            float(np.mean([getattr(one, key) for one in seen]))
            for key in ("itl", "steps", "ttft", "running")
        )
    )


def _words(seen: Seen) -> str:
    return (
        f"ITL {1000 * seen.itl:.2f} ms, {seen.steps:.0f} steps/s, TTFT {seen.ttft:.3f} s, "
        f"{seen.running:.1f} running"
    )
