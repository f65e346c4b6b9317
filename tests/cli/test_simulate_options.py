"""The server that the flags of simulate, sweep and compare describe, and plan's beside it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click
import pytest

from driftwatch.cli.engine_options import (
    EngineSetup,
    batch_defaults,
    engine_from,
    engine_options,
)
from driftwatch.cli.main import cli, main
from driftwatch.errors import ImpossibleConfiguration, UsageError
from driftwatch.simulate.step_time import StepTime

LAW = ("--step-time", "0.01,0,0,0")
GIB = 2**30


def asked(*flags: str) -> EngineSetup:
    """What a command of the group takes from its flags."""
    command = click.command()(engine_options(lambda **engine: engine_from(engine)))
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
    small = (*LAW, "--set", "num_gpu_blocks=11", "--max-model-len")
    assert "a real server refuses to start" in asked(*small, "161").notes[-1]
    assert not any("refuses" in note for note in asked(*small, "160").notes)


def test_a_users_own_gpu(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(
        "gpus:\n  Mine:\n    dense_tflops: {bf16: 100}\n    memory_gib: 30\n"
        "    memory_bandwidth_gb_per_second: 1000\n"
        "    sources: {dense_tflops: a, memory_bandwidth_gb_per_second: b, memory_gib: c}\n"
    )
    flags = ("--gpu", "Mine", "--model", "llama-3.1-8b", "--max-model-len", "8192")
    assert any("on Mine" in note for note in asked(*flags, "--hardware", str(own)).notes)
    with pytest.raises(UsageError, match=r"--hardware.* only with --gpu"):
        asked(*LAW, "--hardware", str(own))


def test_vllms_defaults_by_gpu() -> None:
    """engine/arg_utils.py get_batch_defaults: by memory, but small on an A100."""
    assert batch_defaults(80 * GIB, "H100-80GB") == (8192, 1024)
    assert batch_defaults(80 * GIB, "A100-80GB") == (2048, 256)
    assert batch_defaults(180 * GIB, "B200") == (16384, 1024)
    assert batch_defaults(24 * GIB, "L4") == batch_defaults(None) == (2048, 256)


def test_defaults_bound_each_other() -> None:
    def knobs(*flags: str) -> tuple[int, int]:
        found = asked(*LAW, *flags).configuration
        return found.max_num_seqs, found.max_num_batched_tokens

    assert knobs() == (256, 2048)
    assert knobs("--max-num-batched-tokens", "100") == (100, 100)
    assert knobs("--max-num-seqs", "4", "--max-model-len", "128") == (4, 512)
    unchunked = ("--max-model-len", "5000", "--set", "enable_chunked_prefill=false")
    assert knobs(*unchunked) == (256, 5000)
    with pytest.raises(ImpossibleConfiguration, match="chunked prefill is off"):
        knobs(*unchunked, "--max-num-batched-tokens", "4999")


@pytest.mark.parametrize("value", ["nan", "-1", "1e300"])
@pytest.mark.parametrize("verb", [("simulate",), ("sweep",), ("simulate", "compare"), ("plan",)])
def test_no_option_of_these_verbs_takes_what_is_no_quantity(
    verb: tuple[str, ...], value: str
) -> None:
    """Every option with a number, whoever adds one."""
    found: click.Command = cli
    context = click.Context(found)
    for name in verb:
        assert isinstance(found, click.Group)
        sub = found.get_command(context, name)
        assert sub is not None
        found = sub
    numbers = [
        option
        for option in found.params
        if isinstance(option.type, click.types.IntParamType | click.types.FloatParamType)
    ]
    assert len(numbers) > 8
    for option in numbers:
        with pytest.raises(click.BadParameter):
            option.type.convert(value, option, context)
