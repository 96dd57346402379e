"""Webhook endpoints from the console: made, tested, their deliveries looked at and sent again."""

import re

from playwright.sync_api import expect

from tests.acceptance.console.conftest import Console
from tests.acceptance.receiver import Receiver


def test_an_endpoint_is_made_tested_sent_to_again_rotated_and_deleted(console: Console, receiver: Receiver) -> None:
    url, page = receiver.url("console"), console.sign_in("webhooks")
    page.get_by_label("URL").fill(url)
    page.get_by_role("button", name="Add endpoint").click()
    secret = page.get_by_label("Secret", exact=True).input_value()
    assert secret.startswith("whsec_")
    page.get_by_role("button", name="Copy").click()
    expect(page.get_by_role("dialog").get_by_role("status")).to_have_text("The secret is on the clipboard.")
    page.get_by_role("button", name="I have kept it").click()
    expect(page.locator("h1")).to_have_text(url)
    assert secret not in page.content()

    page.get_by_role("button", name="Send a test").click()
    expect(page.locator(".notice.good")).to_have_text(re.compile(r"Test: taken with 204"))
    first = receiver.next("console")
    assert first.verified(secret)["type"] == "webhook.test"

    entry = page.locator(".log summary").first
    expect(entry.locator(".badge")).to_have_text("succeeded")
    entry.click()
    attempts = page.locator(".attempts tbody tr")
    expect(attempts).to_have_count(1)
    page.get_by_role("button", name="Send again").click()
    again = receiver.next("console")
    assert (again.headers["webhook-id"], again.body) == (first.headers["webhook-id"], first.body)
    expect(attempts).to_have_count(2)
    expect(page.locator(".log summary .hint").first).to_contain_text("2 attempts")

    page.get_by_role("button", name="Rotate secret").click()
    page.get_by_role("dialog").get_by_role("button", name="Rotate the secret").click()
    rotated = page.get_by_label("Secret", exact=True).input_value()
    page.get_by_role("button", name="I have kept it").click()
    page.get_by_role("button", name="Send a test").click()
    assert receiver.next("console").verified(rotated)["type"] == "webhook.test"

    page.get_by_role("button", name="Disable").click()
    expect(page.locator(".terms .badge").first).to_have_text("disabled")
    page.get_by_role("button", name="Enable").click()
    expect(page.locator(".terms .badge").first).to_have_text("enabled")
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete the endpoint").click()
    expect(page.locator("h1")).to_have_text("Webhooks")
    assert url not in [one["url"] for one in console.client.get("/api/webhooks")["data"]]


def test_a_url_that_may_not_be_called_is_refused_in_words(console: Console) -> None:
    page = console.sign_in("webhooks")
    page.get_by_label("URL").fill("http://127.0.0.1:9/hook")
    with page.expect_response(lambda answer: answer.request.method == "POST") as answered:
        page.get_by_role("button", name="Add endpoint").click()
    expect(page.get_by_role("alert")).to_contain_text(answered.value.json()["detail"])
