// Choosing screenshots, by dropping, pasting or picking them, and sending them.

import { get } from "./api.js";
import { button, choice, el, field, replace } from "./dom.js";
import { listJobs } from "./jobs.js";
import { announce, attempt, complain } from "./notices.js";
import { has } from "./session.js";
import { newKey, submit } from "./upload.js";
import { count, writeBytes } from "./words.js";

const TYPES = "image/*,.heic,.heif,.avif,.tif,.tiff,.webp,.bmp";

/** The view: a place to drop, what was chosen, options, and the latest jobs. */
export async function showSubmission(place, _, signal) {
  const chosen = new Chosen(signal);
  const options = new Options();
  const pick = el("input", { type: "file", multiple: true, accept: TYPES, class: "unseen", id: "pick", tabindex: -1 });
  pick.addEventListener("change", () => {
    chosen.add([...pick.files]);
    pick.value = "";
  });
  const drop = el(
    "button",
    { type: "button", class: "drop", on: { click: () => pick.click() } },
    el("span", { class: "drop-lead" }, "Drop screenshots here"),
    el("span", {}, "or paste with Ctrl-V, or press to choose files"),
    el("span", { class: "hint" }, "PNG, JPEG, WebP, GIF, BMP, TIFF, AVIF, HEIC"),
  );
  const latest = el("section", { "aria-labelledby": "latest" });
  replace(
    place,
    el("h1", {}, "Read screenshots"),
    el("div", { class: "card" }, drop, pick, el("label", { for: "pick", class: "unseen" }, "Screenshots"), chosen.list, options.form),
    chosen.bar,
    latest,
  );
  chosen.send.addEventListener("click", () => send(chosen, options, signal));
  receive(drop, chosen, signal);
  if (!has("vision:read")) return;
  await Promise.all([options.load(signal), showLatest(latest, signal)].map((one) => one.catch(complain)));
}

async function showLatest(latest, signal) {
  const { data } = await get("/api/extract/image-jobs", { limit: 5 }, signal);
  if (data.length) {
    replace(latest, el("h2", { id: "latest" }, "Latest jobs"), listJobs(data), el("p", {}, el("a", { href: "#/jobs" }, "All jobs")));
  }
}

/** Pictures dropped on the page or pasted into it are added. */
function receive(drop, chosen, signal) {
  const over = (event) => {
    if (![...event.dataTransfer.types].includes("Files")) return;
    event.preventDefault();
    drop.classList.toggle("over", event.type !== "dragleave");
  };
  for (const type of ["dragenter", "dragover", "dragleave"]) document.addEventListener(type, over, { signal });
  const take = (event, files) => {
    if (!files.length) return;
    event.preventDefault();
    chosen.add(files);
  };
  document.addEventListener(
    "drop",
    (event) => {
      drop.classList.remove("over");
      take(event, [...event.dataTransfer.files]);
    },
    { signal },
  );
  document.addEventListener("paste", (event) => take(event, pasted(event.clipboardData)), { signal });
}

/** The pasted pictures, which browsers name alike, with names of their own. */
function pasted(clipboard) {
  const now = new Date().toISOString().slice(11, 19).replaceAll(":", "");
  return [...clipboard.files].map((file, place) =>
    /^image\.\w+$/.test(file.name)
      ? new File([file], file.name.replace("image", `pasted-${now}${place ? `-${place}` : ""}`), { type: file.type })
      : file,
  );
}

async function send(chosen, options, signal) {
  if (!chosen.files.length) return;
  const job = await attempt(chosen.send, () => {
    chosen.key ??= newKey();
    announce(`Sending ${count(chosen.files.length, "screenshot")}.`);
    return submit(chosen.files, options.read(), chosen.key, { progress: (share) => chosen.show(share), signal }).catch(
      (error) => {
        if (!error.passes) chosen.key = null;
        throw error;
      },
    );
  });
  chosen.show(null);
  if (job) location.hash = `#/jobs/${job.job_id}`;
}

/** The files to send, as a list that they can be taken out of again. */
class Chosen {
  constructor(signal) {
    this.files = [];
    this.key = null;
    this.urls = new Map();
    this.list = el("ul", { class: "chosen", "aria-label": "Chosen screenshots" });
    this.send = button("Read", () => {}, { kind: "main" });
    this.meter = el("progress", { max: 1, value: 0, hidden: true, "aria-label": "Sent" });
    this.told = el("p", { class: "hint" });
    this.bar = el("div", { class: "row sendbar", hidden: true }, this.send, this.told, this.meter);
    signal.addEventListener("abort", () => this.urls.forEach((url) => URL.revokeObjectURL(url)));
  }

  add(files) {
    this.files.push(...files);
    this.key = null;
    this.render();
    this.send.focus();
    announce(`${count(this.files.length, "screenshot")} chosen.`);
  }

  remove(file) {
    const place = this.files.indexOf(file);
    this.files.splice(place, 1);
    this.key = null;
    this.render();
    const left = this.list.querySelectorAll("button");
    (left[Math.min(place, left.length - 1)] ?? document.querySelector(".drop"))?.focus();
  }

  /** How much has been sent; null where nothing is under way. */
  show(share) {
    this.meter.hidden = share === null;
    if (share !== null) this.meter.value = share;
  }

  render() {
    replace(this.list, this.files.map((file) => this.item(file)));
    const bytes = this.files.reduce((sum, file) => sum + file.size, 0);
    this.bar.hidden = !this.files.length;
    this.send.textContent = `Read ${count(this.files.length, "screenshot")}`;
    this.told.textContent = writeBytes(bytes);
  }

  item(file) {
    if (!this.urls.has(file)) this.urls.set(file, URL.createObjectURL(file));
    const thumb = el("img", { src: this.urls.get(file), alt: "" });
    thumb.addEventListener("error", () => thumb.replaceWith(el("span", { class: "nothumb", "aria-hidden": true }, "▦")));
    return el(
      "li",
      {},
      thumb,
      el("span", { class: "name" }, file.name),
      el("span", { class: "hint" }, writeBytes(file.size)),
      button("✕", () => this.remove(file), { kind: "plain", "aria-label": `Take out ${file.name}` }),
    );
  }
}

/** The options, with the models there are. */
class Options {
  constructor() {
    this.detail = choice("detail_level", [
      ["standard", "standard"],
      ["fast", "fast: no second look, no description"],
      ["detailed", "detailed: the large model describes"],
    ]);
    this.profile = choice("profile", [
      ["screenshot", "screenshot"],
      ["document", "document: scans"],
      ["slip", "slip: payment slips, with their fields"],
    ]);
    this.languages = el("input", { name: "languages", placeholder: "as set by the service", spellcheck: "false" });
    this.model = choice("model", ["auto"]);
    this.prompt = el("textarea", { name: "prompt", maxlength: 2000, rows: 2 });
    this.frames = el("input", { type: "checkbox", name: "frames" });
    this.refresh = el("input", { type: "checkbox", name: "cache" });
    this.form = el(
      "details",
      { class: "options" },
      el("summary", {}, "Options"),
      el(
        "div",
        { class: "fields" },
        field("Detail", this.detail),
        field("Profile", this.profile),
        field("Languages", this.languages, "Tesseract's codes, such as eng, tha; auto tells them from the picture"),
        field("Model", this.model, "For descriptions; auto follows the detail"),
        field("Prompt", this.prompt, "Added to what the model is told"),
        el("label", { class: "check" }, this.frames, "All pages of a TIFF or frames of an animation"),
        el("label", { class: "check" }, this.refresh, "Read anew, even where the answer is cached"),
      ),
    );
  }

  async load(signal) {
    const { data } = await get("/api/models", {}, signal);
    const offered = data.filter((one) => one.allowed).map((one) => one.model);
    this.model.append(...offered.map((model) => el("option", { value: model }, model)));
    this.model.disabled = !offered.length;
    if (!offered.length) {
      this.prompt.disabled = true;
      document.getElementById(this.model.getAttribute("aria-describedby")).textContent =
        "This service has no model to describe pictures with";
    }
  }

  /** The options that differ from what the service does anyway. */
  read() {
    const languages = this.languages.value.split(/[\s,+]+/).filter(Boolean);
    return {
      detail_level: this.detail.value,
      profile: this.profile.value,
      ...(languages.length && { languages }),
      ...(this.model.value !== "auto" && { model: this.model.value }),
      ...(this.prompt.value.trim() && { prompt: this.prompt.value.trim() }),
      ...(this.frames.checked && { frames: "all" }),
      ...(this.refresh.checked && { cache: "refresh" }),
    };
  }
}
