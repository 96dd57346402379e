"""What one line of a cache file says: a result with its key, or a row of an original-format file."""

from base64 import b64decode, b64encode
from datetime import UTC, datetime
from math import isfinite
from typing import Annotated, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, TypeAdapter
from pydantic_core import from_json, to_json

from arachne.errors import FileRejected
from arachne.versions import SHARED, CacheKey

ORIGINAL_COLUMNS = ("sha256", "result_json", "model_version", "created_at", "hits")
MAX_COUNT = 2**31 - 1  # what PostgreSQL's integers hold
SqlValue = str | int | float | bytes | None

_Name = Annotated[str, Field(min_length=1, max_length=400, pattern=r"^[^\x00-\x1f\x7f]+$")]
_Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
_Count = Annotated[int, Field(ge=0, le=MAX_COUNT)]


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ResultEntry(_Line):
    """A result that answers a key.

    Where not `complete` it answers for its reading alone: stages 1 to 7, under `reading_hash`. `result` is the JSON.
    """

    kind: Literal["result"] = "result"
    scope: _Name
    sha256: _Digest
    model_version: _Name
    pipeline_version: _Name
    options_hash: _Name
    reading_hash: _Name | None
    complete: bool
    has_reading: bool
    account_id: _Name
    units: Annotated[int, Field(ge=1, le=MAX_COUNT)]
    created_at: AwareDatetime
    hits: _Count
    result: str

    @property
    def key(self) -> CacheKey:
        """The key of the result."""
        parts = (self.scope, self.sha256, self.model_version, self.pipeline_version, self.options_hash)
        return CacheKey(*parts, reading_hash=self.reading_hash)


class Blob(_Line):
    """Bytes, or text that is no UTF-8, in base64."""

    type: Literal["blob", "text"]
    base64: str


class Real(_Line):
    """A float that JSON can't write: `inf` or `-inf`."""

    real: Literal["inf", "-inf"]


Value = Annotated[str | int | float | Blob | Real | None, Field(union_mode="left_to_right")]


class OriginalEntry(_Line):
    """A row of an original-format file, each value as SQLite had it."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    kind: Literal["original"] = "original"
    sha256: Value
    result_json: Value
    model_version: Value
    created_at: Value
    hits: Value


Entry = ResultEntry | OriginalEntry
_ENTRY: TypeAdapter[Entry] = TypeAdapter(Annotated[Entry, Field(discriminator="kind")])


def dump_entry(entry: Entry) -> bytes:
    """The entry as compact JSON in UTF-8."""
    return to_json(entry)


def parse_entry(payload: bytes) -> Entry:
    """The entry of a line.

    Raises:
        FileRejected: it has another form, or its result is not one of the image it is filed under.
    """
    try:
        entry = _ENTRY.validate_json(payload)
    except ValueError as error:  # pydantic's own is one
        raise FileRejected(f"an entry of another form: {str(error).splitlines()[0]}") from None
    if isinstance(entry, ResultEntry):
        check_result(entry)
    else:
        original_values(entry)
    return entry


def check_result(entry: ResultEntry) -> None:
    """Nothing, for a result that may answer its key.

    Raises:
        FileRejected: its JSON is broken or speaks of another image, or the entry answers nothing.
    """
    if entry.scope not in {entry.account_id, SHARED}:
        raise FileRejected("a result of one account under another's key")
    if not (entry.complete or entry.has_reading) or (entry.has_reading and entry.reading_hash is None):
        raise FileRejected("a result that answers no key")
    try:
        told = from_json(entry.result, allow_inf_nan=False, cache_strings=False)
    except ValueError:
        raise FileRejected("a result that is no JSON") from None
    image = told.get("image") if isinstance(told, dict) else None
    if not isinstance(image, dict) or image.get("sha256") != entry.sha256:
        raise FileRejected("a result of another image than it is filed under")


def wire_value(kind: str, value: SqlValue) -> str | int | float | Blob | Real | None:
    """A value of SQLite's type `kind` as a line holds it; text comes as bytes, since it may be no UTF-8."""
    if isinstance(value, bytes):
        if kind == "text":
            try:
                return value.decode()
            except UnicodeDecodeError:
                return Blob(type="text", base64=b64encode(value).decode())
        return Blob(type="blob", base64=b64encode(value).decode())
    if isinstance(value, float) and not isfinite(value):
        return Real(real="inf" if value > 0 else "-inf")
    return value


def original_values(entry: OriginalEntry) -> list[tuple[bool, SqlValue]]:
    """The five values in the order of ORIGINAL_COLUMNS: whether SQLite is to take it as text, and the value.

    Raises:
        FileRejected: one is no base64, or a number SQLite can't hold.
    """
    return [_sql_value(getattr(entry, name)) for name in ORIGINAL_COLUMNS]


def _sql_value(value: str | float | Blob | Real | None) -> tuple[bool, SqlValue]:
    if isinstance(value, str):
        return True, value.encode()
    if isinstance(value, Blob):
        try:
            return value.type == "text", b64decode(value.base64, validate=True)
        except ValueError:
            raise FileRejected("a value that is no base64") from None
    if isinstance(value, Real):
        return False, float(value.real)
    number: object = value
    if isinstance(number, int) and not -(2**63) <= number < 2**63:
        raise FileRejected("a number that is too large")
    return False, value


def now() -> datetime:
    """The time, as entries are stamped with it."""
    return datetime.now(UTC)
