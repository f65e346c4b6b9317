"""Every setting is documented, and nothing else is; the examples and defaults are right."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin

from test_docs import DOCS, ROOT, entries, undocumented


def _models(annotation: Any) -> Iterator[tuple[str, Any]]:
    """Every pydantic model inside a type annotation, with ``[]`` where it stands in a list."""
    from pydantic import BaseModel

    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield "", annotation
    elif get_origin(annotation) is not None or isinstance(annotation, UnionType):
        mark = "[]" if get_origin(annotation) in (list, tuple) else ""
        for argument in get_args(annotation):
            for inner, model in _models(argument):
                yield mark + inner, model


def settings_paths(model: Any, prefix: str = "") -> Iterator[str]:
    """Dotted path of every field: ``pools[].slo.share``."""
    for own_name, field in model.model_fields.items():
        name = field.alias or own_name
        yield prefix + name
        for mark, inner in _models(field.annotation):
            yield from settings_paths(inner, f"{prefix}{name}{mark}.")


def test_every_setting_is_documented() -> None:
    from driftwatch.settings import ENVIRONMENT, Settings

    paths = list(dict.fromkeys(settings_paths(Settings)))
    assert "pools[].slo.ttft_seconds" in paths
    assert undocumented(iter(paths), "sre/settings.md") == []
    text = (DOCS / "sre/settings.md").read_text(encoding="utf-8")
    assert [name for name in ENVIRONMENT if f"`{name}`" not in text] == []


def test_no_setting_is_documented_that_is_not_there() -> None:
    from driftwatch.settings import Settings

    paths = set(settings_paths(Settings))
    lines = (DOCS / "sre/settings.md").read_text(encoding="utf-8").splitlines()
    named = [match[1] for line in lines if (match := re.match(r"- `([^`]+)`", line))]
    assert len(named) > 50
    assert [name for name in named if name not in paths] == []


def test_what_vllm_is_started_with_is_a_key_or_refused_with_the_way_to_give_it() -> None:
    """The document names no setting that the reader refuses without a word."""
    from driftwatch.settings import ServingSettings
    from driftwatch.vllm_arguments.flags import SETTINGS

    keys = ServingSettings.model_fields.keys()
    assert ServingSettings.INSTEAD.keys() == SETTINGS.keys() - keys
    text = (DOCS / "sre/settings.md").read_text(encoding="utf-8")
    named = {name for name in ServingSettings.INSTEAD if f"`{name}`" in text}
    assert all(f"`{name}` is no key" in text for name in named)


def test_the_examples_of_settings_are_some(tmp_path: Path) -> None:
    from driftwatch.settings import load_settings

    for page in (DOCS / "sre/settings.md", ROOT / "README.md"):
        text = page.read_text(encoding="utf-8")
        (example,) = re.findall(r"```yaml\n(sources:.*?)```", text, flags=re.S)
        file = tmp_path / "driftwatch.yaml"
        file.write_text(example)
        settings = load_settings(file, environ={})
        assert [pool.name for pool in settings.pools] == ["rag-8b"]


def test_the_defaults_in_the_docs_are_the_defaults() -> None:
    from driftwatch.settings import Settings

    found = entries(DOCS / "sre/settings.md")
    defaults = Settings()
    told = {
        "interval": f"{defaults.interval:.0f}s",
        "listen": defaults.listen,
        "database": str(defaults.database),
    }
    assert [name for name, text in told.items() if f"`{text}`" not in found[name]] == []
