"""The client library against the whole product: hundreds of images over a bad line, and where it alone is installed."""

import hashlib
import io
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from arachne.client import AsyncClient
from tests.acceptance.conftest import Client, Product
from tests.client.light import ROOT, lightly
from tests.client.wire import Passing, Wire

IMAGES = 500
EXAMPLES = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "client.md").read_text(), re.MULTILINE | re.DOTALL)


def pictures(number: int) -> list[bytes]:
    """Small PNGs of noise, no two alike, which nothing compresses."""
    noise = np.random.default_rng(500).integers(0, 256, (number, 30, 40, 3), dtype=np.uint8)
    return [_png(pixels) for pixels in noise]


def _png(pixels: Any) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


async def test_five_hundred_images_over_a_line_that_is_cut_twice(client: Client, product: Product) -> None:
    """Once in the middle of an upload, once in the middle of a wait: all results, in order, no image twice."""
    sent = pictures(IMAGES)
    async with Wire(product.url) as wire:

        def watch(passing: Passing) -> None:
            uploading = passing.request.startswith("POST /api/extract/images") and not passing.answered_bytes
            waiting = passing.request.endswith("/events") and passing.answered_bytes > 0
            if (wire.cuts == 0 and uploading and passing.sent_bytes > 100_000) or (wire.cuts == 1 and waiting):
                wire.cut(down_for=3)

        wire.watch = watch
        account = client.account
        async with AsyncClient(
            wire.url, client_id=account["client_id"], client_secret=account["client_secret"]
        ) as arachne:
            found = await arachne.extract(sent, stages=["decode"], detail_level="fast")
    assert wire.cuts == 2
    assert [image.index for image in found] == list(range(IMAGES))
    assert [image.error for image in found] == [None] * IMAGES
    digests = [_digest(data) for data in sent]
    assert [image.result.image.sha256 for image in found if image.result] == digests
    assert client.get("/api/usage")["total"]["images"] == IMAGES
    jobs = client.get("/api/extract/image-jobs", limit=200)["data"]
    assert sum(job["progress"]["total"] for job in jobs) == IMAGES


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


READING = """
import sys
from arachne.client import Client
with Client() as arachne:
    [image] = arachne.extract([sys.argv[1]], stages=["decode"])
print(image.result.image.format)
"""


def test_an_image_is_read_where_only_the_base_dependencies_are_installed(
    client: Client, product: Product, images: Path
) -> None:
    done = run(lightly(READING, str(images / "chat.png")), client, product)
    assert (done.returncode, done.stdout.strip()) == (0, "png"), done.stderr


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_the_pages_examples_run(client: Client, product: Product, number: int) -> None:
    """Each as it stands, from the checkout's root, with nothing but the base dependencies."""
    done = run(lightly(EXAMPLES[number]), client, product)
    assert done.returncode == 0, done.stderr


def run(line: Sequence[str], client: Client, product: Product) -> subprocess.CompletedProcess[str]:
    """A program that finds the service and its credentials in the environment."""
    credentials = {
        "ARACHNE_URL": product.url,
        "ARACHNE_CLIENT_ID": client.account["client_id"],
        "ARACHNE_CLIENT_SECRET": client.account["client_secret"],
    }
    environment = product.environment | credentials
    return subprocess.run(line, capture_output=True, text=True, check=False, timeout=240, env=environment, cwd=ROOT)
