"""Results for machines: JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from driftwatch.ruletests.coverage import Table
from driftwatch.ruletests.runner import Result


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
        "failures": [asdict(failure) for failure in result.failures],
    }


def _coverage(table: Table) -> Mapping[str, Any]:
    return {
        "kind": table.kind,
        "total": table.total,
        "tested": table.total - len(table.missing),
        "missing": list(table.missing),
    }
