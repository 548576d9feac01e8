"""The OpenAPI document, made of the operations: what is described is what is checked."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from penstock.server.call import EventStream
from penstock.server.operation import EVENTS, JSON, Operation
from penstock.server.problem import CODES, MEDIA_TYPE, Problem
from penstock.version import __version__

__all__ = ["describe"]

PATH_SCHEMAS = {"job_id": {"type": "string", "pattern": "^[0-9]{1,19}$"}}
# By who reads HTTP for the server, before any operation is known.
UNREADABLE = "This is no HTTP, or an address of more than 64 KiB"
REF = "#/components/schemas/{name}"


def describe(operations: Sequence[Operation], mounted_at: str = "") -> dict[str, Any]:
    """The whole document, of an application that is mounted there: clients that are generated call what it names."""
    types = _types(operations)
    schemas, components = msgspec.json.schema_components(types, ref_template=REF)
    schema_of = {_key(kind): schema for kind, schema in zip(types, schemas, strict=True)}
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation, schema_of)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Penstock", "version": __version__, "description": "Produce, work, look and repair."},
        "servers": [{"url": f"{mounted_at}/api/v1"}],
        "security": [{"token": []}, {}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _types(operations: Iterable[Operation]) -> list[Any]:
    found: dict[str, Any] = {_key(Problem): Problem}
    for operation in operations:
        kinds = [kind for kind in operation.answers.values() if kind not in (None, EventStream)]
        kinds += [kind for forms in operation.forms.values() for kind in forms if kind is not bytes]
        if operation.query is not None:
            kinds += [each.type for each in msgspec.structs.fields(operation.query)]
        found |= {_key(kind): kind for kind in kinds}
    return list(found.values())


def _key(kind: Any) -> str:
    return repr(kind)


def _operation(operation: Operation, schema_of: Mapping[str, Any]) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "description": inspect.getdoc(operation.handler) or "",
        "parameters": [*_path_parameters(operation.path), *_query_parameters(operation, schema_of)],
        "responses": _responses(operation, schema_of),
        "x-role": operation.may,
    }
    if operation.forms:
        described["requestBody"] = {
            "required": operation.needs_body,
            "content": {media: {"schema": _either(forms, schema_of)} for media, forms in operation.forms.items()},
        }
    return described


def _path_parameters(path: str) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": PATH_SCHEMAS.get(name, {"type": "string", "minLength": 1}),
        }
        for name in re.findall(r"\{(\w+)\}", path)
    ]


def _query_parameters(operation: Operation, schema_of: Mapping[str, Any]) -> list[dict[str, Any]]:
    if operation.query is None:
        return []
    return [
        {
            "name": each.encode_name,
            "in": "query",
            "required": each.required,
            "schema": _without_null(schema_of[_key(each.type)]),
        }
        for each in msgspec.structs.fields(operation.query)
    ]


def _without_null(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema of a query's option: it is left out, not null."""
    kinds = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    if not kinds:
        return schema
    return kinds[0] if len(kinds) == 1 else {"anyOf": kinds}


def _responses(operation: Operation, schema_of: Mapping[str, Any]) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for status, kind in operation.answers.items():
        responses[str(status)] = {"description": operation.summary}
        if kind is EventStream:
            responses[str(status)]["content"] = {EVENTS: {"schema": {"type": "string"}}}
        elif kind is not None:
            responses[str(status)]["content"] = {JSON: {"schema": schema_of[_key(kind)]}}
    problem = {MEDIA_TYPE: {"schema": schema_of[_key(Problem)]}}
    for status, title in sorted({(status, "") for status, _ in CODES.values()}):
        titles = [each for known, each in CODES.values() if known == status]
        responses.setdefault(str(status), {"description": title or "; ".join(titles), "content": problem})
    responses["400"] = {"description": UNREADABLE, "content": {"text/plain": {"schema": {"type": "string"}}}}
    return responses


def _either(forms: Sequence[Any], schema_of: Mapping[str, Any]) -> Any:
    schemas = [{"type": "string", "format": "binary"} if kind is bytes else schema_of[_key(kind)] for kind in forms]
    return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
