"""Images as they come in: taken from a form or from JSON, looked at by their bytes, stored under their hash."""

import binascii
import hashlib
from asyncio import Semaphore
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial

from starlette.requests import Request

from arachne.errors import (
    ArachneError,
    DecodeFailed,
    EgressBlocked,
    ImageError,
    ImageTooLarge,
    InvalidOptions,
    InvalidUrl,
    TooManyImages,
    UnsupportedMediaType,
)
from arachne.http import bodies
from arachne.http.multipart import FilePart, Form, read_form
from arachne.images import ImageHeader, sniff
from arachne.net.policy import EgressPolicy, image_policy
from arachne.net.urls import check_url
from arachne.schemas.submission import MAX_NAME, ImageInput, RawBatch, RawSingle
from arachne.schemas.text import is_storable
from arachne.settings import Settings
from arachne.spool import Spool

FORM = "multipart/form-data"
_TERMS = {"options", "webhook", "metadata"}


@dataclass
class Arrival:
    """One image as it came: where its bytes are (None where there are none), and what was found out about it.

    With a `url` it is still to be fetched, from `host`.
    """

    name: str | None
    sha256: str | None
    size_bytes: int
    spool: Spool | None = None
    offset: int = 0
    kept_bytes: int = 0
    header: ImageHeader | None = None
    error: ArachneError | None = None
    url: str | None = None
    host: str | None = None

    @property
    def identity(self) -> str:
        """What tells the image from others before its bytes are known to be an image."""
        return self.sha256 or f"url:{self.url}"

    def read(self) -> bytes:
        """The bytes; call it in a thread, one of a submission at a time.

        Raises:
            Unavailable: they can't be read.
        """
        assert self.spool is not None
        return self.spool.read(self.offset, self.kept_bytes)


@dataclass
class Intake:
    """A submission as it came: its images in order, and its terms not yet validated."""

    arrivals: list[Arrival]
    terms: dict[str, object]


async def read_intake(
    request: Request,
    settings: Settings,
    gate: Semaphore,
    *,
    single: bool,
    stack: ExitStack,
    new_spool: Callable[[], Spool] = Spool,
) -> Intake:
    """The submission in the body; its spools are closed with `stack`. Large JSON is held in memory behind `gate` only.

    Raises:
        UnsupportedMediaType: neither a form nor JSON, or compressed.
        MalformedRequest: it can't be parsed.
        TooManyImages: more images than a job may have.
        InvalidOptions: a part or member is missing or unknown.
        Unavailable: the images can't be kept.
    """
    spool = stack.enter_context(closing(new_spool()))
    declared = bodies.media_type(request.headers)
    if declared == FORM:
        max_files, max_file_bytes = settings.max_images_per_job, settings.max_image_bytes
        form = await read_form(request, spool, max_files=max_files, max_file_bytes=max_file_bytes)
        return _from_form(form, settings, single=single)
    if declared == bodies.JSON:
        decode = partial(_from_json, settings=settings, spool=spool, single=single)
        return await bodies.read_json(request, decode, gate, new_spool())
    raise UnsupportedMediaType(f"Send {FORM} or {bodies.JSON}, not {declared or 'a body without Content-Type'}.")


def inspect(arrival: Arrival) -> None:
    """Note the header of the image, or why it is none; call it in a thread, it reads the file."""
    if arrival.error is not None or arrival.spool is None:
        return
    try:
        arrival.header = sniff(arrival.read())
    except ImageError as error:
        arrival.error = error


def _from_form(form: Form, settings: Settings, *, single: bool) -> Intake:
    wanted = "file" if single else "files"
    unknown = next((part.part_name for part in form.files if part.part_name != wanted), None)
    unknown = unknown or next((name for name in form.texts if name not in _TERMS), None)
    if unknown is not None:
        hint = f" Send `{wanted}` as a file, with a filename." if unknown == wanted else ""
        raise _invalid(unknown, f"The form has an unknown part. Parts are {wanted}, options, webhook, metadata.{hint}")
    if not form.files:
        raise _invalid(wanted, f"The form has no image: send it as the file `{wanted}`.")
    if single and len(form.files) > 1:
        raise _invalid(wanted, "Send one image here; POST /api/extract/images takes several.")
    terms = {name: bodies.parse_json(bytes(text), f"The part {name!r}") for name, text in form.texts.items()}
    return Intake([_from_part(part, form.spool, settings) for part in form.files], terms)


def _from_part(part: FilePart, spool: Spool, settings: Settings) -> Arrival:
    _check_name(part.filename)
    digest = part.hash.hexdigest()
    arrival = Arrival(part.filename, digest, part.size_bytes, spool, part.offset, part.kept_bytes)
    if part.size_bytes > settings.max_image_bytes:
        arrival.error = _too_large(part.size_bytes, settings)
    return arrival


def _from_json(value: object, settings: Settings, spool: Spool, *, single: bool) -> Intake:
    raw = bodies.validate(RawSingle, value) if single else bodies.validate(RawBatch, value)
    inputs: Sequence[ImageInput] = [raw.image] if isinstance(raw, RawSingle) else raw.images
    if len(inputs) > settings.max_images_per_job:
        raise TooManyImages(f"A job has at most {settings.max_images_per_job:,} images. Send several jobs.")
    policy = image_policy(settings)
    arrivals = [
        _from_base64(one, one.base64, settings, spool) if one.base64 is not None else _from_url(one, policy)
        for one in inputs
    ]
    return Intake(arrivals, raw.terms)


def _from_url(image: ImageInput, policy: EgressPolicy) -> Arrival:
    """Its form and host alone are looked at now; the rest is seen when it is fetched."""
    url = image.url or ""
    try:
        host = check_url(url, policy).host
    except (InvalidUrl, EgressBlocked) as error:
        return Arrival(image.name, None, 0, url=url, error=error)
    return Arrival(image.name, None, 0, url=url, host=host)


def _from_base64(image: ImageInput, text: str, settings: Settings, spool: Spool) -> Arrival:
    try:
        data = binascii.a2b_base64(text.encode("ascii"), strict_mode=True)
    except (binascii.Error, UnicodeEncodeError):
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        hint = " Leave out the `data:…;base64,` before it." if text.startswith("data:") else ""
        fault = DecodeFailed(f"The base64 text is damaged or not of the standard alphabet with padding.{hint}")
        return Arrival(image.name, f"text:{digest}", 0, error=fault)
    arrival = Arrival(image.name, hashlib.sha256(data).hexdigest(), len(data), spool, spool.size_bytes, len(data))
    spool.add(data)
    if len(data) > settings.max_image_bytes:
        arrival.error = _too_large(len(data), settings)
    return arrival


def _check_name(name: str | None) -> None:
    if name is not None and (len(name) > MAX_NAME or not is_storable(name)):
        raise _invalid("name", f"An image's name has at most {MAX_NAME} characters and no NUL.")


def _too_large(size_bytes: int, settings: Settings) -> ImageTooLarge:
    return ImageTooLarge(
        f"The image has {size_bytes:,} bytes, {settings.max_image_bytes:,} are allowed. Compress or crop it."
    )


def _invalid(where: str, message: str) -> InvalidOptions:
    return InvalidOptions(message, errors=[{"loc": [where], "msg": message}])
