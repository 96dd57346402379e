"""Answers that run in circles, and those that only look like it."""

import json
import random

import pytest

from arachne.stages.loops import ends_in_circles, goes_in_circles, harps

WORDS = ("a", "an", "the", "file", "menu", "button", "window", "shows", "list", "of", "with", "and", "text", "on")
PROSE = " ".join(random.Random(1).choices(WORDS, k=900))


@pytest.mark.parametrize(
    "unit", ["word ", "0.00, ", '{"kind":"button","label":"OK","bbox":null},', "ซ้ำไปมา", PROSE[:300], "\n"]
)
@pytest.mark.parametrize("before", ["", PROSE])
def test_repetition_is_found_in_any_script_and_length(unit: str, before: str) -> None:
    """At the end, and also where the answer was closed after it or went on."""
    loop = before + unit * (1400 // len(unit) + 4)
    assert ends_in_circles(loop)
    assert goes_in_circles(loop + '"}]}')
    assert goes_in_circles(loop + PROSE[:700])


@pytest.mark.parametrize(
    "content",
    [
        "",
        PROSE,
        json.dumps(
            [{"kind": "cell", "label": "0.00", "bbox": [80 * (n % 5), 30 * (n // 5), 70, 25]} for n in range(60)]
        ),
        json.dumps(["0.00"] * 20),
        "=" * 200,
    ],
)
def test_what_is_merely_alike_is_no_loop(content: str) -> None:
    """Prose of few words, a grid of equal cells, twenty equal lines, a ruler."""
    assert not goes_in_circles(content)


def test_prose_may_not_harp() -> None:
    """One run of six words in a third of it is too much."""
    assert harps("the window shows a list of " * 5 + "many different things besides " * 2 + PROSE[:100])
    assert not harps(PROSE)
