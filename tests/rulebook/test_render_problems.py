from __future__ import annotations

from driftwatch.errors import Problem
from driftwatch.rulebook.render import render_problems


def test_a_problem_of_a_whole_file_and_a_warning() -> None:
    whole = Problem("a.yaml", None, None, "unreadable", "cannot be read")
    warning = Problem("b.yaml", 1, 1, "x", "doubtful", severity="warning")
    assert render_problems([whole, whole, warning]) == (
        "a.yaml: error[unreadable] cannot be read\n"
        "a.yaml: error[unreadable] cannot be read\n"
        "b.yaml:1:1: warning[x] doubtful\n"
        "2 errors, 1 warning in 2 files"
    )
    assert render_problems([], files=1, rules=0) == "0 errors in 1 file, 0 rules"


def test_a_long_line_is_cut_around_the_caret() -> None:
    problem = Problem("a.yaml", 7, 301, "x", "here", None, "a" * 300 + "BAD" + "c" * 300, 3)
    lines = render_problems([problem]).splitlines()
    assert max(map(len, lines)) < 120
    column = lines[2].index("^")
    assert lines[1][column : column + 3] == "BAD"
    assert lines[2].count("^") == 3


def test_the_caret_stands_under_tabs_and_wide_characters() -> None:
    tab = render_problems([Problem("a", 2, 2, "x", "m", None, "\tb: 1", 1)]).splitlines()
    assert tab[2] == "   | \t^"
    wide = render_problems([Problem("a", 2, 4, "x", "m", None, "日: b", 1)]).splitlines()
    assert wide[2] == "   |     ^"  # one cell more than characters


def test_control_characters_do_not_reach_the_terminal() -> None:
    text = render_problems([Problem("a", 1, 1, "x", "m", None, "\x1b[31m\u202eab", 1)])
    assert "\x1b" not in text and "\u202e" not in text


def test_a_terminal_has_eighty_columns() -> None:
    words = "line 1 of its page does not say what is wrong, and nobody knows why it came"
    problem = Problem("a.yaml", 7, 301, "x", words, words * 2, "a" * 300 + "BAD" + "c" * 300, 3)
    lines = render_problems([problem], terminal=True).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[:2] == [
        "a.yaml:7:301: error[x] line 1 of its page does not say what is wrong, and nobody",
        "   knows why it came",
    ]
    column = lines[3].index("^")
    assert lines[2][column : column + 3] == "BAD"
    text = render_problems([problem])  # piped: each text on its own line
    assert f" help: {words * 2}\n" in text
