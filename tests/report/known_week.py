"""A week of a simulated fleet with known faults, and what the simulator's own log says of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl
from click.testing import CliRunner

from driftwatch.cli.main import cli
from driftwatch.fleet.generate import generate_compact
from driftwatch.fleet.scenario.model import Scenario
from driftwatch.fleet.truth import write_truth
from driftwatch.simulate.configuration import SchedulerConfiguration

TTFT_SECONDS, TPOT_SECONDS = 1.0, 0.1
SLOW_FACTOR, PROMPT_FACTOR = 1.25, 2.3
# hours from the start
SLOW, LONGER, ROLLOUT, HANGS = (5.0, 6.5), (8.0, 11.0), 9.5, (13.0, 13.75)
SCENARIO = Scenario.model_validate(
    {
        "name": "known-week",
        "title": "a slow server, longer prompts, a rollout and a hang",
        "duration": "16h",
        "start": "2026-11-17T12:00:00Z",
        "scrape": {"interval": "30s"},
        "pool": {
            "name": "rag-8b",
            "replicas": 3,
            "slo": {"ttft_seconds": TTFT_SECONDS, "tpot_seconds": TPOT_SECONDS},
            "serving": {"max_num_batched_tokens": 256},
        },
        "traffic": {
            "requests_per_second": 17,
            "wander_ratio": 0.35,
            "timeout": "60s",
            "changes": [{"at": "8h", "until": "11h", "prompt_factor": PROMPT_FACTOR}],
        },
        "faults": [
            {
                "kind": "slowdown",
                "at": "5h",
                "until": "6h30m",
                "replicas": [1],
                "factor": SLOW_FACTOR,
            },
            {
                "kind": "rollout",
                "at": "9h30m",
                "every": "3m",
                "down": "40s",
                "serving": {"max_num_batched_tokens": 1024},
            },
            {"kind": "wedge", "at": "13h", "until": "13h45m", "replicas": [2]},
        ],
        "truth": {"effects": []},
    }
)
START = SCENARIO.start


@dataclass
class Log:
    """What the simulator tells of the requests of one server, and no scrape does."""

    ended: list[pl.DataFrame]

    def begin(self) -> None:
        """A process starts."""

    def times(self, first: float, last: float) -> npt.NDArray[np.float64]:
        """No look beside the scrapes."""
        return np.empty(0)

    def note(
        self,
        samples: pl.DataFrame,
        arrivals: npt.NDArray[np.float64],
        ended: pl.DataFrame,
        configuration: SchedulerConfiguration,
    ) -> None:
        """Requests that ended."""
        self.ended.append(ended)


def recorded(folder: Path) -> tuple[Path, pl.DataFrame]:
    """The replayed database, and a row a request: server, ends of TTFT and TPOT, late or not."""
    logs = {number: Log([]) for number in range(SCENARIO.servers)}
    generate_compact(SCENARIO, 7, folder / "fleet", observers=logs)
    write_truth(SCENARIO, 7, folder / "fleet")
    requests = pl.concat(
        pl.concat(log.ended).with_columns(server=pl.lit(number)) for number, log in logs.items()
    )
    baseline = f"{at(0.2):%Y-%m-%dT%H:%M:%SZ}..{at(4):%Y-%m-%dT%H:%M:%SZ}"
    ran = CliRunner().invoke(
        cli,
        [
            *("replay", str(folder / "fleet"), "--db", str(folder / "week.db")),
            *("--baseline", baseline, "-c", str(folder / "fleet" / "driftwatch.yaml")),
        ],
    )
    assert ran.exit_code == 0, (ran.output, ran.exception)
    steps = pl.col("generated_tokens") - 1
    # vLLM's time per output token: of an answer of one token it is 0
    tpot = (pl.col("end_seconds") - pl.col("first_token_seconds")) / steps.clip(1)
    return folder / "week.db", requests.with_columns(
        late_first=pl.col("ttft_seconds") > TTFT_SECONDS,
        late_tokens=(pl.col("status") == "finished") & (tpot > TPOT_SECONDS),
    )


def at(hours: float) -> datetime:
    """A time of the scenario."""
    return START + timedelta(hours=hours)


def missed(requests: pl.DataFrame, start: float, end: float) -> float:
    """Requests over a target whose first token came in hours [start, end)."""
    return float(_of(requests, start, end).select((_LATE).sum()).item())


def share(requests: pl.DataFrame, start: float, end: float) -> float:
    """Share of them in target."""
    return 1 - float(_of(requests, start, end).select(_LATE.mean()).item())


_LATE = pl.col("late_first") | pl.col("late_tokens")


def _of(requests: pl.DataFrame, start: float, end: float) -> pl.DataFrame:
    first = pl.col("first_token_seconds").is_between(start * 3600, end * 3600, closed="left")
    return requests.filter(first)
