"""Stage 7: words to lines, blocks, tables and codes, with boxes in displayed pixels, and to text and Markdown."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from arachne.errors import ReadFailed
from arachne.schemas.result import Block, Code, Fields, Table
from arachne.stages import slip
from arachne.stages.arrays import Box, Gray, Rgb, Size, Transform
from arachne.stages.codes import AREAS, FoundCode, find_codes
from arachne.stages.groups import Group, GroupOptions, into_groups
from arachne.stages.markup import Part, clean, to_markdown, to_text
from arachne.stages.placing import Frame, place_block, place_code, place_figure, place_table
from arachne.stages.read import ReadWord
from arachne.stages.surfaces import Surfaces

VERSION = 5

_CONTROL_WORDS = 6
_FIGURE_HEIGHTS = 5.0


@dataclass(frozen=True)
class StructureOptions:
    """`slip` looks for payment fields, `document` joins the lines of a paragraph."""

    profile: Literal["screenshot", "document", "slip"] = "screenshot"
    grouping: GroupOptions = field(default_factory=GroupOptions)


@dataclass(frozen=True)
class Structured:
    """Everything of the result that is made from words."""

    text: str
    markdown: str
    blocks: tuple[Block, ...]
    tables: tuple[Table, ...]
    codes: tuple[Code, ...]
    fields: Fields | None


def structure(
    words: Sequence[ReadWord], gray: Gray, displayed: Rgb, transform: Transform, options: StructureOptions
) -> Structured:
    """Blocks, tables and codes of one picture.

    `gray` is the enhanced picture, `displayed` the one boxes speak of, `transform` leads from its pixels to `gray`'s.

    Raises:
        ReadFailed: words were found but no text came out, which is always a fault.
    """
    frame = Frame(np.linalg.inv(transform).astype(np.float64), Size(displayed.shape[1], displayed.shape[0]))
    found = find_codes(displayed)
    words = [word for word in words if clean(word.text).strip() and not _of_code(word, found, frame)]
    surfaces = Surfaces(displayed)
    groups = into_groups(words, gray, options.grouping)
    if frame.level:
        groups = [_as_control(group, surfaces, frame) for group in groups]
    parts = _with_figures([_part(group, frame) for group in groups], _figures(surfaces, words, groups, found, frame))
    parts = [replace(part, block=part.block.model_copy(update={"id": f"b{at}"})) for at, part in enumerate(parts)]
    text = to_text(parts, joined=options.profile == "document")
    if groups and not text.strip():
        raise ReadFailed(f"{len(words)} words were read but no text came out. Please report this.", stage="structure")
    codes = tuple(place_code(code) for code in found)
    payloads = [code.data for code in codes if code.kind == "qr"]
    return Structured(
        text=text,
        markdown=to_markdown(parts, joined=options.profile == "document"),
        blocks=tuple(part.block for part in parts),
        tables=tuple(part.table for part in parts if part.table),
        codes=codes,
        fields=slip.find_fields(text, payloads) if options.profile == "slip" else None,
    )


def _of_code(word: ReadWord, codes: Sequence[FoundCode], frame: Frame) -> bool:
    """Whether a word is only what a reader made of a code's squares."""
    return any(code.kind in AREAS and code.box.holds(frame.displayed(word.box)) for code in codes)


def _part(group: Group, frame: Frame) -> Part:
    table = place_table(group.grid, frame) if group.grid else None
    return Part(place_block(group, "", frame), table, group.level)


def _as_control(group: Group, surfaces: Surfaces, frame: Frame) -> Group:
    """The group, told to be a control where it is one short line in a box of its own."""
    if group.kind not in {"paragraph", "heading"} or len(group.rows) != 1 or len(group.rows[0].words) > _CONTROL_WORDS:
        return group
    text = frame.displayed(group.box)
    return replace(group, kind="control") if surfaces.control_around(text, min(text.width, text.height)) else group


def _figures(
    surfaces: Surfaces, words: Sequence[ReadWord], groups: Sequence[Group], codes: Sequence[FoundCode], frame: Frame
) -> list[Box]:
    boxes = [frame.displayed(word.box) for word in words]
    height = float(np.median([min(box.width, box.height) for box in boxes])) if boxes else 12.0
    tables = [frame.displayed(group.grid.box) for group in groups if group.grid]
    taken = [*(box.grown(height / 2) for box in boxes), *tables, *(code.box.grown(height) for code in codes)]
    return surfaces.pictures(taken, _FIGURE_HEIGHTS * height)


def _with_figures(parts: list[Part], figures: Sequence[Box]) -> list[Part]:
    """The parts with the pictures before the first one that begins below their middle."""
    complete = list(parts)
    for box in figures:
        below = (at for at, part in enumerate(complete) if part.block.bbox[1] >= box.centre[1])
        complete.insert(next(below, len(complete)), Part(place_figure(box, ""), None))
    return complete
