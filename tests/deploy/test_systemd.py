"""The units: systemd takes them, they are closed, and the program runs inside what they permit."""

from __future__ import annotations

import ctypes
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from deploy_cases import DEPLOY, known_options

UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
DROP_IN = DEPLOY / "systemd" / "driftwatch.service.d" / "nvml.conf"
# systemd's own measure, 0 to 10 (here times 10); what a service without any option gets is 96
MOST_EXPOSED = {
    "driftwatch": 15,
    "driftwatch-web": 18,
    "driftwatch-worker": 18,
}
MOST_EXPOSED_WITH_NVML = 22
INSTALLED = "/opt/driftwatch/bin/driftwatch"


@pytest.fixture(scope="module")
def systemd_analyze() -> str:
    found = shutil.which("systemd-analyze")
    if found is None:
        pytest.skip("systemd-analyze is not installed")
    return found


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The units with a program that exists on this machine."""
    program = tmp_path / "driftwatch"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    folder = tmp_path / "units"
    folder.mkdir()
    for unit in UNITS:
        text = unit.read_text(encoding="utf-8")
        assert INSTALLED in text
        (folder / unit.name).write_text(text.replace(INSTALLED, str(program)))
    return folder


def _analyze(*arguments: object) -> str:
    ran = subprocess.run(
        [str(argument) for argument in arguments], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stdout + ran.stderr
    return ran.stdout


def test_there_are_all_units() -> None:
    assert {unit.stem for unit in UNITS} == set(MOST_EXPOSED)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_takes_it(unit: Path, installed: Path, systemd_analyze: str) -> None:
    assert _analyze(systemd_analyze, "verify", "--man=no", installed / unit.name) == ""


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_it_is_closed(unit: Path, installed: Path, systemd_analyze: str) -> None:
    threshold = f"--threshold={MOST_EXPOSED[unit.stem]}"
    _analyze(systemd_analyze, "security", "--offline=yes", threshold, installed / unit.name)


def test_the_drop_in_opens_the_devices_and_little_else(
    installed: Path, systemd_analyze: str
) -> None:
    folder = installed / "driftwatch.service.d"
    folder.mkdir()
    shutil.copy(DROP_IN, folder)
    unit = installed / "driftwatch.service"
    assert _analyze(systemd_analyze, "verify", "--man=no", unit) == ""
    threshold = f"--threshold={MOST_EXPOSED_WITH_NVML}"
    told = _analyze(systemd_analyze, "security", "--offline=yes", threshold, unit)
    assert "char-nvidiactl:rw" in told


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_what_it_starts_is_a_command(unit: Path) -> None:
    (line,) = re.findall(r"^ExecStart=(.*)$", unit.read_text(encoding="utf-8"), flags=re.M)
    program, *words = shlex.split(line)
    assert program == INSTALLED
    assert known_options(words) == []


def test_its_environment_is_read_by_the_program() -> None:
    from driftwatch.settings import ENVIRONMENT

    others = {"NUMBA_CACHE_DIR", "POLARS_SKIP_CPU_CHECK"}
    others |= {"POLARS_MAX_THREADS", "OPENBLAS_NUM_THREADS"}
    for unit in UNITS:
        names = set(re.findall(r"^Environment=([A-Z_]+)=", unit.read_text("utf-8"), flags=re.M))
        assert names - set(ENVIRONMENT) <= others
        assert "DRIFTWATCH_DATABASE" in names or unit.stem == "driftwatch-worker"


_DENY = """
import ctypes, mmap, os, sys
if ctypes.CDLL(None).prctl(65, 1, 0, 0, 0) != 0:  # PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN
    sys.exit(77)
try:
    mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
except PermissionError:
    os.execv(sys.executable, [sys.executable, "-m", "driftwatch", "demo"])
sys.exit("memory can be made executable")
"""


@pytest.mark.slow
def test_the_program_runs_where_memory_cannot_be_made_executable() -> None:
    """MemoryDenyWriteExecute: a library that makes code at run time ends there."""
    assert ctypes.sizeof(ctypes.c_void_p) == 8
    environment = {**os.environ, "POLARS_SKIP_CPU_CHECK": "1"}
    ran = subprocess.run(
        [sys.executable, "-c", _DENY], env=environment, capture_output=True, text=True, check=False
    )
    if ran.returncode == 77:
        pytest.skip("this kernel cannot deny executable memory")
    assert ran.returncode == 0, ran.stderr
    assert "FIRING" in ran.stdout
