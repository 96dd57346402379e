"""The VLM's stage: what is sent, and which answers are taken."""

import json

import numpy as np
import pytest

from arachne.stages.describe import (
    DescribeOptions,
    DescribeRejectedError,
    DescribeReply,
    DescribeRequest,
    accept,
    request_for,
    skipped_reason,
)


def request(width: int = 640, height: int = 480, text: str = "Save all changes") -> DescribeRequest:
    return request_for(np.zeros((height, width, 3), np.uint8), text, DescribeOptions("some-model", "Look for buttons."))


def reply(content: object, done_reason: str = "stop") -> DescribeReply:
    return DescribeReply(content if isinstance(content, str) else json.dumps(content), done_reason, "some-model@1234")


@pytest.mark.parametrize(("width", "height"), [(640, 480), (5000, 3000), (9, 400), (1, 1), (20_000, 3), (3, 20_000)])
def test_sides_are_clamped(width: int, height: int) -> None:
    sent = request(width, height).rgb
    assert min(sent.shape[:2]) >= 28
    assert max(sent.shape[:2]) <= 1344


def test_the_callers_words_and_the_schema_are_sent() -> None:
    asked = request()
    assert asked.instruction.endswith("The caller adds: Look for buttons.")
    assert "description" in asked.schema["properties"]


def test_an_answer_is_taken_with_boxes_in_displayed_pixels() -> None:
    asked = request(2688, 1000)
    seen = {"kind": "button", "label": "Save", "bbox": [10, 20, 30, 40]}
    vlm = accept(reply({"description": "A dialog", "elements": [seen], "text": ["Save ALL", "Discard"]}), asked)
    assert vlm.model == "some-model@1234"
    assert vlm.elements[0].bbox == [20, 40, 60, 80]
    assert vlm.unsupported_text == ["Discard"]


@pytest.mark.parametrize(
    "bad",
    [
        reply("not json"),
        reply({"elements": []}),
        reply({"description": "x", "more": 1}),
        reply({"description": "A dialog"}, done_reason="length"),
        reply(json.dumps({"description": "the same six words come again " * 40})),
    ],
)
def test_unusable_answers_are_rejected(bad: DescribeReply) -> None:
    with pytest.raises(DescribeRejectedError):
        accept(bad, request())


def test_without_a_model_it_is_not_configured() -> None:
    assert skipped_reason(configured=False) == "not_configured"
    assert skipped_reason(configured=True) == "deferred"
