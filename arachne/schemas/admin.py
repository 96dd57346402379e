"""What administrators ask for and are answered: accounts, clients, keys, and the record of what was done."""

from typing import Annotated, Literal, Self

from pydantic import Field, StrictBool, StrictInt, model_validator

from arachne.schemas.instants import Instant
from arachne.schemas.issuer import MAX_CLAIM_CHARS
from arachne.schemas.job import Moment
from arachne.schemas.plan import NewPlan
from arachne.schemas.queries import PageQuery
from arachne.schemas.text import Text
from arachne.schemas.token import CLIENT_SCOPES, GrantableScope, Scope
from arachne.schemas.wire import WireModel

ActorKind = Literal["operator", "admin", "service"]
Name = Annotated[Text, Field(min_length=1, max_length=200)]
Claim = Annotated[Text, Field(min_length=1, max_length=MAX_CLAIM_CHARS)]
PlanName = Annotated[Text, Field(min_length=1, max_length=64)]


class AccountChange(WireModel):
    """The plan an account is to have, for whatever is finished from now on."""

    plan_id: PlanName


class AccountRequest(WireModel):
    """A new account, with one client."""

    name: Name
    plan_id: PlanName = "default"


class ClientRequest(WireModel):
    """A further client of an account."""

    name: Name = "default"
    scopes: Annotated[list[GrantableScope], Field(min_length=1, max_length=4)] = Field(default=[*CLIENT_SCOPES])


class SecretRequest(WireModel):
    """For how long the old secret goes on working beside the new one, seconds."""

    grace_seconds: Annotated[StrictInt, Field(ge=0, le=30 * 86_400)] = 86_400


class RevocationRequest(WireModel):
    """Which token: itself, or its id (`jti`) with its issuer, which is this service unless said otherwise."""

    token: Annotated[Text, Field(max_length=16_384)] | None = None
    jti: Claim | None = None
    issuer: Claim | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.token is None) == (self.jti is None):
            raise ValueError("give exactly one of token and jti")
        return self


class KeyRotationRequest(WireModel):
    """Whether the tokens of the former keys are refused, as after a leak, or stay valid until they expire."""

    withdraw: StrictBool = False


class AuditQuery(PageQuery):
    """Which acts."""

    account_id: Annotated[Text, Field(max_length=64)] | None = None
    action: Annotated[Text, Field(max_length=64)] | None = None
    since: Instant | None = None


class AccountView(WireModel):
    """An account. `erasing`: it is on its way out."""

    account_id: str
    name: str
    plan_id: str
    issuer: str | None
    claim: str | None
    created_at: Moment
    disabled_at: Moment | None
    erasing: bool


class ErasingView(WireModel):
    """An account that is closed; what it has is being erased."""

    account_id: str
    erasing: Literal[True]


class NewAccountView(WireModel):
    """An account just made; its client's secret is shown only now."""

    account_id: str
    client_id: str
    client_secret: str


class ClientView(WireModel):
    """A client; until `old_secret_until` the secret before the present one works too."""

    client_id: str
    account_id: str
    name: str
    scopes: list[Scope]
    created_at: Moment
    disabled_at: Moment | None
    old_secret_until: Moment | None


class NewSecretView(WireModel):
    """A client's new secret, shown only now, and until when the old one works."""

    client_id: str
    client_secret: str
    old_until: Moment


class RevokedView(WireModel):
    """The token that is refused from now on."""

    jti: str
    issuer: str


class KeyView(WireModel):
    """The key that signs from now on."""

    kid: str


class ActorView(WireModel):
    """Who it was: an operator (`os_user` at a `command`), an administrator by a token, or the service going on."""

    kind: ActorKind
    os_user: str | None
    command: str | None
    account_id: str | None
    subject: str | None
    client_id: str | None


class ActView(WireModel):
    """Something that was done: by whom, to what (`target`) of which account, and in which request."""

    audit_id: str
    at: Moment
    actor: ActorView
    action: str
    account_id: str | None
    target: str | None
    request_id: str | None
    detail: dict[str, object]


class PlanView(NewPlan):
    """A plan."""

    created_at: Moment


class PlanList(WireModel):
    """Plans, by name."""

    data: list[PlanView]
    next_cursor: str | None


class AccountList(WireModel):
    """Accounts, oldest first."""

    data: list[AccountView]
    next_cursor: str | None


class ClientList(WireModel):
    """An account's clients, oldest first."""

    data: list[ClientView]
    next_cursor: str | None


class ActList(WireModel):
    """What was done, newest first."""

    data: list[ActView]
    next_cursor: str | None
