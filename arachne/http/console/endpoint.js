// One webhook endpoint: what it is, what can be done with it, and what was sent to it.

import { call, get, path } from "./api.js";
import { age, badge, button, choice, el, field, replace, table, terms } from "./dom.js";
import { ask, attempt, showSecret, tell } from "./notices.js";
import { Pages } from "./pages.js";
import { SECRET_NOTE, WEBHOOKS } from "./webhooks.js";
import { count, writeMoment } from "./words.js";

const STATES = ["pending", "succeeded", "failed", "cancelled"];
const FAILURES = {
  dns: "the name was not found",
  refused: "the connection was refused",
  tls: "TLS failed",
  timeout: "no answer in time",
  http: "the answer was no success",
  blocked: "the address is not allowed",
  ours: "this service could not make the request",
};

/** The view. */
export async function showEndpoint(place, [endpointId], signal) {
  const view = new EndpointView(path(WEBHOOKS, endpointId), signal);
  view.endpoint = await get(view.url, {}, signal);
  replace(place, view.head, view.facts, view.tested, view.log());
  view.update();
  await view.pages.first();
}

class EndpointView {
  constructor(url, signal) {
    this.url = url;
    this.signal = signal;
    this.head = el("div", { class: "row head" });
    this.facts = el("div", { class: "card" });
    this.tested = el("div", { role: "status" });
  }

  update() {
    const { endpoint } = this;
    const act = (label, kind, what) => button(label, (event) => attempt(event.currentTarget, () => what.call(this)), { kind });
    replace(
      this.head,
      el("h1", { class: "long" }, endpoint.url),
      el(
        "div",
        { class: "row" },
        act("Send a test", "main", this.test),
        act(endpoint.enabled ? "Disable" : "Enable", "", this.toggle),
        act("Rotate secret", "", this.rotate),
        act("Delete", "danger", this.erase),
      ),
    );
    replace(
      this.facts,
      terms([
        ["State", badge(endpoint.enabled ? "enabled" : "disabled")],
        ["Disabled", endpoint.disabled_at && `${writeMoment(endpoint.disabled_at)}: ${endpoint.disabled_reason ?? ""}`],
        ["Events", endpoint.events.join(", ")],
        ["Description", endpoint.description],
        ["Made", writeMoment(endpoint.created_at)],
        ["Id", el("code", {}, endpoint.endpoint_id)],
      ]),
    );
  }

  async test() {
    const attempted = await (await call("POST", `${this.url}/test`)).json();
    replace(this.tested, el("p", { class: attempted.failure ? "notice bad" : "notice good" }, `Test: ${outcome(attempted)}`));
    await this.pages.first();
  }

  async toggle() {
    const json = { enabled: !this.endpoint.enabled };
    this.endpoint = await (await call("PATCH", this.url, { json })).json();
    this.update();
    this.head.querySelectorAll("button")[1].focus();
    tell(this.endpoint.enabled ? "Enabled." : "Disabled. What was pending is cancelled.");
    await this.pages.again();
  }

  async rotate() {
    const detail = "The old secret goes on signing beside the new one for a day, so that your receiver can follow.";
    if (!(await ask("Make a new secret?", "Rotate the secret", detail))) return;
    const { secret } = await (await call("POST", `${this.url}/rotate`, { json: {} })).json();
    await showSecret("The endpoint's new secret", secret, SECRET_NOTE);
  }

  async erase() {
    if (!(await ask("Delete this endpoint?", "Delete the endpoint", "What was sent to it is forgotten too."))) return;
    await call("DELETE", this.url);
    location.hash = "#/webhooks";
  }

  log() {
    const shown = el("div");
    const status = choice("status", [["", "all"], ...STATES]);
    this.pages = new Pages(
      (cursor) => get(`${this.url}/deliveries`, { limit: 20, status: status.value, cursor }, this.signal),
      ({ data }) => replace(shown, data.length ? this.list(data) : el("p", {}, "Nothing was sent yet.")),
    );
    status.addEventListener("change", () => this.pages.first());
    const renew = button("Look again", (event) => attempt(event.target, () => this.pages.again()));
    return el(
      "section",
      { "aria-labelledby": "log" },
      el("div", { class: "row head" }, el("h2", { id: "log" }, "Deliveries"), el("div", { class: "row" }, field("Status", status), renew)),
      shown,
      this.pages.bar,
    );
  }

  list(deliveries) {
    return el("ol", { class: "log" }, deliveries.map((one) => el("li", { class: "card" }, this.entry(one))));
  }

  entry(delivery) {
    const body = el("div", { class: "attempts" });
    const summary = el(
      "summary",
      {},
      badge(delivery.status),
      el("span", { class: "name" }, delivery.event),
      el("span", { class: "hint" }, count(delivery.attempt_count, "attempt"), " · ", age(delivery.created_at)),
    );
    const entry = el("details", {}, summary, body);
    entry.addEventListener("toggle", () => entry.open && attempt(null, () => this.fill(body, delivery.message_id)));
    return entry;
  }

  async fill(body, messageId) {
    const url = path(`${this.url}/deliveries`, messageId);
    const found = await get(url, {}, this.signal);
    const again = button("Send again", (event) =>
      attempt(event.target, async () => {
        await call("POST", `${url}/redeliver`);
        tell("It is on its way again.");
        await this.settle(body, messageId);
      }),
    );
    const rows = found.attempts.map((one) => [writeMoment(one.at), one.cause, outcome(one), one.response ?? ""]);
    replace(
      body,
      terms([
        ["Message", el("code", {}, found.message_id)],
        ["Next attempt", writeMoment(found.next_attempt_at)],
        ["Reason", found.reason],
      ]),
      rows.length > 0 && table("Attempts", ["At", "Because of", "Outcome", "Response"], rows, { class: "cards" }),
      el("details", {}, el("summary", {}, "Body, as signed"), el("pre", { tabindex: 0 }, found.body)),
      again,
    );
    return found;
  }

  /** The delivery shown until it has been attempted, for some seconds at most. */
  async settle(body, messageId) {
    for (let look = 0; look < 10; look += 1) {
      const { status } = await this.fill(body, messageId);
      if (status !== "pending" || this.signal.aborted) break;
      await new Promise((resolve) => setTimeout(resolve, 500 * (look + 1)));
    }
    await this.refreshSummary(body, messageId);
  }

  async refreshSummary(body, messageId) {
    const found = await get(path(`${this.url}/deliveries`, messageId), {}, this.signal);
    const [state, , attempts] = body.closest("details").querySelector("summary").children;
    state.replaceWith(badge(found.status));
    attempts.textContent = count(found.attempt_count, "attempt");
    body.querySelector(":scope > button")?.focus();
  }
}

function outcome({ status_code: status, failure, ms }) {
  const took = `in ${ms} ms`;
  if (!failure) return `taken with ${status} ${took}`;
  return `${FAILURES[failure] ?? failure}${status ? ` (${status})` : ""}, ${took}`;
}
