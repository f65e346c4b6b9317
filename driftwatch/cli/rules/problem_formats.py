"""Problems for machines: JSON, GitHub's workflow commands, JUnit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree import ElementTree

from driftwatch.errors import Problem
from driftwatch.vllm_arguments.values import CODES

DOCS = "docs/sre/checks.md"
DOCS_OF_ARGUMENTS = "docs/sre/vllm-arguments.md"


def json_document(
    problems: Sequence[Problem], files: int, rules: int | None, command_lines: int | None = None
) -> Mapping[str, Any]:
    """One document; ``docs`` is the heading of a problem's code."""
    return {
        "schema_version": 1,
        "ok": not any(problem.severity == "error" for problem in problems),
        "files": files,
        "rules": rules or 0,
        "command_lines": command_lines or 0,
        "problems": [
            {
                "path": problem.path,
                "line": problem.line,
                "column": problem.column,
                "severity": problem.severity,
                "code": problem.code,
                "message": problem.message,
                "help": problem.help_text,
                "docs": f"{_page(problem.code)}#{problem.code}",
            }
            for problem in problems
        ],
    }


def _page(code: str) -> str:
    return DOCS_OF_ARGUMENTS if code in CODES else DOCS


def github_lines(problems: Sequence[Problem]) -> list[str]:
    """Workflow commands: an annotation at each line of a pull request."""
    lines = []
    for problem in problems:
        place = {"file": problem.path, "line": problem.line, "col": problem.column}
        fields = [f"{name}={_property(str(v))}" for name, v in place.items() if v is not None]
        fields.append(f"title={_property(problem.code)}")
        text = problem.message + (f"\nhelp: {problem.help_text}" if problem.help_text else "")
        lines.append(f"::{problem.severity} {','.join(fields)}::{_data(text)}")
    return lines


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def junit_document(problems: Sequence[Problem], files: Sequence[str]) -> str:
    """A suite for each file: a case that passes, or one that fails for each problem."""
    suites = ElementTree.Element("testsuites", name="driftwatch rules check")
    for path in dict.fromkeys([*files, *(problem.path for problem in problems)]):
        inside = [problem for problem in problems if problem.path == path]
        counts = {"tests": str(max(len(inside), 1)), "failures": str(len(inside))}
        suite = ElementTree.SubElement(suites, "testsuite", {"name": path, **counts})
        if not inside:
            ElementTree.SubElement(suite, "testcase", name="no problem", classname=path)
        for problem in inside:
            where = "" if problem.line is None else f":{problem.line}:{problem.column or 1}"
            case = ElementTree.SubElement(
                suite, "testcase", name=f"{problem.code}{where}", classname=path
            )
            message = _printable(problem.message)
            lines = [f"{path}{where}: {message}"]
            if problem.help_text:
                lines.append(f"help: {_printable(problem.help_text)}")
            kind = {"message": message, "type": problem.severity}
            ElementTree.SubElement(case, "failure", kind).text = "\n".join(lines)
    ElementTree.indent(suites)
    body = ElementTree.tostring(suites, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{body}'


def _printable(text: str) -> str:
    """XML has no control characters."""
    return "".join(c if c.isprintable() else "?" for c in text)
