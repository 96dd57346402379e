"""What options mean: stages with those they need, models, languages, and keys that differ exactly where results do."""

import pytest

from arachne.errors import InvalidOptions, LanguageMissing, OptionsConflict
from arachne.jobs.publications import Published
from arachne.reading import cache_key, choose_model, needed_stages, settle_options
from arachne.schemas.options import Options
from arachne.settings import Settings

PLAIN = Settings(_env_file=None)
WITH_VLM = Settings(_env_file=None, vlm_url="http://127.0.0.1:11434", vlm_fast_model="small", vlm_large_model="large")
FACTS = Published("pipeline-1", ("eng", "tha"), {"small": "small@0123456789ab"})


def key(settings: Settings = WITH_VLM, account: str = "acc_1", facts: Published = FACTS, **options: object) -> bytes:
    return cache_key(Options(**options), account, "d" * 64, settings, facts).digest  # type: ignore[arg-type]


def test_stages_come_with_all_they_build_on() -> None:
    assert needed_stages(Options(stages=["enhance"])) == ("decode", "assess", "upright", "enhance")
    assert needed_stages(Options(detail_level="fast"))[-1] == "structure"
    assert needed_stages(Options())[-1] == "describe"
    assert settle_options(Options(stages=["assess"]), PLAIN, None).stages == ["decode", "assess"]


@pytest.mark.parametrize(
    ("options", "model"),
    [
        ({}, "small"),
        ({"detail_level": "detailed"}, "large"),
        ({"detail_level": "fast"}, None),
        ({"stages": ["read"]}, None),
        ({"model": "large"}, "large"),
    ],
)
def test_the_level_chooses_the_model(options: dict[str, object], model: str | None) -> None:
    assert choose_model(Options(**options), WITH_VLM) == model  # type: ignore[arg-type]
    assert choose_model(Options(**options), PLAIN) is None  # type: ignore[arg-type]


def test_languages_are_spelled_out_once_workers_have_told_theirs() -> None:
    assert settle_options(Options(), PLAIN, FACTS).languages == ["eng"]
    assert settle_options(Options(languages=["auto"]), PLAIN, FACTS).languages == ["auto", "eng"]
    assert settle_options(Options(languages=["deu"]), PLAIN, None).languages == ["deu"]
    with pytest.raises(LanguageMissing, match="eng, tha"):
        settle_options(Options(languages=["deu"]), PLAIN, FACTS)


def test_models_are_those_of_the_settings() -> None:
    settle_options(Options(model="large"), WITH_VLM, FACTS)
    for settings in (PLAIN, WITH_VLM):
        with pytest.raises(InvalidOptions):
            settle_options(Options(model="other"), settings, FACTS)
    with pytest.raises(OptionsConflict):
        settle_options(Options(detail_level="fast", model="small"), WITH_VLM, FACTS)


@pytest.mark.parametrize(
    "change",
    [
        {"detail_level": "detailed"},
        {"detail_level": "fast"},
        {"languages": ["tha"]},
        {"languages": ["tha", "eng"]},
        {"languages": ["auto"]},
        {"prompt": "more"},
        {"frames": "all"},
        {"profile": "slip"},
        {"stages": ["read"]},
        {"account": "acc_2"},
        {"facts": Published("pipeline-2", ("eng", "tha"), FACTS.model_versions)},
        {"facts": Published("pipeline-1", ("eng", "tha"), {"small": "small@ba9876543210"})},
    ],
)
def test_what_changes_a_result_changes_its_key(change: dict[str, object]) -> None:
    assert key(**change) != key()  # type: ignore[arg-type]


@pytest.mark.parametrize("change", [{"cache": "refresh"}, {"cache": "bypass"}, {"languages": ["eng"]}, {"prompt": ""}])
def test_what_changes_no_result_leaves_its_key(change: dict[str, object]) -> None:
    assert key(**change) == key()  # type: ignore[arg-type]


def test_what_auto_falls_back_to_is_in_the_key() -> None:
    """With `auto` a result depends on what is installed, which pipeline_version has, and on the usual languages."""
    thai = WITH_VLM.model_copy(update={"languages": ["tha"]})
    assert key(settings=thai, languages=["auto"]) != key(languages=["auto"])
    assert key(settings=thai, languages=["auto", "eng"]) == key(languages=["auto"])
    settled = settle_options(Options(languages=["auto"]), WITH_VLM, FACTS)
    assert key(languages=settled.languages) == key(languages=["auto"])


def test_one_organisation_may_share_results() -> None:
    shared = WITH_VLM.model_copy(update={"cache_scope": "shared"})
    assert key(settings=shared, account="acc_1") == key(settings=shared, account="acc_2")
