"""The invisible words of a searchable PDF: a font without outlines, and each line set over its picture."""

import io
import math
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen
from fontTools.ttLib.tables._g_l_y_f import Glyph
from pikepdf import Array, Dictionary, Name, Pdf, String

from arachne.schemas.result import Block, Line, Word

_EM, _ASCENT, _ADVANCE = 1000, 800, 500
_NAME = "ArachneGlyphless"
_INVISIBLE = 3
_MIN_GAP = 0.05  # of the line's height; readers join words that touch
_MAX_CLUSTER = 8
_JOINER = "\u200d"
_ENTRIES = 100  # of one bfchar section


class Glyphless:
    """A font of empty glyphs of one width. A character with its marks is one code, numbered as it first appears."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}

    def encode(self, text: str) -> list[int]:
        """The codes of a text's characters."""
        return [self._codes.setdefault(cluster, len(self._codes) + 1) for cluster in _clusters(text)]

    def build(self, pdf: Pdf) -> Dictionary:
        """The font with all codes given so far.

        Source: ISO 32000-1, 9.7.4 (CIDFonts) and 9.10.3 (ToUnicode).
        """
        descendant = Dictionary(
            Type=Name.Font,
            Subtype=Name.CIDFontType2,
            BaseFont=Name("/" + _NAME),
            CIDSystemInfo=Dictionary(Registry=String("Adobe"), Ordering=String("Identity"), Supplement=0),
            FontDescriptor=pdf.make_indirect(_descriptor(pdf)),
            DW=_ADVANCE,
            CIDToGIDMap=pdf.make_stream(b"\x00\x01" * (len(self._codes) + 1)),
        )
        return Dictionary(
            Type=Name.Font,
            Subtype=Name.Type0,
            BaseFont=Name("/" + _NAME),
            Encoding=Name("/Identity-H"),
            DescendantFonts=Array([pdf.make_indirect(descendant)]),
            ToUnicode=pdf.make_stream(self._to_unicode()),
        )

    def _to_unicode(self) -> bytes:
        pairs = [f"<{code:04x}> <{text.encode('utf-16-be').hex()}>" for text, code in self._codes.items()]
        sections = [pairs[at : at + _ENTRIES] for at in range(0, len(pairs), _ENTRIES)]
        entries = "\n".join(f"{len(part)} beginbfchar\n" + "\n".join(part) + "\nendbfchar" for part in sections)
        return (
            "/CIDInit /ProcSet findresource begin\n12 dict begin\nbegincmap\n"
            "/CIDSystemInfo << /Registry (Adobe) /Ordering (UCS) /Supplement 0 >> def\n"
            "/CMapName /Adobe-Identity-UCS def\n/CMapType 2 def\n"
            f"1 begincodespacerange\n<0000> <ffff>\nendcodespacerange\n{entries}\n"
            "endcmap\nCMapName currentdict /CMap defineresource pop\nend\nend\n"
        ).encode()


@dataclass(frozen=True)
class _Track:
    """A line's baseline in points: where it starts, its direction, and its height."""

    x: float
    y: float
    cos: float
    sin: float
    size: float

    def along(self, x: float, y: float) -> float:
        """How far along the baseline a point of the page lies."""
        return (x - self.x) * self.cos + (y - self.y) * self.sin


def text_layer(blocks: Sequence[Block], font: Glyphless, top_pt: float, scale: float) -> bytes:
    """The operators that set all words, invisible, on a page `top_pt` points high, `scale` points a pixel."""
    lines = [line for block in blocks for line in block.lines if line.words]
    if not lines:
        return b""
    set_lines = [_set_line(line, font, top_pt, scale) for line in lines]
    return f"BT\n{_INVISIBLE} Tr\n{''.join(set_lines)}ET\n".encode()


def _set_line(line: Line, font: Glyphless, top_pt: float, scale: float) -> str:
    track = _track(line, top_pt, scale)
    spans = [_span(word, track, top_pt, scale) for word in line.words]
    parts = [f"/Words {track.size:.3f} Tf\n"]
    for at, (word, (start, end)) in enumerate(zip(line.words, spans, strict=True)):
        parts.append(_show(font.encode(word.text), track, start, end))
        if at + 1 < len(spans):
            parts.append(_show(font.encode(" "), track, end, max(spans[at + 1][0], end + _MIN_GAP * track.size)))
    return "".join(parts)


def _show(codes: Sequence[int], track: _Track, start: float, end: float) -> str:
    """These characters stretched from `start` to `end` of the track."""
    if not codes:
        return ""
    natural = len(codes) * track.size * _ADVANCE / _EM
    x, y = track.x + start * track.cos, track.y + start * track.sin
    matrix = f"{track.cos:.6f} {track.sin:.6f} {-track.sin:.6f} {track.cos:.6f} {x:.3f} {y:.3f}"
    codes_hex = "".join(f"{code:04x}" for code in codes)
    return f"{100 * (end - start) / natural:.4f} Tz {matrix} Tm <{codes_hex}> Tj\n"


def _track(line: Line, top_pt: float, scale: float) -> _Track:
    top_left, top_right, bottom_right, bottom_left = line.polygon
    dx = top_right[0] + bottom_right[0] - top_left[0] - bottom_left[0]
    dy = top_right[1] + bottom_right[1] - top_left[1] - bottom_left[1]
    angle = -math.atan2(dy, dx)  # the page's y points up
    size_px = max(1.0, math.dist(top_left, bottom_left), math.dist(top_right, bottom_right))
    up_px = size_px * (_EM - _ASCENT) / _EM
    x, y = bottom_left[0] - math.sin(angle) * up_px, bottom_left[1] - math.cos(angle) * up_px
    return _Track(x * scale, top_pt - y * scale, math.cos(angle), math.sin(angle), size_px * scale)


def _span(word: Word, track: _Track, top_pt: float, scale: float) -> tuple[float, float]:
    """Where the word starts and ends on the track; never empty."""
    at = [track.along(x * scale, top_pt - y * scale) for x, y in word.polygon]
    start, end = (at[0] + at[3]) / 2, (at[1] + at[2]) / 2
    return start, max(end, start + _MIN_GAP * track.size)


def _clusters(text: str) -> Iterator[str]:
    cluster = ""
    for character in text:
        joins = unicodedata.category(character) in {"Mn", "Me", "Mc"} or _JOINER in (character, cluster[-1:])
        if cluster and joins and len(cluster) < _MAX_CLUSTER:
            cluster += character
            continue
        if cluster:
            yield cluster
        cluster = character
    if cluster:
        yield cluster


def _descriptor(pdf: Pdf) -> Dictionary:
    return Dictionary(
        Type=Name.FontDescriptor,
        FontName=Name("/" + _NAME),
        Flags=4,
        FontBBox=Array([0, _ASCENT - _EM, _ADVANCE, _ASCENT]),
        ItalicAngle=0,
        Ascent=_ASCENT,
        Descent=_ASCENT - _EM,
        CapHeight=_ASCENT,
        StemV=80,
        FontFile2=pdf.make_stream(_font_file(), {"/Length1": len(_font_file())}),
    )


@cache
def _font_file() -> bytes:
    """A TrueType font of an empty glyph and a blank one."""
    builder = FontBuilder(_EM, isTTF=True)
    builder.setupGlyphOrder([".notdef", "blank"])
    builder.setupCharacterMap({0x20: "blank"})
    builder.setupGlyf({".notdef": Glyph(), "blank": _blank()})
    builder.setupHorizontalMetrics({".notdef": (_ADVANCE, 0), "blank": (_ADVANCE, 0)})
    builder.setupHorizontalHeader(ascent=_ASCENT, descent=_ASCENT - _EM)
    builder.setupNameTable({"familyName": _NAME, "styleName": "Regular", "psName": _NAME})
    builder.setupOS2(sTypoAscender=_ASCENT, sTypoDescender=_ASCENT - _EM, usWinAscent=_ASCENT, usWinDescent=200)
    builder.setupPost(keepGlyphNames=False)
    buffer = io.BytesIO()
    builder.font["head"].created = builder.font["head"].modified = 0  # the same font every time
    builder.font.recalcTimestamp = False
    builder.save(buffer)
    return buffer.getvalue()


def _blank() -> Glyph:
    """An outline without area over the glyph's whole box: viewers take from it how high a selection is."""
    pen = TTGlyphPen(None)
    pen.moveTo((0, _ASCENT - _EM))
    pen.lineTo((_ADVANCE, _ASCENT))
    pen.lineTo((0, _ASCENT - _EM))
    pen.closePath()
    return pen.glyph()
