"""Every way a token can be wrong is refused as an invalid token, and never as anything else, whoever issued it."""

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from joserfc.jwk import ECKey, Key, OKPKey

from arachne.errors import InvalidToken
from arachne.tokens import AccessToken, Issuer, read_token, verify_token
from tests.core.forged_tokens import FAULTS, MISSING, RSA, Forge

OURS = Forge(issuer="https://arachne.test")
THEIRS = Forge(account="tenant-7", account_claim="https://issuer.test/tenant")
ISSUERS = {
    "ours": (OURS, Issuer(OURS.issuer, OURS.audience)),
    "theirs": (
        THEIRS,
        Issuer(
            THEIRS.issuer,
            THEIRS.audience,
            algorithms=("Ed25519", "ES256", "PS256"),
            account_claim=THEIRS.account_claim,
            scopes=("vision:read", "usage:read"),
            is_ours=False,
        ),
    ),
}
LONG_LIST = ("Ed25519", "RS256", "HS256", "ES256")
FORGED = {whose: forge.forged() for whose, (forge, _) in ISSUERS.items()}
whose_ever = pytest.mark.parametrize("whose", ISSUERS)


def verify(text: str, whose: str, *, algorithms: tuple[str, ...] | None = None, **more: Key) -> AccessToken:
    forge, issuer = ISSUERS[whose]
    if algorithms is not None:
        issuer = Issuer(issuer.name, issuer.audience, algorithms=algorithms, account_claim=issuer.account_claim)
    return verify_token(read_token(text), issuer, forge.keys | more, now_s=forge.now_s)


@whose_ever
def test_a_good_token_gives_its_claims(whose: str) -> None:
    forge, issuer = ISSUERS[whose]
    verified = verify(forge.good, whose)
    assert (verified.account, verified.issuer) == (forge.account, issuer)
    assert verified.subject == verified.client_id == "cli_1"
    assert verified.scopes == {"vision:read", "vision:write", "usage:read"} & set(issuer.scopes)
    assert verified.expires_at == datetime.fromtimestamp(forge.now_s + 600, UTC)


@whose_ever
@pytest.mark.parametrize(
    "claims",
    [{"aud": ["https://other.test", OURS.audience]}, {"nbf": OURS.now_s}, {"scope": MISSING}, {"scope": "openid x"}],
)
def test_forms_the_standard_allows_are_accepted(claims: dict[str, object], whose: str) -> None:
    verify(ISSUERS[whose][0].token(claims=claims), whose)


def test_scopes_are_cut_to_those_the_issuer_may_grant() -> None:
    """Whatever its tokens say, another issuer gives away only what the operator lets it."""
    token = THEIRS.token(claims={"scope": "admin vision:write usage:read"})
    assert verify(token, "theirs").scopes == {"usage:read"}


@pytest.mark.parametrize(
    ("algorithm", "key"),
    [
        ("RS256", RSA),
        ("PS512", RSA),
        ("ES256", ECKey.generate_key("P-256", {"kid": "ec"})),
        ("ES512", ECKey.generate_key("P-521", {"kid": "ec"})),
        ("EdDSA", OKPKey.generate_key("Ed25519", {"kid": "ed"})),
    ],
)
def test_an_issuer_may_sign_in_other_ways_where_its_list_says_so(algorithm: str, key: Key) -> None:
    """And in no other: the same token is refused where its algorithm isn't listed."""
    kid = str(key.kid)
    signed = THEIRS.token({"alg": algorithm, "kid": kid}, key=key, alg=algorithm)
    assert verify(signed, "theirs", algorithms=(algorithm,), **{kid: key}).account == THEIRS.account
    with pytest.raises(InvalidToken, match="algorithm"):
        verify(signed, "theirs", algorithms=("ES384",), **{kid: key})


@pytest.mark.parametrize(("algorithm", "curve"), [("ES256", "P-384"), ("EdDSA", "Ed448")])
def test_an_algorithm_goes_with_its_own_curve(algorithm: str, curve: str) -> None:
    key: Key = (
        ECKey.generate_key(curve, {"kid": "x"}) if algorithm == "ES256" else OKPKey.generate_key(curve, {"kid": "x"})
    )  # type: ignore[arg-type]
    with pytest.raises(InvalidToken, match="another kind"):
        verify(THEIRS.token({"alg": algorithm, "kid": "x"}), "theirs", algorithms=(algorithm,), x=key)


@whose_ever
@pytest.mark.parametrize("fault", FAULTS)
def test_forged_tokens_are_invalid(fault: str, whose: str) -> None:
    with pytest.raises(InvalidToken):
        verify(FORGED[whose][fault], whose)


@whose_ever
@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault != "algorithm outside the list"])
def test_a_longer_list_of_algorithms_lets_none_of_them_in(fault: str, whose: str) -> None:
    with pytest.raises(InvalidToken):
        verify(FORGED[whose][fault], whose, algorithms=LONG_LIST)


def test_short_rsa_keys_are_refused() -> None:
    with pytest.raises(InvalidToken, match="too short"):
        verify(FORGED["ours"]["RSA of 1,024 bits"], "ours", algorithms=LONG_LIST)


@settings(max_examples=100, deadline=None)
@given(
    whose=st.sampled_from(list(ISSUERS)),
    start=st.integers(0, 9),
    text=st.text(max_size=3) | st.text("ABCDabcd0123-_.", max_size=3),
    cut=st.integers(0, 3),
)
def test_no_mutation_of_a_token_is_accepted_or_crashes(whose: str, start: int, text: str, cut: int) -> None:
    """10,000 of them: each example changes a token in a hundred places, one after the other."""
    good = ISSUERS[whose][0].good
    for number in range(100):
        position = start + number * (len(good) - 10) // 99
        mutated = good[:position] + text + good[position + cut :]
        if mutated != good:
            with pytest.raises(InvalidToken):
                verify(mutated, whose)


@given(
    whose=st.sampled_from(list(ISSUERS)),
    claims=st.dictionaries(
        st.sampled_from([*OURS.claims, "nbf"]),
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.text()),
    ),
)
def test_no_signed_claims_crash(whose: str, claims: dict[str, object]) -> None:
    forge = ISSUERS[whose][0]
    try:
        verified = verify(forge.token(claims=claims), whose)
    except InvalidToken:
        return
    assert verified.expires_at.timestamp() > forge.now_s


@given(
    st.dictionaries(
        st.sampled_from(["alg", "typ", "kid", "crit", "b64", "jwk", "x5t", "cty"]),
        st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.text()),
        min_size=1,
    )
)
def test_no_signed_header_crashes(header: dict[str, object]) -> None:
    try:
        verify(OURS.token(header), "ours")
    except InvalidToken:
        return
    assert header.keys() <= {"alg", "typ", "kid", "x5t"}
