"""The command line as a person types it: words in, exit code and both outputs back."""

from __future__ import annotations

import io
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from unittest.mock import patch

import pytest

from driftwatch.cli.main import main


@dataclass(frozen=True)
class Result:
    """What a command did."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def output(self) -> str:
        return self.stdout + self.stderr


def call(*words: str) -> Result:
    out, err = io.StringIO(), io.StringIO()
    argv = ["driftwatch", *words]
    with (
        patch.object(sys, "argv", argv),
        redirect_stdout(out),
        redirect_stderr(err),
        pytest.raises(SystemExit) as left,
    ):
        main()
    assert isinstance(left.value.code, int)
    return Result(left.value.code, out.getvalue(), err.getvalue())
