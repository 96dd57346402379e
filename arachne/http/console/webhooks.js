// Webhook endpoints: listed and added.

import { call, get } from "./api.js";
import { age, badge, el, field, replace, table } from "./dom.js";
import { attempt, complain, showSecret } from "./notices.js";
import { Pages } from "./pages.js";

export const WEBHOOKS = "/api/webhooks";
export const SECRET_NOTE = "Verify signatures with it. It is shown only now: keep it where your receiver finds it.";
const EVENTS = [
  "job.completed",
  "job.partial",
  "job.failed",
  "job.cancelled",
  "job.started",
  "image.completed",
  "image.failed",
  "webhook.endpoint.disabled",
];
const USUAL = new Set(["job.completed", "job.partial", "job.failed", "job.cancelled", "webhook.endpoint.disabled"]);

/** The view: the endpoints there are, and a form for another. */
export async function showWebhooks(place, _, signal) {
  const shown = el("div");
  const pages = new Pages(
    (cursor) => get(WEBHOOKS, { cursor }, signal),
    ({ data }) => replace(shown, data.length ? list(data) : el("p", {}, "There is no endpoint yet. Add your receiver's URL.")),
  );
  replace(place, el("h1", {}, "Webhooks"), shown, pages.bar, form());
  await pages.first().catch(complain);
}

function list(endpoints) {
  return table(
    "Endpoints",
    ["Endpoint", "State", "Events", "Made"],
    endpoints.map((one) => [
      el("div", {}, el("a", { href: `#/webhooks/${one.endpoint_id}` }, one.url), one.description && el("span", { class: "hint" }, ` ${one.description}`)),
      badge(one.enabled ? "enabled" : "disabled"),
      one.events.join(", "),
      age(one.created_at),
    ]),
    { class: "cards" },
  );
}

function form() {
  const url = el("input", { name: "url", type: "url", required: true, placeholder: "https://example.com/hooks/arachne" });
  const description = el("input", { name: "description", maxlength: 500 });
  const boxes = EVENTS.map((name) => el("input", { type: "checkbox", value: name, checked: USUAL.has(name) }));
  const add = el("button", { class: "main" }, "Add endpoint");
  const submit = async (event) => {
    event.preventDefault();
    await attempt(add, async () => {
      const events = boxes.filter((box) => box.checked).map((box) => box.value);
      if (!events.length) throw new Error("Choose at least one event.");
      const json = { url: url.value, events, description: description.value.trim() || null };
      const made = await (await call("POST", WEBHOOKS, { json })).json();
      await showSecret("The endpoint's secret", made.secret, SECRET_NOTE);
      location.hash = `#/webhooks/${made.endpoint_id}`;
    });
  };
  return el(
    "form",
    { class: "card", method: "post", on: { submit } },
    el("h2", {}, "Add an endpoint"),
    el("div", { class: "fields" }, field("URL", url), field("Description", description)),
    el(
      "fieldset",
      {},
      el("legend", {}, "Events"),
      el("div", { class: "checks" }, boxes.map((box) => el("label", { class: "check" }, box, box.value))),
    ),
    add,
  );
}
