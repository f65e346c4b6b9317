"""init's pure half: command lines joined to servers, servers put into pools, text that loads."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftwatch.collect.gpus import gpu_frame
from driftwatch.collect.prometheus.discover import Hint, Inventory, Server, SilentServer
from driftwatch.onboarding.discovery import FoundPool, found_pools
from driftwatch.onboarding.text import Api, quoted, written
from driftwatch.settings import load_settings

NOW = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)
LINE = "vllm serve m --max-num-seqs 64 --max-num-batched-tokens 2048"


def _server(instance: str, kv: int = 100_000, **labels: str) -> Server:
    cache = {"kv_cache_size_tokens": str(kv), "block_size": "16"}
    every = {"instance": instance, "job": "vllm", "model_name": "m", **labels}
    return Server(instance, every, ("0",), (cache,), 15.0)


def _said(text: str, series: str = "x_info", label: str = "args", **labels: str) -> Hint:
    return Hint(series, label, text, labels)


def _pools(servers: list[Server], *said: Hint) -> tuple[FoundPool, ...]:
    return found_pools(Inventory(tuple(servers), hints=said), NOW).pools


def _settings(pool: FoundPool) -> tuple[float | None, float | None]:
    seqs, budget = pool.serving.max_num_seqs, pool.serving.max_num_batched_tokens
    return None if seqs is None else seqs.value, None if budget is None else budget.value


@pytest.mark.parametrize(
    "said",
    [
        _said(LINE, namespace="ml", pod="rag-7d9-x"),
        _said(LINE, exported_namespace="ml", exported_pod="rag-7d9-x", namespace="mon", pod="e"),
        _said(
            LINE, "kube_deployment_annotations", "annotation_a", namespace="ml", deployment="rag"
        ),
        _said(LINE, "kube_statefulset_labels", "label_a", namespace="ml", statefulset="rag-7d9"),
        _said(LINE, "namedprocess_namegroup_num_procs", "groupname", instance="h:9256"),
        _said(json.dumps(LINE.split()), namespace="ml", pod="rag-7d9-x"),
        _said(LINE.replace(" ", "\0"), namespace="ml", pod="rag-7d9-x"),
    ],
)
def test_a_command_line_is_joined_to_its_server(said: Hint) -> None:
    (pool,) = _pools([_server("h:8000", namespace="ml", pod="rag-7d9-x")], said)
    assert _settings(pool) == (64, 2048)


@pytest.mark.parametrize(
    "said",
    [
        _said(LINE, namespace="ml", pod="rag-7d9-y"),
        _said(LINE, namespace="other", pod="rag-7d9-x"),
        _said(LINE, "kube_deployment_labels", "label_a", namespace="ml", deployment="ra"),
        _said(LINE, "namedprocess", "groupname", instance="elsewhere:9256"),
        _said(f"{LINE} --port 8001", "namedprocess", "groupname", instance="h:9256"),
        _said("vllm serve m --max-num-seqs", namespace="ml", pod="rag-7d9-x"),
    ],
)
def test_one_of_another_server_is_not(said: Hint) -> None:
    (pool,) = _pools([_server("h:8000", namespace="ml", pod="rag-7d9-x")], said)
    assert _settings(pool) == (None, None)


def test_two_servers_of_a_host_are_told_apart_by_the_port() -> None:
    lines = [
        _said(f"vllm serve m --max-num-seqs {n} --port {port}", "p", "cmdline", instance="h:9256")
        for n, port in ((8, 8000), (16, 8001))
    ]
    kinds = [_server("h:8000", kind="a"), _server("h:8001", kind="b")]
    pools = _pools(kinds, *lines)
    assert {pool.match["kind"]: _settings(pool)[0] for pool in pools} == {"a": 8, "b": 16}


def test_a_line_without_a_port_is_of_no_server_where_several_lines_are_of_its_host() -> None:
    lines = [
        _said(f"vllm serve m --max-num-seqs {n}{port}", "p", "cmdline", instance="h:9256")
        for n, port in ((8, ""), (16, " --port 8001"))
    ]
    found = found_pools(Inventory((_server("h:8001"),), hints=tuple(lines)), NOW)
    assert [_settings(pool) for pool in found.pools] == [(16, None)]
    assert found.unjoined == (lines[0],)


def _read(count: int, pod: str = "rag-0", **values: object) -> list[dict[str, object]]:
    """A DCGM reading now of each of a pod's GPUs."""
    row = {"origin": "DCGM", "exporter": "e:9400", "time": NOW - timedelta(seconds=10)}
    row |= {"namespace": "ml", "pod": pod, "power_watts": 500.0, **values}
    return [row | {"uuid": f"{row['exporter']} {pod} {n}"} for n in range(count)]


def _counted(
    servers: list[Server], *said: Hint, gpus: list[dict[str, object]]
) -> list[tuple[str, float | None, str]]:
    found = found_pools(Inventory(tuple(servers), hints=said, gpus=gpu_frame(gpus)), NOW)
    return [(pool.name, pool.gpus_per_replica, pool.gpus_source) for pool in found.pools]


RAG: dict[str, Any] = {"namespace": "ml", "pod": "rag-0"}


@pytest.mark.parametrize(
    ("words", "shown", "count", "source"),
    [
        ("-tp 8", 8, 8, "DCGM and parallel sizes in x_info args, 1 of 1 servers"),
        ("--tensor-parallel-size=4 -pp 2", 0, 8, "parallel sizes in x_info args, 1 of 1 servers"),
        ("--max-num-seqs 8", 2, 2, "DCGM, 1 of 1 servers"),
        (
            "--tensor-parallel-size 16",
            8,
            None,
            "x_info args asks for 16 GPUs (tensor x pipeline x data parallel size), DCGM shows 8 "
            "at the server's pod or host: over several nodes 16 is right",
        ),
    ],
)
def test_the_gpus_that_a_command_line_asks_for(
    words: str, shown: int, count: float | None, source: str
) -> None:
    said = _said(f"vllm serve m {words}", **RAG)
    assert _counted([_server("a:8000", **RAG)], said, gpus=_read(shown)) == [("m", count, source)]


def test_a_count_that_is_doubted_is_no_setting_of_the_file() -> None:
    said = _said("vllm serve m -tp 16", **RAG)
    found = Inventory((_server("a:8000", **RAG),), hints=(said,), gpus=gpu_frame(_read(8)))
    text = written(found, found_pools(found, NOW), Api("http://p:9090", {}, {}))
    assert "    # gpus_per_replica: N\n" in text.text
    assert any("asks for 16 GPUs" in sentence for sentence in text.missing)


def test_servers_that_ask_for_different_numbers_of_gpus() -> None:
    said = [_said(f"vllm serve m -tp {n}", namespace="ml", pod=f"rag-{n}") for n in (2, 4)]
    servers = [_server(f"{n}:8000", namespace="ml", pod=f"rag-{n}") for n in (2, 4)]
    words = "command lines ask for different numbers of GPUs: 2, 4"
    assert _counted(servers, *said, gpus=[]) == [("m", None, words)]


def test_pods_of_one_name_in_two_clusters_are_two_pools() -> None:
    servers = [_server(f"{c}:8000", cluster=c, **RAG) for c in "ab"]
    gpus = [row for c, n in (("a", 4), ("b", 2)) for row in _read(n, exporter=c, cluster=c)]
    found = found_pools(Inventory(tuple(servers), gpus=gpu_frame(gpus)), NOW)
    assert [(p.name, p.gpus_per_replica, p.match["cluster"]) for p in found.pools] == [
        ("m-a", 4, "a"),
        ("m-b", 2, "b"),
    ]
    for pool in found.pools:
        assert pool.doubts[0].startswith("pod ml/rag-0 is in several clusters (a, b): ")


def test_clusters_without_a_pod_of_one_name_are_no_pools() -> None:
    servers = [_server(f"{c}:8000", cluster=c, namespace="ml", pod=f"rag-{c}") for c in "ab"]
    (pool,) = _pools(servers)
    assert "cluster" not in pool.match


def test_pods_that_cannot_be_told_apart_give_no_count() -> None:
    servers = [_server(f"{c}:8000", **RAG) for c in "ab"]
    gpus = [row for c in "ab" for row in _read(4, exporter=c)]
    ((_, count, source),) = _counted(servers, gpus=gpus)
    assert count is None
    assert source.startswith("several pods have the target's name at one time (ml/rag-0 on ")


def test_relabelled_pods_are_pods() -> None:
    labels: dict[str, Any] = {"kubernetes_namespace": "ml", "kubernetes_pod_name": "rag-0"}
    server = _server("a:8000", **labels)
    assert _counted([server], gpus=_read(2)) == [("m", 2, "DCGM, 1 of 1 servers")]
    (pool,) = _pools([server], _said(LINE, **RAG))
    assert _settings(pool) == (64, 2048)
    assert pool.match == {"kubernetes_namespace": "ml", "model_name": "m"}


def test_settings_that_differ_are_doubted_and_left_out() -> None:
    servers = [_server(f"h{n}:8000", namespace="ml", pod=f"p{n}") for n in range(2)]
    said = [
        _said(f"vllm serve m --max-num-seqs {8 * (n + 1)}", namespace="ml", pod=f"p{n}")
        for n in range(2)
    ]
    (pool,) = _pools(servers, *said)
    assert _settings(pool) == (None, None)
    assert any("max_num_seqs is not the same: 8, 16" in doubt for doubt in pool.doubts)


def test_a_budget_below_the_cap_is_doubted() -> None:
    line = "vllm serve m --max-num-seqs 512 --max-num-batched-tokens 256"
    (pool,) = _pools(
        [_server("h:8000", namespace="n", pod="p")], _said(line, namespace="n", pod="p")
    )
    assert _settings(pool) == (512, None)
    assert any("vLLM refuses to start" in doubt for doubt in pool.doubts)


def test_profiling_noise_makes_no_pools_and_other_hardware_does() -> None:
    near = [_server(f"h{n}:8000", 100_000 + 900 * n, gpu="l4") for n in range(5)]
    far = [_server(f"g{n}:8000", 400_000 + 900 * n, gpu="h100") for n in range(5)]
    assert len(_pools(near)) == 1
    pools = _pools(near + far)
    assert [(p.name, len(p.servers), p.match["gpu"]) for p in pools] == [
        ("m-h100", 5, "h100"),
        ("m-l4", 5, "l4"),
    ]


def test_names_are_unique_and_allowed() -> None:
    models = ["org/M 8B", "org2/m-8b", "\n\n", "x" * 300, "é"]
    pools = _pools([_server(f"h{n}:1", model_name=name) for n, name in enumerate(models)])
    names = [pool.name for pool in pools]
    assert len(set(names)) == len(models)
    assert {"m-8b", "m-8b-2", "pool", "pool-2", "x" * 56} == set(names)


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
    said = _said(LINE + seen[0][0], seen[0][1], "args", instance=seen[0][0])
    found = Inventory(tuple(servers), (silent,), hints=(said,))
    discovery = found_pools(found, NOW)
    made = written(found, discovery, Api("http://p:9090", {}, {"tenant": quoted("t")}))
    path = tmp_path_factory.getbasetemp() / "written.yaml"
    path.write_text(made.text, encoding="utf-8")
    settings = load_settings(path, environ={})
    assert [pool.match for pool in settings.pools] == [pool.match for pool in discovery.pools]
    # every server belongs to the pool that it was put into
    for pool in discovery.pools:
        for server in pool.servers:
            first = next(
                p
                for p in settings.pools
                if all(server.labels.get(k) == v for k, v in p.match.items())
            )
            assert first.name == pool.name
    assert Path(path).stat().st_size < 1 << 20


def test_what_many_pools_lack_is_said_once() -> None:
    servers = tuple(_server(f"h{n}:8000", model_name=f"m{n}") for n in range(9))
    found = Inventory(servers)
    made = written(found, found_pools(found, NOW), Api("http://p:9090", {}, {}))
    slo = [sentence for sentence in made.missing if ": slo: " in sentence]
    assert slo == ["m0, m1, m2 and 6 more: slo: give the latency targets; no metric has them"]
