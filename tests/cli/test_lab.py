"""plan, simulate and compare: their screens, what they compute, what they refuse."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from driftwatch.cli.engine_options import EngineSetup, batch_defaults, engine_of, lab_command
from driftwatch.cli.main import cli
from driftwatch.errors import ImpossibleConfiguration, UsageError
from driftwatch.simulate.hardware import gpu

Run = Callable[..., tuple[int, str, str]]
H100 = ("plan", "--gpu", "H100-80GB", "--model", "llama-3.1-8b", "--max-model-len", "16384")
SHORT = ("--prompt-tokens", "300", "--generation-tokens", "40", "--max-num-seqs", "64")
FLAT = ("--step-time", "0.004,0,0,0", "--prompt-tokens", "20", "--generation-tokens", "6")
COMPARE = (
    *("compare", "--prompt-tokens", "200", "--generation-tokens", "20"),
    *("--step-time", "0.007,2e-5,2e-5,1e-8", "--max-num-seqs", "64"),
)
LOG = "arrival_seconds,prompt_tokens,generation_tokens\n"
RUN = ("simulate", "--requests", "log.csv", "--step-time", "0.02,1e-4,1e-3,0")

SCREENS: dict[str, tuple[str, ...]] = {
    "plan": (*H100, *SHORT, "--slo", "tpot=20ms"),
    "plan-too-big": ("plan", "--gpu", "H100", "--model", "llama-3.1-70b"),
    "sweep": ("plan", *FLAT, "--max-num-seqs", "8", "--users", "2,4,8,16,32"),
    "sweep-refused": (
        *("plan", *FLAT, "--max-num-seqs", "2", "--max-num-queued-reqs", "2"),
        *("--users", "2,8"),
    ),
    "simulate": (*RUN, "--max-num-seqs", "2"),
    "simulate-waits": (
        *("simulate", "--concurrency", "4", "--prompt-tokens", "300", "--max-num-seqs", "1"),
        *("--step-time", "0.02,1e-4,1e-3,0"),
    ),
    "compare": (*COMPARE, "--rates", "5,20,60"),
}


@pytest.fixture
def files(run: Run) -> None:
    rows = "".join(f"{i},300,40\n" for i in range(200))
    Path("log.csv").write_text(LOG + rows)


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("name", SCREENS)
def test_the_screen(
    run: Run, golden: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code, out, err = run(*SCREENS[name], terminal=True)
    notes = "".join(f"{line}\n" for line in err.splitlines() if line.startswith("note: "))
    assert all(len(line) <= 80 for line in out.splitlines())
    assert "…" not in out and "\t" not in out
    golden(f"lab/{name}.txt", f"{out}{notes}exit {code}\n")


LAW = ("--step-time", "0.01,0,0,0")
SMALL = "arrival_seconds,prompt_tokens,generation_tokens\n0,100,3\n0.5,200,1\n0.5,50,2\n"
MODEL = ("--gpu", "H100-80GB", "--model", "llama-3.1-8b")


def document(run: Run, *words: object, code: int = 0) -> dict[str, Any]:
    found, out, err = run(*words, "--json")
    assert found == code, err
    read: dict[str, Any] = json.loads(out)
    assert read["schema_version"] == 2
    return read


# -- plan


def test_memory_adds_up_and_the_batches_are_consistent(run: Run) -> None:
    found = document(run, *H100)
    memory = found["memory"]
    parts = ("weights", "activations", "cuda_graphs", "other", "kv_cache")
    assert sum(memory[f"{part}_bytes"] for part in parts) == memory["requested_bytes"]
    rows = found["batches"]
    assert [row["batch"] for row in rows[:4]] == [1, 2, 4, 8]
    for before, after in itertools.pairwise(rows):
        assert after["tokens_per_second"] > before["tokens_per_second"]
        assert after["tokens_per_second_per_user"] < before["tokens_per_second_per_user"]
    assert [row["batch"] for row in rows if not row["fits"]] == [1024]
    assert found["fits"]["running"] in [row["batch"] for row in rows]


def test_what_does_not_fit_says_how_many_gpus_do(run: Run) -> None:
    big = ("plan", "--gpu", "H100", "--model", "llama-3.1-70b", "--max-model-len", "8192")
    assert document(run, *big, code=1)["fitting_tensor_parallel_size"] == 2
    found = document(run, *big, "--tensor-parallel-size", "2")
    assert found["fits"]["running"] > 0
    v3 = ("plan", "--gpu", "L4", "--model", "deepseek-v3")
    narrow = document(run, *v3, code=1)  # its checkpoint is fp8
    assert (narrow["fits"], narrow["fitting_tensor_parallel_size"]) == (None, 64)
    eight = ("plan", "--gpu", "H100", "--model", "llama-3.1-8b", "--max-model-len", "8192")
    wide = document(run, *eight)["memory"]["weights_bytes"]
    halved = wide / 2 + 2 * 128_256 * 4096  # but its input table and head stay 16 bit wide
    assert document(run, *eight, "-q", "fp8")["memory"]["weights_bytes"] == pytest.approx(halved)


def test_a_request_log_gives_the_mix(run: Run, shared_data: Path) -> None:
    trace = str(shared_data / "traces/azure_2023_conv.csv.gz")
    found = document(run, *H100, "--requests", trace)
    assert found["mix"]["requests"] == 19_366
    assert found["fits"]["running"] > found["fits"]["longest_full"] > found["fits"]["reserved"]
    short = document(
        run, "plan", "--gpu", "H100", "--model", "llama-3.1-8b", "--requests", trace,
        "--max-model-len", "2048",
    )  # fmt: skip
    assert short["mix"]["longest_tokens"] <= 2048
    assert any("longer than max_model_len" in note for note in short["notes"])


def test_simulated_throughput_is_that_of_the_law(run: Run) -> None:
    """A step of 10 ms whatever is in it: S / (11 steps), and R = N / X beyond the cap."""
    Path("flat.csv").write_text("arrival_seconds,prompt_tokens,generation_tokens\n0,16,11\n")
    found = document(
        run, "plan", *LAW, "--max-num-batched-tokens", "2048", "--requests", "flat.csv",
        "--max-num-seqs", "8", "--users", "1,2,4,8,16,32", "--no-async-scheduling",
    )  # fmt: skip
    for level in found["levels"]:
        users, level = level["concurrency"], level["figures"]
        assert level["requests_per_second"] == pytest.approx(min(users, 8) / 0.11, rel=0.02)
        assert level["e2e_seconds_mean"] == pytest.approx(0.11 * max(1, users / 8), rel=0.02)
        assert level["itl_seconds_mean"] == pytest.approx(0.01)
        assert level["e2e_seconds_p99"] is not None
        tokens = level["generation_tokens_per_second"]
        assert tokens == pytest.approx(11 * level["requests_per_second"])
    assert found["latency_degrades"]["holds_to"] == 8
    assert found["latency_degrades"]["degrades_at"] == 16
    assert found["latency_degrades"]["confirmed"] is True
    assert found["configuration"]["max_num_seqs"] == 8
    assert "num_gpu_blocks unknown: the KV cache never binds" in found["notes"]


# -- simulate


SLOW = ("--step-time", "0.1,0,0,0", "--no-async-scheduling")


def test_requests_at_a_rate_need_no_file(run: Run) -> None:
    asked = ("--rate", 20, "--step-time", "0.009,6e-05,6.5e-05,4e-07", "--prompt-tokens", 200)
    found = document(run, "simulate", *asked)
    assert found == document(run, "simulate", *asked)
    assert found["requests"]["finished"] == 2000
    assert found["throughput"]["requests_per_second"] == pytest.approx(20, rel=0.1)
    assert found["throughput"]["prompt_tokens_per_second"] == pytest.approx(4000, rel=0.15)
    busy = document(run, "simulate", *asked, "--max-num-seqs", 4)
    assert max(busy["waited_busy_time_ratio"].items(), key=lambda one: one[1])[0] == "max_num_seqs"
    assert "requests waited for max_num_seqs" in busy["answer"]


def test_nobody_finished_is_no_verdict(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "gone.csv"
    path.write_text(
        "arrival_seconds,prompt_tokens,generation_tokens,cancel_seconds\n0,10,500,0.05\n"
    )
    code, out, _ = run("simulate", "--requests", path, *SLOW, "--json")
    assert code == 4
    found = json.loads(out)
    assert found["answer"] == "NO VERDICT: of 1 requests none finished."
    assert found["latency"]["ttft_seconds"] is None
    assert found["latency_reason"] == "no request finished"


def test_a_broken_log_is_told_line_by_line(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(SMALL + "0.4,0,1\n-1,5,5\n")
    code, out, err = run("simulate", "--requests", path, "--step-time", "0.009,6e-05,6.5e-05,4e-07")
    assert (code, out) == (2, "")
    assert [line.split(": ")[1].rsplit(":", 1)[1] for line in err.splitlines()] == ["5", "5", "6"]


# -- compare


def test_every_policy_at_every_rate(run: Run) -> None:
    found = document(run, *COMPARE, "--rates", "5,20,60")
    policies = found["policies"]
    assert set(policies) == {"static", "dynamic", "continuous", "hybrid"}
    for name, one in policies.items():
        assert [p["requests_per_second"] for p in one["points"]] == [5.0, 20.0, 60.0]
        for p in one["points"]:
            late = p["figures"]
            assert late["e2e_seconds_p50"] <= late["e2e_seconds_p99"]
            assert late["ttft_seconds_p99"] <= late["e2e_seconds_p99"]
            classic = name in ("static", "dynamic")
            assert (p["batch_efficiency_ratio"] is not None) == classic
            assert (p["prompt_padding_waste_ratio"] is not None) == classic
        if (holds := one["knee"]["holds_at"]) is not None:  # the answer follows the knees
            assert re.search(rf"{name}[^,]* up to {holds:g} req/s", found["answer"])
            point = next(p for p in one["points"] if p["requests_per_second"] == holds)
            assert point["keeps_up"]
            assert point["figures"]["e2e_seconds_p99"] <= found["limit_e2e_p99_seconds"]
    static, continuous = policies["static"], policies["continuous"]
    assert continuous["capacity_requests_per_second"] > 2 * static["capacity_requests_per_second"]
    # a small load is the worst case of a batch that waits until it is full
    light, more = (p["figures"]["e2e_seconds_p50"] for p in static["points"][:2])
    assert light > more
    assert not static["points"][2]["keeps_up"]


# -- the server that the flags describe


def asked(*flags: str) -> EngineSetup:
    """What a verb of the lab takes from its flags."""
    command = lab_command("asked", generation_tokens=1)(lambda **flags: engine_of(flags))
    found = command.main(list(flags), standalone_mode=False)
    assert isinstance(found, EngineSetup)
    return found


def test_a_users_own_gpu(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(
        "gpus:\n  Mine:\n    dense_tflops: {bf16: 100}\n    memory_gib: 30\n"
        "    memory_bandwidth_gb_per_second: 1000\n"
        "    sources: {dense_tflops: a, memory_bandwidth_gb_per_second: b, memory_gib: c}\n"
    )
    flags = ("--model", "llama-3.1-8b", "--max-model-len", "8192")
    assert any("on Mine" in note for note in asked(*flags, "--gpu", str(own)).notes)
    text = own.read_text()
    (two := tmp_path / "two.yaml").write_text(
        text + text.partition("\n")[2].replace("Mine", "Other")
    )
    with pytest.raises(UsageError, match="Mine, Other: one GPU is wanted"):
        asked(*flags, "--gpu", str(two))


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


def test_weights_are_those_of_the_checkpoint_unless_vllm_narrows_them() -> None:
    def weight(*flags: str) -> float:
        found = asked("--gpu", "B200", "--max-model-len", "64", *flags).server
        assert found is not None
        return found.weight_bytes_per_parameter

    eight, wide = ("--model", "llama-3.1-8b"), ("--dtype", "float32")
    assert weight(*eight) == weight(*eight, "--dtype", "half") == 2.0
    assert (weight(*eight, "-q", "fp8"), weight(*eight, *wide)) == (1.0, 4.0)
    assert weight("--model", "deepseek-v2-lite", "--quantization", "awq") == 0.5
    assert weight("--model", "Qwen3-8B-FP8", "--dtype", "bfloat16") == 1.0
    with pytest.raises(UsageError, match="not known of new"):
        weight(*eight, "-q", "new")


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
    assert knobs(*unchunked) == (256, 5000)
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
        (("plan", *MODEL, "--slo", "ttft=1s"), "plan knows no TTFT"),
        (("plan", "--gpu", "H1000", "--model", "llama-3.1-8b"), "did you mean H100"),
        (("plan", "--gpu", "H100", "--model", "llama-3.1-8"), "did you mean Llama-3.1-8B"),
        (("plan", "--gpu", "H100", "vllm", "serve", "./mine"), "--model ./mine/config.json"),
        (("plan", *MODEL, "vllm", "serve", "Qwen/Qwen3-8B"), "two models are given"),
        (("plan", *MODEL, "--tensor-parallel-size", "3"), "cannot be shared by 3 GPUs"),
        (("plan", *LAW, "--max-num-seqs", "64", "--max-num-batched-tokens", "32", "--users", "2"),
         "vLLM refuses to start"),
        (("plan", *MODEL, "--step-time", "1,2"), "not 2 values"),
        (("plan", *MODEL, "--prompt-tokens", "inf"), "inf is no finite number"),
        (("plan", *MODEL, "--requests", "none.csv"), "none.csv"),
        ((*H100, "--prompt-tokens", "900000"), "every request is longer"),
        (("plan", *LAW, "--users", "1,x"), "is no list of whole numbers"),
        (("simulate", "compare"), "driftwatch compare is a verb"),
        (("simulate", "--rate", "5"), "the step time is unknown"),
        (("simulate", *LAW), "which requests?"),
        (("simulate", *LAW, "--requests", "s.csv", "--rate", "5"), "exclude each other"),
        (("simulate", *LAW, "--requests", "s.csv", "--num-gpu-blocks-override", "5"),
         "never fit in the KV cache"),
        (("simulate", *LAW, "--max-num-sqs", "2"), "did you mean --max-num-seqs?"),
        (("simulate", *LAW, "--block-size", "x"), "--block-size x: no number"),
        (("simulate", *LAW, "--watermark", "nan"), "--watermark nan: too large"),
        (("simulate", *LAW, "--max-num-seqs"), "--max-num-seqs has no value"),
        (("simulate", "--rate", "5", "--gpu", "L4", "--model", "llama-3.1-70b"),
         "does not fit the memory of L4"),
        (("compare", *LAW, "--rates", "0"), "each number is from 1e-06 to 1e+06"),
        (("compare", *LAW, "--requests", "x", "--prompt-tokens", "9"),
         "--requests and --prompt-tokens"),
    ],
)  # fmt: skip
def test_what_cannot_be_asked(run: Run, words: tuple[str, ...], said: str) -> None:
    Path("s.csv").write_text(SMALL)
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert said in err
