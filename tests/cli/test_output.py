"""What commands print of what comes from elsewhere."""

import json
from collections.abc import Callable

import pytest

from arachne.cli.output import complain, print_record, print_rows
from arachne.errors import NotFound

STRANGE = "a\x1b]0;title\x07b\r\u202e[red]c"
PRINTERS: list[Callable[[], None]] = [
    lambda: print_record({"response": STRANGE}, as_json=False),
    lambda: print_rows([{"response": STRANGE}], ["response"], as_json=False),
    lambda: complain(NotFound(STRANGE)),
]


@pytest.mark.parametrize("print_it", PRINTERS, ids=["record", "rows", "complaint"])
def test_it_does_not_drive_the_terminal(print_it: Callable[[], None], capsys: pytest.CaptureFixture[str]) -> None:
    """As what a webhook's receiver answered; it is written out."""
    print_it()
    printed = "".join(capsys.readouterr())
    assert r"a\x1b]0;title\x07b" in printed
    assert r"\u202e[red]c" in printed
    assert all(one.isprintable() or one == "\n" for one in printed)


def test_json_is_the_same_text(capsys: pytest.CaptureFixture[str]) -> None:
    print_record({"response": STRANGE}, as_json=True)
    printed = capsys.readouterr().out
    assert json.loads(printed) == {"response": STRANGE}
    assert "\x1b" not in printed
