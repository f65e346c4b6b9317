"""A what-if whose task `driftwatch worker` does: the web asks, another process answers."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import requests
from recorded_cases import Recorded
from web_cases import ANA, browser, send, web_at

from driftwatch.database_place import place_of
from driftwatch.store import Store
from driftwatch.store.database_copy import copy_database
from driftwatch.tasks.queue import WorkerQueue
from driftwatch.testing.postgres_server import PostgresServer


def until(true: Callable[[], Any], log: Path, seconds: float = 120) -> Any:
    end = time.monotonic() + seconds
    while not (value := true()):
        assert time.monotonic() < end, log.read_text()[-3000:]
        time.sleep(0.1)
    return value


def test_a_worker_answers_what_the_web_asks(
    copied: Recorded, tmp_path: Path, postgres: PostgresServer
) -> None:
    url = postgres.url(postgres.new_database())
    copy_database(place_of(copied.path), place_of(url))
    config, log = tmp_path / "driftwatch.yaml", tmp_path / "log"
    config.write_text(f"database: {json.dumps(url)}\ntasks: {{run_by: workers, heartbeat: 1s}}\n")
    page = f"/incidents/{copied.incident_id}"
    asking = web_at(url, copied.now, tmp_path, tasks=WorkerQueue())
    with browser(asking) as client, Store.open(url, migrate=False) as store:
        location = send(client, page, "what-if", ANA, max_num_seqs="64").headers["location"]
        assert "No answer yet: it is simulated next" in client.get(location).text
        again = send(client, page, "what-if", ANA, max_num_seqs="32")
        assert again.status_code == 409
        with log.open("w") as stderr:
            command = [sys.executable, "-m", "driftwatch", "worker", "-c", str(config)]
            worker = subprocess.Popen([*command, "--listen", "127.0.0.1:0"], stderr=stderr)
        try:
            found = until(lambda: re.search(r"metrics=(http\S+)/metrics", log.read_text()), log)
            until(lambda: "No answer yet: being simulated" in client.get(location).text, log)
            assert requests.get(f"{found[1]}/-/healthy", timeout=5).status_code == 200
            until(lambda: requests.get(f"{found[1]}/-/ready", timeout=5).status_code == 200, log)
            served = requests.get(f"{found[1]}/metrics", timeout=5).text
            assert 'driftwatch_tasks{queue="interactive",state="running"} 1.0' in served
            view = until(lambda: _answered(client.get(f"{location}.json").json()), log)
            until(lambda: not WorkerQueue().unfinished(store, "interactive"), log)
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(30) == 0, log.read_text()[-3000:]
        finally:
            worker.kill()
            worker.wait()
    # the thread of a web on SQLite answers the same
    with browser(web_at(copied.path, copied.now, tmp_path)) as client:
        location = send(client, page, "what-if", ANA, max_num_seqs="64").headers["location"]
        own = until(lambda: _answered(client.get(f"{location}.json").json()), log)
    assert view["forecast"]["state"] == own["forecast"]["state"] == "answered"
    same = ("answers", "rows", "advice", "reasons", "basis", "target", "traffic_until")
    assert {n: view["forecast"][n] for n in same} == {n: own["forecast"][n] for n in same}


def _answered(view: dict[str, Any]) -> dict[str, Any] | None:
    return view if view["progress"] is None else None


def test_a_dead_task_is_told_on_its_page(
    copied: Recorded, tmp_path: Path, postgres: PostgresServer
) -> None:
    name = postgres.new_database()
    url = postgres.url(name)
    copy_database(place_of(copied.path), place_of(url))
    page = f"/incidents/{copied.incident_id}"
    with (
        browser(web_at(url, copied.now, tmp_path, tasks=WorkerQueue())) as client,
        Store.open(url, migrate=False) as store,
    ):
        location = send(client, page, "what-if", ANA, max_num_seqs="64").headers["location"]
        [asked] = WorkerQueue().unfinished(store, "interactive")
        postgres.query("DELETE FROM procrastinate_jobs", name)
        assert "its task is gone; ask again" in client.get(location).text
        store.keep_task_failure(
            *(asked.task.key, asked.task.name, asked.task.queue, copied.now), "ValueError: no luck"
        )
        assert "its task failed: ValueError: no luck" in client.get(location).text
        # and the person may ask again
        assert send(client, page, "what-if", ANA, replicas="2").status_code == 303
