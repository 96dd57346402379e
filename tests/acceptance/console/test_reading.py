"""Screenshots sent from the console, and what it shows of them."""

import base64
import io
import re
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageDraw, ImageFont, ImageOps
from playwright.sync_api import Page, expect

from tests.acceptance.console.conftest import OTHER_HOST, Console

PICTURE = "invoice_table.png"
SAVED = {
    "JSON": "json",
    "Markdown": "md",
    "Plain text": "txt",
    "hOCR": "hocr",
    "PDF, searchable": "pdf",
    "PNG with boxes": "png",
}
_BOXES = """() => {
    const frame = document.querySelector(".sheet img").getBoundingClientRect();
    const image = document.querySelector(".sheet img");
    const scale = image.naturalWidth / frame.width;
    return [...document.querySelectorAll(".boxes polygon")].map((box) => {
        const at = box.getBoundingClientRect();
        return [(at.x - frame.x) * scale, (at.y - frame.y) * scale, at.width * scale, at.height * scale];
    });
}"""


def words(result: dict[str, Any]) -> list[dict[str, Any]]:
    return [word for block in result["blocks"] for line in block["lines"] for word in line["words"]]


def await_picture(page: Page) -> None:
    expect(page.locator(".sheet img")).to_be_visible()


def test_picked_screenshots_are_read_while_one_watches(console: Console, images: Path) -> None:
    """Two files of one job: their states follow its events, and each word's box lies where the API says."""
    page = console.sign_in()
    job = console.read(images / PICTURE, images / "chat.png")
    assert [image["name"] for image in job["images"]] == [PICTURE, "chat.png"]
    assert any(url.endswith(f"/{job['job_id']}/events") for url in console.requests) or job["cached"]
    expect(page.locator(".images .done")).to_have_count(2)
    expect(page.locator(".progress")).to_be_visible(
        visible=bool(job["progress"]["cached"])
    )  # or the heading says it all
    page.locator(".images a", has_text=PICTURE).click()
    expect(page.locator(".reading")).to_contain_text("Invoice")
    await_picture(page)
    expected = [word["bbox"] for word in words(console.result(job))]
    drawn = page.evaluate(_BOXES)
    assert len(drawn) == len(expected) > 40
    for box, bbox in zip(drawn, expected, strict=True):
        assert box == pytest.approx(bbox, abs=1.5)
    page.locator(".images a", has_text="chat.png").click()
    expect(page.locator(".reading")).to_contain_text(console.result(job, 1)["text"].split()[0])


def test_pointing_at_a_box_lights_its_word_and_back(console: Console, images: Path) -> None:
    page = console.sign_in()
    job = console.read(images / PICTURE)
    await_picture(page)
    number = next(place for place, word in enumerate(words(console.result(job))) if word["text"] == "Harbour")
    box, word = page.locator(f'polygon[data-link="{number}"]'), page.locator(f'.word[data-link="{number}"]')
    expect(word).to_have_text("Harbour")
    box.hover()
    expect(word).to_have_class(re.compile("lit"))
    expect(page.locator(".lit")).to_have_count(2)
    page.locator("h1").hover()
    expect(page.locator(".lit")).to_have_count(0)
    word.hover()
    expect(box).to_have_class(re.compile("lit"))
    expect(page.locator(".saying")).to_contain_text("“Harbour”")


def test_tables_are_tables_and_code_is_code(console: Console, images: Path) -> None:
    page = console.sign_in()
    job = console.read(images / PICTURE, images / "editor_dark.png")
    page.locator(".images a", has_text=PICTURE).click()
    [table] = console.result(job)["tables"]
    shown = page.locator("table.grid")
    expect(shown.locator("tr")).to_have_count(table["rows"])
    expect(shown.locator("th, td")).to_have_text([cell["text"] for cell in table["cells"]])
    page.locator(".images a", has_text="editor_dark.png").click()
    lines = [line["text"] for block in console.result(job, 1)["blocks"] for line in block["lines"]]
    assert page.locator("pre.code").text_content() == "\n".join(lines)


def test_a_slip_shows_its_fields_and_its_code(console: Console, images: Path) -> None:
    """Those that tests/images/slips/english.txt names, and what its code says; pointing at that finds the code."""
    page = console.sign_in()
    choose(page, profile="slip")
    console.read(images / "slips" / "english.png")
    told = "003700060000010103014021620240317140599815102TH9104846B"
    fields = page.locator(".found", has=page.get_by_role("heading", name="Slip"))
    expect(fields.locator("dt, dd")).to_have_text(
        [
            *("Amount", "1250.00 THB", "Date", "2024-03-17 14:05:00", "Reference", "2024031714059981"),
            *("Sender", "Maria Lopez", "Receiver", "Tom Baker", "Banks", "Harbour Bank, Northern Savings Bank"),
            *("QR code", told),
        ]
    )
    code = page.locator(".found", has=page.get_by_role("heading", name="Codes"))
    expect(code.locator("dt, dd")).to_have_text(["QR", told])
    await_picture(page)
    code.locator(".word").hover()
    expect(page.locator(".saying")).to_have_text(f"qr “{told}”")
    points = page.locator("polygon.lit").get_attribute("points") or ""
    corners = [[float(one) for one in point.split(",")] for point in points.split()]
    assert len(corners) == 4
    assert all(x >= 400 and y >= 520 for x, y in corners)  # where scripts/render_slips puts it


def test_pages_of_a_scan_are_shown_one_by_one(console: Console) -> None:
    """Each with its own text and its own picture, which the service draws."""
    page = console.sign_in()
    choose(page, frames=True)
    sheets = [ImageOps.expand(sheet("Alpha page"), 10, "white"), sheet("Omega page")]
    out = io.BytesIO()
    sheets[0].save(out, "TIFF", save_all=True, append_images=sheets[1:])
    console.read({"name": "scan.tiff", "mimeType": "image/tiff", "buffer": out.getvalue()})
    for number, (name, picture) in enumerate(zip(("Alpha", "Omega"), sheets, strict=True)):
        page.get_by_label("Page").select_option(f"{number + 1} of 2")
        expect(page.locator(".reading")).to_have_text(f"{name} page")
        expect(page.locator(".sheet img")).to_have_js_property("naturalWidth", picture.width)
        expect(page.locator(".sheet img")).to_have_js_property("naturalHeight", picture.height)


def choose(page: Page, *, profile: str = "screenshot", frames: bool = False) -> None:
    """These options for what is sent next."""
    page.locator(".options summary").click()
    page.get_by_label("Profile").select_option(profile)
    page.get_by_label("All pages").set_checked(frames)


def sheet(text: str) -> Image.Image:
    """A page of one line."""
    picture = Image.new("RGB", (500, 120), "white")
    ImageDraw.Draw(picture).text((30, 35), text, fill="black", font=ImageFont.load_default(40))
    return picture


def test_markdown_is_copied_and_every_form_is_saved(console: Console, images: Path) -> None:
    page = console.sign_in()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    job = console.read(images / PICTURE)
    result = f"/api/extract/image-jobs/{job['job_id']}/images/0/result"
    page.get_by_role("button", name="Copy as Markdown").click()
    expect(page.locator(".notice.good")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == console.client.api.get(f"{result}?format=md").text
    for label, name in SAVED.items():
        page.locator(".menu summary").click()
        with page.expect_download() as begun:
            page.locator(".menu").get_by_role("button", name=label, exact=True).click()
        assert begun.value.suggested_filename == f"invoice_table.{name}"
        saved = Path(begun.value.path()).read_bytes()
        if name != "pdf":  # its trailer has an id of its own
            assert saved == console.client.api.get(result, params={"format": name}).content
    page.locator(".menu summary").click()
    with page.expect_download() as begun:
        page.get_by_role("button", name="The original").click()
    assert Path(begun.value.path()).read_bytes() == (images / PICTURE).read_bytes()


def test_where_copying_is_refused_that_is_told(console: Console, images: Path) -> None:
    page = console.sign_in()
    page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('no')) }")
    page.evaluate("() => { document.execCommand = () => false }")
    console.read(images / PICTURE)
    page.get_by_role("button", name="Copy as Markdown").click()
    expect(page.get_by_role("alert")).to_contain_text("copy it by hand")


def test_a_pasted_screenshot_is_read(console: Console, images: Path) -> None:
    """From the system's clipboard, by Ctrl-V."""
    page = console.sign_in()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    encoded = base64.b64encode((images / "chat.png").read_bytes()).decode()
    page.evaluate(
        """async (encoded) => {
            const bytes = Uint8Array.from(atob(encoded), (letter) => letter.charCodeAt(0));
            const item = new ClipboardItem({ "image/png": new Blob([bytes], { type: "image/png" }) });
            await navigator.clipboard.write([item]);
        }""",
        encoded,
    )
    page.keyboard.press("Control+V")
    expect(page.locator(".chosen li")).to_have_count(1)
    page.get_by_role("button", name="Read 1 screenshot").click()
    expect(page.locator(".reading")).to_contain_text("Tom")


def test_dropped_screenshots_are_read(console: Console, images: Path) -> None:
    """Two files let go over the page, as the browser gets them from the system."""
    page = console.sign_in()
    page.locator(".drop").wait_for()
    input_of = page.context.new_cdp_session(page)
    files = [str(images / name) for name in ("dialog_light.png", "chat.png")]
    for kind in ("dragEnter", "dragOver", "drop"):
        data = {"items": [], "files": files, "dragOperationsMask": 1}
        input_of.send("Input.dispatchDragEvent", {"type": kind, "x": 400, "y": 250, "data": data})
    expect(page.locator(".chosen .name")).to_have_text(["dialog_light.png", "chat.png"])
    page.get_by_role("button", name="Take out dialog_light.png").click()
    expect(page.locator(".chosen .name")).to_have_text(["chat.png"])
    page.get_by_role("button", name="Read 1 screenshot").click()
    expect(page.locator("h1")).to_have_text("chat.png")
    expect(page.locator(".reading")).to_contain_text("Tom")


def test_another_host_name_without_tls_serves_too(new_console: Any, product: Any, images: Path) -> None:
    """Nothing needs the service's own name or what browsers keep for secure contexts; copying neither."""
    with new_console(url=product.url.replace("127.0.0.1", OTHER_HOST)) as console:
        page = console.sign_in()
        assert not page.evaluate("isSecureContext")
        job = console.read(images / "dialog_light.png")
        await_picture(page)
        page.get_by_role("button", name="Copy as Markdown").click()
        expect(page.locator(".notice.good")).to_be_visible()
        expect(page.get_by_role("button", name="Copy as Markdown")).to_be_focused()
        console.go("webhooks")
        description = page.get_by_label("Description")
        description.focus()
        page.keyboard.press("Control+V")
        assert description.input_value().split() == console.result(job)["markdown"].split()
