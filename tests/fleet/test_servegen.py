"""Two weeks of production traffic by client, sent again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from driftwatch.errors import WorkloadError
from driftwatch.fleet.servegen import ServeGen

HOUR, DAY = 3600.0, 86400.0


@pytest.fixture(scope="module")
def recording(shared_data: Path) -> ServeGen:
    folder = shared_data / "servegen"
    return ServeGen(folder / "m-small_rates.parquet", folder / "m-small_lengths.parquet")


@pytest.fixture(scope="module")
def rates(shared_data: Path) -> pl.DataFrame:
    return pl.read_parquet(shared_data / "servegen" / "m-small_rates.parquet")


def test_each_window_has_its_recorded_rate(recording: ServeGen, rates: pl.DataFrame) -> None:
    """A day at a fiftieth: each ten minutes as recorded, to the rounding of each client's count."""
    found = recording.requests(DAY, 2 * DAY, np.random.default_rng(4), scale=0.02)
    sent = np.histogram(found.arrival_seconds, np.arange(0, DAY + 1, 600))[0]
    expected = (
        rates.filter(
            pl.col("client").is_in(list(recording.clients)),
            pl.col("start_seconds").is_between(DAY, 2 * DAY, closed="left"),
        )
        .group_by("start_seconds")
        .agg(pl.col("requests_per_second").sum() * 12)
        .sort("start_seconds")["requests_per_second"]
        .to_numpy()
    )
    # some 30 clients, each rounded up or down by chance: sd at most sqrt(30) / 2
    assert np.abs(sent - expected).max() < 5 * np.sqrt(30) / 2
    assert (np.diff(found.arrival_seconds) >= 0).all()


@pytest.mark.parametrize("kind", ["prompt", "generation"])
def test_lengths_follow_the_recorded_distribution(
    kind: str, recording: ServeGen, shared_data: Path
) -> None:
    """One client for six hours, against its own table."""
    client, start = 39, 6 * HOUR
    table = pl.read_parquet(shared_data / "servegen" / "m-small_lengths.parquet").filter(
        pl.col("client") == client, pl.col("start_seconds") == start, pl.col("kind") == kind
    )
    tokens = np.maximum(table["tokens"].to_numpy().astype(float), 1)
    chance = table["probability"].to_numpy().astype(float)
    chance /= chance.sum()
    found = recording.requests(start, 2 * start, np.random.default_rng(8), clients=[client])
    lengths = found.prompt_tokens if kind == "prompt" else found.generation_tokens
    assert len(lengths) > 5000
    mean = tokens @ chance
    error = np.sqrt((tokens - mean) ** 2 @ chance / len(lengths))
    assert lengths.mean() == pytest.approx(mean, abs=4 * error)
    order = np.argsort(tokens)
    edges = np.unique(tokens[order][np.searchsorted(np.cumsum(chance[order]), [0.1, 0.5, 0.9])])
    for edge in edges:
        share = chance[tokens <= edge].sum()
        spread = 4 * np.sqrt(share * (1 - share) / len(lengths)) + 1e-9
        assert (lengths <= edge).mean() == pytest.approx(share, abs=spread)


RATES = pl.DataFrame(
    {
        "client": [3, 3],
        "start_seconds": [0, 600],
        "requests_per_second": [1.0, 2.0],
        "arrival_cv": [1.0, 50.0],
    }
)
LENGTHS = pl.DataFrame(
    {
        "client": [3, 3, 3],
        "start_seconds": [21600, 21600, 21600],
        "kind": ["prompt", "prompt", "generation"],
        "tokens": [10, 20, 0],
        "probability": [0.25, 0.75, 1.0],
    }
)


def small(folder: Path, rates: pl.DataFrame = RATES, lengths: pl.DataFrame = LENGTHS) -> ServeGen:
    rates.write_parquet(folder / "rates.parquet")
    lengths.write_parquet(folder / "lengths.parquet")
    return ServeGen(folder / "rates.parquet", folder / "lengths.parquet")


def test_a_table_without_a_column_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="no Parquet file with ServeGen's"):
        small(tmp_path, RATES.drop("arrival_cv"))
