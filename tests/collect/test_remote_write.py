"""What senders write becomes rows; what cannot be kept is refused with its reason."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
import requests

from driftwatch.clock import ManualClock
from driftwatch.collect.remote_write import inbox, request, series
from driftwatch.collect.remote_write.source import RemoteWriteSource
from driftwatch.collect.schema import Collected
from driftwatch.errors import ConfigError, Unavailable, UsageError
from driftwatch.service.configuration import sources_of
from driftwatch.service.own_metrics import OwnMetrics
from driftwatch.settings import load_settings
from driftwatch.testing.write_requests import STALE, Written, compressed, field, write_request

T0 = datetime(2026, 1, 5, 12, tzinfo=UTC)
MS = round(T0.timestamp() * 1000)
HEADERS = {"Content-Encoding": "snappy", "Content-Type": "application/x-protobuf"}
RUNNING, TOKENS = "vllm:num_requests_running", "vllm:generation_tokens_total"


def of(name: str, *samples: tuple[float, float], instance: str = "a:1", **labels: str) -> Written:
    """A series of one server; times in seconds after T0."""
    both = {"__name__": name, "instance": instance, "job": "vllm", **labels}
    if name != "up":
        both = {"engine": "0", "model_name": "m", **both}
    return both, [(MS + round(1000 * at), value) for at, value in samples]


class Sender:
    """A source with a clock that stands 10 s after T0."""

    def __init__(self, **options: object) -> None:
        self.clock = ManualClock(T0 + timedelta(seconds=10))
        self.source = RemoteWriteSource(
            ("127.0.0.1", 0),
            self.clock,
            selector=options.pop("selector", {"job": "vllm"}),  # type: ignore[arg-type]
            **options,  # type: ignore[arg-type]
        )
        host, port = self.source.receiver.address
        self.url = f"http://{host}:{port}/api/v1/write"

    def post(
        self, *written: Written, body: bytes | None = None, path: str = "", **headers: str
    ) -> requests.Response:
        """The answer to a request."""
        content = write_request(written) if body is None else body
        both = {**HEADERS, **{k.replace("_", "-"): v for k, v in headers.items()}}
        return requests.post(self.url + path, content, headers=both, timeout=10)

    def collect(self, since: float = -60, until: float = 30) -> Collected:
        """What came of these seconds after T0."""
        return self.source.collect(T0 + timedelta(seconds=since), T0 + timedelta(seconds=until))


@pytest.fixture
def sender() -> Iterator[Sender]:
    sender = Sender()
    yield sender
    sender.source.close()


def values(collected: Collected, column: str) -> list[object]:
    return collected.scrapes[column].to_list()


def test_a_scrape_becomes_a_row_whatever_order_its_samples_come_in(sender: Sender) -> None:
    assert sender.post(of(RUNNING, (15, 4), (0, 3))).status_code == 204
    assert sender.post(of(TOKENS, (0, 100))).status_code == 204
    assert sender.post(of("up", (0, 1)), of("up", (15, 1)), of(TOKENS, (15, 160))).ok
    collected = sender.collect()
    assert values(collected, "time") == [T0, T0 + timedelta(seconds=15)]
    assert values(collected, "running_requests") == [3.0, 4.0]
    assert values(collected, "generation_tokens_total") == [100.0, 160.0]
    assert collected.problems == ()
    (target,) = collected.targets.values()
    assert target.labels == {
        "instance": "a:1", "engine": "0", "job": "vllm", "model_name": "m",
    }  # fmt: skip


def test_a_request_that_is_sent_again_changes_nothing(sender: Sender) -> None:
    for _ in range(3):
        assert sender.post(of("up", (0, 1)), of(RUNNING, (0, 3))).status_code == 204
    collected = sender.collect()
    assert values(collected, "running_requests") == [3.0]
    assert collected.problems == ()
    # its minutes were taken: now it is late, and nothing that would get better by a retry
    answer = sender.post(of("up", (0, 1)), of(RUNNING, (0, 3)))
    assert (answer.status_code, "2 late" in answer.text) == (400, True)
    assert sender.collect(30, 31).scrapes.height == 0


def test_two_values_of_one_time_are_unknown(sender: Sender) -> None:
    sender.post(of("up", (0, 1)), of(RUNNING, (0, 3)), of(TOKENS, (0, 9)))
    sender.post(of(RUNNING, (0, 4)))
    collected = sender.collect()
    assert values(collected, "running_requests") == [None]
    assert values(collected, "generation_tokens_total") == [9.0]
    assert any("twice" in problem.reason for problem in collected.problems)


def test_a_stale_marker_ends_a_series_and_a_target(sender: Sender) -> None:
    sender.post(
        of("up", (0, 1), (5, 1)), of(RUNNING, (0, 3), (5, STALE)), of(TOKENS, (0, 1), (5, 2))
    )
    assert values(sender.collect(), "running_requests") == [3.0, None]
    sender.clock.set(T0 + timedelta(seconds=60))
    sender.post(of("up", (50, 1), instance="b:1"), of("up", (50, STALE)))
    assert [key.instance for key in sender.collect(30, 55).targets] == ["b:1"]


def test_a_target_that_is_scraped_rarely_stays_one(sender: Sender) -> None:
    sender.post(of("up", (0, 1)), of(RUNNING, (0, 3)))
    assert len(sender.collect().targets) == 1
    sender.clock.set(T0 + timedelta(seconds=80))
    sender.post(of("up", (70, 1), instance="b:1"), of(RUNNING, (70, 3), instance="b:1"))
    collected = sender.collect(30, 60)
    assert (collected.scrapes.height, len(collected.targets)) == (0, 1)
    sender.clock.set(T0 + timedelta(seconds=330))
    sender.post(of("up", (325, 1), instance="b:1"))
    assert [key.instance for key in sender.collect(60, 326).targets] == ["b:1"]


def test_a_server_that_is_down_is_a_failed_scrape(sender: Sender) -> None:
    sender.post(of("up", (0, 1), (15, 0)), of(RUNNING, (0, 3)))
    collected = sender.collect()
    assert values(collected, "ok") == [True, False]
    assert values(collected, "reason") == [None, "up == 0"]


def test_samples_without_up_are_named_and_not_read(sender: Sender) -> None:
    sender.post(of("up", (0, 1), instance="b:1"), of(RUNNING, (0, 3)))
    collected = sender.collect()
    assert values(collected, "instance") == ["b:1"]
    assert any("without `up`" in problem.reason for problem in collected.problems)


def test_series_of_others_and_names_that_nobody_reads_are_let_go() -> None:
    sender = Sender(selector={"job": ["vllm", "other"]})
    sender.post(
        of("up", (0, 1)), of(RUNNING, (0, 3)), of("vllm:no_such_metric", (0, 1)),
        of(RUNNING, (0, 9), instance="n:1", job="node"),
        of("up", (0, 1), instance="n:1", job="node"),
    )  # fmt: skip
    assert sender.source.inbox.samples == 2
    assert values(sender.collect(), "instance") == ["a:1"]
    sender.source.close()


def test_a_series_without_an_instance_is_a_problem(sender: Sender) -> None:
    sender.post(of("up", (0, 1)), ({"__name__": RUNNING, "job": "vllm"}, [(MS, 1.0)]))
    assert any("has no instance label" in p.reason for p in sender.collect().problems)


def test_nothing_is_said_of_what_may_still_come(sender: Sender) -> None:
    with pytest.raises(Unavailable, match="nothing was received yet"):
        sender.collect()
    sender.post(of("up", (0, 1)))
    sender.clock.set(T0 + timedelta(seconds=101))
    with pytest.raises(Unavailable, match="nothing was received for 91 s"):
        sender.collect()
    sender.post(of("up", (60, 1)))
    with pytest.raises(Unavailable, match="came 41 s after its scrape"):
        sender.collect()
    sender.post(of("up", (95, 1)))
    assert values(sender.collect(-60, 100), "time") == [
        T0 + timedelta(seconds=s) for s in (0, 60, 95)
    ]


def test_a_sender_that_catches_up_cannot_lock_itself_out(
    sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox, "MOST_SAMPLES", 4)
    sender.clock.set(T0 + timedelta(seconds=100))
    assert sender.post(of("up", (0, 1), (15, 1), (30, 1), (45, 1))).ok
    answer = sender.post(of("up", (60, 1)))
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
    assert sender.collect(-60, 50).scrapes.height == 4
    assert sender.post(of("up", (60, 1))).status_code == 204


def test_old_and_future_samples_are_refused_and_the_rest_is_kept(sender: Sender) -> None:
    answer = sender.post(of("up", (-1000, 1), (0, 1), (1000, 1)))
    assert (answer.status_code, answer.text) == (
        400, "the rest was kept; samples refused: 1 future, 1 late\n",
    )  # fmt: skip
    assert values(sender.collect(), "time") == [T0]


def test_native_histograms_are_refused_by_name(sender: Sender) -> None:
    labels = field(1, field(1, b"__name__") + field(2, b"up"))
    answer = sender.post(body=compressed(field(1, labels + field(4, b"\x08\x01"))))
    assert (answer.status_code, "1 native_histogram" in answer.text) == (400, True)


@pytest.mark.parametrize(
    ("status", "says", "request_of"),
    [
        (400, "no snappy block", {"body": b"\xff\xff\xff\xff\xff\xff"}),
        (400, "no WriteRequest", {"body": compressed(b"\x0a\x05abc")}),
        (400, "not UTF-8", {"body": compressed(field(1, field(1, field(1, b"\xff"))))}),
        (404, "write to /api/v1/write", {"path": "/more"}),
        (413, "lower max_samples_per_send", {"body": b"0" * (8 * 2**20 + 1)}),
        (413, "lower max_samples_per_send", {"body": b"\xff\xff\xff\xff\x0f"}),
        (415, "snappy", {"Content_Encoding": "zstd"}),
        (415, "2.0", {"X_Prometheus_Remote_Write_Version": "2.0.0"}),
        (415, "2.0", {"Content_Type": "x;proto=io.prometheus.write.v2.Request"}),
    ],
)  # fmt: skip
def test_what_cannot_get_better_is_never_a_5xx(
    sender: Sender, status: int, says: str, request_of: dict[str, str]
) -> None:
    answer = sender.post(**request_of)  # type: ignore[arg-type]
    assert answer.status_code == status
    assert says in answer.text
    assert sender.source.receiver.requests == {status: 1}
    assert sender.post(of("up", (0, 1))).status_code == 204  # the next one is read


def test_only_post_is_answered(sender: Sender) -> None:
    answer = requests.get(sender.url, timeout=10)
    assert (answer.status_code, answer.headers["Allow"]) == (405, "POST")


def test_a_token_is_asked_for_and_read_anew(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("one")
    config = tmp_path / "driftwatch.yaml"
    config.write_text("sources: [{remote_write: '127.0.0.1:0', bearer_token_file: token}]")
    (source,) = sources_of(load_settings(config, environ={}), ManualClock(T0))
    assert isinstance(source, RemoteWriteSource)
    host, port = source.receiver.address

    def status(**headers: str) -> int:
        url, body = f"http://{host}:{port}/api/v1/write", write_request([])
        return requests.post(url, body, headers=HEADERS | headers, timeout=10).status_code

    assert (status(), status(Authorization="Bearer two")) == (401, 401)
    assert status(Authorization="Bearer one") == 204
    file.write_text("two")
    assert (status(Authorization="Bearer one"), status(Authorization="Bearer two")) == (401, 204)
    file.unlink()
    assert status(Authorization="Bearer two") == 503
    source.close()
    with pytest.raises(ConfigError):
        sources_of(load_settings(config, environ={}), ManualClock(T0))


def test_an_address_that_is_taken_is_an_error_at_the_start(sender: Sender) -> None:
    with pytest.raises(UsageError, match="cannot listen on"):
        RemoteWriteSource(sender.source.receiver.address, sender.clock, selector={})


def test_series_that_ended_leave_nothing_behind(sender: Sender) -> None:
    def minute(number: int, names: Sequence[str]) -> Collected:
        at = 60.0 * number
        sender.clock.set(T0 + timedelta(seconds=at + 10))
        for name in names:
            sender.post(of("up", (at, 1), instance=name), of(RUNNING, (at, 7), instance=name))
        return sender.collect(at - 30, at + 5)

    table = sender.source.inbox.table
    old = [f"old-{i}:1" for i in range(700)]
    sender.post(*(of(name, (0, 1), instance=o) for o in old for name in ("up", RUNNING)))
    assert minute(0, ["a:1"]).scrapes.height == 701
    assert table.count == 1402
    for number in range(1, 8):
        collected = minute(number, ["a:1", f"new-{number}:1"])
        assert values(collected, "running_requests") == [7.0, 7.0]
    assert table.count < 30
    assert len(collected.targets) == 6  # those of the last five minutes
    assert minute(8, ["a:1", old[3]]).scrapes.height == 2


def test_more_series_than_there_is_room_for_are_refused(
    sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(series, "MOST_SERIES", 2)
    assert sender.post(of("up", (0, 1)), of(RUNNING, (0, 3))).ok
    answer = sender.post(of(TOKENS, (0, 3)))
    assert (answer.status_code, "more than 2 series" in answer.text) == (400, True)
    assert values(sender.collect(), "running_requests") == [3.0]


def test_own_metrics_count_what_came(sender: Sender) -> None:
    metrics = OwnMetrics(sender.clock.now)
    metrics.remote_write.adopt([sender.source])
    sender.post(of("up", (0, 1), (-1000, 1)), of(RUNNING, (0, 3)))
    sender.post(of(TOKENS, (0, 3)))
    labels = {"source": sender.source.name}

    def value(name: str, **more: str) -> float | None:
        full = f"driftwatch_remote_write_{name}"
        return metrics.registry.get_sample_value(full, {**labels, **more})

    assert value("samples_total") == 3
    assert value("samples_rejected_total", reason="late") == 1
    assert (value("requests_total", code="204"), value("requests_total", code="400")) == (1, 1)
    assert (value("samples_waiting"), value("series")) == (3, 3)
    assert value("behind_seconds") == 10
    assert (value("bytes_total") or 0) > 100


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "cramjam", None)
    with pytest.raises(UsageError, match="cramjam"):
        request.read_request(b"\0")


def test_rows_of_a_long_stretch_are_in_order(sender: Sender) -> None:
    times = [float(at) for at in range(-120, 60, 15)]
    sender.clock.set(T0 + timedelta(seconds=50))
    for name in ("b:1", "a:1"):
        sender.post(of("up", *((at, 1) for at in times), instance=name))
        sender.post(of(RUNNING, *((at, at + 120) for at in times), instance=name))
    scrapes = sender.collect(-130, 50).scrapes
    assert scrapes.height == 2 * 12
    assert scrapes.equals(scrapes.sort("instance", "engine", "time"))
    assert scrapes["running_requests"].to_list() == [at + 120 for at in times] * 2
    assert scrapes.filter(pl.col("ok")).height == 24
