"""What can't be a submission is refused with a problem that says what is wrong, never with a 500."""

import json

import httpx
import pytest

from arachne.jobs.publications import publish
from tests.http.conftest import BASE_URL, Service
from tests.http.pictures import huge_png, png
from tests.http.sending import MANY, ONE, send, text
from tests.http.worker import FACTS

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_batch_of_none_but_bad_images_is_refused_with_each_fault(shared: Service) -> None:
    response = await send(shared, MANY, files=[("files", ("a.png", b"x")), ("files", ("b.png", b""))])
    assert (response.status_code, response.json()["code"]) == (422, "invalid_options")
    assert [fault["loc"] for fault in response.json()["errors"]] == [["images", 0], ["images", 1]]


@pytest.mark.parametrize(
    ("data", "status", "code"),
    [
        (b"I am no image", 415, "unsupported_image"),
        (b"", 415, "unsupported_image"),
        (huge_png(100_000, 100_000), 413, "image_too_large"),
    ],
)
async def test_a_single_bad_image_is_refused_at_once(shared: Service, data: bytes, status: int, code: str) -> None:
    response = await send(shared, ONE, files={"file": ("a.png", data)})
    assert (response.status_code, response.json()["code"]) == (status, code)
    inline = await send(shared, ONE, json={"image": {"base64": text(data)}})
    assert (inline.status_code, inline.json()["code"]) == (status, code)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"detail_level": "extreme"}, "invalid_options"),
        ({"detail_lvl": "fast"}, "invalid_options"),
        ({"detail_level": "fast", "model": "qwen2.5vl:7b"}, "options_conflict"),
        ({"detail_level": "fast", "stages": ["describe"]}, "options_conflict"),
        ({"model": "unknown"}, "invalid_options"),
        ({"stages": ["read", "read"]}, "invalid_options"),
        ({"stages": []}, "invalid_options"),
        ({"prompt": "x" * 2001}, "invalid_options"),
        ({"prompt": "nul\0"}, "invalid_options"),
        ({"languages": ["../../etc"]}, "invalid_options"),
    ],
)
async def test_options_that_break_a_rule_are_422(shared: Service, options: dict[str, object], code: str) -> None:
    response = await send(shared, ONE, json={"image": {"base64": text(png())}, "options": options})
    assert (response.status_code, response.json()["code"]) == (422, code), response.text
    assert response.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("languages", [["xyz"], ["eng", "xyz"], ["auto", "xyz"]])
@pytest.mark.parametrize("url", [ONE, MANY])
async def test_a_language_that_is_not_installed_is_422_however_it_is_sent(
    shared: Service, url: str, languages: list[str]
) -> None:
    """At submit, once a worker has told which it has; names those and how to get more."""
    await shared.database.run(publish, FACTS)
    options, image = {"languages": languages}, {"base64": text(png())}
    part = {"file" if url == ONE else "files": ("a.png", png())}
    body = {"image": image} if url == ONE else {"images": [image, image]}
    answers = [
        await send(shared, url, files=part, data={"options": json.dumps(options)}),
        await send(shared, url, json={**body, "options": options}),
    ]
    if url == ONE:
        answers.append(await send(shared, url, files=part, params={"languages": ",".join(languages)}))
    for answer in answers:
        assert (answer.status_code, answer.json()["code"]) == (422, "language_missing"), answer.text
        assert "Installed: eng" in answer.json()["detail"]
        assert "tesseract-ocr-xyz" in answer.json()["detail"]
        assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    "metadata",
    [
        {str(n): "x" for n in range(21)},
        {"k" * 41: "x"},
        {"k": "x" * 501},
        {"k": 5},
        {"k": "nul\0"},
        {"nul\0": "x"},
        {"k": "\ud800"},
        ["k"],
        "text",
    ],
)
async def test_metadata_outside_its_rules_is_422(shared: Service, metadata: object) -> None:
    body = json.dumps({"image": {"base64": text(png())}, "metadata": metadata})
    response = await send(shared, ONE, content=body, headers={"Content-Type": "application/json"})
    assert (response.status_code, response.json()["code"]) == (422, "invalid_options"), response.text


@pytest.mark.parametrize("url", [ONE, MANY])
@pytest.mark.parametrize(
    ("body", "content_type", "status"),
    [
        (b"", "application/json", 400),
        (b"no json", "application/json", 400),
        (b"[]", "application/json", 400),
        (b"null", "application/json", 400),
        (b"[" * 100_000, "application/json", 400),
        (b'{"a":' * 100_000, "application/json", 400),
        (b'{"image": NaN}', "application/json", 400),
        (b'{"image": 1e999}', "application/json", 400),
        (b'{"image": ' + b"9" * 10_000 + b"}", "application/json", 400),
        (b'{"image": {}, "image": {}}', "application/json", 400),
        (b'{"image": "\xff"}', "application/json", 400),
        (b"{}", "application/json", 422),
        (b'{"image": {"base64": "AAAA", "url": "https://x"}, "images": []}', "application/json", 422),
        (b'{"\\ud800": 1}', "application/json", 422),
        (b"{}", "text/plain", 415),
        (b"{}", "", 415),
        (b"a=b", "application/x-www-form-urlencoded", 415),
        (b"\x89PNG", "image/png", 415),
        (b"--x", "multipart/form-data", 400),
        (b"--x", 'multipart/form-data; boundary=""', 400),
        (b"no boundary here", "multipart/form-data; boundary=x", 400),
        (b"--x\r\n", "multipart/form-data; boundary=x", 400),
        (b"--x\r\nContent-Disposition: form-data\r\n\r\nhi\r\n--x--\r\n", "multipart/form-data; boundary=x", 400),
        (
            b'--x\r\nContent-Disposition: form-data; name="options"\r\n\r\n{\r\n--x--\r\n',
            "multipart/form-data; boundary=x",
            422,
        ),
        (b"--x--\r\n", "multipart/form-data; boundary=x", 422),
    ],
)
async def test_malformed_bodies_are_4xx_problems(
    shared: Service, url: str, body: bytes, content_type: str, status: int
) -> None:
    headers = {"Content-Type": content_type} if content_type else {}
    response = await send(shared, url, content=body, headers=headers)
    assert response.status_code == status, response.text
    problem = response.json()
    assert response.headers["content-type"] == "application/problem+json"
    assert problem["status"] == status
    assert problem["request_id"] == response.headers["x-request-id"]


async def test_a_form_without_images_and_with_unknown_parts_is_422(shared: Service) -> None:
    for files, data in (
        ({}, {"options": "{}"}),
        ({"image": ("a.png", png())}, {}),
        ({"file": ("a.png", png())}, {"colour": "red"}),
        ({"file": (None, png())}, {}),
    ):
        request = httpx.Request("POST", BASE_URL + ONE, files=files or {"x": (None, "")}, data=data)
        response = await send(
            shared, ONE, content=request.read(), headers={"Content-Type": request.headers["content-type"]}
        )
        assert (response.status_code, response.json()["code"]) == (422, "invalid_options"), response.text
    two = await send(shared, ONE, files=[("file", ("a.png", png())), ("file", ("b.png", png()))])
    assert two.status_code == 422


async def test_a_compressed_body_is_415(shared: Service) -> None:
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    response = await send(shared, ONE, content=b"{}", headers=headers)
    assert (response.status_code, response.json()["code"]) == (415, "unsupported_media_type")
