"""Situations that people report in public, from a Prometheus to what a person reads."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from types import ModuleType

import pytest
from command_cases import Run
from fakes.loopback import Answer
from fakes.prometheus_api import PrometheusApi

from tests.collect.field_cases import T0, Fleet, engine, load_vsim

MINUTES = 35
# no `up` of an exporter is stored
NOBODY = Answer(200, '{"status":"success","data":{"resultType":"vector","result":[]}}')


@pytest.fixture(scope="module")
def vsim(shared_data: Path) -> ModuleType:
    return load_vsim(shared_data)


def explained(run: Run, fleet: Fleet, config: str, name: str) -> str:
    """What explain prints, in one line, of the fleet's minutes that a replay kept."""
    file = Path(f"{name}.yaml")
    with PrometheusApi(fleet.series()) as api:
        api.faults.append(("up and on", NOBODY))
        file.write_text(f"sources: [{{prometheus: '{api.address}'}}]\n{config}")
        span = ("--from", T0.isoformat(), "--to", (T0 + timedelta(minutes=MINUTES)).isoformat())
        kept = ("--db", f"{name}.db", "-c", file)
        code, out, err = run("replay", "--prometheus", api.address, *span, *kept)
    assert code == 0, out + err
    file.write_text(config)
    return " ".join("".join(run("explain", *kept)[1:]).split())


SERVING = "serving: {max_num_seqs: 32, max_num_batched_tokens: 2048"


def test_37b_several_api_servers_are_a_guess_that_a_setting_settles(
    run: Run, vsim: ModuleType
) -> None:
    """An allow-list drops ``process_*`` and ``_created``."""
    fleet, page = Fleet(), engine(vsim, 1, 2.0, max_num_seqs=32)
    for at in range(0, 60 * MINUTES, 15):
        lines = page(at).splitlines()
        kept = [o for o in lines if not o.startswith("process_") and "_created" not in o]
        fleet.page(at, "\n".join(kept), {"instance": "10.1.0.5:8000", "job": "vllm"})
    pools = f"pools: [{{name: chat, match: {{}}, {SERVING}%s}}}}]\n"
    said = explained(run, fleet, pools % "", "guessed")
    assert "perhaps several API servers" in said
    assert "name --api-server-count in serving.arguments" in said
    settled = pools % ", arguments: '--api-server-count 1'"
    assert "API server" not in explained(run, fleet, settled, "settled")


def test_03_a_second_scrape_is_left_out_and_named(run: Run, vsim: ModuleType) -> None:
    fleet, page = Fleet(), engine(vsim, 3, 2.0, max_num_seqs=32)
    pod = {"instance": "10.1.0.5:8000", "job": "pods", "namespace": "ml", "pod": "chat-0"}
    service = {"instance": "chat.ml.svc:8000", "job": "services", "namespace": "ml"}
    for at in range(0, 60 * MINUTES, 15):
        fleet.page(at, page(at), pod)
        fleet.page(at + 7, page(at + 7), service)
    pools = f"pools: [{{name: chat, match: {{}}, {SERVING}}}}}]\n"
    assert (
        "READ ONCE 10.1.0.5:8000: 1 more scrape of it left out: "
        'instance="chat.ml.svc:8000", job="services" 10.1.0.5:8000: model m'
    ) in explained(run, fleet, pools, "twice")
