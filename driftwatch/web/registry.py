"""Which pages and forms there are: each module of ``pages`` brings its own."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from driftwatch.web import pages as folder
from driftwatch.web.page import Form, Page


@cache
def pages() -> tuple[Page, ...]:
    """Every page, by its path."""
    return tuple(sorted((m.PAGE for m in _modules() if hasattr(m, "PAGE")), key=_path))


@cache
def forms() -> tuple[Form, ...]:
    """Every form, by its path."""
    return tuple(sorted((one for m in _modules() for one in getattr(m, "FORMS", ())), key=_path))


def _path(one: Page | Form) -> str:
    return one.path


@cache
def _modules() -> tuple[object, ...]:
    names = sorted(info.name for info in pkgutil.iter_modules(folder.__path__))
    return tuple(importlib.import_module(f"{folder.__name__}.{name}") for name in names)
