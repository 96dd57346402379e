"""The console's files: open to all, strict in what they may do, and free of whatever could turn text into markup."""

import re
from pathlib import Path

import pytest

from arachne.http.routes import all_resources, console
from tests.http.conftest import Service, Start

pytestmark = pytest.mark.asyncio(loop_scope="session")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' blob:; "
    "form-action 'none'; frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'"
)
TYPES = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}
FILES = {path: path.read_bytes() for path in sorted(console.FOLDER.iterdir())}
ASSETS = [path for path in FILES if path.suffix in TYPES]
PAGE = FILES[console.FOLDER / "index.html"]
SINKS = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment|DOMParser|setHTML|\beval\b"
    r"|new Function|localStorage|sessionStorage|indexedDB|document\.cookie|postMessage|WebSocket|EventSource\("
)


async def test_the_page_is_open_and_says_what_it_may_do(shared: Service) -> None:
    for path in ("/console", "/console/"):
        answer = await shared.client.get(path)
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert answer.headers["content-security-policy"] == POLICY
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.content == PAGE


async def test_the_service_s_bare_address_leads_to_the_page(shared: Service) -> None:
    """Which is what one opens who was told no more."""
    answer = await shared.client.get("/")
    assert (answer.status_code, answer.headers["location"]) == (307, "/console")


@pytest.mark.parametrize("path", ASSETS, ids=lambda path: path.name)
async def test_each_file_comes_with_its_type_and_is_asked_for_once(shared: Service, path: Path) -> None:
    """As itself, and as 304 to whoever has it already, so that a new version is never mixed with an old one."""
    answer = await shared.client.get(f"/console/{path.name}")
    assert (answer.status_code, answer.content) == (200, FILES[path])
    assert answer.headers["content-type"] == TYPES[path.suffix]
    assert answer.headers["content-security-policy"] == POLICY
    assert answer.headers["cache-control"] == "no-cache"
    etag = answer.headers["etag"]
    for given in (etag, f'"other", W/{etag}', "*"):
        again = await shared.client.get(f"/console/{path.name}", headers={"If-None-Match": given})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag)
    other = await shared.client.get(f"/console/{path.name}", headers={"If-None-Match": '"other"'})
    assert other.status_code == 200
    head = await shared.client.head(f"/console/{path.name}")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == str(len(FILES[path]))


async def test_other_methods_and_names_are_problems(shared: Service) -> None:
    for method, path, status, code in (
        ("POST", "/console", 405, "method_not_allowed"),
        ("DELETE", "/console/app.js", 405, "method_not_allowed"),
        ("GET", "/console/none.js", 404, "not_found"),
        ("GET", "/console/index.html", 404, "not_found"),
        ("GET", "/console/../settings.py", 404, "not_found"),
        ("GET", "/console/..%2froutes%2fconsole.py", 404, "not_found"),
    ):
        answer = await shared.client.request(method, path)
        assert (answer.status_code, answer.json()["code"]) == (status, code), path
        assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.asyncio(loop_scope="function")
async def test_it_knows_nothing_of_the_public_url(start: Start) -> None:
    """It asks the host it came from, whatever the service is called elsewhere."""
    async with start(public_url="https://elsewhere.example") as service:
        answer = await service.client.get("/console", headers={"Host": "another.test"})
        assert (answer.status_code, answer.headers["content-security-policy"]) == (200, POLICY)
        assert "elsewhere" not in answer.text


async def test_files_are_short_and_load_each_other_only() -> None:
    """Up to 300 lines; what is named is there, from this host, and nothing else is described as part of the API."""
    served = {resource.path for resource in (*all_resources(), *console.FILES)}
    for path, body in FILES.items():
        text = body.decode()
        assert len(text.splitlines()) <= 300, path.name
        assert not re.search(
            r"(?:src|href|url\(|from|import)\W*(?:https?:)?//", text.replace("http://www.w3.org/", "")
        ), path.name
        for name in re.findall(r'(?:from|import) "\./([^"]+)"', text):
            assert f"/console/{name}" in served, (path.name, name)
        for name in re.findall(r'(?:href|src)="(/[^"#]*)"', text):
            assert name in served, (path.name, name)
    assert {resource.path for resource in all_resources() if resource.path.startswith("/console")} == {"/console"}


async def test_nothing_is_inline_and_nothing_makes_markup_of_text() -> None:
    """The policy forbids both; this names the line."""
    assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:|<script(?![^>]*\ssrc=)", PAGE.decode())
    for path, body in FILES.items():
        if path.suffix == ".js":
            assert not SINKS.search(body.decode()), path.name
