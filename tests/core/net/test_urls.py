"""URLs as they are kept."""

import pytest

from arachne.net.urls import without_user_info


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("https://ann:secret@example.com/a.png?b=1", "https://example.com/a.png?b=1"),
        ("https://ann:se@cret@example.com/a.png", "https://example.com/a.png"),
        ("https://example.com/@ann/a.png", "https://example.com/@ann/a.png"),
        ("https://example.com?to=a@example.com", "https://example.com?to=a@example.com"),
    ],
)
def test_names_and_passwords_are_not_kept(url: str, kept: str) -> None:
    assert without_user_info(url) == kept
