"""Ruled tables whose lines are broken: the reader's words tell the rows and columns that the lines no longer show."""

import cv2
import numpy as np

from arachne.stages.arrays import Box
from arachne.stages.read import ReadWord
from arachne.stages.tables import Grid, find_ruled

XS, YS = (20, 120, 300, 480), (20, 70, 120, 170, 220)
TEXTS = (("No", "Name", "Sum"), ("1", "Rent", "120.00"), ("1.1", "Fees", "7.50"), ("2", "Other", "0.00"))


def word(text: str, x: float, y: float) -> ReadWord:
    return ReadWord(text, Box(x, y, 12 * len(text), 20), 0.95, "tesseract", 0, round(y))


def grid_of(gone: list[tuple[int, int, int, int]], words: list[ReadWord]) -> Grid:
    """The one grid of a table of four rows and three columns, with boxes of it blanked."""
    gray = np.full((240, 500), 255, np.uint8)
    for x in XS:
        cv2.line(gray, (x, YS[0]), (x, YS[-1]), 0, 2)
    for y in YS:
        cv2.line(gray, (XS[0], y), (XS[-1], y), 0, 2)
    for left, top, right, bottom in gone:
        gray[top:bottom, left:right] = 255
    (grid,) = find_ruled(gray, words, 20)
    return grid


def rows_of(grid: Grid) -> list[list[str]]:
    return [[cell.text for cell in grid.cells if cell.row == row] for row in range(grid.rows)]


def all_words() -> list[ReadWord]:
    return [
        word(text, XS[column] + 10, YS[row] + 15)
        for row, texts in enumerate(TEXTS)
        for column, text in enumerate(texts)
    ]


def test_lines_missing_in_one_column_part_no_rows() -> None:
    grid = grid_of([(24, 100, 117, 190)], all_words())
    assert rows_of(grid) == [list(texts) for texts in TEXTS]
    assert {(cell.row_span, cell.column_span) for cell in grid.cells} == {(1, 1)}


def test_a_head_without_lines_keeps_its_columns() -> None:
    grid = grid_of([(100, 24, 470, 66)], all_words())
    assert rows_of(grid)[0] == ["No", "Name", "Sum"]


def test_a_cell_merged_on_purpose_stays_one() -> None:
    """Its text, on two lines, is level with none of the rows beside it."""
    words = [one for one in all_words() if one.text not in {"Rent", "Fees", "Other"}]
    grid = grid_of([(123, 74, 297, 217)], [*words, word("Merged", 160, 112), word("cells", 160, 140)])
    (merged,) = [cell for cell in grid.cells if cell.row_span > 1]
    assert (merged.text, merged.row, merged.row_span) == ("Merged cells", 1, 3)


def test_a_word_is_in_one_cell_only() -> None:
    """Also where a frame's gap joins the white around a table with that of a cell."""
    words = all_words()
    grid = grid_of([(300, 68, 480, 73), (298, 30, 303, 60)], words)
    told = [one.text for cell in grid.cells for one in cell.words]
    assert sorted(told) == sorted(one.text for one in words)
