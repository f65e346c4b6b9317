"""Results for machines: JSON, and JUnit's XML."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree import ElementTree

from driftwatch.ruletests.coverage import Table
from driftwatch.ruletests.runner import Result
from driftwatch.ruletests.text import failure_lines


def json_document(results: Sequence[Result], tables: Sequence[Table] | None) -> dict[str, Any]:
    """Every test with what differs."""
    return {
        "schema_version": 1,
        "passed": sum(result.passed for result in results),
        "failed": sum(not result.passed for result in results),
        "tests": [_test(result) for result in results],
        "coverage": None if tables is None else [_coverage(table) for table in tables],
    }


def _test(result: Result) -> Mapping[str, Any]:
    return {
        "path": result.one.path,
        "line": result.one.line,
        "name": result.one.test.name,
        "passed": result.passed,
        "seconds": round(result.seconds, 3),
        "error": result.error,
        "failures": [
            {
                "line": failure.line,
                "subject": failure.subject,
                "at_seconds": failure.at_seconds,
                "differences": [
                    {
                        "field": one.field,
                        "expected": list(one.expected),
                        "actual": list(one.actual),
                    }
                    for one in failure.differences
                ],
            }
            for failure in result.failures
        ],
    }


def _coverage(table: Table) -> Mapping[str, Any]:
    return {
        "kind": table.kind,
        "total": table.total,
        "tested": table.total - len(table.missing),
        "missing": list(table.missing),
    }


def junit_document(results: Sequence[Result]) -> str:
    """A suite for each file; a failure holds what the text prints."""
    of_file: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        of_file[result.one.path].append(result)
    suites = ElementTree.Element("testsuites")
    for path, inside in of_file.items():
        suite = ElementTree.SubElement(suites, "testsuite", {"name": path, **_counts(inside)})
        for result in inside:
            case = ElementTree.SubElement(
                suite,
                "testcase",
                name=_printable(result.one.test.name),
                classname=path,
                file=path,
                line=str(result.one.line),
                time=f"{result.seconds:.3f}",
            )
            if not result.passed:
                lines = [_printable(line) for line in failure_lines(result)]
                kind = "failure" if result.error is None else "error"
                ElementTree.SubElement(case, kind, message=lines[0]).text = "\n".join(lines)
    ElementTree.indent(suites)
    body = ElementTree.tostring(suites, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{body}'


def _counts(results: Sequence[Result]) -> dict[str, str]:
    return {
        "tests": str(len(results)),
        "failures": str(sum(bool(result.failures) for result in results)),
        "errors": str(sum(result.error is not None for result in results)),
        "time": f"{sum(result.seconds for result in results):.3f}",
    }


def _printable(text: str) -> str:
    """XML has no control characters."""
    return "".join(c if c.isprintable() else "?" for c in text)
