"""A worker in the test's own hands: it publishes its facts, and reads images when told to."""

import json

from arachne.bodies import Reading
from arachne.cache import CacheKey, compress
from arachne.errors import ReadFailed
from arachne.jobs.claim import Claimed, claim
from arachne.jobs.finish import finish_cached, finish_completed, finish_failed
from arachne.jobs.publications import Published, publish
from arachne.jobs.workers import register
from arachne.reading import cache_key
from arachne.schemas.options import Options
from tests.http.conftest import Service

FACTS = Published("pipeline-1", ("eng", "osd"), {})
PAGES = 2


class Worker:
    """Claims and finishes images of a service."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.worker_id = ""

    async def start(self) -> "Worker":
        """The worker, registered and published."""
        await self.service.database.run(publish, FACTS)
        self.worker_id = await self.service.database.run(register, "gpu")
        return self

    async def claim(self, limit: int = 10) -> list[Claimed]:
        """Images to read."""
        run, settings = self.service.database.run, self.service.settings
        return (await run(claim, self.worker_id, limit, self._key_of, settings)).images

    async def read_all(self, *, failing: tuple[str, ...] = ()) -> int:
        """Number of images read until none waits; those with a hash in `failing` fail."""
        done = 0
        while claimed := await self.claim():
            for image in claimed:
                await self.finish(image, fails=image.sha256 in failing)
            done += len(claimed)
        return done

    async def finish(self, image: Claimed, *, fails: bool = False) -> None:
        """Finish one image."""
        run, settings = self.service.database.run, self.service.settings
        if image.hit is not None:
            await run(finish_cached, image, settings)
        elif fails:
            await run(finish_failed, image, ReadFailed("It can't be read.", stage="read"), settings)
        else:
            await run(finish_completed, image, Reading(compress(result_json(image.sha256)), "none"), settings)

    def _key_of(self, options: Options, account_id: str, digest: str) -> CacheKey:
        return cache_key(options, account_id, digest, self.service.settings, FACTS)


def result_json(digest: str) -> bytes:
    """A result as a pipeline would give it, with a text that names the image."""
    page = {
        "image": {
            "sha256": digest, "format": "png", "width": 40, "height": 20, "frames": 1,
            "exif_orientation": None, "warnings": [],
        },
        "quality": None, "geometry": None, "text": f"text of {digest[:8]} ภาษาไทย", "markdown": f"# {digest[:8]}",
        "languages": ["eng"], "confidence": 0.9, "blocks": [], "tables": [], "codes": [], "visual": None, "vlm": None,
        "fields": None, "stages": [], "degraded": False, "model_version": "none", "pipeline_version": "pipeline-1",
    }  # fmt: skip
    pages = [{**page, "text": f"page {number}", "pages": None} for number in range(PAGES)]
    return json.dumps({**page, "pages": pages}).encode()
