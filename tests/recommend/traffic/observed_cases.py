from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import polars as pl

from driftwatch.model import Serving, Setting
from driftwatch.recommend.traffic.observed import Server
from driftwatch.simulate.requests import Requests

MinutesOf = Callable[[str], pl.DataFrame]
LogOf = Callable[[str], Requests]


def server(max_model_len: int | None = 8192, **changes: Any) -> Server:
    longest = None if max_model_len is None else Setting(float(max_model_len), "config")
    return replace(Server(serving=Serving(max_model_len=longest), block_size=32), **changes)


def heavy(run_cap: pl.DataFrame) -> pl.DataFrame:
    """Nine minutes of more load than 8 seats take."""
    return run_cap.slice(4, 8)


def light(run_cap: pl.DataFrame) -> pl.DataFrame:
    """The three minutes before them."""
    return run_cap.head(3)
