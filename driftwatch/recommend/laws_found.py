"""A calibration for every settings that may be today's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from driftwatch.errors import ImpossibleConfiguration, NoVerdict
from driftwatch.recommend.advice import Gate, Question
from driftwatch.recommend.calibration.arrivals import EVEN
from driftwatch.recommend.calibration.calibrate import calibrate
from driftwatch.recommend.calibration.fitted import Calibration
from driftwatch.recommend.calibration.prior import prior_of
from driftwatch.recommend.observed.traffic import Observed
from driftwatch.recommend.replaying import Judged, Measured, replayed
from driftwatch.recommend.settings_known import Known
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.hardware import Hardware

Calibrated = tuple[SchedulerConfiguration, Calibration]
_SAME = 0.01  # of tokens/s, ITL and the batch: one law then fits both settings
_FIGURES = ("generation_tokens_per_second", "itl_seconds", "running_requests", "ttft_seconds")


def calibrated(
    question: Question, observed: Observed, known: Known, hardware: Hardware | None
) -> tuple[list[Calibrated], list[Gate]]:
    """Laws under each of the settings, and, where there are none, why.

    Settings that replay the window as others do already (a token budget that no step fills) get
    the best law of those: it is fitted once. Where requests came evenly the next fit begins where
    the one before ended.
    """
    found: list[Calibrated] = []
    shown: list[Measured | None] = []
    failures: list[Gate] = []
    before: Calibration | None = None
    for configuration in reversed(known.configurations):
        same = _alike(observed, configuration, found, shown)
        if same is not None:
            found.append((configuration, replace(same, fits=same.fits[:1])))
            shown.append(None)
            continue
        try:
            prior = prior_of(question.server, observed, configuration, hardware=hardware)
            made = calibrate(
                observed, configuration, prior, at=question.at, seed=question.seed, before=before
            )
        except (NoVerdict, ImpossibleConfiguration) as error:
            failures.append(Gate("calibration", False, error.message))
            continue
        # bursts are told from the passes that a budget makes: a wrong budget finds wrong ones
        before = made if made.arrivals == EVEN else None
        several = len(known.configurations) > 1
        found.append((configuration, made))
        shown.append(_replayed(observed, configuration, made) if several else None)
    return found, failures[:1]


def _alike(
    observed: Observed,
    configuration: SchedulerConfiguration,
    found: list[Calibrated],
    shown: list[Measured | None],
) -> Calibration | None:
    for (_, made), before in zip(found, shown, strict=True):
        if before is None:
            continue
        after = _replayed(observed, configuration, made)
        if after is not None and all(_near(before, after, name) for name in _FIGURES):
            return made
    return None


def _replayed(
    observed: Observed, configuration: SchedulerConfiguration, made: Calibration
) -> Measured | None:
    judged = Judged(None, float(np.nextafter(0.0, 1.0)), observed.seconds)
    try:
        return replayed(observed.requests, configuration, made.best.law, judged, scraped=True)
    except (ImpossibleConfiguration, NoVerdict):
        return None


def _near(one: Measured, other: Measured, name: str) -> bool:
    a, b = getattr(one, name), getattr(other, name)
    if a is None or b is None:
        return a is b
    return bool(abs(b - a) <= _SAME * abs(a))
