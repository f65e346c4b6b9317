"""Files with changes: a named problem at its place, or a rule that works."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from settings_cases import FULL, SMALLEST

from driftwatch.errors import ConfigError, Problem
from driftwatch.evidence import BY_NAME
from driftwatch.rulebook.book import read_named, read_rulebook
from driftwatch.rulebook.lint import check_rulebook
from driftwatch.rulebook.render import render_problems
from driftwatch.ruletests.reader import read_tests
from driftwatch.service.configuration import configured_argument_problems, unmet
from driftwatch.settings import load_settings
from driftwatch.yaml_positions import LINE_BREAK

RULES = Path(__file__).parents[2] / "rules"
FILES = sorted([*RULES.glob("*.yaml"), *RULES.glob("trees/*.yaml")])
TEXTS = {path.name: path.read_text(encoding="utf-8") for path in FILES}
DTYPES = {"float": pl.Float64, "bool": pl.Boolean, "string": pl.String}
UNKNOWN = pl.DataFrame(
    [dict.fromkeys(BY_NAME)],
    schema={name: DTYPES.get(one.dtype, pl.Float64) for name, one in BY_NAME.items()},
)
SLOWEST_SECONDS = 20.0  # of the processor, for one set of files


def each_has_its_place(problems: Sequence[Problem], files: dict[str, str]) -> None:
    """Every problem says what is wrong, and where in the text."""
    for one in problems:
        assert one.code and one.message
        assert "CANARY" not in one.message, one
        text = next((text for name, text in files.items() if one.path.endswith(name)), None)
        if one.line is not None and text is not None:
            lines = LINE_BREAK.split(text)
            assert 1 <= one.line <= len(lines), one
            assert one.column is not None
            assert 1 <= one.column <= len(lines[one.line - 1]) + 1, one


def holds_up(folder: Path, files: dict[str, str]) -> None:
    """Every file is read: each problem has its place, each rule of a clean file an answer."""
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8", newline="")
    paths = [folder / name for name in files]
    before = time.process_time()
    checked = check_rulebook(paths)
    assert time.process_time() - before < SLOWEST_SECONDS
    shown = render_problems(checked.problems)
    assert shown.replace("\n", "").replace("\t", "").isprintable()
    each_has_its_place(checked.problems, files)
    book = read_rulebook(paths).book
    for rule in book.rules:
        for answer in (rule.verdict, rule.held):
            (value,) = UNKNOWN.select(answer.alias("answer"))["answer"].to_list()
            assert value in (True, False, None)
    if not any(one.severity == "error" for one in checked.problems):
        assert checked.rules == len(book.rules)


# of a line and a text
CHANGES: list[Callable[[str, str], str]] = [
    lambda line, _: "",
    lambda line, _: f"{line}\n{line}",
    lambda line, _: line.lstrip(),
    lambda line, _: line[: len(line) // 2],
    lambda line, text: text + line,
    lambda line, text: line[: len(line) // 2] + text + line[len(line) // 2 :],
]
TEXT = st.one_of(st.sampled_from([" ", "\t", "- ", "? ", "& ", "! ", "| "]), st.text(max_size=5))


@st.composite
def changed_lines(draw: st.DrawFn, texts: Mapping[str, str]) -> dict[str, str]:
    """One of the files with some of its lines changed."""
    name = draw(st.sampled_from(sorted(texts)))
    lines = texts[name].split("\n")
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(lines) - 1))
        lines[at] = draw(st.sampled_from(CHANGES))(lines[at], draw(TEXT))
    return {name: draw(st.sampled_from(["\n", "\r\n"])).join(lines)}


_OFTEN = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


@_OFTEN
@given(files=changed_lines(TEXTS))
def test_rules_and_trees_changed(
    files: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    holds_up(tmp_path_factory.mktemp("rules"), files)


TESTS = {path.name: path.read_text("utf-8") for path in (RULES / "tests").glob("*.yaml")}
CONFIG = {"driftwatch.yaml": FULL, "smallest.yaml": SMALLEST}


@_OFTEN
@given(files=changed_lines(TESTS | CONFIG))
def test_tests_and_configurations_changed(
    files: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    ((name, text),) = files.items()
    path = tmp_path_factory.mktemp("changed") / name
    path.write_text(text, encoding="utf-8", newline="")
    if name in TESTS:
        each_has_its_place(read_tests([read_named(path)], [RULES]).problems, files)
        return
    try:
        read = load_settings(path, environ={})
    except ConfigError as error:
        assert error.problems
        each_has_its_place(error.problems, files)
    else:
        found = [*unmet(read, path), *configured_argument_problems(read, path)]
        each_has_its_place(found, files)
