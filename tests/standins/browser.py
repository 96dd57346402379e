"""A real Chromium, without a window, for tests and whatever else looks at pages; `scripts/browser` installs one."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ABSENT = "there is no Chromium here; as root `scripts/browser` installs Debian's"
# Nothing is asked of the network but the page's own requests; a container has no sandbox to give.
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def find_browser() -> str | None:
    """Path of a Chromium: the one ARACHNE_BROWSER names, else the first on PATH."""
    return os.environ.get("ARACHNE_BROWSER") or next(filter(None, map(shutil.which, NAMES)), None)


@contextmanager
def open_browser(path: str, *arguments: str) -> Iterator[Browser]:
    """The Chromium at a path, with an empty profile that is gone afterwards. No asyncio in this thread meanwhile."""
    with tempfile.TemporaryDirectory() as home, sync_playwright() as playwright:
        environment = os.environ | {"HOME": home, "XDG_CONFIG_HOME": home, "XDG_CACHE_HOME": home}
        browser = playwright.chromium.launch(
            executable_path=path, args=[*ARGUMENTS, *arguments], env=dict(environment), chromium_sandbox=False
        )
        try:
            yield browser
        finally:
            browser.close()
