"""A libnvidia-ml.so that answers what a test says, loaded by the real binding."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from ctypes import CDLL
from pathlib import Path

import pynvml
import pytest
from nvml_cases import NOW, StandIn

from driftwatch.clock import ManualClock
from driftwatch.collect.nvml.source import NvmlSource


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """Folders with libnvidia-ml.so.1: of a driver of today, and of an old one."""
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("gcc is not installed")
    source = Path(__file__).with_name("nvml_stand_in.c")
    folders = {}
    for kind, defined in (("today", []), ("old", ["-DOLD_DRIVER"])):
        folders[kind] = tmp_path_factory.mktemp(f"nvml-{kind}")
        flags = ["-std=c11", "-D_DEFAULT_SOURCE", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
        target = folders[kind] / "libnvidia-ml.so.1"
        subprocess.run([compiler, *flags, *defined, "-o", target, source], check=True)
    return folders


@pytest.fixture
def load(
    libraries: Mapping[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], StandIn]]:
    """Load the library of a driver into this process, where the binding would find it."""
    made: list[StandIn] = []

    def load(kind: str) -> StandIn:
        # one copy a test: what a library remembers ends with its test
        folder = tmp_path / "lib"
        shutil.copytree(libraries[kind], folder)
        said = StandIn(tmp_path / "nvml.txt", folder)
        said.say()
        monkeypatch.setenv("NVML_STAND_IN", str(said.path))
        monkeypatch.setattr(pynvml, "nvmlLib", CDLL(str(folder / "libnvidia-ml.so.1")))
        monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
        made.append(said)
        return said

    yield load
    for said in made:
        said.path.write_text("")  # what hangs comes back


@pytest.fixture
def stand_in(load: Callable[[str], StandIn]) -> StandIn:
    return load("today")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@pytest.fixture
def source(clock: ManualClock, tmp_path: Path) -> Iterator[NvmlSource]:
    made = NvmlSource(clock, proc=tmp_path / "proc", hostname="gpu-host")
    yield made
    made.close()
