"""Pages → rows: the real pages, and every way a page can be bad."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import polars as pl
import pytest

from driftwatch.collect.pages.foreign import STATS_DISABLED
from driftwatch.collect.pages.parser import PageParser, ParsedPage
from driftwatch.collect.schema import SCRAPE_SCHEMA

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


def read(page: str | bytes, parser: PageParser | None = None) -> ParsedPage:
    body = page if isinstance(page, bytes) else page.encode()
    return (parser or PageParser()).parse("h:8000", T0, body)


def one(page: str | bytes) -> dict[str, Any]:
    (row,) = read(page).rows
    return row


def only(parsed: ParsedPage) -> tuple[dict[str, Any], str]:
    """The row of a page with one problem, and that problem."""
    (row,), (problem,) = parsed.rows, parsed.problems
    assert problem.where == "h:8000"
    assert problem.time == T0
    return row, problem.reason


def real(shared_data: Path, name: str) -> ParsedPage:
    return read((shared_data / "vllm-0.32" / name).read_bytes())


# --- real pages


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


def test_the_frame_has_the_published_schema() -> None:
    for page in (PAGE, "", PAGE.replace("3.0", "NaN")):
        assert dict(read(page).frame.schema) == dict(SCRAPE_SCHEMA)


def test_two_engines_stay_separate(shared_data: Path) -> None:
    rows = real(shared_data, "metrics_dp2_after.txt").rows
    assert [row["engine"] for row in rows] == ["0", "1"]
    for row in rows:
        assert row["several_api_servers"] is True
        assert row["iteration_tokens_count"] == 402.0
        assert row["generation_tokens_total"] == 2400.0
        assert row["finished_requests_total"] == 12.0
        assert row["process_start_time_seconds"] is None
        assert row["created_seconds"] is None
        assert orjson.loads(row["cache_config"])["block_size"] == "32"
    assert rows[0]["ttft_seconds_sum"] != rows[1]["ttft_seconds_sum"]


def test_rejections_of_the_instance_are_counted_once(shared_data: Path) -> None:
    page = (shared_data / "vllm-0.32" / "metrics_dp2_after.txt").read_text()
    line = 'vllm:admission_rejections_total{model_name="tiny-llama",reason="max_num_queued_reqs"} '
    assert line + "0.0" in page
    parsed = read(page.replace(line + "0.0", line + "4.0"))
    assert [row["rejected_requests_total"] for row in parsed.rows] == [4.0, None]


def test_the_start_of_the_process_holds_for_every_engine(shared_data: Path) -> None:
    rows = real(shared_data, "metrics_dp2_api1_after.txt").rows
    assert [row["engine"] for row in rows] == ["0", "1"]
    assert rows[0]["process_start_time_seconds"] == rows[1]["process_start_time_seconds"]
    assert rows[0]["process_start_time_seconds"] > 1.7e9
    assert [row["several_api_servers"] for row in rows] == [False, False]
    assert [row["iteration_tokens_count"] for row in rows] == [202.0, 201.0]


@pytest.mark.parametrize("name", ["metrics_api2_after.txt", "metrics_api2_during.txt"])
def test_several_api_servers(shared_data: Path, name: str) -> None:
    (row,) = real(shared_data, name).rows
    assert row["several_api_servers"] is True
    assert row["iteration_tokens_count"] == 800.0
    assert row["running_requests"] == 0.0


def test_deferred_by_lora_slots(shared_data: Path) -> None:
    (row,) = real(shared_data, "metrics_lora_during.txt").rows
    assert row["waiting_deferred_requests"] == 5.0
    assert row["waiting_requests"] == (
        row["waiting_deferred_requests"] + row["waiting_capacity_requests"]
    )


def test_stats_disabled_is_not_idle(shared_data: Path) -> None:
    (row,) = real(shared_data, "metrics_disable_log_stats.txt").rows
    assert row["ok"] is False
    assert row["reason"] == STATS_DISABLED
    assert row["engine"] == "0"
    assert row["running_requests"] is None
    assert row["process_start_time_seconds"] is None


def test_every_real_page_parses_without_a_problem(shared_data: Path) -> None:
    pages = sorted((shared_data / "vllm-0.32").glob("metrics_*.txt"))
    assert len(pages) > 10
    parser = PageParser()
    for path in pages:
        parsed = parser.parse(path.name, T0, path.read_bytes())
        assert parsed.problems == ()
        for row in parsed.rows:
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


# --- names, labels, lines


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


@pytest.mark.parametrize("turned", [False, True])
def test_the_current_name_wins_over_the_old_one(turned: bool) -> None:
    lines = ["vllm:gpu_cache_usage_perc 0.5\n", "vllm:kv_cache_usage_perc 0.25\n"]
    assert one("".join(reversed(lines) if turned else lines))["kv_cache_usage_ratio"] == 0.25


def test_iteration_tokens_total_is_a_histogram() -> None:
    row = one(
        'vllm:iteration_tokens_total_bucket{le="+Inf"} 4\n'
        "vllm:iteration_tokens_total_sum 40\nvllm:iteration_tokens_total_count 4\n"
    )
    assert (row["iteration_tokens_sum"], row["iteration_tokens_count"]) == (40.0, 4.0)


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


def test_eof_needs_no_newline() -> None:
    assert one("vllm:num_requests_running 1\n# EOF")["running_requests"] == 1.0


def test_buckets_come_in_ascending_order_of_their_edges() -> None:
    lines = PAGE.splitlines(keepends=True)
    assert one("".join(reversed(lines)))["ttft_seconds_edges"] == [0.1, 1.0, math.inf]
    assert one("".join(reversed(lines)))["ttft_seconds_buckets"] == [1.0, 4.0, 7.0]


def test_only_rank_one_of_a_data_parallel_group_is_on_the_page() -> None:
    parsed = read(
        'vllm:num_requests_running{engine="1"} 2\nvllm:num_requests_waiting 3\n'
        "process_start_time_seconds 5\n"
    )
    (row,) = parsed.rows
    assert (row["engine"], row["running_requests"]) == ("1", 2.0)
    assert (row["waiting_requests"], row["process_start_time_seconds"]) == (3.0, 5.0)


def test_a_series_of_no_engine_among_several_is_named() -> None:
    parsed = read(
        'vllm:num_requests_running{engine="10"} 2\nvllm:num_requests_running{engine="2"} 1\n'
        "vllm:num_requests_waiting 3\n"
    )
    assert [row["waiting_requests"] for row in parsed.rows] == [None, None]
    (problem,) = parsed.problems
    assert problem.reason == (
        "vllm:num_requests_waiting carries no engine label on a page of 2 engines"
    )


def test_several_models_on_one_engine_are_not_added() -> None:
    row, problem = only(
        read(
            'vllm:generation_tokens_total{engine="0",model_name="a"} 10\n'
            'vllm:generation_tokens_total{engine="0",model_name="b"} 5\n'
        )
    )
    assert (row["model_name"], row["generation_tokens_total"]) == ("a", 10.0)
    assert problem == "engine 0 has several model_name values: read a only"
    assert row["reason"] == problem


def test_a_label_of_unknown_meaning_is_not_added_over() -> None:
    row, problem = only(
        read(
            'vllm:generation_tokens_total{replica="a"} 10\n'
            'vllm:generation_tokens_total{replica="b"} 5\n'
        )
    )
    assert row["generation_tokens_total"] is None
    assert problem == (
        "vllm:generation_tokens_total has several series that differ in replica: "
        "it is not known whether they may be added"
    )


def test_cache_config_is_sorted_and_without_its_engine() -> None:
    line = 'vllm:cache_config_info{num_gpu_blocks="7",block_size="16",engine="0"} 1.0\n'
    assert one(line)["cache_config"] == '{"block_size":"16","num_gpu_blocks":"7"}'
    row, problem = only(read(line + line.replace('"7"', '"8"')))
    assert row["cache_config"] == '{"block_size":"16","num_gpu_blocks":"8"}'
    assert problem == ("vllm:cache_config_info has 2 series with different labels: read the last")
    assert read(line + line).problems == ()


# --- bad numbers


@pytest.mark.parametrize(
    ("number", "why"),
    [
        ("NaN", "NaN"),
        ("+Inf", "infinite"),
        ("-Inf", "infinite"),
        ("-3", "negative (-3)"),
        ("9" * 400, "infinite"),
    ],
)
@pytest.mark.parametrize(
    ("series", "column"),
    [
        ('vllm:num_requests_running{engine="0",model_name="m"}', "running_requests"),
        ('vllm:generation_tokens_total{engine="0",model_name="m"}', "generation_tokens_total"),
        (
            'vllm:request_success_total{engine="0",finished_reason="stop",model_name="m"}',
            "finished_requests_total",
        ),
        ("process_start_time_seconds", "process_start_time_seconds"),
        (
            'vllm:time_to_first_token_seconds_bucket{engine="0",le="1.0",model_name="m"}',
            "ttft_seconds_buckets",
        ),
        ('vllm:time_to_first_token_seconds_sum{engine="0",model_name="m"}', "ttft_seconds_sum"),
    ],
)
def test_a_bad_number_is_unknown_and_named(series: str, column: str, number: str, why: str) -> None:
    lines = [
        f"{series} {number}" if line.startswith(series + " ") else line
        for line in PAGE.splitlines()
    ]
    good = one(PAGE)
    parser = PageParser()
    # the second time the page's layout is known: same answer
    for _ in range(2):
        row, problem = only(read("\n".join(lines) + "\n", parser))
        assert problem == f"{series} is {why}"
        assert row["ok"] is True
        assert row["reason"] == problem
        family = column.rpartition("_")[0] + "_" if column.startswith("ttft") else column
        for name in SCRAPE_SCHEMA:
            if name != "reason":
                assert row[name] == (None if name.startswith(family) else good[name]), name


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (
            'le="1.0",model_name="m"} 4.0',
            'le="1.0",model_name="m"} 0.0',
            "falls from 1 to 0 at le=1",
        ),
        (
            'seconds_count{engine="0",model_name="m"} 7.0',
            'seconds_count{engine="0",model_name="m"} 8.0',
            "has 7 in its +Inf bucket but a count of 8",
        ),
        (
            'vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf",model_name="m"} 7.0\n',
            "",
            'is incomplete: no le="+Inf"',
        ),
        (
            'vllm:time_to_first_token_seconds_sum{engine="0",model_name="m"} 9.5\n',
            "",
            "is incomplete: no _sum",
        ),
        (
            'vllm:time_to_first_token_seconds_count{engine="0",model_name="m"} 7.0\n'
            'vllm:time_to_first_token_seconds_sum{engine="0",model_name="m"} 9.5\n',
            "",
            "is incomplete: no _sum, no _count",
        ),
        ('le="1.0"', 'le="much"', "has a bucket whose le is not a number"),
        ('le="1.0",', "", "has a bucket whose le is not a number"),
    ],
)
def test_a_histogram_that_is_none(old: str, new: str, why: str) -> None:
    assert old in PAGE
    parser = PageParser()
    for _ in range(2):
        row, problem = only(read(PAGE.replace(old, new), parser))
        assert problem == f"vllm:time_to_first_token_seconds {why}"
        for part in ("sum", "count", "buckets", "edges"):
            assert row[f"ttft_seconds_{part}"] is None
        assert row["generation_tokens_total"] == 100.0


def test_the_same_series_twice() -> None:
    line = 'vllm:generation_tokens_total{engine="0",model_name="m"} 100.0\n'
    turned = 'vllm:generation_tokens_total{model_name="m",engine="0"} 100.0\n'
    parser = PageParser()
    for _ in range(2):
        parsed = read(PAGE + line + turned, parser)
        assert parsed.problems == ()
        assert parsed.rows[0]["generation_tokens_total"] == 100.0
    for _ in range(2):
        row, problem = only(read(PAGE + turned.replace("100", "101"), parser))
        assert row["generation_tokens_total"] is None
        assert problem == f"{turned[:-7]} is on the page twice, as 100 and 101"


def test_one_bucket_twice_makes_the_family_unknown() -> None:
    line = 'vllm:time_to_first_token_seconds_bucket{engine="0",le="1",model_name="m"} 5.0\n'
    row, problem = only(read(PAGE + line))
    assert "is on the page twice, as 4 and 5" in problem
    assert row["ttft_seconds_buckets"] is None
    assert row["ttft_seconds_count"] is None


# --- bad lines and pages


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"vllm:num_requests_running", "line 3: not a sample: 'vllm:num_requests_running'"),
        (b"http_requests{a=", "line 3: not a sample: 'http_requests{a='"),
        (b'http_requests{a="x y', "line 3: not a sample: 'http_requests{a=\"x y'"),
        (b"http_requests 1_000", "line 3: not a sample: 'http_requests 1_000'"),
        (b'http_requests{a="\xff"} 1', "line 3: not UTF-8 at its byte 18"),
        (b"\x00\x01 2", "line 3: not a sample: '\\x00\\x01 2'"),
        (b"x" * 20_000 + b" 1", "line 3: 20002 bytes long, more than 16384"),
    ],
)
def test_a_broken_line_is_named_and_the_rest_is_used(line: bytes, why: str) -> None:
    lines = PAGE.encode().splitlines()
    lines.insert(2, line)
    parser = PageParser()
    read(PAGE, parser)
    for _ in range(2):
        row, problem = only(read(b"\n".join(lines) + b"\n", parser))
        assert problem == why
        assert row == one(PAGE) | {"reason": why}


def test_many_broken_lines_are_counted() -> None:
    parsed = read(PAGE + "".join(f"broken{i}\n" for i in range(25)))
    assert len(parsed.problems) == 11
    assert "and 15 more lines that are no samples" in [p.reason for p in parsed.problems]
    assert parsed.rows[0]["reason"].endswith("; and 8 more")


def test_a_value_with_an_underscore_is_refused_on_a_known_page_too() -> None:
    parser = PageParser()
    read(PAGE, parser)
    row, problem = only(read(PAGE.replace(" 100.0", " 1_00.0"), parser))
    assert row["generation_tokens_total"] is None
    assert problem.startswith("line 8: not a sample")


@pytest.mark.parametrize(
    ("page", "reason"),
    [
        (b"", "empty page (0 bytes)"),
        (b"\n\n", "no sample on the page"),
        (b"# HELP x y\n", "no sample on the page"),
        (
            b"\n  <!DOCTYPE html><html>no</html>",
            "HTML, not a metrics page: it starts with '<!DOCTYPE html><html>no</html>'",
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
    (row,) = parsed.rows
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
    (whole,) = read(body).rows
    parser = PageParser()
    for at in range(1, len(body), 997):
        parsed = read(body[:at], parser)
        (row,) = parsed.rows
        if body[:at].endswith(b"\n"):
            continue
        line = body[:at].count(b"\n") + 1
        assert row["reason"] == f"page cut off at byte {at}, line {line}"
        assert row["running_requests"] is None
    # after a whole line it cannot be told from a whole page: missing is NULL, never wrong
    at = body.index(b"# HELP vllm:time_to_first_token_seconds ")
    (row,) = read(body[:at], parser).rows
    for name, value in row.items():
        assert value is None or value == whole[name]
    assert row["ttft_seconds_sum"] is None


def test_a_failed_page_has_a_row_for_every_engine_last_seen(shared_data: Path) -> None:
    good = (shared_data / "vllm-0.32" / "metrics_dp2_after.txt").read_bytes()
    parser = PageParser()
    parser.parse("a:1", T0, good)
    for body in (b"", good[:-1], b"<html>\n", b"up 1\n"):
        rows = parser.parse("a:1", T0, body).rows
        assert [(row["engine"], row["ok"]) for row in rows] == [("0", False), ("1", False)]
    assert [row["engine"] for row in parser.parse("b:1", T0, b"").rows] == ["0"]
    assert parser.engines("a:1") == ("0", "1")
    assert parser.model_name("a:1", "1") == "tiny-llama"
    assert parser.model_name("b:1", "0") is None


def test_engines_of_a_failed_page_are_those_of_its_time_in_any_order() -> None:
    def page(*engines: str) -> bytes:
        return "".join(f'vllm:num_requests_running{{engine="{e}"}} 1\n' for e in engines).encode()

    times = [T0 + timedelta(seconds=i) for i in range(5)]
    bodies = [b"", page("0"), b"", page("0", "1"), b""]
    pages = [("h:1", t, b) for t, b in zip(times, bodies, strict=True)]
    frame = PageParser().parse_many(pages).frame
    failed = frame.filter(~pl.col("ok")).select("engine", "time").rows()
    assert failed == [("0", times[0]), ("0", times[2]), ("0", times[4]), ("1", times[4])]
    assert PageParser().parse_many(reversed(pages)).frame.equals(frame)


# --- speed does not change answers


def test_pages_together_are_pages_one_by_one(shared_data: Path) -> None:
    names = ["metrics_dp2_during.txt", "metrics_lora_during.txt", "metrics_disable_log_stats.txt"]
    pages = []
    for i, name in enumerate(names * 3):
        body = (shared_data / "vllm-0.32" / name).read_bytes()
        if i > 5:
            body = body.replace(b" 0.0\n", b" NaN\n", 40)
        pages.append((f"h{i % 2}:1", T0 + timedelta(seconds=i), body))
    together = PageParser().parse_many(pages)
    parser = PageParser()
    single = [parser.parse(*page) for page in pages]
    frame = pl.concat([p.frame for p in single]).sort("instance", "engine", "time")
    assert together.frame.equals(frame)
    assert sum(len(p.problems) for p in single) > 0
    assert together.frame["reason"].is_not_null().any()


def test_series_that_come_and_go_on_one_instance() -> None:
    parser = PageParser()
    extra = 'vllm:num_preemptions_total{engine="0",model_name="m"} 6\n'
    for page, preemptions in [(PAGE, None), (PAGE + extra, 6.0), (PAGE, None), (extra, 6.0)]:
        assert read(page, parser).rows[0]["preemptions_total"] == preemptions


def test_a_comment_that_becomes_a_sample_is_seen() -> None:
    parser = PageParser()
    read(PAGE + "#\n", parser)
    row, problem = only(read(PAGE + "junk\n", parser))
    assert problem == "line 18: not a sample: 'junk'"
    assert row["running_requests"] == 3.0
    assert read(PAGE + "#\n", parser).problems == ()


def test_repeated_problems_are_folded() -> None:
    bad = PAGE.replace(" 3.0", " NaN").encode()
    pages = [("h:1", T0 + timedelta(seconds=i), bad) for i in range(3)]
    (problem,) = PageParser().parse_many(pages).problems
    assert problem.reason.endswith("is NaN (3 times)")
    assert problem.time == T0


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
    (row,) = PageParser().parse("h:1", T0, body).rows
    assert (row["ok"], row["reason"]) == (False, reason)


def test_a_page_of_as_many_engines_as_are_read_is_read() -> None:
    assert PageParser().parse("h:1", T0, _engines(256)).frame["ok"].sum() == 256


def test_a_line_of_quotes_is_no_sample() -> None:
    # the parser of prometheus_client is quadratic in them
    body = b'vllm:num_requests_running{engine="0"} 1\na{x="' + b'\\"' * 513 + b'"} 1\n'
    parsed = PageParser().parse("h:1", T0, body)
    assert [p.reason for p in parsed.problems] == ["line 2: 515 quotes, more than 512"]
    assert parsed.rows[0]["ok"]
