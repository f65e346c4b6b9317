"""An API of given series, asked once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import pytest
from api_cases import JOB, T0
from fakes.prometheus_api import PrometheusApi, Series

from driftwatch.collect.prometheus.client import PrometheusAsker
from driftwatch.collect.prometheus.source import PrometheusSource
from driftwatch.collect.schema import Collected


@pytest.fixture
def collect() -> Iterator[Callable[..., Collected]]:
    """Serve these series and collect one minute of them."""
    with ExitStack() as stack:

        def run(*held: Series, seconds: float = 60, **options: Any) -> Collected:
            api = stack.enter_context(PrometheusApi(held, times=options.pop("times", True)))
            options.setdefault("selector", JOB)
            source = PrometheusSource(PrometheusAsker(api.address), **options)
            stack.callback(source.close)
            return source.collect(T0, T0 + timedelta(seconds=seconds))

        yield run
