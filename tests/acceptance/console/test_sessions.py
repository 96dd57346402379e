"""Signing in at the console, staying signed in, and being signed out."""

import json
import secrets
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.acceptance.conftest import Client, Product, new_client_of
from tests.acceptance.console.conftest import Console

TOKEN = "/api/auth/token"


@pytest.fixture
def other(product: Product) -> Iterator[Client]:
    """A client of an account of this test's own."""
    with new_client_of(product) as made:
        yield made


def tokens_asked(console: Console) -> int:
    return sum(url.endswith(TOKEN) for url in console.requests)


def list_jobs(console: Console) -> None:
    """The view is left for the list of jobs, which comes."""
    with console.page.expect_response(lambda answer: "/image-jobs?" in answer.url and answer.ok):
        console.go("jobs")


def at_sign_in(page: Page) -> None:
    expect(page.get_by_label("Client secret", exact=True)).to_be_visible()
    expect(page.locator("#nav")).to_be_hidden()


def test_a_wrong_secret_is_told_in_words_and_the_right_one_goes_on(console: Console) -> None:
    page = console.open("jobs")
    page.get_by_label("Client id").fill(console.client.account["client_id"])
    page.get_by_label("Client secret", exact=True).fill("ars_wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_have_text("The client is unknown, disabled, or its secret is wrong.")
    page.get_by_label("Client secret", exact=True).fill(console.client.account["client_secret"])
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("Jobs")


def test_a_token_near_its_end_is_renewed_before_it_is_used(console: Console) -> None:
    """An hour later by the browser's clock, nobody is asked anything."""
    console.page.clock.install()
    console.sign_in()
    console.page.clock.fast_forward("00:59:45")
    list_jobs(console)
    assert tokens_asked(console) == 2


def test_a_revoked_token_is_renewed_and_a_disabled_client_signed_out(
    console: Console, product: Product, other: Client
) -> None:
    page = console.page
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.headers.get("authorization", "")))
    console.sign_in("usage", other)
    expect(page.locator(".figures")).to_be_visible()
    product.command("revoke", next(one for one in sent if one).removeprefix("Bearer "))
    list_jobs(console)
    assert tokens_asked(console) == 2
    product.command("account", "client", "disable", other.account["client_id"])
    console.go("webhooks")
    at_sign_in(page)
    expect(page.locator(".why")).to_contain_text("Your sign-in ended")


def test_signing_out_and_reloading_leave_nothing(console: Console) -> None:
    page = console.sign_in("usage")
    expect(page.locator(".figures")).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    at_sign_in(page)
    assert console.client.account["client_secret"] not in page.content()
    console.sign_in("jobs")
    page.reload()
    at_sign_in(page)


def test_the_back_button_brings_no_session_back(console: Console) -> None:
    page = console.sign_in("usage")
    page.goto(f"{console.url}/docs")
    page.go_back()
    at_sign_in(page)


def test_a_missing_scope_is_named_with_what_grants_it(console: Console, product: Product) -> None:
    name = f"a-{secrets.token_hex(4)}"
    account = json.loads(product.command("account", "create", name, "--scope", "vision:read", "--json"))
    page = console.sign_in("webhooks", Client(console.client.api, account))
    expect(page.locator("h1")).to_have_text("Not allowed")
    expect(page.locator(".view code").first).to_have_text("webhooks:manage")
    console.go("jobs")
    expect(page.locator("h1")).to_have_text("Jobs")


def test_refusals_are_told_as_the_service_words_them(console: Console, product: Product, images: Any) -> None:
    """What is no picture, and what comes too often, with how long to wait."""
    plan = f"p-{secrets.token_hex(4)}"
    product.command("plan", "create", plan, "--rate", "vision=2/minute")
    account = json.loads(product.command("account", "create", plan, "--plan", plan, "--json"))
    page = console.sign_in("", Client(console.client.api, account))
    alert = page.get_by_role("alert").last
    chosen, read = page.locator("#pick"), page.get_by_role("button", name="Read 1 screenshot")
    chosen.set_input_files({"name": "a.png", "mimeType": "image/png", "buffer": b"no picture"})
    with page.expect_response("**/api/extract/image") as answered:
        read.click()
    expect(alert).to_contain_text(answered.value.json()["detail"])
    read.click()
    expect(page.get_by_role("alert")).to_have_count(2)
    read.click()
    expect(alert).to_contain_text("Try again in")
