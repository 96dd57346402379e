"""What a request's options mean: the stages that run, the model, and the key its result is cached under.

Light on purpose: the API decides by it what a worker would do, and loads no image library for that.
"""

import json
from collections.abc import Sequence
from hashlib import sha256

from arachne.errors import InvalidOptions, OptionsConflict
from arachne.languages import resolve
from arachne.schemas.options import Options
from arachne.schemas.result import STAGE_NAMES, StageName
from arachne.settings import Settings
from arachne.versions import CacheKey, Published, scope_of

AUTO = "auto"
DESCRIBE: StageName = "describe"
STRUCTURE: StageName = "structure"


def needed_stages(options: Options) -> tuple[StageName, ...]:
    """The stages that run, in order: those asked for and all they build on; without `stages`, all of the level's."""
    if options.stages is None:
        return STAGE_NAMES[:-1] if options.detail_level == "fast" else STAGE_NAMES
    # Each stage works on what the one before it gives, so the last one asked for decides.
    last = max(STAGE_NAMES.index(name) for name in options.stages)
    return STAGE_NAMES[: last + 1]


def options_hash(options: Options, languages: Sequence[str]) -> str:
    """SHA-256 in hex of what changes the result: never the cache mode, never how defaults were spelled."""
    stages = needed_stages(options)
    describes = DESCRIBE in stages
    told: dict[str, object] = {
        # The stages before the description know two levels only.
        "detail_level": options.detail_level if describes or options.detail_level == "fast" else "standard",
        "stages": stages,
        "languages": tuple(languages),
        "frames": options.frames,
        "profile": options.profile,
    }
    if describes:
        told |= {"model": options.model, "prompt": options.prompt or None}
    return sha256(json.dumps(told, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def reading_hash(options: Options, languages: Sequence[str]) -> str | None:
    """SHA-256 in hex of what changes stages 1 to 7: no model, no prompt. None where they don't all run."""
    if STRUCTURE not in needed_stages(options):
        return None
    return options_hash(options.model_copy(update={"stages": list(STAGE_NAMES[:-1])}), languages)


def allowed_models(settings: Settings) -> tuple[str, ...]:
    """The models a request may name besides `auto`; none without a VLM."""
    if settings.vlm_protocol == "none":
        return ()
    return tuple(dict.fromkeys((settings.vlm_fast_model, settings.vlm_large_model)))


def choose_model(options: Options, settings: Settings) -> str | None:
    """The VLM that describes an image with these options; None where none does."""
    if settings.vlm_protocol == "none" or DESCRIBE not in needed_stages(options):
        return None
    if options.model != AUTO:
        return options.model
    return settings.vlm_large_model if options.detail_level == "detailed" else settings.vlm_fast_model


def settle_options(options: Options, settings: Settings, facts: Published | None) -> Options:
    """The options as they will be carried out: stages with those they need, languages spelled out.

    Languages stay as they are while no worker has told yet which it has.

    Raises:
        OptionsConflict: `fast` with a model, or with the stage that needs one.
        InvalidOptions: a model that is not allowed.
        LanguageMissing: a language that is not installed.
    """
    if options.detail_level == "fast" and options.model != AUTO:
        raise OptionsConflict("detail_level `fast` uses no model. Leave `model` out, or ask for `standard`.")
    if options.detail_level == "fast" and options.stages is not None and DESCRIBE in options.stages:
        raise OptionsConflict("detail_level `fast` never describes. Leave `describe` out, or ask for `standard`.")
    models = allowed_models(settings)
    if options.model != AUTO and options.model not in models:
        known = f"Allowed: auto, {', '.join(models)}." if models else "No model is set up here; leave it at auto."
        raise InvalidOptions(
            f"The model {options.model!r} is not allowed. {known}",
            errors=[{"loc": ["options", "model"], "msg": "not allowed"}],
        )
    changes: dict[str, object] = {}
    if options.stages is not None:
        changes["stages"] = list(needed_stages(options))
    if facts is not None:
        changes["languages"] = list(resolve(options.languages, settings.languages, facts.languages))
    return options.model_copy(update=changes)


def cache_key(options: Options, account_id: str, digest: str, settings: Settings, facts: Published) -> CacheKey:
    """What the result of an image with the SHA-256 `digest` depends on, for options as stored on its job.

    Raises:
        LanguageMissing: a language that is not installed.
    """
    languages = resolve(options.languages, settings.languages, facts.languages)
    return CacheKey(
        scope=scope_of(settings.cache_scope, account_id),
        sha256=digest,
        model_version=facts.model_version(choose_model(options, settings)),
        pipeline_version=facts.pipeline_version,
        options_hash=options_hash(options, languages),
        reading_hash=reading_hash(options, languages),
    )
