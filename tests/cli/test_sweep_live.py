"""driftwatch sweep against a live server: real HTTP and server-sent events."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes.openai_server import OpenAIServer

from driftwatch.errors import UsageError
from driftwatch.lab.live import base_url, is_loopback
from driftwatch.simulate.step_time import StepTime

Run = Callable[..., tuple[int, str, str]]
STEP = StepTime(0.004, 0.0, 0.0, 0.0)
SHORT = ("--prompt-tokens", "20", "--generation-tokens", "6", "--length-cv", "0")


@pytest.fixture
def run(run: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.delenv("VLLM_API_KEY", raising=False)
    return run


def test_a_live_server_degrades_where_its_cap_is(run: Run) -> None:
    with OpenAIServer(STEP, max_num_seqs=4, tokens_per_word=1.5) as server:
        code, out, err = run(
            "sweep", "--url", server.address, "--concurrency", "16,2,4,8", *SHORT, "--json",
            "--plot", "sweep.svg",
        )  # fmt: skip
    assert code == 0, err
    found = json.loads(out)
    assert found["schema_version"] == 2
    assert (found["mode"], found["model"]) == ("live", "tiny-llama")
    levels = found["levels"]
    assert [level["concurrency"] for level in levels] == [2, 4, 8, 16]
    # the exact level is held in the simulator; here a loaded machine may hide one doubling
    knee = found["latency_degrades"]
    assert (knee["holds_to"], knee["degrades_at"]) in {(4, 8), (8, 16)}
    for level in levels:
        # Little's law holds for any closed loop; the rest is left to a machine that stalls
        little = level["requests_per_second"] * level["e2e_seconds_mean"]
        assert little == pytest.approx(level["concurrency"], rel=0.5)
        # six steps of 4 ms, whatever else this machine does
        assert level["e2e_seconds_mean"] >= 0.020
        assert 0 < level["itl_seconds_mean"] < level["e2e_seconds_mean"]
        assert level["failed_requests"] == {}
        # words were taken as fewer where the tokenizer makes more of them
        prompts = level["prompt_tokens_per_second"] / level["requests_per_second"]
        assert prompts == pytest.approx(20, rel=0.1)
        answers = level["generation_tokens_per_second"] / level["requests_per_second"]
        assert answers == pytest.approx(6)
    # the queue is before the first token
    assert levels[3]["ttft_seconds_p50"] > 4 * levels[0]["ttft_seconds_p50"]
    assert levels[0]["e2e_seconds_p99"] is None
    assert "p99 100" in levels[0]["reasons"]["e2e_seconds_p99"]
    # it said before what it would send; the probe comes on top
    assert "up to 360 requests (7,200 prompt and 2,160 generated tokens)" in err
    assert len(server.bodies) == 1 + 360
    assert all(b["ignore_eos"] and b["stream"] and b["max_tokens"] <= 6 for b in server.bodies)
    prompts = [body["prompt"] for body in server.bodies]
    assert len(set(prompts)) == len(prompts), "no prefix cache answers"
    title = f"<title>Latency starts to degrade at {knee['degrades_at']} users."
    assert title in Path("sweep.svg").read_text()


def test_refusals_are_counted_and_waited_for_and_the_sweep_goes_on(run: Run) -> None:
    with OpenAIServer(STEP) as server:
        answers = iter([200, 200, 503, 429])
        judge = server.judge

        def sometimes(request):  # type: ignore[no-untyped-def]
            from driftwatch.fleet.loopback import Answer

            status = next(answers, 200) if request.path == "/v1/completions" else 200
            return judge(request) if status == 200 else Answer(status, "")

        server.judge = sometimes  # type: ignore[method-assign]
        server.faults.extend([None, None, "cut", "error", "hang", "drip"])  # type: ignore[list-item]
        code, out, _ = run(
            "sweep", "--url", server.address, "--concurrency", "8", *SHORT, "--json",
            "--timeout-seconds", "1", "--requests-per-level", "60",
        )  # fmt: skip
    assert code == 4  # one level is no knee
    (level,) = json.loads(out)["levels"]
    assert level["failed_requests"] == {
        "answers 429 Too Many Requests": 1,
        "answers 503 Service Unavailable": 1,
        "error inside the stream": 1,
        "stream cut off": 1,
        "timed out": 2,
    }
    assert level["sent_requests"] == 60
    assert level["requests_per_second"] > 0


def test_a_key_is_sent_and_never_shown(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    key = "canary-api-key"
    few = ("--concurrency", "1,2", *SHORT, "--requests-per-level", "8")
    with OpenAIServer(STEP, key=key) as server:
        code, out, err = run("sweep", "--url", server.address, *few)
        assert (code, out) == (2, "")
        assert "answers 401 Unauthorized" in err
        Path("key").write_text(f"{key}\n")
        code, out, err = run("sweep", "--url", server.address, *few, "--api-key-file", "key")
        assert code == 0 and key not in out + err
        Path("key").unlink()
        monkeypatch.setenv("VLLM_API_KEY", key)
        code, out, err = run("sweep", "--url", server.address, *few, "--json")
        assert code == 0 and key not in out + err
        monkeypatch.setenv("VLLM_API_KEY", f"{key}\nX: y")
        code, out, err = run("sweep", "--url", server.address, *few)
        assert code == 2 and key not in out + err
        code, out, err = run("sweep", "--url", server.address, *few, "--api-key-file", "nowhere")
        assert code == 2 and "nowhere" in err


def test_nothing_is_sent_elsewhere_without_a_yes(run: Run) -> None:
    code, out, err = run("sweep", "--url", "http://llm.example:8000", "--concurrency", "1")
    assert (code, out) == (2, "")
    assert "up to 24 requests" in err
    assert "give --yes" in err


@pytest.mark.parametrize(
    ("url", "loopback"),
    [
        ("http://127.0.0.1:8000", True),
        ("http://[::1]:8000", True),
        ("localhost:8000/v1", True),
        ("http://127.0.0.1.example.org", False),
        ("http://10.0.0.1", False),
        ("https://llm.example/v1/completions", False),
    ],
)
def test_what_is_this_machine(url: str, loopback: bool) -> None:
    assert is_loopback(base_url(url)) is loopback


@pytest.mark.parametrize(
    "url", ["ftp://x", "http://u:canary@x", "http://x?key=canary", "http://x:y"]
)
def test_what_is_no_address_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(UsageError) as refused:
        base_url(url)
    assert "canary" not in refused.value.message


def test_wrong_answers_have_a_reason(run: Run) -> None:
    few = ("--concurrency", "1,2", *SHORT)
    with OpenAIServer(STEP, max_model_len=25) as server:
        code, _, err = run("sweep", "--url", server.address, *few)
        assert code == 2 and "26 tokens, tiny-llama takes 25" in err
        code, _, err = run("sweep", "--url", server.address, *few, "--model", "other")
        assert code == 2 and "answers 404 Not Found" in err and "does not exist" in err
        server.fail_next(200, "<html>", Content_Type="text/html")
        code, _, err = run("sweep", "--url", server.address, *few)
        assert code == 2 and "is no list of models" in err
        server.fail_next(307, "", Location="http://elsewhere/")
        code, _, err = run("sweep", "--url", server.address, *few)
        assert code == 2 and "a redirect, which is not followed" in err
        server.fail_next(200, "{}", Content_Type="application/json")
        code, _, err = run("sweep", "--url", server.address, *few, "--model", "tiny-llama")
        assert code == 2 and "answers with application/json, not with an event stream" in err
        gone = server.address
    code, _, err = run("sweep", "--url", gone, *few)
    assert (
        code == 2
        and "connection refused" in err
        and "help: is an OpenAI-compatible server up" in err
    )
    code, _, err = run("sweep", "--url", gone, *few, "--model", "m")
    assert code == 2 and "help: is an OpenAI-compatible server up" in err
