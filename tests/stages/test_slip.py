"""Fields of payment slips, from texts as they are printed on such slips."""

import binascii
from datetime import datetime

import numpy as np
import pytest
import zxingcpp
from hypothesis import given
from hypothesis import strategies as st

from arachne.stages import payloads
from arachne.stages.arrays import Box
from arachne.stages.dates import find_datetime
from arachne.stages.read import ReadWord
from arachne.stages.slip import find_fields
from arachne.stages.structure import StructureOptions, structure

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

THAI = """โอนเงินสำเร็จ
5 ธ.ค. 2566 - 09:07 น.
นาย วิชัย ใจดี
ธนาคารแม่น้ำ
xxx-x-x4321-x
นาง มาลี สุขใจ
ธ.ภูเขา
x-4455
จำนวน:
2,500.50 บาท
ค่าธรรมเนียม:
10.00 บาท
เลขที่รายการ:
013339090712ABC001"""

PORTUGUESE = """Comprovante de transferência
12 de março de 2026 às 09h30
Valor R$ 1.250,00
De Ana Souza
Banco do Rio
Para Carlos Lima
Banco da Serra"""

SLIP_CODE = "004100060000010103014022000111222233344ABCD125102TH910417DF"  # CRC checked with binascii below
REQUEST_CODE = "00020101021229370016A000000677010111011300668012345675802TH530376454071250.006304"


def test_an_english_slip() -> None:
    fields = find_fields(ENGLISH, ["0041000600000101030040220"])
    assert fields.amount is not None
    assert (fields.amount.value, fields.amount.currency) == ("1250.00", "THB")
    assert fields.datetime == "2024-03-17T14:05:00"
    assert fields.reference == "2024031714059981"
    assert (fields.sender, fields.receiver) == ("Maria Lopez", "Tom Baker")
    assert fields.banks == ["Harbour Bank", "Northern Savings Bank"]
    assert fields.qr == "0041000600000101030040220"


def test_a_thai_slip_without_labels_for_the_people() -> None:
    fields = find_fields(THAI, [])
    assert fields.amount is not None
    assert (fields.amount.value, fields.amount.currency) == ("2500.50", "THB")
    assert fields.datetime == "2023-12-05T09:07:00"
    assert fields.reference == "013339090712ABC001"
    assert (fields.sender, fields.receiver) == ("นาย วิชัย ใจดี", "นาง มาลี สุขใจ")
    assert fields.banks == ["ธนาคารแม่น้ำ", "ธ.ภูเขา"]


def test_thai_letters_parted_in_reading_still_make_labels() -> None:
    text = "จ ำนวน เ งิน 99.00 บ าท\nไป ยัง ร้าน กาแฟ\nเลข ที่ราย การ 20240101AB"
    fields = find_fields(text, [])
    assert fields.amount is not None
    assert (fields.amount.value, fields.amount.currency) == ("99.00", "THB")
    assert (fields.receiver, fields.reference) == ("ร้าน กาแฟ", "20240101AB")


def test_thai_names_parted_in_reading_are_joined() -> None:
    """Where Thai can't begin or stand alone; spaces between the parts of a name stay."""
    fields = find_fields("จาก น าย วิชัย ใจดี\nธนา คา ร แม่น ้า\nไปยัง นา ง มาลี สุขใจ", [])
    assert (fields.sender, fields.receiver) == ("นาย วิชัย ใจดี", "นาง มาลี สุขใจ")
    assert fields.banks == ["ธนา คาร แม่น้า"]


def test_a_portuguese_slip() -> None:
    fields = find_fields(PORTUGUESE, [])
    assert fields.amount is not None
    assert (fields.amount.value, fields.amount.currency) == ("1250.00", "BRL")
    assert fields.datetime == "2026-03-12T09:30:00"
    assert (fields.sender, fields.receiver) == ("Ana Souza", "Carlos Lima")
    assert fields.banks == ["Banco do Rio", "Banco da Serra"]


@pytest.mark.parametrize(
    ("text", "value", "currency"),
    [
        ("จำนวน 350.50 บาท", "350.50", "THB"),
        ("Fee 5.00\nTotal 1,000,000.25 EUR", "1000000.25", "EUR"),
        ("2.00 99.95", "99.95", None),
        ("Amount\nTHB 500", "500.00", "THB"),
        ("ยอดโอน ฿1,000", "1000.00", "THB"),
        ("ค่าธรรมเนียม\n25.00\nจำนวนเงิน\n๑๐.๐๐ บาท", "10.00", "THB"),
        ("Available balance 9,999.00\nPaid 12.00 USD", "12.00", "USD"),
    ],
)
def test_amounts(text: str, value: str, currency: str | None) -> None:
    amount = find_fields(text, []).amount
    assert amount is not None
    assert (amount.value, amount.currency) == (value, currency)


@pytest.mark.parametrize(
    ("text", "iso"),
    [
        ("12 มี.ค. 2567 14:35 น.", "2024-03-12T14:35:00"),
        ("12 มี. ค. 67 เวลา 14:35:09", "2024-03-12T14:35:09"),
        ("1 มกราคม พ.ศ. 2569", "2026-01-01"),
        ("5 ธุค. 2566", "2023-12-05"),
        ("5 ก.พ์. 67 08:00", "2024-02-05T08:00:00"),
        ("5 มุ.ค. 67", None),
        ("31/12/2566 23:59", "2023-12-31T23:59:00"),
        ("2024-02-29T08:00:01", "2024-02-29T08:00:01"),
        ("Mar 5, 2025 at 1:05 PM", "2025-03-05T13:05:00"),
        ("05-Nov-24\n07:00", "2024-11-05T07:00:00"),
        ("14 de agosto de 2025", "2025-08-14"),
        ("31/02/2024", None),
        ("192.168.10.20 xxx-1-23456-7", None),
        ("Ref 12 of 2024", None),
    ],
)
def test_dates(text: str, iso: str | None) -> None:
    assert find_datetime(text) == iso
    if iso:
        datetime.fromisoformat(iso)


def test_nothing_found_is_null() -> None:
    fields = find_fields("no slip at all", [])
    assert fields.model_dump() == dict.fromkeys(("amount", "datetime", "reference", "sender", "receiver", "qr")) | {
        "banks": []
    }


@given(st.text(alphabet="123ABCxyz ไทย", max_size=40))
def test_checksums_agree_with_the_standard_library(text: str) -> None:
    assert payloads.crc16(text) == f"{binascii.crc_hqx(text.encode(), 0xFFFF):04X}"


@given(st.text(max_size=80), st.lists(st.text(alphabet="0123456789AB", max_size=60), max_size=3))
def test_any_text_gives_fields(text: str, codes: list[str]) -> None:
    find_fields(text, codes)


def test_the_slip_code_gives_what_the_text_lacks() -> None:
    """A reading of the reference that is a letter off is mended; another reference stays."""
    fields = find_fields("Thank you", [SLIP_CODE])
    assert (fields.reference, fields.banks, fields.qr) == ("00111222233344ABCD12", ["Siam Commercial Bank"], SLIP_CODE)
    assert find_fields("Ref: 00111222233344A8CD1Z", [SLIP_CODE]).reference == "00111222233344ABCD12"
    assert find_fields("Ref: 00111222 233344", [SLIP_CODE]).reference == "00111222233344ABCD12"
    assert find_fields("Ref: 999888777", [SLIP_CODE]).reference == "999888777"


def test_a_code_with_a_wrong_checksum_is_not_believed() -> None:
    wrong = SLIP_CODE.replace("014", "004")
    assert payloads.parse(wrong).checksum == "wrong"
    fields = find_fields("Thank you", [wrong])
    assert (fields.reference, fields.banks, fields.qr) == (None, [], None)


def test_the_amount_of_a_request_to_pay() -> None:
    code = REQUEST_CODE + f"{binascii.crc_hqx(REQUEST_CODE.encode(), 0xFFFF):04X}"
    fields = find_fields("Scan to pay", [code])
    assert fields.amount is not None
    assert (fields.amount.value, fields.amount.currency) == ("1250.00", "THB")
    assert fields.reference is None


def placed(line: int, *pieces: tuple[int, int, str]) -> list[ReadWord]:
    """Words from x and width, as a reader gives them that parts Thai into syllables."""
    return [ReadWord(text, Box(x, 30 * line, width, 16), 0.9, "tesseract", 0, line) for x, width, text in pieces]


def test_a_whole_slip_from_words_and_its_picture() -> None:
    """Thai in pieces, sums in a column of their own, and the code drawn below."""
    words = [
        *placed(1, (10, 20, "โอ"), (31, 10, "น"), (42, 20, "เงิน"), (63, 12, "ส"), (75, 8, "\u0e4d"), (84, 8, "\u0e32")),
        *placed(
            2,
            (10, 20, "12"),
            (36, 8, "มี"),
            (45, 3, "."),
            (50, 8, "ค"),
            (59, 3, "."),
            (70, 40, "2567"),
            (120, 50, "14:35"),
        ),
        *placed(3, (10, 30, "จาก"), (52, 30, "นาย"), (94, 20, "สม"), (116, 30, "ชาย")),
        *placed(4, (10, 50, "จำนวน"), (62, 30, "เงิน"), (240, 70, "1,250.00"), (320, 30, "บาท")),
    ]
    code = np.asarray(zxingcpp.create_barcode(SLIP_CODE, zxingcpp.BarcodeFormat.QRCode).to_image(scale=3))
    picture = np.full((420, 420, 3), 255, np.uint8)
    picture[200 : 200 + code.shape[0], 100 : 100 + code.shape[1]] = code[..., None]
    found = structure(words, np.full((420, 420), 255, np.uint8), picture, np.eye(3), StructureOptions(profile="slip"))
    assert found.text.splitlines()[0] == "โอนเงินสำ"
    assert found.fields is not None
    assert found.fields.amount is not None
    assert (found.fields.amount.value, found.fields.amount.currency) == ("1250.00", "THB")
    assert found.fields.datetime == "2024-03-12T14:35:00"
    assert found.fields.sender == "นาย สมชาย"
    assert found.fields.reference == "00111222233344ABCD12"
    assert found.fields.qr == SLIP_CODE
