"""Jobs in the console: followed over bad lines, listed, deleted; and pictures that mean ill or can't be shown."""

import io
import json
import re
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, ImageFont
from playwright.sync_api import Route, expect

from tests.acceptance.console.conftest import JOBS, Console

MARKUP = "<img src=x onerror=alert(1)>"


def drawn(text: str, kind: str = "PNG") -> bytes:
    """A picture of a line of text."""
    picture = Image.new("RGB", (900, 120), "white")
    ImageDraw.Draw(picture).text((30, 35), text, fill="black", font=ImageFont.load_default(40))
    out = io.BytesIO()
    picture.save(out, kind)
    return out.getvalue()


def test_markup_in_a_picture_and_its_name_stays_text(console: Console) -> None:
    page = console.sign_in()
    name = f"{MARKUP}.png"
    job = console.read({"name": name, "mimeType": "image/png", "buffer": drawn(MARKUP)})
    text = console.result(job)["text"]
    assert "<" in text
    assert "onerror" in text
    expect(page.locator("h1")).to_have_text(job["images"][0]["name"])
    assert page.locator(".reading").text_content() == text.strip()
    page.get_by_role("tab", name="Markdown").click()
    assert page.locator("pre.markdown").text_content() == console.result(job)["markdown"]
    assert page.locator("img[src=x], [onerror]").count() == 0


def test_a_picture_the_browser_cannot_show_is_shown_as_the_service_draws_it(console: Console) -> None:
    page = console.sign_in()
    console.read({"name": "scan.tiff", "mimeType": "image/tiff", "buffer": drawn("A page of a scan", "TIFF")})
    expect(page.locator(".sheet img")).to_be_visible()
    expect(page.locator("figure p.hint")).to_contain_text("can't show the original")
    assert page.locator(".sheet img").evaluate("image => [image.naturalWidth, image.naturalHeight]") == [900, 120]


def unread(number: int) -> dict[str, Any]:
    return {"name": f"{number}.png", "mimeType": "image/png", "buffer": drawn(f"Never read before {number}")}


def test_a_stream_that_breaks_is_resumed_after_its_last_event(console: Console) -> None:
    page, resumed = console.sign_in(), []

    def cut(route: Route) -> None:
        last = route.request.headers.get("last-event-id")
        resumed.append(last)
        if last is not None:
            route.continue_()
            return
        data = {"type": "job.started", "data": {"status": "processing", "progress": progress, "images": []}}
        body = f"event: job.started\nid: 1\ndata: {json.dumps(data)}\n\nevent: ima"
        route.fulfill(body=body, content_type="text/event-stream")

    progress = {"total": 2, "completed": 0, "failed": 0, "cancelled": 0, "cached": 0, "degraded": 0, "percent": 0}
    page.route("**/events", cut)
    page.route(f"**{JOBS}/job_*", lambda route: route.fulfill(json=unfinished(route)))
    seen: list[Any] = []

    def unfinished(route: Route) -> Any:
        """The job, as if it weren't finished, the first two times it is looked at."""
        job = route.fetch().json()
        seen.append(job)
        return job | {"finished": False, "status": "processing", "progress": progress} if len(seen) < 3 else job

    console.read(unread(11), unread(12))
    assert resumed[:2] == [None, "1"]


def test_where_streams_do_not_come_through_the_job_is_polled(console: Console) -> None:
    page = console.sign_in()
    page.route("**/events", lambda route: route.abort())
    console.read(unread(21), unread(22))
    expect(page.locator(".images .done")).to_have_count(2)


def test_answers_that_overtake_one_another_are_shown_for_what_is_chosen(console: Console, images: Path) -> None:
    """The list of a status that was chosen and left again, and usage by what it is no longer wanted by."""
    answer = console.client.api.post("/api/extract/image", files={"file": (images / "chat.png").read_bytes()})
    console.client.wait(answer.json()["job_id"])
    held: list[Route] = []
    page = console.sign_in("jobs")

    def hold(route: Route) -> None:
        held.append(route)

    page.route(re.compile(r"/api/.*\?.*(status=failed|group=model)"), hold)
    page.get_by_label("Status").select_option("failed")
    page.get_by_label("Status").select_option("completed")
    expect(page.locator("tbody .badge").first).to_have_text("completed")
    let_go(held.pop())
    expect(page.locator("tbody .badge").first).to_have_text("completed")
    console.go("usage")
    page.get_by_label("By", exact=True).select_option("model")
    page.get_by_label("By", exact=True).select_option("day")
    expect(page.locator("thead")).to_contain_text("Day")
    let_go(held.pop())
    expect(page.locator("thead")).to_contain_text("Day")


def let_go(held: Route) -> None:
    """The answer comes, and the page has done with it what it does."""
    page = held.request.frame.page
    with page.expect_response(lambda answer: answer.request == held.request):
        held.continue_()
    page.evaluate("new Promise((idle) => requestIdleCallback(() => requestIdleCallback(idle)))")


def test_the_list_has_pages_and_deleting_asks_first(console: Console, images: Path) -> None:
    """And a page that doesn't come changes nothing."""
    page, sent = console.sign_in(), {"file": (images / "chat.png").read_bytes()}
    for _ in range(22):
        console.client.api.post("/api/extract/image", files=sent).raise_for_status()
    newest = [job["job_id"] for job in console.client.get(JOBS, limit=21)["data"]]
    console.go("jobs")
    rows = page.locator("tbody tr td a")
    expect(rows).to_have_text(newest[:20])
    page.route(f"**{JOBS}?*cursor=*", lambda route: route.abort(), times=1)
    page.get_by_role("button", name="Older").click()
    expect(page.get_by_role("alert")).to_be_visible()
    page.get_by_role("button", name="Older").click()
    expect(rows.first).to_have_text(newest[20])
    page.get_by_role("button", name="Newer").click()
    expect(rows).to_have_text(newest[:20])
    delete = page.get_by_role("button", name=f"Delete {newest[0]}")
    delete.click()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert console.client.get(f"{JOBS}/{newest[0]}")["finished"]
    delete.click()
    page.get_by_role("button", name="Delete the job").click()
    expect(rows.first).to_have_text(newest[1])
    expect(page.get_by_role("region", name="Jobs")).to_be_focused()
    assert console.client.api.get(f"{JOBS}/{newest[0]}").status_code == 410


def test_a_job_is_cancelled_and_retried(console: Console) -> None:
    """Cancelled while its images wait, then what was cancelled is read as a new job."""
    page = console.sign_in()
    page.locator("#pick").set_input_files([unread(100 + number) for number in range(12)])
    page.get_by_role("button", name="Read 12").click()
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Cancel the job").click()
    expect(page.locator(".row.head .badge").first).to_have_text("cancelled")
    expect(page.get_by_role("button", name="Retry")).to_be_focused()
    before = page.url
    page.get_by_role("button", name="Retry").click()
    page.wait_for_url(lambda url: url != before)
    job = console.client.wait(page.url.rpartition("/")[2])
    assert job["retry_of"] == before.rpartition("/")[2]
    expect(page.locator(".row.head .badge").first).to_have_text("completed")
