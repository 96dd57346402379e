"""Words a model claims to see, against what readers read."""

import pytest

from arachne.stages.claims import missing_words


@pytest.mark.parametrize(
    ("claimed", "read", "missing"),
    [
        ("Save ALL", "save all changes", []),
        ("Save art", "save start", ["art"]),
        ("an OK", "", []),
        ("Discard Discard", "Save", ["Discard"]),
        ("Cafe\u0301 １２３", "Café 123", []),
        ("ยอดเงินรวม", "ยอดเงิน รวม 500", []),
        ("ยอดคงเหลือ", "ยอดเงิน รวม", ["ยอดคงเหลือ"]),
        ("残高合計", "残高合計は五百円", []),
    ],
)
def test_only_words_nobody_read_are_missing(claimed: str, read: str, missing: list[str]) -> None:
    """Case, accents' spelling and width don't count; Thai and Chinese need no spaces; parts of words prove nothing."""
    assert missing_words([claimed], read) == missing


def test_a_flood_of_claims_is_bounded() -> None:
    """However much a model makes up, 500 words of it are kept."""
    assert len(missing_words((f"word{n}" for n in range(10_000)), "")) == 500
