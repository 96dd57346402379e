"""Reading order of columns, tables and panes, on pictures drawn at known places."""

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from arachne.stages.arrays import Rgb
from arachne.stages.enhance import EnhanceOptions, enhance
from arachne.stages.segment import Region, SegmentOptions, segment


def regions_of(rgb: Rgb) -> tuple[Region, ...]:
    return segment(enhance(rgb, 12, EnhanceOptions()).gray, SegmentOptions()).regions


def paragraph(pen: ImageDraw.ImageDraw, x: int, y: int, words: int, width: int = 300) -> None:
    """Ragged lines that fill `width`, as running text does."""
    font = ImageFont.load_default(20)
    line = ""
    for word in (["winter", "boats", "lie", "under", "snow", "while", "harbour", "lights", "go", "out"] * 30)[:words]:
        if pen.textlength(f"{line} {word}", font=font) > width:
            pen.text((x, y), line, fill="black", font=font)
            line, y = word, y + 26
        else:
            line = f"{line} {word}".strip()
    pen.text((x, y), line, fill="black", font=font)


def test_narrow_gutters_part_columns_of_running_text_whose_lines_are_level() -> None:
    """Two columns 20 px apart below a headline; each is read to its end."""
    canvas = Image.new("RGB", (680, 460), "white")
    pen = ImageDraw.Draw(canvas)
    pen.text((20, 10), "A headline over both of the columns", fill="black", font=ImageFont.load_default(34))
    paragraph(pen, 20, 90, 60)
    paragraph(pen, 345, 90, 60)
    head, left, right = regions_of(np.asarray(canvas))
    assert head.box.bottom < left.box.y
    assert left.box.right < right.box.x
    assert left.rows == right.rows > 8


def test_gaps_across_all_columns_do_not_break_their_order() -> None:
    canvas = Image.new("RGB", (680, 520), "white")
    pen = ImageDraw.Draw(canvas)
    for x in (20, 345):
        for y in (20, 280):
            paragraph(pen, x, y, 45)
    boxes = [region.box for region in regions_of(np.asarray(canvas))]
    assert [box.x < 330 for box in boxes] == sorted([box.x < 330 for box in boxes], reverse=True)


def test_rows_with_empty_cells_stay_together(draw) -> None:
    """A statement: sums stand far from their texts, in one of two columns."""
    items = []
    for row in range(9):
        y = 20 + 28 * row
        items += [(20, y, f"0{row}Aug"), (110, y, "Cheque paid in cash today"), (790, y, f"99,87{row}.08")]
        items.append((520 if row % 3 else 650, y, f"36.0{row}"))
    found = regions_of(draw(items, (940, 300), 20))
    assert [(region.kind, region.rows) for region in found] == [("table", 9)]


def test_panes_with_lines_at_different_heights_are_read_one_after_the_other(draw) -> None:
    left = [(20, 20 + 30 * row, "names of files") for row in range(8)]
    right = [(420, 33 + 41 * row, "what was said of them") for row in range(6)]
    boxes = [region.box for region in regions_of(draw(left + right, (760, 290), 20))]
    assert all(box.right < 330 or box.x > 330 for box in boxes)
    assert boxes == sorted(boxes, key=lambda box: (box.x > 330, box.y))


def test_texture_is_no_text(draw) -> None:
    """Noise has more specks than the smallest print has letters; text beside it is still found."""
    noise = np.random.default_rng(4).integers(0, 255, (700, 700, 1), dtype=np.uint8).repeat(3, axis=2)
    assert regions_of(noise) == ()
    text = draw([(20, 20 + 40 * row, "Words beside a noisy picture") for row in range(10)], (700, 700))
    found = regions_of(np.hstack([noise, text]))
    assert sum(region.rows for region in found if region.box.width > 300) >= 10
