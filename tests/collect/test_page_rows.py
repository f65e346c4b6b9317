"""Pages → rows: real ones, every way a page can be bad, and pages of something else."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fakes.prometheus_api import PrometheusApi, Series

from driftwatch.collect.foreign import (
    NO_SERIES,
    NOT_AN_ENGINE,
    STATS_DISABLED,
    fix_of,
    without_vllm,
)
from driftwatch.collect.pages import PageParser
from driftwatch.collect.prometheus.client import PrometheusAsker
from driftwatch.collect.prometheus.source import PrometheusSource
from driftwatch.collect.schema import Collected

T0 = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


PAGE = """\
# HELP process_start_time_seconds Start time.
# TYPE process_start_time_seconds gauge
process_start_time_seconds 1.7e+09
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_waiting{engine="0",model_name="m"} 0.0
# TYPE vllm:generation_tokens counter
vllm:generation_tokens_total{engine="0",model_name="m"} 100.0
# TYPE vllm:request_success counter
vllm:request_success_total{engine="0",finished_reason="stop",model_name="m"} 5.0
vllm:request_success_total{engine="0",finished_reason="abort",model_name="m"} 2.0
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.1",model_name="m"} 1.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="1.0",model_name="m"} 4.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf",model_name="m"} 7.0
vllm:time_to_first_token_seconds_count{engine="0",model_name="m"} 7.0
vllm:time_to_first_token_seconds_sum{engine="0",model_name="m"} 9.5
"""


def read(page: str | bytes, parser: PageParser | None = None) -> Collected:
    body = page if isinstance(page, bytes) else page.encode()
    return (parser or PageParser()).parse("h:8000", T0, body)


def one(page: str | bytes) -> dict[str, Any]:
    (row,) = read(page).scrapes.to_dicts()
    return row


def only(parsed: Collected) -> tuple[dict[str, Any], str]:
    """The row of a page with one problem, and that problem."""
    (row,), (problem,) = parsed.scrapes.to_dicts(), parsed.problems
    assert problem.where == "h:8000"
    assert problem.time == T0
    return row, problem.reason


def real(shared_data: Path, name: str) -> Collected:
    return read((shared_data / "vllm-0.32" / name).read_bytes())


def test_rejections_of_the_instance_are_counted_once(shared_data: Path) -> None:
    page = (shared_data / "vllm-0.32" / "metrics_dp2_after.txt").read_text()
    line = 'vllm:admission_rejections_total{model_name="tiny-llama",reason="max_num_queued_reqs"} '
    assert line + "0.0" in page
    parsed = read(page.replace(line + "0.0", line + "4.0"))
    assert [row["rejected_requests_total"] for row in parsed.scrapes.iter_rows(named=True)] == [
        4.0,
        None,
    ]
    # no process_ and no _created: the page is of several API servers
    assert parsed.scrapes["several_api_servers"].to_list() == [True, True]


def test_every_real_page_parses_without_a_problem(shared_data: Path) -> None:
    pages = sorted((shared_data / "vllm-0.32").glob("metrics_*.txt"))
    assert len(pages) > 10
    parser = PageParser()
    for path in pages:
        parsed = parser.parse(path.name, T0, path.read_bytes())
        assert parsed.problems == ()
        for row in parsed.scrapes.to_dicts():
            assert row["ok"] is (path.name != "metrics_disable_log_stats.txt")
            if row["ok"]:
                missing = [name for name, value in row.items() if value is None]
                assert set(missing) <= {
                    "reason",
                    "rejected_requests_total",
                    "process_start_time_seconds",
                    "created_seconds",
                    # only with speculative decoding
                    "spec_decode_draft_tokens_total",
                    "spec_decode_accepted_tokens_total",
                }


def test_old_names_are_read() -> None:
    row = one(
        'vllm:gpu_cache_usage_perc{model_name="m"} 0.5\n'
        'vllm:time_per_output_token_seconds_bucket{le="+Inf",model_name="m"} 2\n'
        'vllm:time_per_output_token_seconds_sum{model_name="m"} 1\n'
        'vllm:time_per_output_token_seconds_count{model_name="m"} 2\n'
    )
    assert (row["engine"], row["kv_cache_usage_ratio"]) == ("0", 0.5)
    assert row["itl_seconds_buckets"] == [2.0]
    assert row["tpot_seconds_count"] is None


def test_a_series_of_no_engine_among_several_is_unknown() -> None:
    parsed = read(
        'vllm:num_requests_running{engine="10"} 2\nvllm:num_requests_running{engine="2"} 1\n'
        "vllm:num_requests_waiting 3\n"
    )
    assert [row["waiting_requests"] for row in parsed.scrapes.iter_rows(named=True)] == [None, None]


def test_replicas_on_one_page_are_servers_of_their_own() -> None:
    """As Ray's node agent shows them: all replicas of a node at one address."""
    parsed = read(
        'vllm:generation_tokens_total{ReplicaId="a"} 10\n'
        'vllm:generation_tokens_total{ReplicaId="b"} 5\n'
        "process_start_time_seconds 7\n"
    )
    assert parsed.problems == ()
    assert [
        (row["instance"], row["generation_tokens_total"]) for row in parsed.scrapes.to_dicts()
    ] == [
        ("a/h:8000", 10.0),
        ("b/h:8000", 5.0),
    ]
    assert {row["process_start_time_seconds"] for row in parsed.scrapes.to_dicts()} == {7.0}


OWN = '{engine="0",model_name="m"}'
TTFT = "vllm:time_to_first_token_seconds"
TOKENS = f"vllm:generation_tokens_total{OWN} 100.0\n"
TURNED = 'vllm:generation_tokens_total{model_name="m",engine="0"} 101.0\n'
BAD_NUMBERS = [
    (f"vllm:num_requests_running{OWN} ", "3.0", "NaN", "NaN", "running_requests"),
    (f"vllm:generation_tokens_total{OWN} ", "100.0", "+Inf", "infinite", "generation_tokens_total"),
    (
        'vllm:request_success_total{engine="0",finished_reason="stop",model_name="m"} ',
        *("5.0", "-3", "negative (-3)", "finished_requests_total"),
    ),
    (f'{TTFT}_bucket{{engine="0",le="1.0",model_name="m"}} ', "4.0", "NaN", "NaN", "ttft_"),
    (f"{TTFT}_sum{OWN} ", "9.5", "-Inf", "infinite", "ttft_"),
]
BAD_HISTOGRAMS = [
    ('le="1.0",model_name="m"} 4.0', 'le="1.0",model_name="m"} 0.0', "falls from 1 to 0 at le=1"),
    (f"_count{OWN} 7.0", f"_count{OWN} 8.0", "has 7 in its +Inf bucket but a count of 8"),
    (
        f'{TTFT}_bucket{{engine="0",le="+Inf",model_name="m"}} 7.0\n',
        *("", 'is incomplete: no le="+Inf"'),
    ),
    (
        f"{TTFT}_count{OWN} 7.0\n{TTFT}_sum{OWN} 9.5\n",
        *("", "is incomplete: no _sum, no _count"),
    ),
    ('le="1.0"', 'le="much"', "has a bucket whose le is not a number"),
    ('le="1.0",', "", "has a bucket whose le is not a number"),
]
BAD_LINES = [
    (b"vllm:num_requests_running", "not a sample: 'vllm:num_requests_running'"),
    (b"http_requests 1_000", "not a sample: 'http_requests 1_000'"),
    (b'http_requests{a="\xff"} 1', "not UTF-8 at its byte 18"),
    (b"\x00\x01 2", "not a sample: '\\x00\\x01 2'"),
    (b"x" * 20_000 + b" 1", "20002 bytes long, more than 16384"),
]


@pytest.mark.parametrize(
    ("old", "new", "problem", "lost"),
    [
        *(
            (series + number, (series + bad).encode(), f"{series.strip()} is {why}", lost)
            for series, number, bad, why, lost in BAD_NUMBERS
        ),
        *((old, new.encode(), f"{TTFT} {why}", "ttft_") for old, new, why in BAD_HISTOGRAMS),
        *(
            ("process_start", line + b"\nprocess_start", f"line 3: {why}", None)
            for line, why in BAD_LINES
        ),
        (
            *(TOKENS, (TOKENS + TURNED).encode()),
            f"vllm:generation_tokens_total{OWN} is there twice at one time, as 100 and 101",
            "generation_tokens_total",
        ),
    ],
)
def test_what_is_wrong_is_unknown_and_named_and_the_rest_is_used(
    old: str, new: bytes, problem: str, lost: str | None
) -> None:
    before, found, after = PAGE.encode().rpartition(old.encode())
    assert found
    good, parser = one(PAGE), PageParser()
    read(PAGE, parser)
    # the second time the page's layout is known: same answer
    for _ in range(2):
        row, named = only(read(before + new + after, parser))
        assert named == problem
        unknown = {name: None for name in row if lost is not None and name.startswith(lost)}
        assert row == good | unknown | {"reason": problem}


def test_the_same_series_twice_with_one_value_is_that_value() -> None:
    parsed = read(PAGE + TURNED.replace("101", "100"))
    assert parsed.problems == ()
    assert parsed.scrapes["generation_tokens_total"].to_list() == [100.0]


@pytest.mark.parametrize(
    ("page", "reason"),
    [
        (b"", "empty page (0 bytes)"),
        (b"\n\n", "no sample on the page"),
        (
            b"\n  <!DOCTYPE html><html>no</html>",
            "answers HTML, not metrics: it starts with '<!DOCTYPE html><html>no</html>'",
        ),
        (
            b'{"detail":"Not Found"}',
            "not a metrics page: no line of it is a sample, "
            'it starts with \'{"detail":"Not Found"}\'',
        ),
        (
            b"\x1f\x8b\x08\x00\xff\n\xfe\n",
            "not a metrics page: no line of it is a sample, "
            "it starts with '\\x1f�\\x08\\x00�\\n�\\n'",
        ),
        (b"process_open_fds 1\n", STATS_DISABLED),
        (b"# HELP x", "page cut off at byte 8, line 1"),
        (b"# TYPE x gauge\nvllm:num_re", "page cut off at byte 26, line 2"),
    ],
)
def test_a_page_that_is_none(page: bytes, reason: str) -> None:
    parsed = read(page)
    (row,) = parsed.scrapes.to_dicts()
    assert {k: v for k, v in row.items() if v is not None} == {
        "instance": "h:8000",
        "engine": "0",
        "time": T0,
        "ok": False,
        "reason": reason,
    }
    assert parsed.problems == ()


def test_a_page_cut_anywhere_never_gives_a_wrong_number(shared_data: Path) -> None:
    body = (shared_data / "vllm-0.32" / "metrics_after_load.txt").read_bytes()
    (whole,) = read(body).scrapes.to_dicts()
    parser = PageParser()
    for at in range(1, len(body), 997):
        parsed = read(body[:at], parser)
        (row,) = parsed.scrapes.to_dicts()
        if body[:at].endswith(b"\n"):
            continue
        line = body[:at].count(b"\n") + 1
        assert row["reason"] == f"page cut off at byte {at}, line {line}"
        assert row["running_requests"] is None
    # after a whole line it cannot be told from a whole page: missing is NULL, never wrong
    at = body.index(b"# HELP vllm:time_to_first_token_seconds ")
    (row,) = read(body[:at], parser).scrapes.to_dicts()
    for name, value in row.items():
        assert value is None or value == whole[name]
    assert row["ttft_seconds_sum"] is None


def _engines(count: int) -> bytes:
    return b"".join(
        b'vllm:num_requests_running{engine="%d",model_name="m"} 1\n' % i for i in range(count)
    )


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"a 1\n" + b"\n" * (11 * 2**20), "page refused: 11534340 bytes, more than 10485760"),
        (b"a 1\n" + b"# x\n" * 100_000, "page refused: 100001 lines, more than 100000"),
        (_engines(257), "page refused: 257 engines, more than 256"),
        (
            b'vllm:num_requests_running{engine="%s"} 1\n' % (b"e" * 257),
            "page refused: a label engine of 257 characters, more than 256",
        ),
        (
            b'vllm:num_requests_running{engine="0",model_name="%s"} 1\n' % (b"m" * 300),
            "page refused: a label model_name of 300 characters, more than 256",
        ),
    ],
)
def test_a_page_that_no_server_of_vllm_has_is_refused_by_name(body: bytes, reason: str) -> None:
    (row,) = PageParser().parse("h:1", T0, body).scrapes.to_dicts()
    assert (row["ok"], row["reason"]) == (False, reason)


PAGES = {
    "SGLang": 'sglang:num_running_reqs{model_name="m"} 3\n',
    "text-generation-inference": "tgi_queue_size 0\ntgi_batch_current_size 2\n",
    "node_exporter": "node_load1 0.3\nprocess_open_fds 9\n",
    "dcgm-exporter": 'DCGM_FI_DEV_SM_CLOCK{gpu="0"} 1980\n',
    "as Ray renames them": "ray_vllm_num_requests_running 1\nray_node_cpu_count 2\n",
    "OpenTelemetry": "vllm_num_requests_running 1\nprocess_open_fds 9\n",
}


def reason(page: str) -> str:
    (row,) = PageParser().parse("h:8000", T0, page.encode()).scrapes.to_dicts()
    assert row["ok"] is False
    return str(row["reason"])


@pytest.mark.parametrize(("what", "page"), PAGES.items())
def test_the_page_of_another_exporter_is_named_with_what_to_do(what: str, page: str) -> None:
    told = reason(page)
    assert what in told
    assert "no vllm: series" in told
    assert "stats disabled" not in told
    assert fix_of(told) is not None


def test_a_router_is_not_an_engine() -> None:
    page = 'vllm:current_qps{server="http://a"} 2\nvllm:num_requests_running{server="http://a"} 1\n'
    assert reason(page) == NOT_AN_ENGINE
    assert fix_of(NOT_AN_ENGINE) == "give the addresses of the vLLM servers behind the router"


def test_names_of_nobody_known_are_shown_and_are_not_taken_for_disabled_stats() -> None:
    told = without_vllm(["my_app_jobs", "my_app_errors", "process_open_fds", "a", "b"])
    assert told.endswith("a, b, my_app_errors, …")
    assert fix_of(told) == "give the address of a vLLM server, usually port 8000"


def test_a_target_of_an_api_without_vllm_series() -> None:
    names = ("up", "sglang:num_running_reqs", "scrape_samples_scraped")
    points = [(T0.timestamp() + 10 * i, "1") for i in range(6)]
    labels = {"instance": "b:1", "job": "llm"}
    with PrometheusApi([Series({"__name__": n, **labels}, points, 10) for n in names]) as api:
        source = PrometheusSource(PrometheusAsker(api.address), selector={"job": "llm"})
        found = source.collect(T0, T0 + timedelta(seconds=20))
        source.close()
    assert found.scrapes["reason"].unique().to_list() == [NO_SERIES]
    assert fix_of(NO_SERIES) is not None
