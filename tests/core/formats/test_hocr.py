"""hOCR is XHTML that any XML parser reads, and its boxes are the result's, in displayed pixels."""

import re
import xml.etree.ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from arachne.formats.hocr import to_hocr
from tests.core.formats.results import block, corners, line, result, word

XHTML = "{http://www.w3.org/1999/xhtml}"
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)


def properties(element: ET.Element) -> dict[str, list[str]]:
    """What a title says, read as the specification writes it: parted by semicolons, the name first."""
    found = re.findall(r'(\w+) ((?:"(?:\\.|[^"\\])*"|[^;"])*)', element.get("title", ""))
    return {name: value.split() for name, value in found}


def of_class(root: ET.Element, name: str) -> list[ET.Element]:
    return [element for element in root.iter() if element.get("class") == name]


def test_every_level_is_there_with_its_box() -> None:
    """One page holds one area a block, in it one paragraph, lines and words, in order and properly nested."""
    first = line(word("Total", corners(10.2, 20.7, 40, 12)), word("9.50", corners(60, 21, 30, 12), 0.456))
    second = line(word("Thanks", corners(10, 50, 45, 14)))
    root = ET.fromstring(to_hocr([result(block(first), block(second, key="b2"))], "shot.png"))
    assert root.tag == XHTML + "html"
    (page,) = of_class(root, "ocr_page")
    assert properties(page)["bbox"] == ["0", "0", "400", "200"]
    assert properties(page)["image"] == ['"shot.png"']
    assert [len(of_class(page, name)) for name in ("ocr_carea", "ocr_par", "ocr_line", "ocrx_word")] == [2, 2, 2, 3]
    words = of_class(of_class(of_class(of_class(page, "ocr_carea")[0], "ocr_par")[0], "ocr_line")[0], "ocrx_word")
    assert [(one.text, properties(one)["bbox"], properties(one)["x_wconf"]) for one in words] == [
        ("Total", ["10", "20", "51", "33"], ["93"]),
        ("9.50", ["60", "21", "90", "33"], ["46"]),
    ]
    assert "".join(of_class(page, "ocr_line")[0].itertext()) == "Total 9.50"
    assert properties(of_class(page, "ocr_line")[0])["bbox"] == ["10", "20", "90", "33"]


def test_ids_are_unique_and_pages_are_numbered() -> None:
    """Several pages are one document; a page alone keeps its number."""
    one = result(block(line(word("a", corners(1, 1, 5, 5)), word("b", corners(9, 1, 5, 5)))))
    root = ET.fromstring(to_hocr([one, one], "scan.tiff"))
    ids = [element.get("id") for element in root.iter() if element.get("id")]
    assert len(ids) == len(set(ids)) == 2 * (1 + 1 + 1 + 1 + 2)
    assert [properties(page)["ppageno"] for page in of_class(root, "ocr_page")] == [["0"], ["1"]]
    alone = ET.fromstring(to_hocr([one], "scan.tiff", first_page=4))
    assert properties(of_class(alone, "ocr_page")[0])["ppageno"] == ["4"]


def test_turned_lines_tell_their_angle() -> None:
    """A line that runs up the picture is turned by 90 degrees counter-clockwise; a level one says nothing."""
    upward = [[20, 150], [20, 50], [40, 50], [40, 150]]
    root = ET.fromstring(to_hocr([result(block(line(word("up", upward), polygon=upward)))], "a.png"))
    told = properties(of_class(root, "ocr_line")[0])
    assert float(told["textangle"][0]) == 90
    assert float(told["x_size"][0]) == 20
    assert told["bbox"] == ["20", "50", "40", "150"]


def test_boxes_stay_on_the_page() -> None:
    """What sticks out over the edge is cut off there."""
    root = ET.fromstring(to_hocr([result(block(line(word("edge", corners(-3, 190, 500, 20)))))], "a.png"))
    assert properties(of_class(root, "ocrx_word")[0])["bbox"] == ["0", "190", "400", "200"]


@given(ANY_TEXT, ANY_TEXT)
def test_any_text_and_any_name_give_well_formed_xml(text: str, name: str) -> None:
    """Markup, quotes and control characters in words and names neither break the document nor change it."""
    root = ET.fromstring(to_hocr([result(block(line(word(text, corners(1, 1, 9, 9)))))], name))
    (found,) = of_class(root, "ocrx_word")
    legal = "".join(c for c in text if c in "\t\n\r" or (c >= " " and c not in "\ufffe\uffff"))
    assert (found.text or "").replace("\r", "\n") == legal.replace("\r\n", "\n").replace("\r", "\n")
    assert properties(of_class(root, "ocr_page")[0])["bbox"] == ["0", "0", "400", "200"]


def test_a_result_without_words_is_an_empty_page() -> None:
    """Nothing found, or `structure` not run: the page is there, and nothing in it."""
    nothing = result().model_copy(update={"blocks": None, "languages": None})
    root = ET.fromstring(to_hocr([nothing], "a.png"))
    assert len(of_class(root, "ocr_page")) == 1
    assert of_class(root, "ocrx_word") == []
