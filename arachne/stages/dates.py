"""Dates and times as slips print them, in Thai, English and Portuguese, made ISO 8601."""

import re
from datetime import date, time
from typing import Final

_THAI_MONTHS: Final = (
    ("มกราคม", "มค"),
    ("กุมภาพันธ์", "กพ"),
    ("มีนาคม", "มีค"),
    ("เมษายน", "เมย"),
    ("พฤษภาคม", "พค"),
    ("มิถุนายน", "มิย"),
    ("กรกฎาคม", "กค"),
    ("สิงหาคม", "สค"),
    ("กันยายน", "กย"),
    ("ตุลาคม", "ตค"),
    ("พฤศจิกายน", "พย"),
    ("ธันวาคม", "ธค"),
)
_LATIN_MONTHS: Final = (
    ("jan",),
    ("feb", "fev"),
    ("mar",),
    ("apr", "abr"),
    ("may", "mai"),
    ("jun",),
    ("jul",),
    ("aug", "ago"),
    ("sep", "set"),
    ("oct", "out"),
    ("nov",),
    ("dec", "dez"),
)
_THAI = r"(?P<thai>[\u0e01-\u0e5b](?:[ .]{0,2}[\u0e01-\u0e5b.]){1,14})"
_DATES: Final = (
    re.compile(r"(?<!\d)(?P<year>\d{4})[-/.](?P<month>\d{1,2})[-/.](?P<day>\d{1,2})(?!\d)"),
    re.compile(r"(?<![\d.,])(?P<day>\d{1,2})\s?[/.-]\s?(?P<month>\d{1,2})\s?[/.-]\s?(?P<year>\d{4}|\d{2})(?![\d.,])"),
    re.compile(rf"(?<!\d)(?P<day>\d{{1,2}})\s{{0,2}}{_THAI}\s{{0,2}}(?P<year>\d{{4}}|\d{{2}})(?!\d)"),
    re.compile(
        r"(?<!\d)(?P<day>\d{1,2})(?:st|nd|rd|th)?[\s./-]{1,2}(?:de\s)?(?P<name>[a-zç]{3,9})\.?,?[\s./-]{1,2}(?:de\s)?"
        r"(?P<year>\d{4}|\d{2})(?!\d)",
        re.IGNORECASE,
    ),
    re.compile(r"(?P<name>[a-z]{3,9})\.?\s(?P<day>\d{1,2})(?:st|nd|rd|th)?,?\s(?P<year>\d{4})(?!\d)", re.IGNORECASE),
)
_TIME: Final = re.compile(
    r"(?<![\d:.,])(?P<hour>[01]?\d|2[0-3])\s?[:h]\s?(?P<minute>[0-5]\d)(?:\s?:\s?(?P<second>[0-5]\d))?(?!\d)"
    r"(?:\s?(?P<half>[AaPp])\.?[Mm]\b)?"
)
_MARKS: Final = re.compile("[^\u0e01-\u0e2e]")  # all but consonants
_NEAR = 40  # characters between a date and its time


def find_datetime(text: str) -> str | None:
    """The first date, with the time that stands nearest to it if any, as ISO 8601 without an offset."""
    for pattern in _DATES:
        for match in pattern.finditer(text):
            day = _date(match)
            if day is None:
                continue
            found = _time(text, match.start(), match.end())
            return f"{day.isoformat()}T{found.isoformat()}" if found else day.isoformat()
    return None


def _date(match: re.Match[str]) -> date | None:
    parts = match.groupdict()
    month = int(parts["month"]) if parts.get("month") else _month(parts.get("thai"), parts.get("name"))
    if month is None:
        return None
    try:
        return date(_common_year(int(parts["year"])), month, int(parts["day"]))
    except ValueError:
        return None


def _common_year(year: int) -> int:
    """A year of the Common Era: Buddhist years are 543 ahead, and two digits from 50 up are Buddhist ones."""
    if year < 100:
        year += 2000 if year < 50 else 2500
    return year - 543 if year > 2400 else year


def _month(thai: str | None, name: str | None) -> int | None:
    if thai:
        return _thai_month(re.sub(r"[ .]", "", thai).removesuffix("พศ"))
    start = (name or "").lower().replace("ç", "c")[:3]
    return next((at for at, starts in enumerate(_LATIN_MONTHS, 1) if start in starts), None)


def _thai_month(letters: str) -> int | None:
    """The month of a name or short form; marks that only a reader saw are forgiven where no other month is meant."""
    exact = next((at for at, names in enumerate(_THAI_MONTHS, 1) if letters in names), None)
    if exact is not None:
        return exact
    plain = _MARKS.sub("", letters)
    alike = [at for at, (_, short) in enumerate(_THAI_MONTHS, 1) if _MARKS.sub("", short) == plain]
    return alike[0] if len(alike) == 1 else None


def _time(text: str, start: int, end: int) -> time | None:
    matches = list(_TIME.finditer(text))
    near = [(0 if one.start() >= end else 1, abs(one.start() - end), one) for one in matches]
    near = [one for one in near if one[1] <= _NEAR + (end - start)]
    if not near:
        return None
    match = min(near, key=lambda one: one[:2])[2]
    hour = int(match["hour"])
    if match["half"] and hour <= 12:
        hour = hour % 12 + (12 if match["half"] in "Pp" else 0)
    return time(hour, int(match["minute"]), int(match["second"] or 0))
