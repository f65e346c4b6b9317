"""The check that no test is skipped unless the list names it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "skips.py"

SUITE = """
import pytest

def test_runs():
    pass

@pytest.mark.parametrize("n", [1, 2])
def test_skips(n):
    pytest.skip("no such thing here")

class TestInside:
    def test_skips_too(self):
        pytest.skip("nor this")
"""


def _judge(folder: Path, suite: str, expected: str) -> subprocess.CompletedProcess[str]:
    """Run a real pytest over ``suite``, then the check, as CI does."""
    (folder / "tests").mkdir()
    (folder / "tests" / "test_it.py").write_text(suite)
    (folder / "expected.txt").write_text(expected)
    subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-c", "/dev/null"),
            *("--rootdir", folder, "--junit-xml", folder / "junit.xml", folder / "tests"),
        ],
        cwd=folder,
        capture_output=True,
        check=False,
    )
    return subprocess.run(
        [sys.executable, SCRIPT, folder / "junit.xml", folder / "expected.txt"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_skip_that_is_not_listed_fails(tmp_path: Path) -> None:
    ran = _judge(tmp_path, SUITE, "# nothing\ntests/test_it.py::test_skips  # why\n")
    assert ran.returncode == 1
    assert "unexpected skip: tests/test_it.py::TestInside::test_skips_too: nor this" in ran.stdout
    assert "test_skips:" not in ran.stdout


def test_listed_skips_pass(tmp_path: Path) -> None:
    names = "tests/test_it.py::test_skips  # a\ntests/test_it.py::TestInside::test_skips_too\n"
    ran = _judge(tmp_path, SUITE, names)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "1 tests ran; skips as expected" in ran.stdout


@pytest.mark.parametrize(
    "suite",
    ["", "import pytest\npytest.skip('whole module', allow_module_level=True)\n"],
    ids=["no test", "only skips"],
)
def test_a_run_without_tests_fails(tmp_path: Path, suite: str) -> None:
    ran = _judge(tmp_path, suite, "tests/test_it.py\n")
    assert ran.returncode == 1
    assert "no test ran" in ran.stdout


def test_a_skipped_module_is_named_by_its_path(tmp_path: Path) -> None:
    skip = "import pytest\npytest.skip('whole module', allow_module_level=True)\n"
    ran = _judge(tmp_path, skip, "")
    assert "unexpected skip: tests/test_it.py: " in ran.stdout


def test_a_run_without_a_report_fails(tmp_path: Path) -> None:
    (tmp_path / "expected.txt").write_text("")
    ran = subprocess.run(
        [sys.executable, SCRIPT, tmp_path / "none.xml", tmp_path / "expected.txt"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1
    assert "no report" in ran.stdout


def test_the_projects_own_list_is_well_formed() -> None:
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        from skips import expected_names
    finally:
        sys.path.pop(0)
    names = expected_names((ROOT / ".ci" / "expected-skips.txt").read_text(encoding="utf-8"))
    for name in names:
        path, _, test = name.partition("::")
        assert (ROOT / path).is_file(), name
        assert not test or f"def {test.split('::')[-1]}(" in (ROOT / path).read_text()
