// The frame: which view is shown for which address, signing in and out, and where the focus goes.

import { isOver } from "./api.js";
import { el, replace } from "./dom.js";
import { showEndpoint } from "./endpoint.js";
import { showJob } from "./job.js";
import { showJobs } from "./jobs.js";
import { clearNotices, complain } from "./notices.js";
import { showSubmission } from "./read.js";
import { has, isSignedIn, onSignedOut, signOut } from "./session.js";
import { showSignIn } from "./signin.js";
import { showUsage } from "./usage.js";
import { showWebhooks } from "./webhooks.js";

// Each view has an address, the scope it needs, and a function that shows it. `at` names the entry of the menu.
const VIEWS = [
  { pattern: /^$/, at: "", scope: "vision:write", show: showSubmission },
  { pattern: /^jobs$/, at: "jobs", scope: "vision:read", show: showJobs },
  { pattern: /^jobs\/([\w-]+)(?:\/(\d+))?$/, at: "jobs", scope: "vision:read", show: showJob },
  { pattern: /^webhooks$/, at: "webhooks", scope: "webhooks:manage", show: showWebhooks },
  { pattern: /^webhooks\/([\w-]+)$/, at: "webhooks", scope: "webhooks:manage", show: showEndpoint },
  { pattern: /^usage$/, at: "usage", scope: "usage:read", show: showUsage },
];
const MENU = [
  ["", "Read"],
  ["jobs", "Jobs"],
  ["webhooks", "Webhooks"],
  ["usage", "Usage"],
];

const main = document.getElementById("main");
const nav = document.getElementById("nav");
const out = document.getElementById("sign-out");
let current = { end: new AbortController() };

/** The view for the address; `why` tells somebody who is signed out what happened. */
async function route(why = "") {
  const address = location.hash.replace(/^#\/?/, "");
  const signedIn = isSignedIn();
  nav.hidden = out.hidden = !signedIn;
  if (!signedIn) return open({ at: null }, [], (place) => showSignIn(place, why, () => route()));
  const view = VIEWS.find(({ pattern }) => pattern.test(address));
  if (view === undefined) return open({ at: null }, [], showNothing);
  const parameters = view.pattern.exec(address).slice(1);
  if (current.view === view && current.key === parameters[0] && current.move) return current.move(parameters);
  return open(view, parameters, has(view.scope) ? view.show : (place) => showMissing(place, view.scope));
}

async function open(view, parameters, show) {
  current.end.abort();
  current = { view, key: parameters[0], end: new AbortController() };
  const mine = current;
  const before = document.activeElement;
  clearNotices();
  for (const dialog of document.querySelectorAll("dialog[open]")) dialog.remove(); // it may show a secret
  replace(nav, MENU.map(([at, label]) => link(at, label, view.at)));
  const place = el("div", { class: "view" });
  replace(main, place);
  scrollTo(0, 0);
  try {
    mine.move = await show(place, parameters, mine.end.signal);
  } catch (error) {
    if (mine === current && !isOver(error)) showFailure(place, error);
  }
  if (mine === current) arrive(place, before);
}

function link(at, label, here) {
  return el("a", { href: `#/${at}`, "aria-current": at === here ? "page" : null }, label);
}

/** The view's name in the title, and the focus on it, unless the view or the reader has put that elsewhere since. */
function arrive(place, before) {
  const heading = place.querySelector("h1");
  document.title = heading ? `${heading.textContent} · Arachne` : "Arachne";
  const here = document.activeElement;
  if (heading && !place.contains(here) && (here === before || here === document.body)) {
    heading.tabIndex = -1;
    heading.focus({ preventScroll: true });
  }
}

function showNothing(place) {
  replace(place, el("h1", {}, "Nothing here"), el("p", {}, "This address leads nowhere. Choose from the menu."));
}

function showMissing(place, scope) {
  replace(
    place,
    el("h1", {}, "Not allowed"),
    el(
      "p",
      {},
      "This needs a client with the scope ",
      el("code", {}, scope),
      ", which yours was not granted. The service's operator makes one with ",
      el("code", {}, `arachne account client create NAME --scope ${scope}`),
      ".",
    ),
  );
}

function showFailure(place, error) {
  replace(
    place,
    el("h1", {}, error.status === 404 || error.status === 410 ? "Not there" : "That did not work"),
    el("p", { role: "alert" }, error.message),
    el("p", {}, el("a", { href: "#/jobs" }, "To the list of jobs")),
  );
}

onSignedOut((why) => route(why));
out.addEventListener("click", () => signOut());
addEventListener("hashchange", () => route());
// A page that is left must not come back signed in by the browser's back button.
addEventListener("pagehide", () => signOut());
addEventListener("unhandledrejection", (event) => {
  event.preventDefault();
  complain(event.reason);
});
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
route();
