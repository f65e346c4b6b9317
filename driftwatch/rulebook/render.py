"""Problems as people read them: place, what, the line with a caret, help, and a verdict last.

```
rules/pools.yaml:14:11: error[unknown-column] tokens_per_second_per_gpu_rato
 14 |     when: tokens_per_second_per_gpu_rato <= 0.85
    |           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
 help: did you mean tokens_per_second_per_gpu_ratio?
1 error in 9 files, 12 rules
```
"""

from __future__ import annotations

from collections.abc import Sequence

from driftwatch.errors import Problem
from driftwatch.numbers import plural

WIDTH = 80  # of a terminal
_WIDEST = 100  # of a source line elsewhere; a longer one is cut around the caret


def render_problems(
    problems: Sequence[Problem],
    *,
    files: int | None = None,
    rules: int | None = None,
    shipped: tuple[int, int] = (0, 0),
    off: int = 0,
    terminal: bool = False,
) -> str:
    """Every problem and the verdict: ``1 error in 16 files (15 shipped), 26 rules (25 shipped)``.

    Args:
        problems: in the order they are to be read.
        files: how many files were read; None = as many as have problems.
        rules: how many rules were read; None = print no number.
        shipped: how many of the files and of the rules are driftwatch's own.
        off: how many of the rules are off.
        terminal: in 80 columns; elsewhere no line is wrapped.
    """
    errors = sum(problem.severity == "error" for problem in problems)
    warnings = len(problems) - errors
    counts = [plural(errors, "error")] if errors or not warnings else []
    counts += [plural(warnings, "warning")] if warnings else []
    files_read = len({problem.path for problem in problems}) if files is None else files
    where = [plural(files_read, "file")]
    where += [plural(rules, "rule")] if rules is not None else []
    ours = [f" ({number} shipped)" if number else "" for number in shipped]
    texts = (text + of_ours for text, of_ours in zip(where, ours, strict=False))
    verdict = f"{', '.join(counts)} in {', '.join(texts)}" + (
        f", {off} switched off" if off else ""
    )
    return "\n".join([*(_one(problem, terminal) for problem in problems), verdict])


def _one(problem: Problem, terminal: bool) -> str:
    place = problem.path
    if problem.line is not None:
        place += f":{problem.line}:{problem.column or 1}"
    lines = _text(f"{place}: {problem.severity}[{problem.code}] {problem.message}", terminal)
    if problem.line is not None and problem.source_line is not None:
        from rich.cells import cell_len  # only where something is wrong

        gutter = str(problem.line)
        room = WIDTH - len(f" {gutter} | ……") if terminal else _WIDEST
        source, column = _window(problem.source_line, (problem.column or 1) - 1, room)
        length = max(1, min(problem.length, len(source) - column))
        # What stands before the caret is copied where it is white space, so that tabs line up.
        before = "".join(c if c == "\t" else " " * cell_len(c) for c in source[:column])
        under = "^" * max(1, sum(cell_len(c) for c in source[column : column + length]))
        lines += [f" {gutter} | {source}".rstrip(), f" {' ' * len(gutter)} | {before}{under}"]
    if problem.help_text:
        lines += _text(f" help: {problem.help_text}", terminal)
    return "\n".join(lines)


def _text(line: str, terminal: bool) -> list[str]:
    import textwrap  # only where something is wrong

    text = _printable(line)
    if not terminal:
        return [text]
    wrapper = textwrap.TextWrapper(
        WIDTH, subsequent_indent="   ", break_long_words=False, break_on_hyphens=False
    )
    return wrapper.wrap(text)


def _window(line: str, column: int, room: int) -> tuple[str, int]:
    """At most ``room`` characters of a line with the column inside; where the column is then."""
    clean = _printable(line)
    if len(clean) <= room:
        return clean, column
    first = max(0, min(column - 20, len(clean) - room))
    head = "…" if first else ""
    tail = "…" if first + room < len(clean) else ""
    return head + clean[first : first + room] + tail, column - first + len(head)


def _printable(line: str) -> str:
    """Without what changes a terminal, or the order of what it prints."""
    return "".join(c if c == "\t" or c.isprintable() else "?" for c in line)
