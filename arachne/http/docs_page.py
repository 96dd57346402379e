"""The description as a page for people: made on the server, with no script, and nothing from elsewhere."""

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

Node = Mapping[str, Any]
_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1c1c1c }
h2 { margin: 2.5rem 0 .5rem } h3 { font: 600 1rem ui-monospace, monospace; margin: 1.5rem 0 .2rem }
code, pre { font: .9em ui-monospace, monospace } pre { background: #f3f3f3; padding: .6rem; overflow: auto }
h3, p { overflow-wrap: anywhere } p { margin: .2rem 0 }
table { border-collapse: collapse; display: block; overflow: auto }
td { padding: .1rem 1rem .1rem 0; vertical-align: top }
summary { cursor: pointer } nav { display: flex; flex-wrap: wrap; gap: 0 1rem }
@media (prefers-color-scheme: dark) {
    body { background: #161616; color: #e8e8e8 } a { color: #9bf } pre { background: #242424 }
}
"""
_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
POLICY = f"default-src 'none'; style-src 'sha256-{_HASH}'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"


def render(document: Node) -> str:
    """The page that tells what the document tells."""
    tags = list(dict.fromkeys(one["tags"][0] for _, _, one in _operations(document)))
    links = "".join(f'<a href="#{tag}">{tag}</a>' for tag in tags)
    sections = "".join(_section(document, tag) for tag in tags)
    schemas = "".join(_schema(name, one) for name, one in document["components"]["schemas"].items())
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>Arachne API</title><style>{_STYLE}</style>"
        f"<h1>Arachne API</h1><p>Version {escape(document['info']['version'])}. "
        "The machine-readable description is <a href='/openapi.json'>openapi.json</a>. "
        "Get a token from <code>POST /api/auth/token</code> and send it as <code>Authorization: Bearer TOKEN</code>."
        f'</p><nav>{links}<a href="#schemas">schemas</a></nav>{sections}<h2 id="schemas">schemas</h2>{schemas}</html>'
    )


def _operations(document: Node) -> Iterable[tuple[str, str, Node]]:
    for path, item in document["paths"].items():
        yield from ((path, method, one) for method, one in item.items() if method != "parameters")


def _section(document: Node, tag: str) -> str:
    found = (
        _operation(document, path, method, one) for path, method, one in _operations(document) if one["tags"][0] == tag
    )
    return f'<h2 id="{tag}">{tag}</h2>{"".join(found)}'


def _operation(document: Node, path: str, method: str, operation: Node) -> str:
    scopes = [scope for one in operation["security"][:1] for scope in one["client"]]
    access = f"<p>Scope <code>{scopes[0]}</code></p>" if scopes else "<p>Open</p>"
    return (
        f"<h3>{method.upper()} {escape(path)}</h3><p>{_prose(operation['summary'])}</p>{access}"
        f"{_parameters(operation)}{_body(operation)}{_answers(document, operation)}"
    )


def _parameters(operation: Node) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(one['name'])}</code><td>{one['in']}<td>{_type(one['schema'])}"
        f"<td>{_prose(one.get('description', ''))}"
        for one in operation.get("parameters", ())
    )
    return f"<table>{rows}</table>" if rows else ""


def _body(operation: Node) -> str:
    shown = []
    for media_type, content in operation.get("requestBody", {}).get("content", {}).items():
        shown.append(f"<p>Body <code>{escape(media_type)}</code>: {_type(content['schema'])}</p>")
        if "example" in content:
            shown.append(f"<pre>{escape(json.dumps(content['example'], indent=2, ensure_ascii=False))}</pre>")
    return "".join(shown)


def _answers(document: Node, operation: Node) -> str:
    rows = "".join(
        f"<tr><td><code>{status}</code><td>{_prose(one['description'])}<td>{_content(one)}"
        for status, one in ((status, _resolve(document, one)) for status, one in operation["responses"].items())
    )
    return f"<details><summary>Answers: {', '.join(operation['responses'])}</summary><table>{rows}</table></details>"


def _content(answer: Node) -> str:
    kinds = answer.get("content", {})
    return ", ".join(f"<code>{escape(kind)}</code> {_type(one.get('schema', {}))}" for kind, one in kinds.items())


def _resolve(document: Node, node: Node) -> Node:
    found: Node = node
    if "$ref" in node:
        found = document
        for name in node["$ref"].removeprefix("#/").split("/"):
            found = found[name]
    return found


def _type(schema: Node) -> str:
    """A schema in few words: a link to another schema, a type with its bounds, or a list of what it may be."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        return f'<a href="#schema-{escape(name)}">{escape(name)}</a>'
    for word in ("anyOf", "allOf", "oneOf"):
        if word in schema:
            return " or ".join(_type(one) for one in schema[word])
    if "enum" in schema or "const" in schema:
        return " · ".join(f"<code>{escape(str(one))}</code>" for one in schema.get("enum", [schema.get("const")]))
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    return escape(str(schema.get("format", schema.get("type", ""))))


def _schema(name: str, schema: Node) -> str:
    needed = schema.get("required", ())
    rows = "".join(
        f"<tr><td><code>{escape(member)}</code><td>{_type(one)}<td>{'needed' if member in needed else ''}"
        f"<td>{_default(one)}"
        for member, one in schema.get("properties", {}).items()
    )
    told = _prose(schema.get("description", ""))
    return f'<h3 id="schema-{escape(name)}">{escape(name)}</h3><p>{told}</p><table>{rows}</table>'


def _default(schema: Node) -> str:
    return f"default <code>{escape(json.dumps(schema['default']))}</code>" if "default" in schema else ""


def _prose(text: str) -> str:
    """Markdown's code marks, and nothing else of it."""
    pieces = escape(text).split("`")
    return "".join(f"<code>{piece}</code>" if number % 2 else piece for number, piece in enumerate(pieces))
