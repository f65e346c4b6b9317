"""init's pure half: servers put into pools, text that loads."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftwatch.collect.gpus import gpu_frame
from driftwatch.collect.inventory import Inventory, Server, SilentServer
from driftwatch.onboarding.discovery import FoundPool, found_pools
from driftwatch.onboarding.text import written
from driftwatch.settings import PrometheusSource, load_settings

NOW = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)


def _server(instance: str, kv: int = 100_000, **labels: str) -> Server:
    cache = {"kv_cache_size_tokens": str(kv), "block_size": "16"}
    every = {"instance": instance, "job": "vllm", "model_name": "m", **labels}
    return Server(instance, every, ("0",), (cache,))


def _pools(servers: list[Server]) -> tuple[FoundPool, ...]:
    return found_pools(Inventory(tuple(servers)), NOW)


def _read(count: int, pod: str = "rag-0", **values: object) -> list[dict[str, object]]:
    """A DCGM reading now of each of a pod's GPUs."""
    row = {"origin": "DCGM", "exporter": "e:9400", "time": NOW - timedelta(seconds=10)}
    row |= {"namespace": "ml", "pod": pod, "power_watts": 500.0, **values}
    return [row | {"uuid": f"{row['exporter']} {pod} {n}"} for n in range(count)]


def _counted(
    servers: list[Server], gpus: list[dict[str, object]]
) -> list[tuple[str, float | None, str]]:
    pools = found_pools(Inventory(tuple(servers), gpus=gpu_frame(gpus)), NOW)
    return [(pool.name, pool.gpus_per_replica, pool.gpus_source) for pool in pools]


def test_servers_with_different_numbers_of_gpus() -> None:
    servers = [_server(f"{n}:8000", namespace="ml", pod=f"rag-{n}") for n in (2, 4)]
    gpus = [row for n in (2, 4) for row in _read(n, f"rag-{n}")]
    words = "not the same on all servers: 2 on 1, 4 on 1"
    assert _counted(servers, gpus) == [("m", None, words)]
    found = Inventory(tuple(servers), gpus=gpu_frame(gpus))
    text = written(found, found_pools(found, NOW), PrometheusSource(prometheus="http://p:9090"))
    assert "    # gpus_per_replica: N\n" in text.text
    assert any(words in sentence for sentence in text.missing)


def test_profiling_noise_makes_no_pools_and_other_hardware_does() -> None:
    near = [_server(f"h{n}:8000", 100_000 + 900 * n, gpu="l4") for n in range(5)]
    far = [_server(f"g{n}:8000", 400_000 + 900 * n, gpu="h100") for n in range(5)]
    assert len(_pools(near)) == 1
    pools = _pools(near + far)
    assert [(p.name, len(p.servers), p.match["gpu"]) for p in pools] == [
        ("m-h100", 5, "h100"),
        ("m-l4", 5, "l4"),
    ]


@settings(deadline=None, max_examples=15)
@given(
    st.lists(
        st.tuples(st.text(max_size=20), st.text(max_size=20), st.integers(1, 10**7)),
        min_size=1,
        max_size=6,
    )
)
def test_what_is_written_always_loads(
    tmp_path_factory: pytest.TempPathFactory, seen: list[tuple[str, str, int]]
) -> None:
    try:
        json.dumps(seen, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return
    servers = [
        _server(f"h{n}:8000", kv, namespace=namespace, model_name=model, kind=f"{namespace}{model}")
        for n, (namespace, model, kv) in enumerate(seen)
    ]
    silent = SilentServer(seen[0][0], {}, seen[0][1])
    found = Inventory(tuple(servers), (silent,))
    pools = found_pools(found, NOW)
    made = written(found, pools, PrometheusSource(prometheus="http://p:9090", tenant="t"))
    path = tmp_path_factory.getbasetemp() / "written.yaml"
    path.write_text(made.text, encoding="utf-8")
    settings = load_settings(path, environ={})
    assert [pool.match for pool in settings.pools] == [pool.match for pool in pools]
    # every server belongs to the pool that it was put into
    for pool in pools:
        for server in pool.servers:
            first = next(
                p
                for p in settings.pools
                if all(server.labels.get(k) == v for k, v in p.match.items())
            )
            assert first.name == pool.name
    assert Path(path).stat().st_size < 1 << 20
