"""Payment fields of a bank slip, from its text and its QR code."""

import re
from collections.abc import Sequence
from typing import Final

from arachne.schemas.result import Amount, Fields
from arachne.stages import money, payloads
from arachne.stages.dates import find_datetime


def _label(*words: str) -> str:
    """A pattern for any of the words, whose Thai letters may have been parted in reading."""
    spread = [re.sub(r"(?<=[\u0e01-\u0e5b])(?=[\u0e01-\u0e5b])", " ?", word) for word in words]
    return "(?:" + "|".join(sorted(spread, key=len, reverse=True)) + ")"


_ACCOUNT = r"[xX*•%>\d]{1,5}(?:[ -]{1,2}[xX*•%>\d]{1,7}){1,4}"
_TITLE = re.compile(
    _label("นาย", "นางสาว", "นาง", r"น\.? ?ส\.?", "บริษัท", r"บจก\.?", r"หจก\.?", r"MR\.?", r"MRS\.?", r"MS\.?", "MISS")
    + r"[ .]",
    re.IGNORECASE,
)
_SENDER = _label("จาก", "ผู้โอน", "ผู้โอนเงิน", "from", "sender", "payer", "transfer from", "de", "pagador")
_RECEIVER = _label(
    *(
        "ไปยัง",
        "ไปที่",
        "ถึง",
        "ผู้รับ",
        "ผู้รับเงิน",
        "ผู้รับโอน",
        "to",
        "receiver",
        "recipient",
        "beneficiary",
        "payee",
        "transfer to",
    ),
    *("para", "recebedor", "favorecido"),
)
_REFERENCE = re.compile(
    _label(
        *("เลขที่รายการ", "รหัสอ้างอิง", "เลขที่อ้างอิง", "หมายเลขอ้างอิง", "เลขอ้างอิง", "หมายเลขรายการ", "รหัสรายการ"),
        *(r"ref(?:erence)?\.?(?: ?(?:no|id|number|code))?", r"transaction(?: ?(?:no|id|number|ref(?:erence)?))?"),
        *("trace no", r"id da transação"),
    )
    + r"\.?[ \t]*[:#]?\s*(?P<value>(?=[A-Za-z-]*\d)[A-Za-z0-9][A-Za-z0-9-]{5,39})(?![A-Za-z0-9])",
    re.IGNORECASE,
)
_BANK = re.compile(
    r"\bbank\b|\bbanco\b|"
    + _label("ธนาคาร", r"ธ\.(?!ค\.)(?=[ก-ฮ])")
    + r"|\b(?:KBANK|SCB|BBL|KTB|TTB|GSB|BAAC|UOB|CIMB)\b",
    re.IGNORECASE,
)
_BANK_CODES: Final = {
    "002": "Bangkok Bank",
    "004": "Kasikornbank",
    "006": "Krungthai Bank",
    "011": "TMBThanachart Bank",
    "014": "Siam Commercial Bank",
    "022": "CIMB Thai Bank",
    "024": "United Overseas Bank (Thai)",
    "025": "Bank of Ayudhya",
    "030": "Government Savings Bank",
    "033": "Government Housing Bank",
    "034": "Bank for Agriculture and Agricultural Cooperatives",
    "067": "TISCO Bank",
    "069": "Kiatnakin Phatra Bank",
    "073": "Land and Houses Bank",
}
_DEPENDENT = re.compile("(?<=[\u0e01-\u0e4e]) (?=[\u0e30-\u0e3a\u0e45\u0e47-\u0e4e])")
_LONE = re.compile("(?<=[\u0e01-\u0e4e]) ([\u0e01-\u0e2e])(?= |$)")
_THAI_DIGITS = str.maketrans("๐๑๒๓๔๕๖๗๘๙", "0123456789")


def find_fields(text: str, qr_payloads: Sequence[str]) -> Fields:
    """What the slip says; members that are not found are None.

    A code whose checksum is wrong is not believed. What the text lacks is taken from the code.
    """
    text = text.translate(_THAI_DIGITS)
    lines = [line.strip() for line in text.replace("\t", " ").splitlines() if line.strip()]
    told = [payload for payload in map(payloads.parse, qr_payloads) if payload.checksum != "wrong"]
    qr = next((payload for payload in told if payload.checksum == "right"), told[0] if told else None)
    sender, receiver = _people(lines)
    return Fields(
        amount=money.find_amount(lines) or _coded_amount(qr),
        datetime=find_datetime("\n".join(lines)),
        reference=_reference("\n".join(lines), qr.reference if qr else None),
        sender=sender,
        receiver=receiver,
        banks=_banks(lines, qr.bank_code if qr else None),
        qr=qr.text if qr else None,
    )


def _coded_amount(qr: payloads.Payload | None) -> Amount | None:
    if qr is None or qr.amount is None or not re.fullmatch(r"\d+(?:\.\d{1,2})?", qr.amount):
        return None
    return Amount(value=qr.amount, currency="THB" if qr.fields.get("53") == "764" else None)


def _reference(text: str, coded: str | None) -> str | None:
    """The printed reference, or the coded one where the printed one is missing or only a misreading of it."""
    match = _REFERENCE.search(text)
    printed = match["value"] if match else None
    if printed is None or coded is None:
        return printed or coded
    if printed in coded:  # a gap was seen in it
        return coded
    differing = sum(one != other for one, other in zip(printed, coded, strict=False)) + abs(len(printed) - len(coded))
    return coded if differing <= len(coded) // 4 else printed


def _people(lines: list[str]) -> tuple[str | None, str | None]:
    """Sender and receiver by their labels, else the first two lines that begin like a person's or company's name."""
    sender, receiver = _labelled(lines, _SENDER), _labelled(lines, _RECEIVER)
    named = [name for line in lines if (match := _TITLE.search(line)) and (name := _name(line[match.start() :]))]
    others = [name for name in named if name not in {sender, receiver}]
    if sender is None and others:
        sender = others.pop(0)
    if receiver is None and others:
        receiver = others.pop(0)
    return sender, receiver


def _labelled(lines: list[str], label: str) -> str | None:
    """The name behind a label, or on the line below a label that stands alone."""
    for index, line in enumerate(lines):
        match = re.match(label + r"(?P<end>\s*:\s*|\s+|$)", line, re.IGNORECASE)
        if match is None:
            continue
        name = _name(line[match.end() :]) or (_name(lines[index + 1]) if index + 1 < len(lines) else None)
        if name and any(c.isalpha() for c in name):
            return name
    return None


def _name(text: str) -> str | None:
    """The text without an account number or a bank behind it."""
    text = re.split(_ACCOUNT, text, maxsplit=1)[0]
    bank = _BANK.search(text)
    if bank and bank.start() > 0:
        text = text[: bank.start()]
    return _joined(text.strip(" :-|•")) or None


def _joined(text: str) -> str:
    """Thai put together again where a reader saw gaps: nothing begins with a vowel's mark or is one consonant alone."""
    return _LONE.sub(r"\1", _DEPENDENT.sub("", text))


def _banks(lines: list[str], code: str | None) -> list[str]:
    """The banks named, in order, without account numbers; the coded one where none is."""
    found = []
    for line in lines:
        match = _BANK.search(line)
        if match:
            label = re.match(f"{_SENDER}|{_RECEIVER}", line, re.IGNORECASE)
            thai = match.group()[:1] == "ธ"
            start = match.start() if thai else (label.end() if label else 0)
            found.append(_joined(re.split(_ACCOUNT, line[start:], maxsplit=1)[0].strip(" :-|•")))
    named = _BANK_CODES.get(code or "")
    return list(dict.fromkeys(found)) or ([named] if named else [])
