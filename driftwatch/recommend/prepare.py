"""From a question to the ground of an answer: traffic, settings, step-time models, gates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from driftwatch.errors import ImpossibleConfiguration, NoVerdict
from driftwatch.knobs import KNOBS
from driftwatch.model import Reason, Recommendation
from driftwatch.recommend.advice import Advice, Gate, Question, targets_of
from driftwatch.recommend.calibration.calibrate import calibrate, with_bursts
from driftwatch.recommend.calibration.fits import EVEN, Arrivals, Calibration, redrawn
from driftwatch.recommend.calibration.prior import prior_of
from driftwatch.recommend.gates import (
    failed_first,
    fit_gates,
    identifiable_gate,
    kv_gate,
    nobody_waited,
    passing,
    server_gates,
    spread_by_chance,
    traffic_gates,
    ttft_is_skipped,
    with_unknown_hits,
)
from driftwatch.recommend.ground import Ground
from driftwatch.recommend.horizon import WARM_SHARE, alike_since, demands, recent, steady
from driftwatch.recommend.scenarios import (
    BlockCount,
    Scenario,
    Settings,
    between,
    configurations_of,
    scenarios_of,
    setting_of,
)
from driftwatch.recommend.simulation import Judged, Measured, simulated
from driftwatch.recommend.traffic.from_log import observed_from_log
from driftwatch.recommend.traffic.from_minutes import EVENLY, observed_from_minutes
from driftwatch.recommend.traffic.observed import Observed
from driftwatch.recommend.traffic.waits import as_waited
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.hardware import Hardware
from driftwatch.simulate.requests import Requests

Calibrated = tuple[SchedulerConfiguration, Calibration]
_SAME = 0.01  # of tokens/s, ITL and the batch: one step-time model then fits both settings
_FIGURES = ("generation_tokens_per_second", "itl_seconds", "running_requests", "ttft_seconds")


def calibrated(
    question: Question, observed: Observed, settings: Settings, hardware: Hardware | None
) -> tuple[list[Calibrated], list[Gate]]:
    """Step-time models under each of the settings, and, where there are none, why.

    Settings that serve the window as others do already (a token budget that no step fills) get the
    best model of those: it is fitted once. Where requests came evenly the next fit begins where the
    one before ended.
    """
    calibrations: list[Calibrated] = []
    simulations: list[Measured | None] = []
    failures: list[Gate] = []
    before: Calibration | None = None
    for configuration in reversed(settings.configurations):
        same = _alike(observed, configuration, calibrations, simulations)
        if same is not None:
            calibrations.append((configuration, replace(same, fits=same.fits[:1])))
            simulations.append(None)
            continue
        try:
            prior = prior_of(question.server, observed, configuration, hardware=hardware)
            calibration = calibrate(
                observed, configuration, prior, at=question.at, seed=question.seed, before=before
            )
        except (NoVerdict, ImpossibleConfiguration) as error:
            failures.append(Gate("calibration", False, error.message))
            continue
        # bursts are told from the passes that a budget makes: a wrong budget finds wrong ones
        before = calibration if calibration.arrivals == EVEN else None
        several = len(settings.configurations) > 1
        calibrations.append((configuration, calibration))
        simulations.append(_simulated(observed, configuration, calibration) if several else None)
    return calibrations, failures[:1]


def _alike(
    observed: Observed,
    configuration: SchedulerConfiguration,
    calibrations: list[Calibrated],
    simulations: list[Measured | None],
) -> Calibration | None:
    for (_, calibration), before in zip(calibrations, simulations, strict=True):
        if before is None:
            continue
        after = _simulated(observed, configuration, calibration)
        pairs = [(getattr(before, name), getattr(after, name, None)) for name in _FIGURES]
        if after is not None and all(
            a is b if a is None or b is None else abs(b - a) <= _SAME * abs(a) for a, b in pairs
        ):
            return calibration
    return None


def _simulated(
    observed: Observed, configuration: SchedulerConfiguration, calibration: Calibration
) -> Measured | None:
    judged = Judged(None, float(np.nextafter(0.0, 1.0)), observed.seconds)
    try:
        return simulated(
            observed.requests, configuration, calibration.best.step_time, judged, scraped=True
        )
    except (ImpossibleConfiguration, NoVerdict):
        return None


IN_BURSTS = "arrivals inside a minute: in bursts, as forward passes and queue show"
AS_WAITED = "arrivals inside a minute: so that requests wait as the TTFT buckets show"
_EVEN_DRAWS = 4  # by as much as the waits of two of these differ nothing is moved


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A question that can be answered."""

    advice: Advice
    observed: Observed
    ground: Ground
    judged: Requests  # the traffic going on, on a clock of its own


@dataclass(frozen=True, slots=True, eq=False)
class Refused:
    """A question that no simulation answers."""

    # what is known so far, and which gates failed; or that nothing needs a simulation
    advice: Advice
    # the traffic since it is as it is now; None = it could not be rebuilt
    observed: Observed | None = None


def prepare(question: Question, hardware: Hardware | None) -> Prepared | Refused:
    """Traffic, settings, step-time models and gates; an answer at once where a gate fails."""
    slo, source = targets_of(question)
    advice = Advice(question.at, _insufficient(()), slo=slo, slo_source=source)
    try:
        observed = _observed(question)
        since = alike_since(observed)
        now = recent(observed, question.minutes, since)
    except NoVerdict as error:
        return Refused(_refused(advice, (Gate("traffic", False, error.message),)))
    settings = configurations_of(question.server, observed)
    advice = _so_far(advice, observed, now, settings)
    enough = traffic_gates(observed, now)
    gates = [*enough, *server_gates(question.server, settings.missing)]
    idle = nobody_waited(now, slo) and all(gate.passed for gate in enough)
    refused = _idle if idle else _refused
    if not all(gate.passed for gate in gates):
        return Refused(refused(advice, gates), now)
    calibrations, failures = calibrated(question, observed, settings, hardware)
    if not calibrations:
        return Refused(refused(advice, [*gates, *failures]), now)
    scenarios = scenarios_of(calibrations)
    calibration = next(one for _, one in calibrations if scenarios[0].fit in one.fits)
    advice = replace(advice, calibration=calibration)
    fitting, fit = _fitting(scenarios, observed, calibration.arrivals, question.seed)
    gates += [*fit, kv_gate(observed, scenarios)]
    if advice.calibration is not None:
        gates.append(identifiable_gate(advice.calibration))
    if not fitting or not all(gate.passed for gate in gates):
        return Refused(refused(advice, gates), now)
    traffic = as_it_came(observed, calibration, fitting[0], question.seed)
    advice = replace(advice, notes=arrival_notes(advice.notes, observed, traffic))
    now = recent(traffic, question.minutes, since)
    blocks = BlockCount.of(question.server, hardware)
    peers = _beside(question)
    going_on, lasting = steady(now, question.seed, peers)
    ground = Ground(
        between(fitting),
        going_on,
        Judged(slo, WARM_SHARE * lasting, lasting),
        blocks,
        budget_known=question.server.serving.max_num_batched_tokens is not None,
        objective=question.objective,
        demands=demands(now, len(going_on) / lasting if lasting else 0.0),
        ttft_compared=not any(ttft_is_skipped(one) for one in (observed, now)),
    )
    ground, hits = with_unknown_hits(ground, now, question.seed)
    gates.append(hits)
    if not hits.passed:
        return Refused(refused(advice, gates), now)
    notes = [*advice.notes, *([blocks.unknown] if blocks.unknown else [])]
    if peers:
        notes.append(f"judged by the traffic of {1 + len(peers)} servers of the pool")
    return Prepared(
        replace(advice, gates=failed_first(gates), notes=tuple(notes)), now, ground, going_on
    )


def _observed(question: Question) -> Observed:
    if question.log is not None:
        return observed_from_log(
            question.log, question.minutes, question.server, seed=question.seed
        )
    return observed_from_minutes(question.minutes, question.server, seed=question.seed)


def _beside(question: Question) -> list[Observed]:
    """What came to the peers since their traffic is as it is now, as far as it is known."""
    windows = []
    for minutes in question.beside:
        try:
            window = observed_from_minutes(minutes, question.server, seed=question.seed)
            windows.append(recent(window, minutes, alike_since(window)))
        except NoVerdict:
            continue
    return windows


def as_it_came(
    observed: Observed, calibration: Calibration, scenario: Scenario, seed: int
) -> Observed:
    """The window with its requests where they must have come to wait as they did."""
    in_bursts = with_bursts(observed, calibration.arrivals, seed=seed).requests
    rng = np.random.default_rng(seed)
    return as_waited(
        observed,
        scenario.configuration,
        scenario.step_time,
        scenario.ttft_overhead_seconds,
        in_bursts=None if in_bursts is observed.requests else in_bursts,
        evenly=[redrawn(observed.requests, rng) for _ in range(_EVEN_DRAWS)],
        wander_log_sd=calibration.wander_log_sd,
        seed=seed,
    )


def arrival_notes(notes: Sequence[str], before: Observed, after: Observed) -> tuple[str, ...]:
    """The notes, with what was done about the times of requests inside their minutes."""
    if after.requests is before.requests:
        return tuple(notes)
    note_on_times = IN_BURSTS if before.waits is None else AS_WAITED
    more = [note for note in after.notes if note not in before.notes]
    return (*(note_on_times if note == EVENLY else note for note in notes), *more)


def _so_far(
    advice: Advice,
    observed: Observed,
    now: Observed,
    settings: Settings,
) -> Advice:
    today: dict[str, float] = {}
    if settings.configurations:
        for name in KNOBS:
            values = {setting_of(one, name) for one in settings.configurations}
            value = values.pop() if len(values) == 1 else None
            if value:
                today[name] = value
    notes = [*observed.notes, *settings.notes]
    if now is not observed:
        notes.append(
            f"traffic since {now.start:%H:%M} UTC, when it changed; step times fitted to "
            f"{observed.seconds / 60:.0f} min"
        )
    if advice.slo is None:
        notes.append(
            "no latency target: judged by requests that wait at most 1 s for admission, "
            "capacity is what a full server serves"
        )
    return replace(
        advice,
        settings=today,
        window_seconds=now.seconds,
        offered_requests_per_second=now.offered_requests_per_second,
        source=now.source,
        requests=len(now.requests),
        notes=tuple(notes),
    )


def _fitting(
    scenarios: Sequence[Scenario], observed: Observed, arrivals: Arrivals, seed: int
) -> tuple[list[Scenario], list[Gate]]:
    """The scenarios whose simulation of today is right, and the gates of the best of them."""
    queued, chance = ttft_is_skipped(observed), None
    fitting = passing(scenarios, saturated=queued, observed=observed)
    if not fitting:
        chance = spread_by_chance(observed, scenarios[0], arrivals, seed)
        fitting = passing(scenarios, saturated=queued, observed=observed, chance=chance)
    best = (fitting or scenarios)[0].fit
    if best is None:
        return fitting, []
    return fitting, fit_gates(best, saturated=queued, observed=observed, chance=chance)


def _idle(advice: Advice, gates: Sequence[Gate]) -> Advice:
    """No limit binds where nobody waits, whatever a simulation could say."""
    recommendation = Recommendation(
        "no_action", Reason("no_queue", "no request waited: no limit binds, and no knob can help")
    )
    return replace(advice, recommendation=recommendation, gates=failed_first(gates))


def _insufficient(gates: Sequence[Gate]) -> Recommendation:
    failed = [Reason(gate.name, gate.said) for gate in gates if not gate.passed]
    return Recommendation("insufficient", failed[0] if failed else Reason("none", "no verdict"))


def _refused(advice: Advice, gates: Sequence[Gate]) -> Advice:
    return replace(advice, recommendation=_insufficient(gates), gates=failed_first(gates))
