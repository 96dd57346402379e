// One image that has been read: the picture with its boxes, the text beside it, and both linked.

import { call, get, path } from "./api.js";
import { button, choice, el, field, replace } from "./dom.js";
import { showFacts } from "./facts.js";
import { JOBS } from "./jobs.js";
import { Links } from "./links.js";
import { attempt, copy, tell } from "./notices.js";
import { Picture } from "./picture.js";
import { Tabs } from "./tabs.js";
import { showText } from "./text.js";

const FORMATS = [
  ["json", "JSON"],
  ["md", "Markdown"],
  ["txt", "Plain text"],
  ["hocr", "hOCR"],
  ["pdf", "PDF, searchable"],
  ["png", "PNG with boxes"],
];

/** The image is shown in `place`. */
export async function showImage(place, jobId, row, signal) {
  const url = path(JOBS, jobId, "images", row.index);
  const image = await get(url, {}, signal);
  const { result } = image;
  if (!result) {
    replace(place, el("p", { class: "card" }, "The result of this image is no longer kept."));
    return;
  }
  const body = el("div");
  const show = (page) => showPage(body, { url, image, page, result: page === null ? result : result.pages[page], signal });
  if (result.pages?.length > 1) {
    const pages = choice("page", result.pages.map((_, number) => [number, `${number + 1} of ${result.pages.length}`]));
    pages.addEventListener("change", () => show(Number(pages.value)));
    replace(place, field("Page", pages), body);
    show(0);
  } else {
    replace(place, body);
    show(result.pages ? 0 : null);
  }
}

function showPage(place, { url, image, page, result, signal }) {
  const links = new Links();
  const text = showText(result, links);
  const picture = new Picture(result, links);
  const markdown = result.markdown ?? result.text ?? "";
  const tabs = new Tabs("Result", [
    ["Text", text],
    ["Markdown", el("pre", { class: "markdown", tabindex: 0, "aria-label": "Markdown" }, markdown)],
    ["Details", showFacts(result)],
  ]);
  const copying = button("Copy as Markdown", () => attempt(copying, async () => tell(await copy(markdown, "The Markdown"))), {
    kind: "main",
  });
  const side = el("div", { class: "card side" }, el("div", { class: "row tools" }, copying, downloads(url, image, page, signal)), tabs.node);
  replace(
    place,
    result.degraded && el("p", { class: "why" }, `Degraded: ${writeReasons(result)}`),
    el("div", { class: "pair" }, el("div", { class: "card" }, picture.node), side),
  );
  links.connect(picture.boxes, text);
  picture.load(url, page, signal);
}

function writeReasons({ stages }) {
  const lacking = stages.filter(({ status }) => status === "degraded" || status === "failed");
  return lacking.map(({ name, reason }) => `${name} (${reason ?? "failed"})`).join(", ") || "something is missing";
}

function downloads(url, image, page, signal) {
  const query = page === null ? {} : { page };
  const items = FORMATS.map(([format, label]) =>
    button(label, (event) => attempt(event.target, () => save(`${url}/result`, { format, ...query }, menu)), { kind: "plain" }),
  );
  const original = button("The original", (event) => attempt(event.target, () => save(`${url}/original`, {}, menu)), {
    kind: "plain",
  });
  const menu = el("details", { class: "menu" }, el("summary", {}, "Download"), el("div", { class: "card" }, items, original));
  menu.setAttribute("aria-label", `Download ${image.name ?? "the result"}`);
  menu.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !menu.open) return;
    menu.open = false;
    menu.querySelector("summary").focus();
  });
  const leave = ({ target }) => {
    if (!menu.contains(target)) menu.open = false;
  };
  for (const type of ["pointerdown", "focusin"]) document.addEventListener(type, leave, { signal });
  return menu;
}

/** The document at a path, saved under the name that the service gives it. */
async function save(url, query, menu) {
  const response = await call("GET", url, { query });
  const [, name] = /filename="([^"]+)"/.exec(response.headers.get("Content-Disposition") ?? "") ?? [];
  const address = URL.createObjectURL(await response.blob());
  const link = el("a", { href: address, download: name ? decodeURIComponent(name) : "result" });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
  menu.open = false;
  menu.querySelector("summary").focus();
}
