"""What the QR codes on payment slips say: tag-length-value payloads with a checksum."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

_CHECKSUM_TAGS: Final = ("63", "91")  # of EMVCo's merchant payloads, and of Thai banks' slips
_MOST_FIELDS = 99


@dataclass(frozen=True)
class Payload:
    """A payload's fields by tag, nested ones as `outer.inner`, and whether it has a checksum and that is right."""

    text: str
    fields: dict[str, str]
    checksum: Literal["right", "wrong", "none"]

    @property
    def bank_code(self) -> str | None:
        """The sending bank's three digits, on a slip."""
        return self.fields.get("00.01") if self._is_slip else None

    @property
    def reference(self) -> str | None:
        """The transfer's reference, on a slip."""
        return self.fields.get("00.02") if self._is_slip else None

    @property
    def amount(self) -> str | None:
        """The amount, on a request to pay."""
        return None if self._is_slip else self.fields.get("54")

    @property
    def _is_slip(self) -> bool:
        return "00.00" in self.fields


def parse(text: str) -> Payload:
    """The payload of a code's text; without fields where it is of another kind."""
    outer = _split(text)
    fields = dict(outer or ())
    for tag, value in outer or ():
        if len(value) >= 8 and (inner := _split(value)):
            fields |= {f"{tag}.{name}": part for name, part in inner}
    return Payload(text, fields, _checksum(text, outer))


def crc16(text: str) -> str:
    """Four hex digits over the text's bytes.

    Source: CRC-16/IBM-3740 (0x1021 from 0xFFFF), which EMVCo's QR specification names for its payloads.
    """
    value = 0xFFFF
    for byte in text.encode():
        value ^= byte << 8
        for _ in range(8):
            value = (value << 1 ^ 0x1021 if value & 0x8000 else value << 1) & 0xFFFF
    return f"{value:04X}"


def _checksum(text: str, outer: list[tuple[str, str]] | None) -> Literal["right", "wrong", "none"]:
    if not outer or outer[-1][0] not in _CHECKSUM_TAGS or len(outer[-1][1]) != 4:
        return "none"
    return "right" if crc16(text[:-4]) == outer[-1][1].upper() else "wrong"


def _split(text: str) -> list[tuple[str, str]] | None:
    """Tags and values, or None where the text is no such list to its end."""
    fields = list(_walk(text))
    return fields if fields and sum(4 + len(value) for _, value in fields) == len(text) else None


def _walk(text: str) -> Iterator[tuple[str, str]]:
    at = 0
    for _ in range(_MOST_FIELDS):
        head = text[at : at + 4]
        if len(head) < 4 or not (head.isascii() and head.isdigit()):
            return
        value = text[at + 4 : at + 4 + int(head[2:])]
        if len(value) < int(head[2:]):
            return
        yield head[:2], value
        at += 4 + len(value)
