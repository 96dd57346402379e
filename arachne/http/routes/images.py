"""One image of a job: itself, its result in several forms, its original."""

import asyncio
import json
import re
from urllib.parse import quote

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from arachne.bodies import StoredJson
from arachne.database import Transaction
from arachne.errors import Gone, NotFinished, NotFound
from arachne.formats import MEDIA_TYPES, NEEDS_ORIGINAL, RenderRequest
from arachne.http import bodies
from arachne.http.answers import to_spliced_json
from arachne.http.exchange import caller_of
from arachne.http.operations import Answer, Operation, Resource
from arachne.http.parts import Parts
from arachne.http.splicing import dump
from arachne.jobs.originals import require_original
from arachne.jobs.views import find_image, load_results, show_image
from arachne.schemas.job import ImageView
from arachne.schemas.queries import ResultQuery
from arachne.schemas.result import Result
from arachne.schemas.tables import Image, Job

_OPEN = ("fetching", "queued", "parked", "running")
_DOCUMENTS = tuple(kind for name, kind in MEDIA_TYPES.items() if name != "json")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
PATH = "/api/extract/image-jobs/{job_id}/images/{index}"


async def show_one(request: Request, parts: Parts) -> Response:
    """The image with its result."""
    shown = await parts.database.run(show_image, *_named(request, parts), base_url=parts.settings.base_url)
    return await to_spliced_json(shown)


async def show_result(request: Request, parts: Parts) -> Response:
    """The result in the form that is asked for."""
    query = bodies.read_query(request.query_params, ResultQuery)
    job, image, result = await parts.database.run(_load, *_named(request, parts))
    body = await anyio.to_thread.run_sync(_write, result, query)
    if query.format not in {"json", "md", "txt"}:
        body = await _render(parts, job, image, body, query)
    return _attach(Response(body, media_type=MEDIA_TYPES[query.format]), f"{_stem(image)}.{query.format}")


def _write(result: StoredJson, query: ResultQuery) -> bytes:
    """The result or one page of it as JSON or text; all of it as JSON for the formats that are rendered from it.

    Raises:
        NotFound: the image has no such page.
    """
    body = result.read()
    if query.page is None and query.format not in {"md", "txt"}:
        return body
    shown = _page(json.loads(body), query.page)
    if query.format == "json":
        return dump(shown).encode("utf-8", "replace")
    if query.format in {"md", "txt"}:
        return str(shown["markdown" if query.format == "md" else "text"] or "").encode("utf-8", "replace")
    return body


async def _render(parts: Parts, job: Job, image: Image, result_json: bytes, query: ResultQuery) -> bytes:
    """The document, made in a subprocess.

    Raises:
        Gone: the format needs the original and it is no longer kept.
        Unavailable: too many documents are being made.
    """
    settings = parts.settings
    assert query.format in {"hocr", "pdf", "png"}
    request = RenderRequest(
        query.format, query.page, image.name or _stem(image), settings.max_image_pixels, settings.max_frames
    )
    async with parts.storing:
        original = b""
        if query.format in NEEDS_ORIGINAL:
            original = await parts.storage.read_async(require_original(job, image, settings))
        made = await asyncio.to_thread(parts.renderer.schedule, result_json, original, request)
    return await asyncio.wrap_future(made)


async def show_original(request: Request, parts: Parts) -> Response:
    """The stored bytes, as an attachment of the type they were found to be."""
    job, image = await parts.database.run(find_image, *_named(request, parts))
    original = await parts.storage.open_async(require_original(job, image, parts.settings))
    response = StreamingResponse(original.chunks, media_type=f"image/{image.format}")
    response.headers["Content-Length"] = str(original.size_bytes)
    return _attach(response, f"{_stem(image)}.{image.format}")


def _named(request: Request, parts: Parts) -> tuple[str, str, str, float]:
    """The image as `find_image` takes it."""
    named = request.path_params
    return caller_of(request).account_id, named["job_id"], named["index"], parts.settings.tombstone_s


def _load(
    transaction: Transaction, account_id: str, job_id: str, index: str, tombstone_s: float
) -> tuple[Job, Image, StoredJson]:
    job, image = find_image(transaction, account_id, job_id, index, tombstone_s)
    if image.state in _OPEN:
        raise NotFinished("The image is not read yet. Wait for the job's webhook, or poll it with ?wait.")
    if image.state != "completed":
        raise NotFound(f"The image has no result: it is {image.state}.")
    result = load_results(transaction, [image]).get(image.result_id or "")
    if result is None:
        raise Gone(f"The result of job {job.job_id} is no longer kept.")
    return job, image, result


def _page(result: dict[str, object], page: int | None) -> dict[str, object]:
    if page is None:
        return result
    pages = result["pages"]
    if page == 0 and not isinstance(pages, list):
        return result
    if not isinstance(pages, list) or page >= len(pages):
        raise NotFound("The image has no such page.")
    found = pages[page]
    assert isinstance(found, dict)
    return found


def _stem(image: Image) -> str:
    name = _UNSAFE.sub("_", (image.name or "").rsplit(".", 1)[0]).strip("._")[:80]
    return name or f"image-{image.index}"


def _attach(response: Response, filename: str) -> Response:
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Content-Disposition"] = f'attachment; filename="{quote(filename)}"'
    response.headers["Content-Security-Policy"] = "sandbox"
    return response


RESOURCES = (
    Resource(
        PATH,
        {
            "GET": Operation(
                show_one,
                "One image with its result",
                scope="vision:read",
                policy="reads",
                answers={200: Answer("The image", ImageView)},
                errors=(410,),
            )
        },
    ),
    Resource(
        f"{PATH}/result",
        {
            "GET": Operation(
                show_result,
                "An image's result as JSON, Markdown, plain text, hOCR, searchable PDF, or a PNG with its boxes drawn",
                scope="vision:read",
                policy="reads",
                answers={200: Answer("The result", Result, also=_DOCUMENTS, headers=("Content-Disposition",))},
                query=ResultQuery,
                errors=(410,),
                raises=(NotFinished,),
            )
        },
    ),
    Resource(
        f"{PATH}/original",
        {
            "GET": Operation(
                show_original,
                "The bytes as they were sent",
                scope="vision:read",
                policy="reads",
                answers={200: Answer("The stored bytes", media_type="image/*", headers=("Content-Disposition",))},
                errors=(410,),
                raises=(NotFinished,),
            )
        },
    ),
)
