"""Every way a token can be wrong is refused as an invalid token, and never as anything else."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arachne.errors import InvalidToken
from arachne.tokens import verify_token
from tests.core.forged_tokens import (
    AUDIENCE,
    CLAIMS,
    FORGED,
    GOOD,
    MISSING,
    NOW_S,
    RSA,
    SHORT_RSA,
    TRUSTED,
    TRUSTED_RSA,
    token,
)


def test_a_good_token_gives_its_claims() -> None:
    verified = verify_token(GOOD, TRUSTED, now_s=NOW_S)
    assert verified.account_id == "acc_1"
    assert verified.subject == verified.client_id == "cli_1"
    assert verified.scopes == {"vision:read", "vision:write"}
    assert verified.expires_at == datetime.fromtimestamp(NOW_S + 600, UTC)


@pytest.mark.parametrize(
    "claims",
    [{"aud": ["https://other.test", AUDIENCE]}, {"nbf": NOW_S}, {"scope": MISSING}, {"scope": "vision:read unknown"}],
)
def test_forms_the_standard_allows_are_accepted(claims: dict[str, object]) -> None:
    verify_token(token(claims=claims), TRUSTED, now_s=NOW_S)


def test_an_issuer_may_sign_with_rsa_where_its_list_says_so() -> None:
    signed = token({"alg": "RS256", "kid": "rsa"}, key=RSA, alg="RS256")
    assert verify_token(signed, TRUSTED_RSA, now_s=NOW_S).account_id == "acc_1"


@pytest.mark.parametrize("fault", FORGED)
def test_forged_tokens_are_invalid(fault: str) -> None:
    with pytest.raises(InvalidToken):
        verify_token(FORGED[fault], TRUSTED, now_s=NOW_S)


@pytest.mark.parametrize("fault", FORGED)
def test_a_longer_list_of_algorithms_lets_none_of_them_in(fault: str) -> None:
    if fault == "algorithm outside the list":
        return
    with pytest.raises(InvalidToken):
        verify_token(FORGED[fault], TRUSTED_RSA, now_s=NOW_S)


def test_short_rsa_keys_are_refused() -> None:
    signed = token({"alg": "RS256", "kid": "short"}, key=SHORT_RSA, alg="RS256")
    with pytest.raises(InvalidToken, match="too short"):
        verify_token(signed, TRUSTED_RSA, now_s=NOW_S)


@given(position=st.integers(0, len(GOOD) - 1), text=st.text(max_size=3), cut=st.integers(0, 3))
def test_no_mutation_of_a_token_is_accepted_or_crashes(position: int, text: str, cut: int) -> None:
    mutated = GOOD[:position] + text + GOOD[position + cut :]
    if mutated == GOOD:
        return
    with pytest.raises(InvalidToken):
        verify_token(mutated, TRUSTED, now_s=NOW_S)


@given(
    st.dictionaries(
        st.sampled_from([*CLAIMS, "nbf"]), st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.text())
    )
)
def test_no_signed_claims_crash(claims: dict[str, object]) -> None:
    try:
        verified = verify_token(token(claims=claims), TRUSTED, now_s=NOW_S)
    except InvalidToken:
        return
    assert verified.expires_at.timestamp() > NOW_S
