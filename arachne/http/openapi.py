"""The OpenAPI 3.1 document, made from the operations and the pydantic models the routes validate with."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from arachne import __version__
from arachne.http.bodies import JSON
from arachne.http.described_headers import LIMITS, REQUEST_HEADERS, RESPONSE_HEADERS
from arachne.http.event_stream import MEDIA_TYPE as EVENTS
from arachne.http.operations import Answer, Operation, Resource
from arachne.http.problems import MEDIA_TYPE
from arachne.http.refusals import PARAMETER, list_refusals
from arachne.schemas.problem import Problem
from arachne.schemas.token import SCOPE_MEANINGS
from arachne.settings import Settings

Schema = dict[str, object]
_REF = "#/components/schemas/{model}"
_PATH_SCHEMA = {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"}


@dataclass(frozen=True)
class _Writing:
    """The models' schemas, and the refusals described so far."""

    refs: Mapping[tuple[object, JsonSchemaMode], Schema]
    responses: dict[str, Schema] = field(default_factory=dict)


def describe(resources: Sequence[Resource], settings: Settings) -> Schema:
    """The document for these resources."""
    operations = [operation for resource in resources for operation in resource.operations.values()]
    pairs: list[tuple[type[BaseModel], JsonSchemaMode]] = [(model, "validation") for model in _bodies(operations)]
    pairs += [(model, "serialization") for model in _answers(operations)]
    pairs.append((Problem, "serialization"))
    found, definitions = models_json_schema(list(dict.fromkeys(pairs)), ref_template=_REF)
    writing = _Writing({(model, mode): schema for (model, mode), schema in found.items()})
    paths = {resource.path: _path(resource, writing) for resource in resources}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Arachne",
            "version": __version__,
            "description": "Reads screenshots: text, structure and descriptions, with signed webhooks.",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": settings.base_url}],
        "paths": paths,
        "components": {
            "schemas": definitions.get("$defs", {}),
            "responses": writing.responses,
            "headers": RESPONSE_HEADERS,
            "securitySchemes": _security_schemes(settings),
        },
    }


def _security_schemes(settings: Settings) -> Schema:
    flow = {"tokenUrl": f"{settings.base_url}/api/auth/token", "scopes": dict(SCOPE_MEANINGS)}
    return {
        "client": {"type": "oauth2", "flows": {"clientCredentials": flow}},
        "token": {
            "type": "http",
            "scheme": "bearer",
            "bearerFormat": "JWT",
            "description": "An access token (RFC 9068), of this service or of an issuer it trusts.",
        },
    }


def _path(resource: Resource, writing: _Writing) -> Schema:
    operations = {
        method.lower(): _operation(resource, method, operation, writing)
        for method, operation in resource.operations.items()
    }
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": _PATH_SCHEMA}
        for name in PARAMETER.findall(resource.path)
    ]
    return {"parameters": parameters, **operations}


def _operation(resource: Resource, method: str, operation: Operation, writing: _Writing) -> Schema:
    limited = operation.policy is not None or operation.counted
    described: Schema = {
        "operationId": _operation_id(resource.path, method),
        "summary": operation.summary,
        "tags": [resource.path.strip("/").split("/")[1] if resource.path.startswith("/api/") else "service"],
        "security": [{name: [operation.scope]} for name in ("client", "token")] if operation.scope else [],
        "responses": {
            **{str(status): _response(answer, limited, writing) for status, answer in operation.answers.items()},
            **{
                str(status): _refusal(status, codes, limited, writing)
                for status, codes in list_refusals(resource.path, operation).items()
            },
        },
    }
    if operation.scope:
        described["description"] = f"Needs the scope `{operation.scope}`."
    parameters = [*_query_parameters(operation.query), *(REQUEST_HEADERS[name] for name in operation.headers)]
    if parameters:
        described["parameters"] = parameters
    content = _request_content(operation, writing)
    if content:
        described["requestBody"] = {"content": content, "required": operation.form is not None}
    return described


def _request_content(operation: Operation, writing: _Writing) -> Schema:
    content: dict[str, Schema] = {}
    if operation.form is not None:
        form = dict(operation.form)
        content[str(form.pop("media_type"))] = {"schema": {"type": "object", **form}}
    if operation.body is not None:
        content[JSON] = {"schema": writing.refs[operation.body, "validation"]}
    if operation.example is not None:  # the JSON body's where there are both
        list(content.values())[-1]["example"] = dict(operation.example)
    return dict(content)


def _response(answer: Answer, limited: bool, writing: _Writing) -> Schema:
    content: Schema = {}
    if answer.model is not None:
        content[JSON] = {"schema": writing.refs[answer.model, "serialization"]}
    elif answer.media_type == JSON:
        content[JSON] = {"schema": {"type": "object"}}
    elif answer.media_type == EVENTS:  # no schema: some take it for the body's, some for each event's
        content[EVENTS] = {}
    elif answer.media_type is not None:
        content[answer.media_type] = {"schema": {"type": "string"}}
    content |= {media_type.split(";")[0]: {"schema": {"type": "string"}} for media_type in answer.also}
    return {
        "description": answer.meaning,
        "headers": _headers(*answer.headers, limited=limited),
        **({"content": content} if content else {}),
    }


def _refusal(status: int, codes: Sequence[str], limited: bool, writing: _Writing) -> Schema:
    """A reference to the problem with one of these codes, which many operations have in common."""
    name = "-".join([str(status), *codes, *(["limited"] if limited else [])])
    headers = {401: ["WWW-Authenticate"], 403: ["WWW-Authenticate"], 429: ["Retry-After"], 503: ["Retry-After"]}
    told = {"code": {"enum": list(codes)}, "status": {"const": status}}
    writing.responses[name] = {
        "description": f"{HTTPStatus(status).phrase}: {', '.join(f'`{code}`' for code in codes)}",
        "headers": _headers(*headers.get(status, []), limited=limited and status != 401),
        "content": {MEDIA_TYPE: {"schema": {"allOf": [writing.refs[Problem, "serialization"]], "properties": told}}},
    }
    return {"$ref": f"#/components/responses/{name}"}


def _headers(*names: str, limited: bool) -> Schema:
    found = ("X-Request-Id", *names, *(LIMITS if limited else ()))
    return {name: {"$ref": f"#/components/headers/{name}"} for name in found}


def _query_parameters(model: type[BaseModel] | None) -> Iterable[Schema]:
    schema = {"properties": {}} if model is None else model.model_json_schema(by_alias=True)
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
