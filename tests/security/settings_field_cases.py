"""Every field of the settings that holds a secret or an address, by walking the models."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr

from driftwatch.settings import Settings
from driftwatch.settings.receivers import Host
from driftwatch.settings.values import File, SecretUrl, Url

Leaf = tuple[str, str]  # dotted path, and what it is: secret, file, url or host


def fields() -> set[Leaf]:
    """Every such field, e.g. ``("receivers.webhook.url", "secret")``."""
    return set(_of_model(Settings, ""))


def _of_model(model: type[BaseModel], path: str) -> Iterator[Leaf]:
    for name, field in model.model_fields.items():
        yield from _of_type(field.annotation, tuple(field.metadata), f"{path}.{name}".lstrip("."))


def _of_type(annotation: Any, metadata: tuple[Any, ...], path: str) -> Iterator[Leaf]:
    origin = get_origin(annotation)
    if origin is Annotated:
        inner, *more = get_args(annotation)
        yield from _of_type(inner, (*metadata, *more), path)
    elif origin in (Union, types.UnionType) or origin is not None:
        for inner in get_args(annotation):
            yield from _of_type(inner, metadata, path)
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield from _of_model(annotation, path)
    else:
        yield from ((path, what) for what in _kinds(annotation, metadata, path))


def _kinds(annotation: Any, metadata: tuple[Any, ...], path: str) -> Iterator[str]:
    if isinstance(annotation, type) and issubclass(annotation, SecretStr):
        yield "secret"
    if _marked(metadata, File) and path.endswith("_file") and not path.endswith("ca_file"):
        yield "file"
    if _marked(metadata, Url) or _marked(metadata, SecretUrl):
        yield "url"
    if _marked(metadata, Host):
        yield "host"


def _marked(metadata: tuple[Any, ...], kind: Any) -> bool:
    """Whether a field is of one of the annotated types of the settings."""
    (mark,) = get_args(kind)[1:]
    wanted = getattr(mark, "metadata", None) or [mark]
    return all(one in metadata for one in wanted)
