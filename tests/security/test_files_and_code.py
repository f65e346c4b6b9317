"""Modes of files that driftwatch makes and reads; code that it must not hold (with ruff's S)."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from driftwatch.cli.main import cli
from driftwatch.settings import load_settings
from driftwatch.settings.problems import others_can_read, secret_files
from driftwatch.store.store import Store

PACKAGE = Path(__file__).resolve().parents[2] / "driftwatch"


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_database_is_of_its_user_alone_and_stays_as_its_owner_set_it(
    tmp_path: Path, open_umask: None
) -> None:
    file = tmp_path / "driftwatch.db"
    store = Store.open(file)
    modes = {path.name: mode(path) for path in tmp_path.iterdir()}
    store.close()
    assert modes["driftwatch.db"] == 0o600
    assert set(modes.values()) == {0o600}, modes
    file.chmod(0o640)
    Store.open(file).close()
    assert mode(file) == 0o640


CONFIG = """\
sources: [{prometheus: 'http://127.0.0.1:9', bearer_token_file: open.token}]
receivers: [{name: a, webhook: {url_file: closed.url, secret_file: volume.key}}]
heartbeat: {url_file: closed.url}
"""


def test_doctor_names_a_secret_that_others_can_read(tmp_path: Path) -> None:
    (tmp_path / "driftwatch.yaml").write_text(CONFIG)
    (tmp_path / "open.token").write_text("canary")
    (tmp_path / "closed.url").write_text("http://127.0.0.1:9/canary")
    (tmp_path / "..data").mkdir()
    (tmp_path / "..data" / "volume.key").write_text("canary")
    (tmp_path / "volume.key").symlink_to("..data/volume.key")
    for name, bits in (("open.token", 0o644), ("closed.url", 0o640), ("..data/volume.key", 0o644)):
        (tmp_path / name).chmod(bits)
    settings = load_settings(tmp_path / "driftwatch.yaml")
    exposed = [path.name for path in secret_files(settings) if others_can_read(path)]
    assert exposed == ["open.token"]
    done = CliRunner().invoke(cli, ["doctor", "-c", str(tmp_path / "driftwatch.yaml"), "--json"])
    assert "other users can read this secret" in done.stdout
    assert f"chmod 0400 {tmp_path / 'open.token'}" in done.stdout
    assert "closed.url: other" not in done.stdout and "canary" not in done.output


def test_check_names_every_file_that_cannot_be_read(tmp_path: Path) -> None:
    config = tmp_path / "driftwatch.yaml"
    config.write_text(CONFIG + "database: postgresql://a@h/d\ndatabase_password_file: none.pw\n")
    done = CliRunner().invoke(cli, ["check", "-c", str(config)])
    for name in ("open.token", "closed.url", "volume.key", "none.pw"):
        assert f"{name}: " in done.output, name


def test_no_code_trusts_what_ruff_does_not_look_for() -> None:
    never = re.compile(
        r"CERT_NONE|_create_unverified_context|allow_pickle=True|trust_env ?= ?True"
        r"|pl\.deserialize|from jinja2 import .*\bEnvironment\b"
    )
    found = [path for path in PACKAGE.rglob("*.py") if never.search(path.read_text())]
    assert found == []
