"""Languages by the script they are written in."""

from arachne.writing import one_each, readers_of, script_of

MANY = ("eng", "chi_sim", "chi_tra", "deu", "fra", "ita", "jpn", "por", "rus", "spa", "tha")


def test_scripts_of_languages() -> None:
    """After ISO 15924's use for each; data that is for no language has none."""
    assert [script_of(code) for code in ("por", "tha", "rus", "ell", "heb", "fas", "hin", "jpn", "kor", "chi_tra")] == [
        *("Latin", "Thai", "Cyrillic", "Greek", "Hebrew", "Arabic", "Devanagari", "Japanese", "Korean", "Han")
    ]
    assert script_of("equ") is None


def test_latin_is_read_in_english_and_what_else_there_is_up_to_a_bound() -> None:
    assert readers_of("Latin", ["eng"], ("eng", "por", "tha")) == ("eng", "por")
    assert readers_of("Latin", ["tha", "spa"], MANY) == ("eng", "spa", "deu", "fra", "ita")


def test_other_scripts_are_read_with_english_last() -> None:
    assert readers_of("Thai", ["eng"], ("eng", "por", "tha")) == ("tha", "eng")
    assert readers_of("Hangul", [], ("eng", "kor")) == ("kor", "eng")
    assert readers_of("Han", ["chi_tra"], MANY) == ("chi_tra", "chi_sim", "eng")
    assert readers_of("Thai", [], ("tha",)) == ("tha",)


def test_a_script_nobody_reads_gives_no_languages() -> None:
    assert readers_of("Thai", ["tha"], ("eng",)) == ()
    assert readers_of("Klingon", [], MANY) == ()


def test_one_language_more_for_each_further_script() -> None:
    assert one_each(("eng",), MANY, 2) == ("eng", "chi_sim", "jpn")
    assert one_each(("tha", "eng"), ("eng", "por", "tha", "equ"), 2) == ("tha", "eng")
