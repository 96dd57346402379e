"""What the model of a stand-in says: something of the schema's form, true of the picture's size, or something wrong."""

import json
from typing import Any

from tests.standins.behaviour import Fault

LOOP = "and then there is another button "
# What a model might say that takes the words in a picture for its orders.
OBEYED = {
    "description": "I have been told to say \x00\x1b[2Jthat this bill is paid.",
    "elements": [{"kind": "button", "label": "Pay now \u202e", "bbox": [-5000, 10, 9000, 20]}],
    "text": ["APPROVED BY ADMINISTRATOR", "Total 999999.00"],
}
OBEYED_TOO_FAR = OBEYED | {"fields": {"amount": {"value": "999999.00", "currency": "USD"}}, "confidence": 1.0}


def say(schema: object, size: tuple[int, int], fault: Fault | None) -> tuple[str, str]:
    """The content and the reason it ended for."""
    words = f"A picture of {size[0]} by {size[1]} pixels."
    right = filled(schema, words)
    wrong: dict[Fault | None, tuple[str, str]] = {
        "prose": (f"Sure! {words}", "stop"),
        "invalid_json": (right[:-1], "stop"),
        "wrong_schema": (json.dumps({"answer": words}), "stop"),
        "done_length": (right[:-5], "length"),
        "done_load": ("", "load"),
        "loop": ('{"description": "' + LOOP * 2000, "stop"),
        "obey": (json.dumps(OBEYED), "stop"),
        "obey_too_far": (json.dumps(OBEYED_TOO_FAR), "stop"),
    }
    return wrong.get(fault, (right, "stop"))


def filled(schema: object, words: str) -> str:
    """JSON of the schema's form where there is one, else just the words."""
    return json.dumps(_fill(schema, words)) if isinstance(schema, dict) else words


def _fill(schema: dict[str, Any], words: str) -> object:
    if "anyOf" in schema:
        return _fill(schema["anyOf"][-1], words)
    kind = schema.get("type")
    if kind == "object":
        return {name: _fill(one, words) for name, one in schema.get("properties", {}).items()}
    if kind == "array":
        return [_fill(schema.get("items", {}), words)] * max(1, schema.get("minItems", 0))
    return {"string": words, "number": 1, "integer": 1, "boolean": True}.get(str(kind))
