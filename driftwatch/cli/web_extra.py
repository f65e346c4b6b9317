"""The extra ``web``: whether what ``driftwatch web`` needs is installed."""

from __future__ import annotations

from importlib.util import find_spec

from driftwatch.errors import UsageError


def has_web() -> bool:
    """Whether the libraries of the extra are there."""
    return all(find_spec(name) is not None for name in ("starlette", "uvicorn"))


def require_web() -> None:
    """Check it before any of its modules is imported; raises UsageError: it is not installed."""
    if not has_web():
        help_text = "pip install 'vllm-driftwatch[web]', in a checkout pip install '.[web]'"
        raise UsageError("the web is not installed", help_text=help_text)
