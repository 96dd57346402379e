"""Every view of the console: for everybody, on every screen, in light and dark."""

import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.acceptance.console.conftest import DESKTOP, PHONE, Console
from tests.acceptance.receiver import Receiver

_AXE = files("axe_playwright_python").joinpath("axe.min.js").read_text()
_RUN = """async () => (await axe.run(document, { resultTypes: ["violations"] })).violations
    .filter(({ impact }) => impact === "serious" || impact === "critical")
    .map(({ id, nodes }) => [id, ...nodes.map(({ html, failureSummary }) => `${html} ${failureSummary}`)])"""
# Texts a phone cuts off, but for names of files, which may have any length, and numbers of the plot it makes too small.
_ILLEGIBLE = """() => [
    ...[...document.querySelectorAll("main *")].filter((one) => getComputedStyle(one).textOverflow === "ellipsis"
        && one.scrollWidth > one.clientWidth && !one.closest(".images, .chosen, .unseen")),
    ...[...document.querySelectorAll(".plot text")].filter((one) => one.getBoundingClientRect().height < 11),
].map((one) => one.outerHTML)"""
_OVERHANG = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


def walk(console: Console, images: Path, receiver: Receiver) -> Iterator[str]:
    """The name of each view, when it is shown."""
    page = console.open()
    page.locator("summary").click()
    yield "sign in"
    console.sign_in()
    expect(page.locator("#latest")).to_be_visible()
    page.locator("#pick").set_input_files([images / "chat.png", images / "invoice_table.png"])
    page.locator(".options summary").click()
    yield "chosen"
    page.locator("#pick").set_input_files([])
    console.open()
    console.sign_in()
    job = console.read(
        images / "invoice_table.png", {"name": "not a picture.png", "mimeType": "image/png", "buffer": b"x"}
    )
    page.locator(".images a").first.click()
    expect(page.locator(".sheet img")).to_be_visible()
    yield "job"
    page.locator(".menu summary").click()
    yield "downloads"
    page.locator("h1").click()
    expect(page.locator(".menu button").first).to_be_hidden()
    for tab in ("Markdown", "Details"):
        page.get_by_role("tab", name=tab).click()
        yield tab
    page.locator(".images a", has_text="not a picture").click()
    expect(page.locator(".fault")).to_be_visible()
    page.locator(".facts summary").click()
    yield "failed image"
    console.go(f"jobs/{read_slip(console, images)}")
    expect(page.locator(".found")).to_have_count(2)
    yield "slip"
    console.go("jobs")
    expect(page.locator("td a", has_text=job["job_id"])).to_be_visible()
    yield "jobs"
    page.get_by_role("button", name="Delete").first.click()
    expect(page.get_by_role("dialog")).to_be_visible()
    yield "question"
    page.keyboard.press("Escape")
    yield from walk_webhooks(console, receiver)
    console.go("usage")
    expect(page.locator(".plot")).to_be_visible()
    yield "usage"
    console.go("nowhere")
    expect(page.locator("h1")).to_have_text("Nothing here")
    yield "nowhere"


def walk_webhooks(console: Console, receiver: Receiver) -> Iterator[str]:
    """The views of endpoints."""
    page = console.page
    made = console.client.api.post("/api/webhooks", json={"url": receiver.url("walk")}).json()
    console.go("webhooks")
    expect(page.locator("td a").first).to_be_visible()
    yield "webhooks"
    console.go(f"webhooks/{made['endpoint_id']}")
    page.get_by_role("button", name="Send a test").click()
    page.locator(".log summary").first.click()
    expect(page.locator(".attempts table")).to_be_visible()
    yield "endpoint"
    console.client.api.delete(f"/api/webhooks/{made['endpoint_id']}")


def read_slip(console: Console, images: Path) -> str:
    """The id of a finished job of a payment slip."""
    sent = {"file": (images / "slips" / "english.png").read_bytes()}
    options = {"profile": "slip", "detail_level": "fast"}
    job_id = str(console.client.api.post("/api/extract/image", files=sent, params=options).json()["job_id"])
    console.client.wait(job_id)
    return job_id


@pytest.fixture(autouse=True)
def a_job(client: Any, images: Path) -> None:
    """There is one, so that there are latest jobs."""
    answer = client.api.post("/api/extract/image", files={"file": (images / "chat.png").read_bytes()})
    client.wait(answer.json()["job_id"])


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_nothing_serious_is_found_in_any_view(
    new_console: Any, images: Path, receiver: Receiver, size: dict[str, int]
) -> None:
    """By axe-core, in light and in dark; and nothing scrolls the page sideways, is cut off or too small to read."""
    found = {}
    with new_console(viewport=size) as console:
        for view in walk(console, images, receiver):
            if not console.page.evaluate("'axe' in window"):
                console.page.evaluate(_AXE)
            for scheme in ("light", "dark"):
                console.page.emulate_media(color_scheme=scheme)
                found[view, scheme] = console.page.evaluate(_RUN)
            assert console.page.evaluate(_OVERHANG) <= 0, view
            assert console.page.evaluate(_ILLEGIBLE) == [], view
    assert len(found) >= 2 * 14
    assert {view: faults for view, faults in found.items() if faults} == {}


def test_all_of_it_works_without_a_pointer(console: Console, images: Path) -> None:
    """Sign in, choose, send, go through the words, open and close a menu, leave: by keys, with the focus to be seen."""
    page = console.open()
    page.on("filechooser", lambda _: None)  # from now on the browser tells of it instead of asking
    account, press = console.client.account, page.keyboard.press
    expect(page.get_by_label("Client id")).to_be_focused()
    page.keyboard.type(account["client_id"])
    press("Tab")
    page.keyboard.type(account["client_secret"])
    press("Enter")
    expect(page.locator("h1")).to_be_focused()
    press("Tab")
    expect(page.locator(".drop")).to_be_focused()
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    with page.expect_file_chooser() as asked:
        press("Enter")
    asked.value.set_files([images / "dialog_light.png"])
    expect(page.get_by_role("button", name="Read 1 screenshot")).to_be_focused()
    press("Enter")
    expect(page.locator(".reading .word").first).to_be_visible()
    tab_to(page, ".word")
    press("ArrowRight")
    expect(page.locator(".word").nth(1)).to_be_focused()
    expect(page.locator("polygon.lit")).to_have_count(1)
    press("End")
    expect(page.locator(".word").last).to_be_focused()
    tab_to(page, ".menu summary", key="Shift+Tab")
    press("Enter")
    expect(page.locator(".menu button").first).to_be_visible()
    press("Tab")
    press("Escape")
    expect(page.locator(".menu summary")).to_be_focused()
    expect(page.locator(".menu button").first).to_be_hidden()
    tab_to(page, "#sign-out", key="Shift+Tab")
    press("Enter")
    expect(page.get_by_label("Client id")).to_be_focused()


def test_the_description_is_no_wider_than_a_phone(new_console: Any) -> None:
    """It is the console's neighbour, to which the service's bare address leads."""
    with new_console(viewport=PHONE) as console:
        page = console.open()
        page.goto(page.url.partition("/console")[0])
        expect(page).to_have_url(re.compile("/console$"))
        page.goto(page.url.replace("/console", "/docs"))
        expect(page.locator("h1")).to_have_text("Arachne API")
        assert page.locator("meta[name=viewport]").count() == 1  # without it a phone shows it as wide as a desktop
        assert page.evaluate(_OVERHANG) <= 0


def tab_to(page: Page, selector: str, key: str = "Tab") -> None:
    for _ in range(40):
        page.keyboard.press(key)
        if page.evaluate("selector => document.activeElement.matches(selector)", selector):
            return
    raise AssertionError(f"{selector} is not reached by {key}")


def test_the_skip_link_leads_past_the_menu(console: Console) -> None:
    page = console.sign_in()
    expect(page.locator("h1")).to_have_text("Read screenshots")
    page.locator("#skip").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()
    assert page.evaluate("location.hash") in {"", "#/"}


def test_usage_is_told_in_a_plot_and_in_numbers(console: Console) -> None:
    page = console.sign_in("usage")
    report = console.client.get("/api/usage")
    images, cached = report["total"]["images"], report["total"]["cached"]
    expect(page.locator(".figures dd").first).to_have_text(f"{images:,}")
    [day] = report["data"]
    expect(page.locator("table.numbers tbody tr td").nth(1)).to_have_text(f"{images:,}")
    told = page.locator(".plot title", has_text=day["key"]).text_content()
    assert told == f"{day['key']}: {images} images, {cached} from the cache"
