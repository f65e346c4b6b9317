"""Pages → rows: the real pages, and every way a page can be bad."""

from __future__ import annotations

import math
from pathlib import Path

from metrics_page_cases import PAGE, T0, one, only, read

from driftwatch.collect.pages import PageParser


def test_a_plain_page() -> None:
    row = one(PAGE)
    assert row["ok"] is True
    assert row["reason"] is None
    assert (row["instance"], row["engine"], row["model_name"]) == ("h:8000", "0", "m")
    assert row["time"] == T0
    assert row["several_api_servers"] is False
    assert row["running_requests"] == 3.0
    assert row["waiting_requests"] == 0.0
    assert row["generation_tokens_total"] == 100.0
    assert row["finished_requests_total"] == 7.0
    assert row["aborted_requests_total"] == 2.0
    assert row["process_start_time_seconds"] == 1.7e9
    assert row["ttft_seconds_buckets"] == [1.0, 4.0, 7.0]
    assert row["ttft_seconds_edges"] == [0.1, 1.0, math.inf]
    assert (row["ttft_seconds_sum"], row["ttft_seconds_count"]) == (9.5, 7.0)
    # what is not on the page is unknown, not 0
    assert row["preemptions_total"] is None
    assert row["itl_seconds_buckets"] is None
    assert row["cache_config"] is None


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


def test_escapes_timestamps_carriage_returns_and_eof() -> None:
    row = one(
        'vllm:num_requests_running{engine="0",model_name="a \\"b\\" \\\\ c\\nd} x"} '
        "3 1395066363000\r\n"
        "  vllm:num_requests_waiting\t4 \r\n"
        "\r\n"
        "#\r\n"
        "# EOF\r\n"
    )
    assert row["model_name"] == 'a "b" \\ c\nd} x'
    assert (row["running_requests"], row["waiting_requests"]) == (3.0, 4.0)


def test_a_series_of_no_engine_among_several_is_named() -> None:
    parsed = read(
        'vllm:num_requests_running{engine="10"} 2\nvllm:num_requests_running{engine="2"} 1\n'
        "vllm:num_requests_waiting 3\n"
    )
    assert [row["waiting_requests"] for row in parsed.scrapes.iter_rows(named=True)] == [None, None]
    (problem,) = parsed.problems
    assert problem.reason == (
        "vllm:num_requests_waiting carries no engine label on a page of 2 engines"
    )


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


def test_cache_config_is_sorted_and_without_its_engine() -> None:
    line = 'vllm:cache_config_info{num_gpu_blocks="7",block_size="16",engine="0"} 1.0\n'
    assert one(line)["cache_config"] == '{"block_size":"16","num_gpu_blocks":"7"}'
    row, problem = only(read(line + line.replace('"7"', '"8"')))
    assert row["cache_config"] == '{"block_size":"16","num_gpu_blocks":"8"}'
    assert problem == (
        "vllm:cache_config_info has several series with different labels: read the last"
    )
    assert read(line + line).problems == ()
