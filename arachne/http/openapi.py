"""The OpenAPI 3.1 document, made from the operations and the pydantic models the routes validate with."""

import re
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from arachne import __version__
from arachne.http.bodies import JSON
from arachne.http.operations import Answer, Operation, Resource
from arachne.http.problems import MEDIA_TYPE
from arachne.schemas.problem import Problem
from arachne.settings import Settings

Schema = dict[str, object]
Refs = Mapping[tuple[object, JsonSchemaMode], Schema]
_PARAMETER = re.compile(r"{(\w+)}")
_REF = "#/components/schemas/{model}"
_CALLER_ERRORS = (401, 403, 429)
# Headers: what each means, and an example.
_LIMITS: dict[str, tuple[str, str]] = {
    "RateLimit-Policy": ("Each limit the request counts against: q hits in any w seconds", '"vision";q=20;w=60'),
    "RateLimit": ("Hits left of each, and seconds until more are", '"vision";r=7;t=42'),
    "X-RateLimit-Limit": ("Hits in the window of the limit that is nearest", "20"),
    "X-RateLimit-Remaining": ("Hits left of it", "7"),
    "X-RateLimit-Reset": ("Unix time in seconds at which more are", "1767225600"),
}
_RETRY: dict[str, tuple[str, str]] = {"Retry-After": ("Seconds after which the same request may pass", "42")}
_WAITS = (202, 429, 503)


def describe(resources: Sequence[Resource], settings: Settings) -> Schema:
    """The document for these resources."""
    operations = [operation for resource in resources for operation in resource.operations.values()]
    pairs: list[tuple[type[BaseModel], JsonSchemaMode]] = [(model, "validation") for model in _bodies(operations)]
    pairs += [(model, "serialization") for model in _answers(operations)]
    pairs.append((Problem, "serialization"))
    found, definitions = models_json_schema(list(dict.fromkeys(pairs)), ref_template=_REF)
    refs: Refs = {(model, mode): schema for (model, mode), schema in found.items()}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Arachne",
            "version": __version__,
            "description": "Reads screenshots: text, structure and descriptions, with signed webhooks.",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": settings.base_url}],
        "paths": {resource.path: _path(resource, refs) for resource in resources},
        "components": {
            "schemas": definitions.get("$defs", {}),
            "headers": {name: _header(*told) for name, told in (_LIMITS | _RETRY).items()},
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "bearerFormat": "RFC 9068 access token"},
            },
        },
    }


def _path(resource: Resource, refs: Refs) -> Schema:
    operations = {
        method.lower(): _operation(resource, method, operation, refs)
        for method, operation in resource.operations.items()
    }
    return {"parameters": _path_parameters(resource.path), **operations}


def _operation(resource: Resource, method: str, operation: Operation, refs: Refs) -> Schema:
    errors = sorted({*operation.errors, *(_CALLER_ERRORS if operation.scope else ())} - set(operation.answers))
    answers = operation.answers.items()
    described: Schema = {
        "operationId": _operation_id(resource.path, method),
        "summary": operation.summary,
        "tags": [resource.path.strip("/").split("/")[1] if resource.path.startswith("/api/") else "service"],
        "security": [{"token": []}] if operation.scope else [],
        "responses": {
            **{str(status): _response(answer, refs) | _headers(status, operation) for status, answer in answers},
            **{str(status): _problem(status, refs) | _headers(status, operation) for status in errors},
        },
    }
    if operation.scope:
        described["description"] = f"Needs the scope `{operation.scope}`."
    if operation.query is not None:
        described["parameters"] = list(_query_parameters(operation.query))
    content = _request_content(operation, refs)
    if content:
        described["requestBody"] = {"content": content, "required": operation.form is not None}
    return described


def _request_content(operation: Operation, refs: Refs) -> Schema:
    content: Schema = {}
    if operation.form is not None:
        form = dict(operation.form)
        content[str(form.pop("media_type"))] = {"schema": {"type": "object", **form}}
    if operation.body is not None:
        content[JSON] = {"schema": refs[operation.body, "validation"]}
    return content


def _response(answer: Answer, refs: Refs) -> Schema:
    content: Schema = {}
    if answer.model is not None:
        content[JSON] = {"schema": refs[answer.model, "serialization"]}
    elif answer.media_type is not None:
        content[answer.media_type] = {"schema": {"type": "string"}}
    content |= {media_type.split(";")[0]: {"schema": {"type": "string"}} for media_type in answer.also}
    return {"description": answer.meaning, **({"content": content} if content else {})}


def _headers(status: int, operation: Operation) -> Schema:
    """The headers an answer may have, besides those of every one."""
    limited = _LIMITS if operation.policy is not None and status != 401 else {}
    names = [*limited, *(_RETRY if status in _WAITS else ())]
    return {"headers": {name: {"$ref": f"#/components/headers/{name}"} for name in names}} if names else {}


def _header(meaning: str, example: str) -> Schema:
    return {"description": meaning, "schema": {"type": "string"}, "example": example}


def _problem(status: int, refs: Refs) -> Schema:
    return {
        "description": HTTPStatus(status).phrase,
        "content": {MEDIA_TYPE: {"schema": refs[Problem, "serialization"]}},
    }


def _path_parameters(path: str) -> list[Schema]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _PARAMETER.findall(path)
    ]


def _query_parameters(model: type[BaseModel]) -> Iterable[Schema]:
    schema = model.model_json_schema(by_alias=True)
    for name, member in schema["properties"].items():
        yield {
            "name": name,
            "in": "query",
            "required": name in schema.get("required", []),
            "schema": member,
            **({"style": "form", "explode": True} if member.get("type") == "array" else {}),
        }


def _operation_id(path: str, method: str) -> str:
    words = [word for word in re.split(r"[^A-Za-z0-9]+", path.removeprefix("/api")) if word]
    return "_".join([method.lower(), *words])


def _bodies(operations: Iterable[Operation]) -> Iterable[type[BaseModel]]:
    return (operation.body for operation in operations if operation.body is not None)


def _answers(operations: Iterable[Operation]) -> Iterable[type[BaseModel]]:
    return (
        answer.model for operation in operations for answer in operation.answers.values() if answer.model is not None
    )
