"""What servers of image URLs answer, or don't: redirects, refusals and faults of the way, each told by its class."""

import asyncio
import gzip
from collections.abc import Awaitable, Callable

import pytest
from aiohttp import web

from tests.core.fetching.conftest import Fetching, Site, png


def redirect(target: str, status: int = 302) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(status=status, headers={"Location": target})

    return answer


def answer(status: int = 200, body: bytes = b"", **headers: str) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answered(_: web.Request) -> web.Response:
        return web.Response(status=status, body=body, headers={k.replace("_", "-"): v for k, v in headers.items()})

    return answered


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_three_redirects_are_followed_and_no_more(fetching: Fetching, site: Site, status: int) -> None:
    """Relative ones too; a fourth is the image's error."""
    site.pages |= {
        "/0": redirect("/1", status),
        "/1": redirect(site.url("/2#part"), status),
        "/2": redirect("3", status),
        "/3": redirect("/a.png", status),
        "/a.png": png(),
    }
    too_many, fine = await fetching.fetch(site.url("/0"), site.url("/1"))
    assert fine.state == "queued"
    assert (too_many.state, too_many.error_code) == ("failed", "fetch_failed")
    assert "too many redirects" in (too_many.error_message or "")
    assert site.asked["/a.png"] == 1


@pytest.mark.parametrize(
    ("location", "path"),
    [
        ("/a b.png?q=a b", "/a%20b.png?q=a%20b"),
        ("/ภาพ.png", "/%E0%B8%A0%E0%B8%B2%E0%B8%9E.png"),
        ("/a%20b.png", "/a%20b.png"),
        ('/a"<>^`{|}.png', "/a%22%3C%3E%5E%60%7B%7C%7D.png"),
    ],
)
async def test_redirects_are_encoded_as_browsers_do(fetching: Fetching, location: str, path: str) -> None:
    """A `Location` with spaces or raw UTF-8 is followed, each character that no URL may hold percent-encoded once."""
    asked = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await reader.readuntil(b"\r\n\r\n")).split()[1].decode())
        found = b"HTTP/1.1 302 Found\r\nLocation: " + location.encode() + b"\r\nContent-Length: 0\r\n\r\n"
        writer.write(found if asked == ["/"] else b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        [image] = await fetching.fetch(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
    assert asked == ["/", path]
    assert "http 404" in (image.error_message or "")


@pytest.mark.parametrize(
    "target",
    [
        "http://169.254.169.254/latest/meta-data/?q=secret",
        "http://10.0.0.1/?q=secret",
        "http://[::1]/",
        "http://localhost/",
        "//2130706433/",
        "ftp://example.com/a.png",
        "file:///etc/passwd",
        "http://user@example.com/",
        "http://a b/",
        "http://a\\@10.0.0.1/",
        "http://ภาพ.example/",
    ],
)
async def test_each_redirect_is_checked_like_the_url(
    fetching: Fetching, site: Site, target: str, caplog: pytest.LogCaptureFixture
) -> None:
    """One that leads where no URL may is the image's error at once, with nothing told of the query, in logs neither."""
    caplog.set_level("DEBUG")
    site.pages["/a.png"] = redirect(target)
    [image] = await fetching.fetch(site.url("/a.png?q=secret"))
    assert (image.state, image.error_code, image.fetch_attempts) == ("failed", "fetch_failed", 1)
    assert "(blocked)" in (image.error_message or "")
    bodies = await fetching.column("SELECT convert_from(body, 'UTF8') FROM webhook_message")
    assert bodies
    assert not any("secret" in body for body in bodies)
    logged = [record.getMessage() for record in caplog.records if record.name != "aiohttp.access"]  # the site's own
    assert any(f"{site.url('/a.png')}?redacted" in line for line in logged)
    assert not any("secret" in line for line in logged)


async def drip(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b"\x89PNG" * 1000)
        await asyncio.sleep(0.01)


async def break_off(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Length": "1000"})
    await response.prepare(request)
    await response.write(b"\x89PNG")
    assert request.transport is not None
    request.transport.close()
    return response


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        (answer(404), ("fetch_failed", "(http 404)", 1)),
        (answer(206, b"a part"), ("fetch_failed", "(http 206)", 1)),
        (answer(204), ("fetch_failed", "(http 204)", 1)),
        (answer(401), ("fetch_failed", "(http 401)", 1)),
        (answer(500), ("fetch_failed", "(http 500)", 3)),
        (answer(429), ("fetch_failed", "(http 429)", 3)),
        (answer(302), ("fetch_failed", "(http 302)", 1)),
        (answer(200, gzip.compress(png()), Content_Encoding="gzip"), ("fetch_failed", "compressed", 1)),
        (break_off, ("fetch_failed", "(http)", 3)),
        (answer(200, b""), ("unsupported_image", "empty", 1)),
        (answer(200, b"<html>", Content_Type="image/png"), ("unsupported_image", "no image", 1)),
        (answer(200, b"x" * 100_001), ("image_too_large", "100,000", 1)),
        (drip, ("image_too_large", "100,000", 1)),
    ],
)
@pytest.mark.usefixtures("at_once")
async def test_a_bad_answer_is_that_images_error(
    fetching: Fetching, site: Site, page: Callable[..., Awaitable[web.StreamResponse]], expected: tuple[str, str, int]
) -> None:
    """With its class; what may pass is tried three times, the rest once. Its neighbour is fetched all the same."""
    code, told, tries = expected
    site.pages |= {"/bad": page, "/good": png()}
    bad, good = await fetching.fetch(site.url("/bad"), site.url("/good"))
    assert (bad.state, bad.error_code) == ("failed", code)
    assert told in (bad.error_message or ""), bad.error_message
    assert (site.asked["/bad"], bad.fetch_attempts) == (tries, tries)
    assert good.state == "queued"
    assert await fetching.column("SELECT count(*) FROM usage_entry") == [0]


@pytest.mark.usefixtures("at_once")
async def test_faults_of_the_way_are_told_by_class(fetching: Fetching, site: Site) -> None:
    """A name that doesn't resolve, a closed port, and no TLS."""

    def lookup(host: str, _port: int) -> list[str]:
        if host.startswith("nowhere"):
            raise OSError("no such name")
        return ["127.0.0.1"]

    closed = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = closed.sockets[0].getsockname()[1]
    closed.close()
    await closed.wait_closed()
    job_id = await fetching.submit(
        "http://nowhere.example.com/a.png",
        f"http://127.0.0.1:{port}/a.png",
        site.url("/a.png").replace("http:", "https:"),
    )
    await (await fetching.engine(lookup=lookup)).fetch_due()
    images = await fetching.images(job_id)
    for image, told in zip(images, ("(dns)", "(refused)", "(tls)"), strict=True):
        assert image.error_code == "fetch_failed"
        assert told in (image.error_message or "")
    assert [image.fetch_attempts for image in images] == [3, 3, 1]
    job = await fetching.job(job_id)
    assert (job.state, job.failed) == ("failed", 3)
    assert await fetching.events(job_id) == ["job.started", *["image.failed"] * 3, "job.failed"]


@pytest.mark.usefixtures("at_once")
async def test_a_host_that_is_too_slow_is_asked_three_times(fetching: Fetching, site: Site) -> None:
    fetching.settings = fetching.settings.model_copy(update={"image_fetch_timeout_s": 0.2})
    site.pages["/slow"] = drip
    [image] = await fetching.fetch(site.url("/slow"))
    assert (image.error_code, image.fetch_attempts) == ("fetch_failed", 3)
    assert "(timeout)" in (image.error_message or "")


@pytest.mark.parametrize("wanted", ["7200", "Fri, 31 Dec 9999 23:59:59 GMT"])
async def test_a_failed_try_waits_before_the_next(fetching: Fetching, site: Site, wanted: str) -> None:
    """Its row says until when, at least as long as the server asks for within a minute; nobody holds it meanwhile."""
    site.pages["/a.png"] = answer(503, Retry_After=wanted)
    [image] = await fetching.fetch(site.url("/a.png"))
    assert (image.state, image.fetch_attempts, image.worker_id) == ("fetching", 1, None)
    [wait_s] = await fetching.column("SELECT extract(epoch FROM fetch_at - now())::float8 FROM image")
    assert 50 < wait_s <= 60
    site.pages["/a.png"] = png()
    await fetching.column("UPDATE image SET fetch_at = now()")
    await (await fetching.engine()).fetch_due()
    [image] = await fetching.images(image.job_id)
    assert (image.state, image.fetch_attempts) == ("queued", 2)
