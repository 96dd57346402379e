"""Payment fields of a bank slip, from its text and its QR code."""

import re
from decimal import Decimal

from arachne.schemas.result import Amount, Fields

_AMOUNT = re.compile(r"(?<![\d.,])(\d{1,3}(?:,\d{3})+|\d+)\.(\d{2})(?![\d.,])")
_AMOUNT_LABEL = re.compile(r"amount|total|จำนวน|ยอด|valor", re.IGNORECASE)
_CURRENCIES = {"THB": r"THB|บาท|฿|Baht", "BRL": r"BRL|R\$", "USD": r"USD|US\$", "EUR": r"EUR|€", "GBP": r"GBP|£"}
_DATE = re.compile(
    r"\d{4}-\d{2}-\d{2}[T ]?(?:\d{1,2}:\d{2}(?::\d{2})?)?"
    r"|\d{1,2}[/.-]\d{1,2}[/.-]\d{2,4}(?:,?\s+(?:-\s+)?\d{1,2}:\d{2}(?::\d{2})?)?"
    r"|\d{1,2}\s+[^\W\d_][^\s\d]{1,10}\s+\d{2,4}(?:,?\s+(?:-\s+)?\d{1,2}:\d{2}(?::\d{2})?)?"
)
_REFERENCE = re.compile(
    r"(?:ref(?:erence)?(?:\s*(?:no|id|number))?|transaction\s*(?:no|id|number)?|เลขที่รายการ|รหัสอ้างอิง|เลขที่อ้างอิง)"
    r"\.?\s*[:#]?\s*([A-Za-z0-9-]{6,40})",
    re.IGNORECASE,
)
_SENDER = re.compile(r"^(?:from|sender|จาก|de)\s*[:\t]?\s*(\S.*)$", re.IGNORECASE | re.MULTILINE)
_RECEIVER = re.compile(r"^(?:to|receiver|recipient|ไปยัง|ผู้รับ|para)\s*[:\t]?\s*(\S.*)$", re.IGNORECASE | re.MULTILINE)
_BANK = re.compile(r"[^\n\t]*(?:\bbank\b|ธนาคาร|\bbanco\b)[^\n\t]*", re.IGNORECASE)


def find_fields(text: str, qr_payloads: list[str]) -> Fields:
    """What the slip says; members that are not found are None."""
    return Fields(
        amount=_amount(text),
        datetime=_first(_DATE, text, 0),
        reference=_first(_REFERENCE, text, 1),
        sender=_first(_SENDER, text, 1),
        receiver=_first(_RECEIVER, text, 1),
        banks=list(dict.fromkeys(match.group().strip() for match in _BANK.finditer(text))),
        qr=qr_payloads[0] if qr_payloads else None,
    )


def _amount(text: str) -> Amount | None:
    """The amount nearest after a label such as Amount, else the largest."""
    found = [(match.start(), Decimal(match[1].replace(",", "") + "." + match[2])) for match in _AMOUNT.finditer(text)]
    if not found:
        return None
    labels = [match.end() for match in _AMOUNT_LABEL.finditer(text)]
    after = [(at - label, value) for label in labels for at, value in found if 0 <= at - label < 60]
    value = min(after)[1] if after else max(value for _, value in found)
    currency = next((code for code, form in _CURRENCIES.items() if re.search(form, text)), None)
    return Amount(value=str(value), currency=currency)


def _first(pattern: re.Pattern[str], text: str, group: int) -> str | None:
    match = pattern.search(text)
    return match[group].strip() if match else None
