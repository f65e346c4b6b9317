"""The load model: inter-token latency as a function of what a forward pass has to do."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Law:
    """ITL = b0 + b1·n + b2·KV + b3·P seconds, with the range it was fitted on.

    Attributes:
        coefficients: b0 seconds, b1 seconds per request, b2 seconds per KV token, b3 seconds per
            prefill token; none negative.
        requests_range: 1 % and 99 % quantile of requests per forward pass in the fit.
        scrapes: how many scrapes the fit saw.
        minutes: how many minutes.
    """

    coefficients: tuple[float, float, float, float]
    requests_range: tuple[float, float]
    scrapes: int
    minutes: int
