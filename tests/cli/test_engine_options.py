"""The server that the flags of simulate, sweep and compare describe, and plan's beside it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click
import pytest

from driftwatch.cli.engine_options import EngineSetup, batch_defaults, engine_of, lab_command
from driftwatch.cli.main import cli, main
from driftwatch.errors import ImpossibleConfiguration, UsageError
from driftwatch.simulate.hardware import gpu
from driftwatch.simulate.step_time import StepTime

LAW = ("--step-time", "0.01,0,0,0")


def asked(*flags: str) -> EngineSetup:
    """What a verb of the lab takes from its flags."""
    command = lab_command("asked", generation_tokens=1)(lambda **flags: engine_of(flags))
    found = command.main(list(flags), standalone_mode=False)
    assert isinstance(found, EngineSetup)
    return found


def printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *flags: str
) -> dict[str, object]:
    monkeypatch.setattr(sys, "argv", ["driftwatch", *flags, "--json"])
    with pytest.raises(SystemExit):
        main()
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize(
    ("gpu", "model", "split", "seqs"),
    [
        ("B200", "deepseek-v3", "8", "8"),
    ],
)
def test_plan_and_the_others_have_one_server(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    gpu: str,
    model: str,
    split: str,
    seqs: str,
) -> None:
    budget = "8192"
    flags = (
        *("--gpu", gpu, "--model", model, "--tensor-parallel-size", split),
        *("--max-num-seqs", seqs, "--max-num-batched-tokens", budget),
    )
    plan = printed(monkeypatch, capsys, "plan", *flags)
    server = asked(*flags)
    memory = plan["memory"]
    assert isinstance(memory, dict)
    assert server.configuration.num_gpu_blocks == memory["num_gpu_blocks"]
    law = [float(word) for word in str(plan["step_time"]).split(",")[:4]]
    mine = server.step_time
    assert mine.seconds(0, int(seqs), 10**5) == pytest.approx(
        StepTime(*law).seconds(0, int(seqs), 10**5), rel=1e-4
    )


def test_what_a_real_server_would_not_start_with_is_a_note() -> None:
    small = (*LAW, "--num-gpu-blocks-override", "11", "--max-model-len")
    assert "a real server refuses to start" in asked(*small, "161").notes[-1]
    assert not any("refuses" in note for note in asked(*small, "160").notes)


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


def test_a_model_that_does_not_fit_is_not_simulated() -> None:
    with pytest.raises(ImpossibleConfiguration, match="does not fit the memory of L4"):
        asked("--gpu", "L4", "--model", "llama-3.1-70b")


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
