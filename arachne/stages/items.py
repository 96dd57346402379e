"""Items of lists: bullets, numbers and checkboxes, and bullets that were misread."""

import re
from collections.abc import Sequence
from typing import Final

from arachne.stages.rows import Row, spell

_BULLETS: Final = "•·▪◦●○‣∙■□*-–—"
_BULLET: Final = re.compile(rf"^[{re.escape(_BULLETS)}]\s+(?=\S)")
_NUMBER: Final = re.compile(r"^\(?(?:\d{1,3}|[a-z])[.)]\s+(?=\S)")
_CHECKBOX: Final = re.compile(r"^(?:[-*]\s+)?(?P<box>\[\s?(?P<mark>[xXvV✓]?)\s?\]|☐|☑|☒|✓|✔)\s+(?=\S)")
_MISREAD: Final = {"e", "¢", "°", "©", "®", "«", "»", "+", "@", "o", "«»", "¢+", "®@", "*", "-", "•", "·", "=", "¥"}


def starts_item(text: str) -> bool:
    """Whether a line begins like an item of a list."""
    return bool(_BULLET.match(text) or _NUMBER.match(text) or _CHECKBOX.match(text))


def mark_item(text: str) -> str:
    """The line as Markdown writes an item; lines that begin none are part of the one above."""
    checkbox = _CHECKBOX.match(text)
    if checkbox:
        done = bool(checkbox["mark"]) or checkbox["box"] in "☑☒✓✔"
        return f"- [{'x' if done else ' '}] {text[checkbox.end() :]}"
    if _BULLET.match(text):
        return _BULLET.sub("- ", text)
    return text if _NUMBER.match(text) else f"  {text}"


def spell_rows(rows: Sequence[Row]) -> list[str]:
    """Each row's text; the same odd mark before two or more lines, apart from them and in one column, is a bullet."""
    bulleted = [row for row in rows if _has_mark(row)]
    lefts = [row.words[0].box.x for row in bulleted]
    if len(bulleted) < 2 or max(lefts) - min(lefts) > 0.8 * bulleted[0].height_px:
        return [row.text for row in rows]
    marked = {id(row) for row in bulleted}
    return [f"• {spell(row.words[1:])}" if id(row) in marked else row.text for row in rows]


def _has_mark(row: Row) -> bool:
    if len(row.words) < 2 or row.words[0].text not in _MISREAD:
        return False
    mark, first = row.words[0].box, row.words[1].box
    return mark.width < 0.9 * row.height_px and first.x - mark.right > 0.3 * row.height_px
