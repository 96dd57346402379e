"""Fields of payment slips, from texts as they are printed on such slips."""

import pytest

from arachne.stages.slip import find_fields

ENGLISH = """Transfer successful
17 Mar 2024, 14:05
From: Maria Lopez
Harbour Bank
To: Tom Baker
Northern Savings Bank
Reference no. 2024031714059981
Amount
1,250.00 THB
Fee
0.00"""


def test_an_english_slip() -> None:
    fields = find_fields(ENGLISH, ["0041000600000101030040220"])
    assert fields.amount is not None
    assert (fields.amount.value, fields.amount.currency) == ("1250.00", "THB")
    assert fields.datetime == "17 Mar 2024, 14:05"
    assert fields.reference == "2024031714059981"
    assert (fields.sender, fields.receiver) == ("Maria Lopez", "Tom Baker")
    assert fields.banks == ["Harbour Bank", "Northern Savings Bank"]
    assert fields.qr == "0041000600000101030040220"


@pytest.mark.parametrize(
    ("text", "value", "currency"),
    [
        ("จำนวน 350.50 บาท", "350.50", "THB"),
        ("Fee 5.00\nTotal 1,000,000.25 EUR", "1000000.25", "EUR"),
        ("2.00 99.95", "99.95", None),
    ],
)
def test_amounts(text: str, value: str, currency: str | None) -> None:
    amount = find_fields(text, []).amount
    assert amount is not None
    assert (amount.value, amount.currency) == (value, currency)


def test_nothing_found_is_null() -> None:
    fields = find_fields("no slip at all", [])
    assert fields.model_dump() == dict.fromkeys(("amount", "datetime", "reference", "sender", "receiver", "qr")) | {
        "banks": []
    }
