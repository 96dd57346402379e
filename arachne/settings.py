"""Every setting: its name, unit, default and meaning. Read once at start, passed down, never global.

Environment variables carry the prefix `ARACHNE_`; a `.env` in the working directory and files of SECRETS_DIR are read
too.
The README's table is generated from here.
"""

import json
import re
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, SettingsError

from arachne.errors import SetupError
from arachne.original_names import OriginalNames
from arachne.processors import count_processors
from arachne.schemas.issuer import TrustedIssuer, require_distinct
from arachne.schemas.limits import parse_rate
from arachne.secret_files import SecretFiles


def _rate(text: str) -> str:
    parse_rate(text)
    return text


def _origin(text: str) -> str:
    if (
        text != "*"
        and re.fullmatch(r"https?://[a-z0-9.-]+(:[0-9]{1,5})?|https?://\[[0-9a-f:.]+\](:[0-9]{1,5})?", text) is None
    ):
        raise ValueError("an origin is scheme, host and port alone, in lower case, as https://app.example.com")
    return text


Origin = Annotated[str, AfterValidator(_origin)]
Rate = Annotated[str, AfterValidator(_rate)]
Seconds = Annotated[float, Field(gt=0)]
MIB = 1024 * 1024
DAY_S = 86_400.0


class Settings(BaseSettings):
    """Frozen settings of one process."""

    model_config = SettingsConfigDict(env_prefix="ARACHNE_", env_file=".env", extra="ignore", frozen=True)

    data_dir: Path = Field(Path("var"), description="Folder for embedded servers, stored images, cache and keys")
    database_url: str | None = Field(None, description="PostgreSQL URL; embedded server of `arachne up` when unset")
    redis_url: str | None = Field(None, description="Redis URL; embedded server of `arachne up` when unset")
    storage_url: str | None = Field(None, description="Object store for images, `file://` or `s3://`; DATA_DIR/storage")
    secret_key: SecretStr | None = Field(None, description="Encrypts secrets at rest; DATA_DIR/secret.key when unset")

    host: str = Field("127.0.0.1", description="Address the API listens on")
    port: int = Field(8000, ge=0, le=65535, description="Port the API listens on")
    public_url: str | None = Field(
        None, description="URL clients reach the API by, one for all machines; http://HOST:PORT when unset"
    )
    trusted_proxies: list[str] = Field([], description="Addresses whose X-Forwarded-For is believed (JSON list)")
    trusted_hosts: list[str] = Field(
        ["*"], description="Host headers that are answered (JSON list); `/healthz` and `/readyz` answer all"
    )
    trusted_issuers: Annotated[list[TrustedIssuer], AfterValidator(require_distinct)] = Field(
        [], description="Other issuers whose tokens are accepted (JSON list), see docs/tokens.md"
    )
    cors_origins: list[Origin] = Field([], description="Origins whose pages may call the API (JSON list), or `*`")
    max_connections: int = Field(2000, ge=1, description="Connections an API process keeps; further ones get 503")
    token_ttl_s: Seconds = Field(3600, le=DAY_S, description="Lifetime of access tokens, seconds")

    vlm_url: str | None = Field(None, description="URL of the vision-language model's server; none when unset")
    vlm_api: Literal["ollama", "openai", "none"] | None = Field(
        None, description="Protocol of VLM_URL; `ollama` when a URL is set, else `none`"
    )
    vlm_fast_model: str = Field("qwen2.5vl:7b", description="Model for detail level `standard`")
    vlm_large_model: str = Field("qwen2.5vl:32b", description="Model for detail level `detailed`")
    vlm_parallel: int = Field(2, ge=1, description="Requests in flight to the VLM server")
    vlm_switch_after_s: Seconds = Field(
        120, description="Seconds after which a model lets another one's waiting images have the GPU"
    )
    vlm_switch_after_requests: int = Field(
        50, ge=1, description="Requests after which a model lets another one's waiting images have the GPU"
    )
    vlm_timeout_s: Seconds = Field(
        120,
        description="Seconds a model has for one answer, its loading included; three tries in HARD_TIME_LIMIT_S",
    )
    vlm_keep_alive_s: Seconds = Field(600, description="Seconds Ollama keeps a model loaded after its last request")
    vlm_context_tokens: int = Field(8192, ge=6400, description="Tokens Ollama gives picture, question and answer")
    vlm_api_key: SecretStr | None = Field(None, description="Bearer token for VLM_URL")
    vlm_revision: str | None = Field(
        None, description="Names the weights behind VLM_URL where its server doesn't; change it with them"
    )
    languages: list[str] = Field(
        ["eng"], min_length=1, max_length=8, description="Default reading languages (JSON list)"
    )

    vision_rate_limit: Rate = Field("20/minute", description="Vision submissions per user")
    image_rate_limit: Rate = Field("600/minute", description="Submitted images per user")
    read_rate_limit: Rate = Field("1200/minute", description="Reads of jobs per user")
    other_rate_limit: Rate = Field("300/minute", description="All other requests per user")

    max_queue_depth: int = Field(5000, ge=1, description="Images queued over all accounts")
    max_image_bytes: int = Field(20 * MIB, ge=1, description="Bytes of one image")
    max_image_pixels: int = Field(50_000_000, ge=1, description="Pixels of one image, frames summed")
    max_frames: int = Field(100, ge=1, description="Frames of one image with `frames: all`")
    max_images_per_job: int = Field(500, ge=1, description="Images of one job")
    max_request_bytes: int = Field(256 * MIB, ge=1, description="Bytes of one request")
    max_json_bytes: int = Field(32 * MIB, ge=1, description="Bytes of one JSON body")

    max_temporary_bytes: int = Field(
        4096 * MIB, ge=MIB, description="Bytes of images one process holds in temporary files on their way to the store"
    )

    lease_s: Seconds = Field(15, description="Seconds without a beat after which a worker counts as lost")
    job_deadline_s: Seconds = Field(DAY_S, description="Seconds after which a job's unread images fail")
    soft_time_limit_s: Seconds = Field(100, description="Seconds after which an image stops trying harder")
    hard_time_limit_s: Seconds = Field(
        120, description="Seconds after which an image's subprocess is killed, or its description given up"
    )
    cpu_workers: int = Field(default_factory=count_processors, ge=1, description="Stage subprocesses of a GPU worker")
    stage_memory_bytes: int = Field(1024 * MIB, ge=256 * MIB, description="Memory of one stage subprocess, bytes")
    stage_images: int = Field(50, ge=1, description="Images after which a stage subprocess is replaced")
    stage_recycle_bytes: int = Field(
        512 * MIB, ge=MIB, description="Resident bytes above which a stage subprocess is replaced after its image"
    )
    tessdata_dir: Path | None = Field(None, description="More Tesseract language data, besides the packaged ones")

    original_retention_s: Seconds = Field(7 * DAY_S, description="Seconds originals are kept after the job's end")
    result_retention_s: Seconds = Field(30 * DAY_S, description="Seconds jobs and results are kept after their end")
    event_retention_s: Seconds = Field(30 * DAY_S, description="Seconds events and delivery logs are kept")
    tombstone_s: Seconds = Field(30 * DAY_S, description="Seconds a deleted job answers 410 before 404")
    idempotency_ttl_s: Seconds = Field(DAY_S, description="Seconds an Idempotency-Key is remembered")

    webhook_retry_seconds: list[Annotated[float, Field(ge=0)]] = Field(
        [5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400],
        description="Delays before each retry of a webhook, seconds (JSON list)",
    )
    webhook_timeout_s: Seconds = Field(15, description="Seconds a webhook receiver has to answer")
    webhook_disable_after_s: Seconds = Field(5 * DAY_S, description="Seconds of failure that disable an endpoint")
    webhook_inline_bytes: int = Field(20_000, ge=0, description="Bytes up to which results are inlined in events")
    webhook_egress_allow: list[str] = Field([], description="`host-or-network[:port]` webhooks may reach (JSON list)")
    image_egress_allow: list[str] = Field([], description="`host-or-network[:port]` images may come from (JSON list)")
    image_fetch_timeout_s: Seconds = Field(60, description="Seconds one try to fetch an image by its URL may take")
    egress_allow_http: bool = Field(False, description="Allow http:// besides https:// for outgoing requests")
    egress_ports: list[int] = Field([443, 80, 8443, 8080], description="Ports outgoing requests may use (JSON list)")

    cache_scope: Literal["account", "shared"] = Field("account", description="Who shares cached results")
    cache_max_bytes: int = Field(1024 * MIB, ge=MIB, description="Size of vlm_cache.db on each machine, bytes")
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field("INFO", description="Least level that is logged")
    metrics_host: str = Field("127.0.0.1", description="Address metrics are shown on")
    metrics_port: int = Field(
        9464,
        ge=0,
        le=65532,
        description="Port of an API process's metrics; a GPU worker's is one higher, an IO worker's two, the "
        "scheduler's three; 0 shows none",
    )
    log_format: Literal["auto", "json", "text"] = Field(
        "auto", description="Form of the log on stderr; `auto`: text on a terminal, else JSON"
    )

    secrets_dir: Path = Field(
        Path("/run/secrets"),
        description="Folder of files that hold settings, named as their variables in lower case, such as "
        "`arachne_secret_key`; variables win over them",
    )
    compat_env: bool = Field(
        False,
        description="Read `DATABASE_URL`, `REDIS_URL`, `OLLAMA_HOST` and `MODEL_VERSION` as the original system did, "
        "where ours are unset, see docs/migration.md",
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Where settings come from, those that win first."""
        return init_settings, env_settings, dotenv_settings, SecretFiles(settings_cls), OriginalNames(settings_cls)

    @classmethod
    def load(cls, **overrides: object) -> Self:
        """Settings from the environment, `.env`, files of SECRETS_DIR and `overrides` (None ones are ignored).

        Raises:
            SetupError: a value is not acceptable, or `.env` can't be read; says which and why.
        """
        chosen = {name: value for name, value in overrides.items() if value is not None}
        try:
            return cls(**chosen)  # type: ignore[arg-type]  # validated right here
        except ValidationError as error:
            lines = [f"ARACHNE_{'.'.join(map(str, e['loc'])).upper()}: {e['msg']}" for e in error.errors()]
            raise SetupError("Settings are not acceptable. " + "; ".join(lines)) from None
        except (OSError, UnicodeDecodeError) as error:
            raise SetupError(f"The file .env can't be read: {error}. Mend it, or run this elsewhere.") from None
        except SettingsError as error:  # raised while values were read, before any was validated
            if isinstance(error.__cause__, SetupError):
                raise error.__cause__ from None
            field = re.search(r'field "(\w+)"', str(error))
            name = f"ARACHNE_{field[1].upper()}" if field else "A setting"
            raise SetupError(f"{name}: not JSON, as lists and objects are written here.") from None

    @property
    def base_url(self) -> str:
        """The URL clients reach the API by, without a trailing slash; also the token issuer."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return (self.public_url or f"http://{host}:{self.port}").rstrip("/")

    def require_base_url(self) -> Self:
        """These settings, where `base_url` is one that clients can use.

        Raises:
            SetupError: HOST is no address to reach anything by, and PUBLIC_URL is unset.
        """
        if self.public_url is None and self.host in {"", "0.0.0.0", "::"}:  # noqa: S104
            raise SetupError(
                f"Set ARACHNE_PUBLIC_URL to the URL clients use: ARACHNE_HOST is {self.host or 'empty'}, every address "
                "of this machine, and tokens and links need one. With several machines set the same one on each."
            )
        return self

    @property
    def vlm_protocol(self) -> Literal["ollama", "openai", "none"]:
        """The protocol in force: `none` without a URL."""
        if self.vlm_url is None:
            return "none"
        return self.vlm_api or "ollama"


def settings_table() -> str:
    """A Markdown table of every setting, its default and its meaning."""
    rows = ["| setting | default | meaning |", "| --- | --- | --- |"]
    for name, field in Settings.model_fields.items():
        default = "processors it may use" if field.default_factory else _shown(field.default)
        rows.append(f"| `ARACHNE_{name.upper()}` | {default} | {field.description} |")
    return "\n".join(rows) + "\n"


def _shown(value: object) -> str:
    if value is None:
        return "unset"
    if isinstance(value, bool | list):
        return f"`{json.dumps(value)}`"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return f"`{value}`"
