"""scripts/vllm-flags on two small releases that declare flags in the forms that vLLM does."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "vllm-flags"
OLD = """
class EngineArgs:
    def add_cli_args(parser):
        parser.add_argument("--max-num-batched-tokens", type=int, default=None)
        parser.add_argument("--tensor-parallel-size", "-tp", type=int)
        parser.add_argument("--enable-chunked-prefill", action=StoreBoolean, nargs="?")
        parser.add_argument("--swap_space", type=float)
        parser.add_argument("--quiet", action="store_true")
"""
NEW = """
def get_kwargs(cls):
    if name in {"max_num_batched_tokens", "kv_bytes"}:
        kwargs[name]["type"] = human_readable_int

class EngineArgs:
    def add_cli_args(parser):
        scheduler_kwargs = get_kwargs(SchedulerConfig)
        group = parser.add_argument_group(title="SchedulerConfig")
        group.add_argument(
            "--max-num-batched-tokens",
            **{**scheduler_kwargs["max_num_batched_tokens"], "default": None},
        )
        group.add_argument("--tensor-parallel-size", "-tp", **scheduler_kwargs["size"])
        group.add_argument("--enable-chunked-prefill", **scheduler_kwargs["chunked"])
        policy_kwargs = scheduler_kwargs["policy"]
        group.add_argument("--policy", **policy_kwargs)
        group.add_argument("--share", **scheduler_kwargs["share"])
        group.add_argument("--names", **scheduler_kwargs["names"])
"""
CONFIG = """
Policy = Literal["fcfs", "priority"]
class SchedulerConfig:
    limit: ClassVar[int] = 5
    max_num_batched_tokens: SkipValidation[int] = Field(default=2048, ge=1)
    size: int = Field(default=1, ge=1)
    chunked: bool | None = None
    policy: Policy = "fcfs"
    share: float = Field(default=0.9, gt=0, le=1)
    names: list[str] | None = None
"""


def _release(folder: Path, version: str, arguments: str, config: str, variables: str) -> None:
    package = folder / f"vllm-{version}" / "vllm"
    (package / "engine").mkdir(parents=True)
    (package / "config").mkdir()
    (package / "engine" / "arg_utils.py").write_text(arguments)
    (package / "config" / "scheduler.py").write_text(config)
    names = "".join(f'"{name}": lambda: None, ' for name in variables.split())
    (package / "envs.py").write_text(f"environment_variables: dict = {{{names}}}")


@pytest.fixture
def script() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("vllm_flags_script", str(SCRIPT))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[loader.name] = module  # dataclasses look there
    loader.exec_module(module)
    return module


def test_a_table_of_two_releases(script: ModuleType, tmp_path: Path) -> None:
    _release(tmp_path, "0.8.5.post1", OLD, "", "VLLM_USE_V1 HOME")
    _release(tmp_path, "0.9.0", NEW, CONFIG, "VLLM_PORT")
    releases = {
        (0, 8): script.release(tmp_path / "vllm-0.8.5.post1"),
        (0, 9): script.release(tmp_path / "vllm-0.9.0"),
    }
    head, names, *rows = script.rows(releases)
    assert head == "# vLLM 0.8 to 0.9; written by scripts/vllm-flags"
    assert names.split("\t")[:4] == ["flag", "kind", "since", "until"]
    assert [row.split("\t") for row in rows] == [
        ["VLLM_PORT", "env", "0.9"],
        ["VLLM_USE_V1", "env", "", "0.8"],
        ["enable-chunked-prefill", "switch", "", "", "", "", "", "SchedulerConfig", "bool 0.8"],
        ["max-num-batched-tokens", "size", "", "", "1", "", "", "SchedulerConfig", "int 0.8"],
        ["names", "list", "0.9", "", "", "", "", "SchedulerConfig"],
        ["policy", "text", "0.9", "", "", "", "", "SchedulerConfig"],
        ["quiet", "on", "", "0.8"],
        ["share", "float", "0.9", "", ">0", "1", "", "SchedulerConfig"],
        ["swap-space", "float", "", "0.8"],
        ["tensor-parallel-size", "int", "", "", "1", "", "-tp", "SchedulerConfig"],
    ]
