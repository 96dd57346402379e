// Signing in with a client's id and secret.

import { el, field, replace } from "./dom.js";
import { signIn } from "./session.js";

/** The form; `done` is called once somebody is signed in. */
export function showSignIn(place, why, done) {
  const id = el("input", { name: "client_id", autocomplete: "username", required: true, spellcheck: "false" });
  const secret = el("input", {
    name: "client_secret",
    type: "password",
    autocomplete: "current-password",
    required: true,
  });
  const fault = el("p", { class: "fault", role: "alert" });
  const send = el("button", { class: "main wide" }, "Sign in");
  const submit = async (event) => {
    event.preventDefault();
    send.setAttribute("aria-busy", "true");
    fault.textContent = "";
    try {
      await signIn(id.value.trim(), secret.value.trim());
      form.reset();
      done();
    } catch (error) {
      fault.textContent = error.message;
      secret.select();
    } finally {
      send.removeAttribute("aria-busy");
    }
  };
  const form = el(
    "form",
    { class: "card", method: "post", on: { submit } },
    el("h1", {}, "Sign in"),
    why && el("p", { class: "why", role: "status" }, why),
    field("Client id", id),
    field("Client secret", secret),
    fault,
    send,
    el(
      "details",
      {},
      el("summary", {}, "Where do I get these?"),
      el("p", {}, "Who runs the service makes an account; its client's id and secret are shown once:"),
      el("pre", { tabindex: 0 }, "arachne account create my-company"),
      el("p", {}, "scripts/run prints a pair when it is done."),
    ),
    el("p", { class: "hint" }, "They stay in this page's memory until you sign out, reload or leave."),
  );
  replace(
    place,
    el(
      "div",
      { class: "welcome" },
      el(
        "div",
        { class: "pitch" },
        el("p", { class: "lead" }, "Screenshots in, text and structure out."),
        el("p", {}, "Drop a picture, see every word where it stands, and take it along as Markdown, PDF or JSON."),
      ),
      form,
    ),
  );
  id.focus();
}
