"""The forms of a report, by what they are called on the command line. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from driftwatch.report.html import html
from driftwatch.report.markdown import markdown

Document = Mapping[str, Any]


def as_html(document: Document) -> str:
    """One page without script, its plots inside."""
    return html(document)


def as_markdown(document: Document) -> str:
    """GitHub's Markdown."""
    return markdown(document)


def as_json_text(document: Document) -> str:
    """The document itself, keys sorted, a line each."""
    return (
        json.dumps(document, sort_keys=True, ensure_ascii=False, allow_nan=False, indent=1) + "\n"
    )
