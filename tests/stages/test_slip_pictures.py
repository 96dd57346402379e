"""Payment slips from picture to fields: drawn ones, whose text and code are known."""

import io
from pathlib import Path

import pytest
from PIL import Image

from arachne import languages
from arachne.pipeline import ReadRequest, read_image
from arachne.schemas.options import Options
from arachne.schemas.result import Amount, Fields
from arachne.stages import payloads

pytestmark = pytest.mark.processes

SLIPS = Path(__file__).parent.parent / "images" / "slips"


def whole(name: str) -> bytes:
    return (SLIPS / f"{name}.png").read_bytes()


def forwarded(name: str) -> bytes:
    """As a messenger passes it on: smaller, as JPEG."""
    out = io.BytesIO()
    slip = Image.open(SLIPS / f"{name}.png").convert("RGB")
    slip.resize((496, 624), Image.Resampling.LANCZOS).save(out, "JPEG", quality=85)
    return out.getvalue()


def photographed_sideways(name: str) -> bytes:
    out = io.BytesIO()
    Image.open(SLIPS / f"{name}.png").convert("RGB").rotate(90, expand=True).save(out, "PNG")
    return out.getvalue()


def read(data: bytes, wanted: tuple[str, ...], tessdata_dir: Path) -> Fields:
    options = Options(profile="slip", detail_level="fast")
    fields = read_image(data, ReadRequest(options, wanted, tessdata_dir, 1_000_000, 1, 60)).fields
    assert fields is not None
    return fields


@pytest.mark.usefixtures("either_engine")
@pytest.mark.parametrize("sent", [whole, forwarded, photographed_sideways])
def test_an_english_slip(tessdata_dir: Path, sent) -> None:
    fields = read(sent("english"), ("eng",), tessdata_dir)
    assert fields.amount == Amount(value="1250.00", currency="THB")
    assert fields.datetime == "2024-03-17T14:05:00"
    assert fields.reference == "2024031714059981"
    assert (fields.sender, fields.receiver) == ("Maria Lopez", "Tom Baker")
    assert fields.banks == ["Harbour Bank", "Northern Savings Bank"]
    told = payloads.parse(fields.qr or "")
    assert (told.checksum, told.bank_code, told.reference) == ("right", "014", "2024031714059981")


@pytest.mark.usefixtures("either_engine")
def test_a_thai_slip(tessdata_dir: Path) -> None:
    """The bank's name has a mark that no engine reads, so only its beginning is held."""
    if "tha" not in languages.in_folder(tessdata_dir):
        pytest.skip("no tha.traineddata among Tesseract's language data")
    fields = read(whole("thai"), ("auto", "eng"), tessdata_dir)
    assert fields.amount == Amount(value="2500.50", currency="THB")
    assert fields.datetime == "2023-12-05T09:07:00"
    assert fields.reference == "013339090712ABC001"
    assert (fields.sender, fields.receiver) == ("นาย วิชัย ใจดี", "นาง มาลี สุขใจ")
    assert [bank.replace(" ", "")[:7] for bank in fields.banks] == ["ธนาคาร" + "แ", "ธนาคาร" + "ภ"]
    told = payloads.parse(fields.qr or "")
    assert (told.checksum, told.bank_code, told.reference) == ("right", "004", "013339090712ABC001")


def test_a_thai_slip_without_thai_data(tessdata_dir: Path) -> None:
    """What is in digits and in the code is found all the same."""
    fields = read(whole("thai"), ("eng",), tessdata_dir)
    assert fields.amount is not None
    assert fields.amount.value == "2500.50"
    assert fields.reference == "013339090712ABC001"
    assert fields.qr is not None
