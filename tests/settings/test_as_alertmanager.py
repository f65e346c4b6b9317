"""Time intervals beside the real Alertmanager: what it takes, and whom it tells."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

from driftwatch.settings.time_intervals import MONTHS, WEEKDAYS, NamedIntervals
from driftwatch.testing.daemon import Daemon
from driftwatch.testing.loopback import Answer, LoopbackServer, Request

ALERTMANAGER = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")
pytestmark = pytest.mark.skipif(
    ALERTMANAGER is None or shutil.which("amtool") is None,
    reason="prometheus-alertmanager is not installed",
)
ZONES = ("UTC", "Asia/Kolkata", "America/St_Johns", "Pacific/Kiritimati", "Pacific/Pago_Pago")


def _config(intervals: dict[str, list[dict[str, Any]]], url: str) -> str:
    """One route for each name, muted by it; all lead to one webhook at once."""
    routes = [
        {"match": {"muted_by": name}, "receiver": "hook", "mute_time_intervals": [name]}
        for name in intervals
    ]
    at_once = {"group_by": ["muted_by"], "group_wait": "0s", "group_interval": "1s"}
    return yaml.safe_dump(
        {
            "route": {"receiver": "hook", **at_once, "routes": routes},
            "receivers": [{"name": "hook", "webhook_configs": [{"url": url}]}],
            "time_intervals": [
                {"name": name, "time_intervals": several} for name, several in intervals.items()
            ],
        }
    )


CORPUS = [
    {"weekdays": ["monday:friday", "saturday"]},
    {"weekdays": ["Monday"]},
    {"weekdays": ["saturday:sunday"]},
    {"weekdays": ["mon"]},
    {"days_of_month": ["1:5", "-3:-1"]},
    {"days_of_month": ["27:-1"]},
    {"days_of_month": ["28:-1"]},
    {"days_of_month": ["-1:1"]},
    {"days_of_month": ["-1:-3"]},
    {"days_of_month": ["0"]},
    {"days_of_month": ["32"]},
    {"days_of_month": [7]},
    {"months": ["january:march", "may:8", "12"]},
    {"months": ["march:january"]},
    {"months": ["jan"]},
    {"years": ["2020:2022", "2030"]},
    {"years": ["2022:2020"]},
    {"years": ["soon"]},
    {"times": [{"start_time": "00:00", "end_time": "24:00"}]},
    {"times": [{"start_time": "09:00", "end_time": "09:00"}]},
    {"times": [{"start_time": "22:00", "end_time": "06:00"}]},
    {"times": [{"start_time": "9:00", "end_time": "10:00"}]},
    {"times": [{"start_time": "09:00"}]},
    {"weekdays": ["monday"], "location": "Europe/Berlin"},
    {"weekdays": ["monday"], "location": "Local"},
    {"weekdays": ["monday"], "location": "Berlin"},
    {"weekdays": ["monday"], "zone": "UTC"},
]


@pytest.mark.parametrize("fields", CORPUS, ids=lambda fields: json.dumps(fields))
def test_it_takes_and_refuses_what_amtool_does(fields: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "alertmanager.yml"
    path.write_text(_config({"x": [fields]}, "http://127.0.0.1:1/"))
    checked = subprocess.run(["amtool", "check-config", path], capture_output=True, check=False)
    try:
        NamedIntervals.model_validate({"name": "x", "time_intervals": [fields]})
    except ValueError:
        assert checked.returncode != 0
    else:
        assert checked.returncode == 0, checked.stderr


class _Hook(LoopbackServer):
    """Keeps which alerts it is told of."""

    def __init__(self) -> None:
        super().__init__()
        self.told: set[str] = set()

    def judge(self, request: Request) -> Answer:
        self.told |= {one["labels"]["muted_by"] for one in json.loads(request.body)["alerts"]}
        return Answer(200)


@pytest.fixture
def hook() -> Iterator[_Hook]:
    with _Hook() as running:
        yield running


def _near(rng: random.Random, now: datetime) -> dict[str, Any]:
    """An interval whose ends lie near the present."""
    fields: dict[str, Any] = {"location": rng.choice(ZONES)}
    minute = now.hour * 60 + now.minute
    start = max(0, min(1439, minute + rng.randint(-900, 900)))
    end = min(1440, start + rng.randint(1, 900))
    day, month, weekday = now.day, now.month, now.isoweekday() % 7
    choices: dict[str, list[Any]] = {
        "times": [
            {"start_time": f"{a // 60:02}:{a % 60:02}", "end_time": f"{b // 60:02}:{b % 60:02}"}
            for a, b in [(start, end)]
        ],
        "weekdays": [f"{WEEKDAYS[max(0, weekday - 1)]}:{WEEKDAYS[weekday]}"],
        "days_of_month": [max(1, day - rng.randint(0, 2)), f"{-rng.randint(5, 12)}:-1"],
        "months": [MONTHS[month - 1], (month % 12) + 1],
        "years": [f"{now.year - 1}:{now.year}"],
    }
    for name in rng.sample(sorted(choices), k=rng.randint(1, 3)):
        fields[name] = choices[name]
    return fields


class _Alertmanager(Daemon):
    """The real one, with a configuration."""

    def __init__(self, config: str) -> None:
        super().__init__(Path(str(ALERTMANAGER)).name, "/-/ready")
        self._config = config

    def arguments(self, folder: Path) -> list[str]:
        (folder / "alertmanager.yml").write_text(self._config)
        return [
            f"--config.file={folder / 'alertmanager.yml'}",
            f"--storage.path={folder / 'data'}",
            f"--web.listen-address={self.url.removeprefix('http://')}",
            "--cluster.listen-address=",
        ]


def test_it_mutes_whom_alertmanager_does_not_tell(hook: _Hook) -> None:
    rng = random.Random(16)
    began = datetime.now(UTC)
    raw = {f"i{n}": [_near(rng, began) for _ in range(rng.randint(1, 2))] for n in range(120)}
    with _Alertmanager(_config(raw, hook.address)) as alertmanager:
        later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
        alerts = [{"labels": {"alertname": "A", "muted_by": n}, "endsAt": later} for n in raw]
        assert requests.post(f"{alertmanager.url}/api/v2/alerts", json=alerts, timeout=10).ok
        deadline, counts = time.monotonic() + 60, [-1]
        # on a machine that is busy some come late
        while time.monotonic() < deadline and len({*counts[-4:], len(hook.told)}) > 1:
            counts.append(len(hook.told))
            time.sleep(1.5)
    ended = datetime.now(UTC)
    named = {
        name: NamedIntervals.model_validate({"name": name, "time_intervals": several})
        for name, several in raw.items()
    }
    # those whose end passed meanwhile say nothing
    steady = {n: one for n, one in named.items() if one.contains(began) == one.contains(ended)}
    muted = {name for name, one in steady.items() if one.contains(began)}
    assert len(steady) >= 110
    assert min(len(muted), len(steady) - len(muted)) >= 20
    assert hook.told & steady.keys() == steady.keys() - muted
