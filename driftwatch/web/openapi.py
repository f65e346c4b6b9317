"""The OpenAPI document: every page's JSON and every form, from their models. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from driftwatch import __version__
from driftwatch.web.page import Done, Form, Page, Refused

_VARIABLE = re.compile(r"{(\w+)(?::\w+)?}")
_REF = "#/components/schemas/{model}"


def openapi(pages: Iterable[Page], forms: Iterable[Form], root: str = "") -> dict[str, Any]:
    """The document, OpenAPI 3.1; ``root``: path below which the web is served."""
    pages, forms = tuple(pages), tuple(forms)
    models: list[type[BaseModel]] = [page.view for page in pages]
    models += [*(form.fields for form in forms), Done, Refused]
    unique = list(dict.fromkeys(models))
    of, schemas = models_json_schema(
        [(model, _mode(model, forms)) for model in unique], ref_template=_REF
    )
    refs = {model: of[model, _mode(model, forms)] for model in unique}
    paths: dict[str, Any] = {}
    for page in pages:
        paths[json_path(page)] = {"get": _get(page, refs)}
    for form in forms:
        paths.setdefault(_VARIABLE.sub(r"{\1}", form.path), {})["post"] = _post(form, refs)
    return {
        "openapi": "3.1.0",
        "info": {"title": "driftwatch", "version": __version__},
        "servers": [{"url": root or "/"}],
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": schemas.get("$defs", {}),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def json_path(page: Page) -> str:
    """Where a page's JSON is, whatever the request accepts."""
    return _VARIABLE.sub(r"{\1}", page.path) + ".json"


def _mode(model: type[BaseModel], forms: Iterable[Form]) -> Any:
    return "validation" if any(model is form.fields for form in forms) else "serialization"


def _get(page: Page, refs: Mapping[type[BaseModel], Any]) -> dict[str, Any]:
    fields = page.query.model_json_schema(ref_template=_REF)
    queries = [
        {"name": name, "in": "query", "required": False, "schema": schema}
        for name, schema in fields.get("properties", {}).items()
    ]
    return {
        "summary": page.title,
        "parameters": [*_variables(page.path), *queries],
        "responses": _responses(refs[page.view], refs[Refused]),
    }


def _post(form: Form, refs: Mapping[type[BaseModel], Any]) -> dict[str, Any]:
    content = {"application/x-www-form-urlencoded": {"schema": refs[form.fields]}}
    return {
        "summary": form.title,
        "parameters": [*_variables(form.path)],
        "security": [{"token": []}],
        "requestBody": {"content": content},
        "responses": _responses(refs[Done], refs[Refused]),
    }


def _variables(path: str) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _VARIABLE.findall(path)
    ]


def _responses(good: Any, bad: Any) -> dict[str, Any]:
    return {
        "200": {"description": "OK", "content": {"application/json": {"schema": good}}},
        "default": {
            "description": "Refused; in one line where nothing of the request was read",
            "content": {
                "application/json": {"schema": bad},
                "text/plain": {"schema": {"type": "string"}},
            },
        },
    }
