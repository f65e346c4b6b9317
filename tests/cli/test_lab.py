"""plan, simulate and compare: their screens, what they compute, what they refuse."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from command_cases import Run

from driftwatch.cli.engine_options import EngineSetup, batch_defaults, engine_of, lab_command
from driftwatch.cli.main import cli
from driftwatch.errors import ImpossibleConfiguration
from driftwatch.simulate.hardware import gpu

H100 = ("plan", "--gpu", "H100-80GB", "--model", "llama-3.1-8b", "--max-model-len", "16384")
SHORT = ("--prompt-tokens", "300", "--generation-tokens", "40", "--max-num-seqs", "64")
COMPARE = (
    *("compare", "--prompt-tokens", "200", "--generation-tokens", "20"),
    *("--step-time", "0.007,2e-5,2e-5,1e-8", "--max-num-seqs", "64"),
)
LOG = "arrival_seconds,prompt_tokens,generation_tokens\n"

SCREENS: dict[str, tuple[str, ...]] = {
    "plan": (*H100, *SHORT, "--slo", "tpot=20ms"),
    "plan-too-big": ("plan", "--gpu", "H100", "--model", "llama-3.1-70b"),
    "simulate": (
        *("simulate", "--requests", "log.csv", "--step-time", "0.02,1e-4,1e-3,0"),
        *("--max-num-seqs", "2"),
    ),
    "compare": COMPARE,
}


@pytest.mark.parametrize("name", SCREENS)
def test_the_screen(
    run: Run, golden: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    Path("log.csv").write_text(LOG + "".join(f"{i},300,40\n" for i in range(200)))
    code, out, err = run(*SCREENS[name], terminal=True)
    notes = "".join(f"{line}\n" for line in err.splitlines() if line.startswith("note: "))
    assert all(len(line) <= 80 for line in out.splitlines())
    assert "…" not in out and "\t" not in out
    golden(f"lab/{name}.txt", f"{out}{notes}exit {code}\n")


LAW = ("--step-time", "0.01,0,0,0")
SMALL = f"{LOG}0,100,3\n0.5,200,1\n0.5,50,2\n"
MODEL = ("--gpu", "H100-80GB", "--model", "llama-3.1-8b")


def document(run: Run, *words: object, code: int = 0) -> dict[str, Any]:
    found, out, err = run(*words, "--json")
    assert found == code, err
    read: dict[str, Any] = json.loads(out)
    assert read["schema_version"] == 2
    return read


def test_what_does_not_fit_says_how_many_gpus_do(run: Run) -> None:
    big = ("plan", "--gpu", "H100", "--model", "llama-3.1-70b", "--max-model-len", "8192")
    assert document(run, *big, code=1)["fitting_tensor_parallel_size"] == 2
    found = document(run, *big, "--tensor-parallel-size", "2")
    assert found["fits"]["running"] > 0


def test_a_request_log_gives_the_mix(run: Run, shared_data: Path) -> None:
    trace = str(shared_data / "traces/azure_2023_conv.csv.gz")
    found = document(run, *H100, "--requests", trace)
    assert found["mix"]["requests"] == 19_366
    assert found["fits"]["running"] > found["fits"]["longest_full"]
    plans = [document(run, *H100, "--max-num-seqs", seqs)["batches"][:7] for seqs in (64, 256)]
    few, many = ([row["tokens_per_second"] for row in rows] for rows in plans)
    assert few == many  # what may run besides makes no batch slower


def test_simulated_throughput_is_that_of_the_law(run: Run) -> None:
    """A step of 10 ms whatever is in it: S / (11 steps), and R = N / X beyond the cap."""
    Path("flat.csv").write_text(LOG + "0,16,11\n" * 1000)
    for users in (4, 8, 16):
        found = document(
            run, "simulate", *LAW, "--max-num-batched-tokens", "2048", "--requests", "flat.csv",
            "--max-num-seqs", "8", "--concurrency", users, "--no-async-scheduling",
        )  # fmt: skip
        rate, latency = found["throughput"]["requests_per_second"], found["latency"]
        assert rate == pytest.approx(min(users, 8) / 0.11, rel=0.02)
        assert latency["e2e_seconds"]["mean"] == pytest.approx(0.11 * max(1, users / 8), rel=0.02)
        assert latency["itl_seconds"]["mean"] == pytest.approx(0.01)


def test_requests_at_a_rate_need_no_file(run: Run) -> None:
    asked = ("--rate", 20, "--step-time", "0.009,6e-05,6.5e-05,4e-07", "--prompt-tokens", 200)
    found = document(run, "simulate", *asked)
    assert found == document(run, "simulate", *asked)
    assert found["requests"]["finished"] == 2000
    assert found["throughput"]["requests_per_second"] == pytest.approx(20, rel=0.1)
    assert found["throughput"]["prompt_tokens_per_second"] == pytest.approx(4000, rel=0.15)


def test_nobody_finished_is_no_verdict(run: Run) -> None:
    Path("gone.csv").write_text(f"{LOG.strip()},cancel_seconds\n0,10,500,0.05\n")
    found = document(run, "simulate", "--requests", "gone.csv", *LAW, code=4)
    assert found["answer"] == "NO VERDICT: of 1 requests none finished."
    assert found["latency"]["ttft_seconds"] is None
    assert found["latency_reason"] == "no request finished"


def test_a_broken_log_is_told_line_by_line(run: Run) -> None:
    Path("log.csv").write_text(SMALL + "0.4,0,1\n-1,5,5\n")
    code, out, err = run("simulate", "--requests", "log.csv", *LAW)
    assert (code, out) == (2, "")
    assert [line.split(": ")[1].rsplit(":", 1)[1] for line in err.splitlines()] == ["5", "5", "6"]


def asked(*flags: str) -> EngineSetup:
    """What a verb of the lab takes from its flags."""
    command = lab_command("asked")(lambda **flags: engine_of(flags))
    found = command.main(list(flags), standalone_mode=False)
    assert isinstance(found, EngineSetup)
    return found


def test_a_whole_command_of_vllm_is_its_flags() -> None:
    flags = ("--max-num-seqs", "64", "-tp", "2", "--kv-cache-dtype=fp8", "--max-model-len", "16k")
    mine = asked("--gpu", "H100", "--model", "Qwen/Qwen2.5-7B", *flags, "--no-async-scheduling")
    command = ("vllm", "serve", "Qwen/Qwen2.5-7B", "--port", "8000", "--trust-remote-code")
    pasted = asked("--gpu", "H100", *command, *flags, "--no-async-scheduling")
    assert pasted.configuration == mine.configuration
    assert (mine.configuration.max_num_seqs, mine.configuration.max_model_len) == (64, 16_000)
    assert not mine.configuration.async_scheduling
    assert mine.server is not None and pasted.server == mine.server
    assert (mine.server.tensor_parallel_size, mine.server.kv_cache_dtype) == (2, "fp8")
    assert pasted.notes[0] == "not simulated: --port, --trust-remote-code"


def test_vllms_defaults_by_gpu() -> None:
    """engine/arg_utils.py get_batch_defaults: by memory, but small on an A100."""
    assert batch_defaults(gpu("H100-80GB")) == (8192, 1024)
    assert batch_defaults(gpu("A100-80GB")) == (2048, 256)
    assert batch_defaults(gpu("B200")) == (16384, 1024)
    assert batch_defaults(gpu("L4")) == batch_defaults(None) == (2048, 256)


def test_defaults_bound_each_other() -> None:
    def knobs(*flags: str) -> tuple[int, int]:
        found = asked(*LAW, *flags).configuration
        return found.max_num_seqs, found.max_num_batched_tokens

    assert knobs() == (256, 2048)
    assert knobs("--max-num-batched-tokens", "100") == (100, 100)
    assert knobs("--max-num-seqs", "4", "--max-model-len", "128") == (4, 512)
    unchunked = ("--max-model-len", "5000", "--no-enable-chunked-prefill")
    with pytest.raises(ImpossibleConfiguration, match="chunked prefill is off"):
        knobs(*unchunked, "--max-num-batched-tokens", "4999")


@pytest.mark.parametrize("value", ["nan", "-1", "1e300"])
@pytest.mark.parametrize("verb", ["simulate", "compare", "plan"])
def test_no_option_of_these_verbs_takes_what_is_no_quantity(verb: str, value: str) -> None:
    """Every option with a number, whoever adds one."""
    context = click.Context(cli)
    command = cli.get_command(context, verb)
    assert command is not None
    kinds = (click.types.IntParamType, click.types.FloatParamType)
    numbers = [option for option in command.params if isinstance(option.type, kinds)]
    assert len(numbers) >= 2
    for option in numbers:
        with pytest.raises(click.BadParameter):
            option.type.convert(value, option, context)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("plan", "--gpu", "H100"), "--model is not given: memory and step time need a GPU"),
        (("plan", *MODEL, "--slo", "ttft=1s"), "plan does not forecast TTFT"),
        (("plan", "--gpu", "H1000", "--model", "llama-3.1-8b"), "did you mean H100"),
        (("plan", "--gpu", "H100", "--model", "llama-3.1-8"), "did you mean Llama-3.1-8B"),
        (("plan", "--gpu", "H100", "vllm", "serve", "./mine"), "--model ./mine/config.json"),
        (("plan", *MODEL, "--tensor-parallel-size", "3"), "cannot be shared by 3 GPUs"),
        (("plan", *LAW, "--max-num-seqs", "64", "--max-num-batched-tokens", "32"),
         "vLLM refuses to start"),
        (("plan", *MODEL, "--requests", "none.csv"), "none.csv"),
        ((*H100, "--prompt-tokens", "900000"), "every request is longer"),
        (("simulate", "--rate", "5"), "the step time is unknown"),
        (("simulate", *LAW), "no requests are given"),
        (("simulate", *LAW, "--requests", "s.csv", "--rate", "5"), "exclude each other"),
        (("simulate", *LAW, "--requests", "s.csv", "--num-gpu-blocks-override", "5"),
         "never fit in the KV cache"),
        (("simulate", *LAW, "--max-num-sqs", "2"), "did you mean --max-num-seqs?"),
        (("simulate", *LAW, "--watermark", "nan"), "--watermark nan: too large"),
        (("simulate", "--rate", "5", "--gpu", "L4", "--model", "llama-3.1-70b"),
         "does not fit the memory of L4"),
    ],
)  # fmt: skip
def test_what_cannot_be_asked(run: Run, words: tuple[str, ...], said: str) -> None:
    Path("s.csv").write_text(SMALL)
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert said in err
