"""A result as hOCR 1.2: XHTML with boxes and confidences in the title attributes, in displayed pixels.

Source: the hOCR specification, kba.github.io/hocr-spec/1.2.
"""

import math
import re
from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape, quoteattr

from arachne import __version__
from arachne.schemas.result import Block, Line, Result, Word

_CAPABILITIES = "ocr_page ocr_carea ocr_par ocr_line ocrx_word"
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # XML 1.0, production 2
_MIN_ANGLE_DEG = 0.5

_HEAD = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0 Transitional//EN" "http://www.w3.org/TR/xhtml1/DTD/xhtml1-transitional.dtd">
<html xmlns="http://www.w3.org/1999/xhtml" xml:lang="en" lang="en">
<head>
<title>{title}</title>
<meta http-equiv="Content-Type" content="text/html;charset=utf-8"/>
<meta name="ocr-system" content="Arachne {version}"/>
<meta name="ocr-capabilities" content="{capabilities}"/>
<meta name="ocr-number-of-pages" content="{count}"/>
<meta name="ocr-langs" content={languages}/>
</head>
<body>
"""
_TAIL = "</body>\n</html>\n"


def to_hocr(pages: Sequence[Result], name: str, first_page: int = 0) -> bytes:
    """The pages as one hOCR document in UTF-8; `first_page` is the number of the first, from zero."""
    languages = dict.fromkeys(code for page in pages for code in page.languages or ())
    head = _HEAD.format(
        title=escape(_xml(name)),
        version=__version__,
        capabilities=_CAPABILITIES,
        count=len(pages),
        languages=quoteattr(" ".join(languages)),
    )
    body = (part for number, page in enumerate(pages, first_page) for part in _page(page, number, name))
    return "".join([head, *body, _TAIL]).encode()


def _page(page: Result, number: int, name: str) -> Iterator[str]:
    quoted = _xml(name).replace("\\", "\\\\").replace('"', '\\"')
    size = f"0 0 {page.image.width} {page.image.height}"
    yield _open("div", "ocr_page", f"page_{number + 1}", f'image "{quoted}"; bbox {size}; ppageno {number}') + "\n"
    for at, block in enumerate(page.blocks or (), 1):
        yield from _block(block, f"{number + 1}_{at}", page)
    yield "</div>\n"


def _block(block: Block, key: str, page: Result) -> Iterator[str]:
    box = _bbox(block.bbox, page)
    yield _open("div", "ocr_carea", f"block_{key}", box)
    if block.lines:
        yield _open("p", "ocr_par", f"par_{key}", box) + "\n"
        for at, line in enumerate(block.lines, 1):
            yield from _line(line, f"{key}_{at}", page)
        yield "</p>"
    yield "</div>\n"


def _line(line: Line, key: str, page: Result) -> Iterator[str]:
    (x0, y0), (x1, y1), _, (x3, y3) = line.polygon
    facts = [_bbox(line.bbox, page), f"x_size {math.hypot(x3 - x0, y3 - y0):.1f}"]
    angle_deg = -math.degrees(math.atan2(y1 - y0, x1 - x0))  # counter-clockwise, while y points down
    if abs(angle_deg) >= _MIN_ANGLE_DEG:
        facts.append(f"textangle {angle_deg:.2f}")
    yield _open("span", "ocr_line", f"line_{key}", "; ".join(facts))
    yield " ".join(_word(word, f"{key}_{at}", page) for at, word in enumerate(line.words, 1))
    yield "</span>\n"


def _word(word: Word, key: str, page: Result) -> str:
    facts = f"{_bbox(word.bbox, page)}; x_wconf {round(word.confidence * 100)}"
    return f"{_open('span', 'ocrx_word', f'word_{key}', facts)}{escape(_xml(word.text))}</span>"


def _open(tag: str, kind: str, key: str, title: str) -> str:
    return f'<{tag} class="{kind}" id="{key}" title={quoteattr(title)}>'


def _bbox(box: Sequence[float], page: Result) -> str:
    """Whole pixels around the box, within the page."""
    x, y, width, height = box
    limit_x, limit_y = page.image.width, page.image.height
    left, top = max(0, math.floor(x)), max(0, math.floor(y))
    right, bottom = min(limit_x, math.ceil(x + width)), min(limit_y, math.ceil(y + height))
    return f"bbox {left} {top} {right} {bottom}"


def _xml(text: str) -> str:
    return _NO_XML.sub("", text)
