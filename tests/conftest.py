from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="rewrite the files of tests/golden with what the tests print now (make golden)",
    )


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The recorded real data beside the checkout."""
    folder = Path(__file__).resolve().parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("shared/data is not beside the checkout")
    return folder


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden("cli/incidents.txt", text)`: the text is that of tests/golden/cli/incidents.txt.

    Prose that a person reads stands in these files, whole, and nowhere else in the tests. After a
    change of words, `make golden` rewrites them; the diff is what is reviewed.
    """
    update = request.config.getoption("--update-golden")

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        assert path.is_file(), f"{path} does not exist: run `make golden`"
        assert text == path.read_text(encoding="utf-8"), "run `make golden` and read the diff"

    return compare
