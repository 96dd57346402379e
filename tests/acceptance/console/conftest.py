"""The console in a real browser, on a product of its own: sign-ins are limited by address, and all come from one."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.acceptance.conftest import Client, Product, new_client_of, running_product
from tests.acceptance.receiver import Receiver
from tests.standins.browser import ABSENT, find_browser, open_browser

OTHER_HOST = "console.test"
JOBS = "/api/extract/image-jobs"
DESKTOP, PHONE = {"width": 1280, "height": 860}, {"width": 360, "height": 740}
WAIT_MS = 60_000  # for whatever has to come; the machine may be busy
_WATCH = (
    "addEventListener('securitypolicyviolation', (event) => console.error(`violation: ${event.violatedDirective}`))"
)


@pytest.fixture(scope="package")
def product(tmp_path_factory: pytest.TempPathFactory, receiver: Receiver) -> Iterator[Product]:
    """A product that may call the receiver."""
    allowed = json.dumps([f"127.0.0.1:{receiver.port}"])
    with running_product(tmp_path_factory.mktemp("console") / "data", ARACHNE_WEBHOOK_EGRESS_ALLOW=allowed) as running:
        yield running


@pytest.fixture(scope="package")
def client(product: Product) -> Iterator[Client]:
    """A client of the account that most tests sign in as."""
    with new_client_of(product) as made:
        yield made


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A Chromium that finds our other host name here."""
    path = find_browser()
    if path is None:
        pytest.skip(ABSENT)
    expect.set_options(timeout=WAIT_MS)
    with open_browser(path, f"--host-resolver-rules=MAP {OTHER_HOST} 127.0.0.1") as running:
        yield running


@dataclass
class Console:
    """The console in a window of its own, and what it did behind the page."""

    page: Page
    url: str
    client: Client
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def open(self, view: str = "") -> Page:
        """The page, at a view."""
        self.page.goto(f"{self.url}/console{view and f'#/{view}'}")
        return self.page

    def sign_in(self, view: str = "", client: Client | None = None) -> Page:
        """The page at a view, signed in as this client or the one that most are."""
        self.open(view)
        account = (client or self.client).account
        self.page.get_by_label("Client id").fill(account["client_id"])
        self.page.get_by_label("Client secret", exact=True).fill(account["client_secret"])
        self.page.get_by_role("button", name="Sign in").click()
        expect(self.page.get_by_role("button", name="Sign out")).to_be_visible()
        return self.page

    def go(self, view: str) -> Page:
        """The page at another view, still signed in."""
        self.page.evaluate("view => { location.hash = `#/${view}` }", view)
        return self.page

    def read(self, *files: Path | dict[str, Any]) -> dict[str, Any]:
        """The finished job of these files, sent from the page, which shows it."""
        given = [one if isinstance(one, dict) else as_upload(one) for one in files]
        self.page.locator("#pick").set_input_files(given)  # type: ignore[arg-type]
        self.page.get_by_role("button", name="Read ").click()
        self.page.wait_for_url("**/console#/jobs/job_*")
        job_id = self.page.url.rpartition("/")[2]
        job = self.client.wait(job_id)
        expect(self.page.locator(".row.head .badge").first).to_have_text(job["status"])
        return job

    def result(self, job: dict[str, Any], index: int = 0) -> dict[str, Any]:
        """The result of an image, asked for past the page."""
        found: dict[str, Any] = self.client.get(f"{JOBS}/{job['job_id']}/images/{index}")["result"]
        return found


def as_upload(path: Path) -> dict[str, Any]:
    """The file as something to pick."""
    return {"name": path.name, "mimeType": "image/png", "buffer": path.read_bytes()}


@pytest.fixture
def new_console(browser: Browser, product: Product, client: Client) -> Callable[..., Any]:
    """Opens consoles; afterwards none may have run, loaded or kept what it must not."""

    @contextmanager
    def opened(url: str = product.url, **settings: Any) -> Iterator[Console]:
        context = browser.new_context(**({"viewport": DESKTOP} | settings))
        context.set_default_timeout(WAIT_MS)
        context.add_init_script(_WATCH)
        console = Console(context.new_page(), url, client)
        _watch(console)
        yield console
        console.page.unroute_all(behavior="ignoreErrors")  # a test's own answer may still be on its way
        _check(console, context)
        context.close()

    return opened


@pytest.fixture
def console(new_console: Any) -> Iterator[Console]:
    """A console on a desktop."""
    with new_console() as opened:
        yield opened


def _watch(console: Console) -> None:
    page = console.page
    page.on("request", lambda request: console.requests.append(request.url))
    page.on("pageerror", lambda error: console.complaints.append(str(error)))
    page.on("dialog", lambda dialog: console.complaints.append(f"dialog: {dialog.message}"))
    page.on(
        "console",
        # that a request was refused is told by the browser too, and is not the page's fault
        lambda message: (
            message.type in {"error", "warning"}
            and not message.text.startswith("Failed to load resource")
            and console.complaints.append(message.text)
        ),
    )


def _check(console: Console, context: BrowserContext) -> None:
    assert console.complaints == []
    assert {httpx.URL(url).host for url in console.requests if not url.startswith("blob:")} <= {
        httpx.URL(console.url).host
    }
    assert not [url for url in console.requests if "ars_" in url or "eyJ" in url or "client_secret" in url]
    assert context.cookies() == []
    kept = console.page.evaluate(
        "async () => [localStorage.length, sessionStorage.length, (await indexedDB.databases()).length]"
    )
    assert kept == [0, 0, 0]
