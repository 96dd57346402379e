// What the page says besides what it shows: notices, questions, and words for screen readers.

import { isOver } from "./api.js";
import { button, el } from "./dom.js";

/** Said by screen readers, seen by nobody. */
export function announce(text) {
  document.getElementById("announcer").textContent = text;
}

/** A notice that stays until it is dismissed, or until the next view. */
export function complain(error) {
  if (isOver(error)) return;
  console.info(`${error.code ?? error.name}: ${error.message}`);
  show(error.message, "bad", "alert");
}

/** A notice that all went well. */
export function tell(text) {
  show(text, "good", "status");
}

export function clearNotices() {
  document.getElementById("notices").replaceChildren();
}

function show(text, kind, role) {
  const close = button("✕", () => notice.remove(), { kind: "plain", "aria-label": "Dismiss" });
  const notice = el("div", { class: `notice ${kind}`, role }, el("p", {}, text), close);
  const all = document.getElementById("notices");
  all.append(notice);
  while (all.childElementCount > 3) all.firstElementChild.remove();
}

/** The act done, its button busy meanwhile, and a refusal told. */
export async function attempt(pressed, act) {
  if (pressed?.getAttribute("aria-busy") === "true") return undefined;
  pressed?.setAttribute("aria-busy", "true");
  try {
    return await act();
  } catch (error) {
    complain(error);
    return undefined;
  } finally {
    pressed?.removeAttribute("aria-busy");
  }
}

/** Whether the reader says yes. Escape means no. */
export function ask(question, yes, detail = "") {
  const dialog = el(
    "dialog",
    { class: "card", "aria-labelledby": "question" },
    el("h2", { id: "question" }, question),
    detail && el("p", {}, detail),
    el(
      "div",
      { class: "row end" },
      button("Keep", () => dialog.close(), { autofocus: true }),
      button(yes, () => dialog.close("yes"), { kind: "danger" }),
    ),
  );
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((answer) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      answer(dialog.returnValue === "yes");
    });
  });
}

/** A secret that is shown this once, to be copied. */
export function showSecret(title, secret, note) {
  const shown = el("input", { readonly: true, value: secret, class: "secret", "aria-label": "Secret", size: 50 });
  const told = el("p", { class: "hint", role: "status" }); // notices lie behind the dialog, for screen readers too
  const say = (text) => {
    told.textContent = text;
  };
  const dialog = el(
    "dialog",
    { class: "card", "aria-labelledby": "secret-title" },
    el("h2", { id: "secret-title" }, title),
    el("p", {}, note),
    shown,
    told,
    el(
      "div",
      { class: "row end" },
      button("Copy", () => copy(secret, "The secret").catch(({ message }) => message).then(say), { kind: "main", autofocus: true }),
      button("I have kept it", () => dialog.close()),
    ),
  );
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((closed) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      closed();
    });
  });
}

/** What to say once the text is on the clipboard, also where the page is not in a secure context. */
export async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    if (!copyBySelection(text)) {
      throw new Error("The browser does not let this page copy. Select the text and copy it by hand.");
    }
  }
  return `${what} is on the clipboard.`;
}

/** Whether that copied the text; the focus is where it was. */
function copyBySelection(text) {
  const before = document.activeElement;
  const area = el("textarea", { class: "unseen", "aria-hidden": true });
  area.value = text;
  (document.querySelector("dialog[open]") ?? document.body).append(area);
  area.select();
  const copied = document.execCommand("copy");
  area.remove();
  before?.focus();
  return copied;
}
