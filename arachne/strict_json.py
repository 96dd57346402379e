"""JSON as RFC 8259 and I-JSON mean it: one reading only, so that no two parts of a system see different values."""

import json
import math
from typing import NoReturn

MAX_INTEGER_DIGITS = 40


def parse(data: bytes | str) -> object:
    """The value.

    Raises:
        ValueError: not UTF-8, not JSON, nested too deeply, a name twice in one object, or a number that is not finite
            or longer than any real one.
    """
    try:
        text = data if isinstance(data, str) else data.decode()
        return json.loads(
            text,
            object_pairs_hook=_unique,
            parse_constant=_refuse_constant,
            parse_float=_finite,
            parse_int=_bounded,
        )
    except UnicodeDecodeError:
        raise ValueError("the text is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise ValueError("not JSON: nested too deeply") from None


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("an object has the same name twice")
    return members


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number is too large")
    return number


def _bounded(text: str) -> int:
    if len(text) > MAX_INTEGER_DIGITS:
        raise ValueError("a number is too large")
    return int(text)
