"""Column types the tables share."""

from typing import Any

from sqlalchemy import DateTime, LargeBinary, text
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.types import Text, UserDefinedType
from sqlmodel import Field

Moment = DateTime(timezone=True)
TextList = ARRAY(Text)
BytesList = ARRAY(LargeBinary)
MomentList = ARRAY(Moment)
Json = JSONB(none_as_null=True)


class Xid8(UserDefinedType[int]):
    """PostgreSQL's 64-bit transaction id: orders events by commit, see the event feed."""

    cache_ok = True

    def get_col_spec(self, **_: object) -> str:
        """The type's name in DDL."""
        return "xid8"


def created_now() -> Any:  # a field's default stands where its type's value will
    """A field set by the database's clock when the row is inserted."""
    return Field(default=None, sa_type=Moment, nullable=False, sa_column_kwargs={"server_default": text("now()")})


def one_unit() -> Any:  # as above
    """A count of the images that something counts as; one, unless said otherwise."""
    return Field(default=1, nullable=False, sa_column_kwargs={"server_default": text("1")})


def unset() -> Any:  # as above
    """A mark that is off, unless said otherwise."""
    return Field(default=False, nullable=False, sa_column_kwargs={"server_default": text("false")})


def nothing_yet(kind: ARRAY[Any]) -> Any:  # as above
    """A list that is empty, unless said otherwise."""
    return Field(default_factory=list, sa_type=kind, nullable=False, sa_column_kwargs={"server_default": text("'{}'")})


def moment() -> Any:  # as above
    """A nullable point in time."""
    return Field(default=None, sa_type=Moment, nullable=True)
