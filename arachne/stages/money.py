"""Sums of money as slips print them."""

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from arachne.schemas.result import Amount

_CURRENCIES: Final = {
    "THB": r"THB|บ ?า ?ท|฿|Baht",
    "BRL": r"BRL|R\$",
    "USD": r"USD|US\$|(?<![A-Z])\$",
    "EUR": r"EUR|€",
    "GBP": r"GBP|£",
}
_ANY: Final = "|".join(_CURRENCIES.values())
_POINT = r"\d{1,3}(?:,\d{3})+(?:\.\d{1,2})?|\d+\.\d{2}"
_COMMA = r"\d{1,3}(?:\.\d{3})+,\d{2}|\d+,\d{2}"
_SUM: Final = re.compile(
    rf"(?P<before>(?:{_ANY})\s?)?(?<![\d.,:/-])(?P<number>{_POINT}|{_COMMA}|\d{{1,9}})(?![\d:/-]|[.,]\d)(?P<after>\s?(?:{_ANY}))?",
    re.IGNORECASE,
)
_LABEL: Final = re.compile(r"amount|total|จ ?ำ ?น ?ว ?น|ย ?อ ?ด|valor|sum\b|paid", re.IGNORECASE)
_FEE: Final = re.compile(r"\bfee\b|ค ?่ ?า ?ธ ?ร ?ร ?ม|tarifa|balance|คงเหลือ", re.IGNORECASE)
_THAI: Final = re.compile("[\u0e01-\u0e5b]")
_BELOW = 2  # lines under a label in which its sum may stand


@dataclass(frozen=True)
class _Sum:
    line: int
    value: Decimal
    currency: str | None


def find_amount(lines: list[str]) -> Amount | None:
    """The sum that a label such as Amount names, else the largest one; fees and balances are none."""
    sums = [one for index, line in enumerate(lines) if not _is_fee(lines, index) for one in _sums(index, line)]
    if not sums:
        return None
    labels = [index for index, line in enumerate(lines) if _LABEL.search(line) and not _FEE.search(line)]
    near = [(one.line - label, -one.value, one) for label in labels for one in sums if 0 <= one.line - label <= _BELOW]
    chosen = min(near, key=lambda entry: entry[:2])[2] if near else max(sums, key=lambda one: one.value)
    return Amount(value=str(chosen.value), currency=chosen.currency or _currency_of("\n".join(lines)))


def _is_fee(lines: list[str], index: int) -> bool:
    """Whether the line tells a fee, or stands below a line that only announces one."""
    if _FEE.search(lines[index]):
        return True
    return index > 0 and bool(_FEE.search(lines[index - 1])) and not _sums(index - 1, lines[index - 1])


def _sums(index: int, line: str) -> list[_Sum]:
    found = []
    for match in _SUM.finditer(line):
        sign = match["before"] or match["after"]
        if sign is None and match["number"].isdigit():
            continue  # a bare whole number may be anything
        found.append(_Sum(index, _decimal(match["number"]), _currency(sign) if sign else None))
    return found


def _decimal(number: str) -> Decimal:
    """With two decimals, whichever of point and comma parts them."""
    comma = number.rfind(",") > number.rfind(".") and re.search(r",\d{2}$", number)
    plain = number.replace(".", "").replace(",", ".") if comma else number.replace(",", "")
    return Decimal(plain).quantize(Decimal("0.01"))


def _currency(sign: str) -> str | None:
    return next((code for code, form in _CURRENCIES.items() if re.search(form, sign, re.IGNORECASE)), None)


def _currency_of(text: str) -> str | None:
    """The currency named anywhere; a slip in Thai is in baht."""
    return _currency(text) or ("THB" if _THAI.search(text) else None)
