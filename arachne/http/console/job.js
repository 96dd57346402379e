// One job: how far it is, its images, and what was read in the chosen one.

import { get, isOver, path } from "./api.js";
import { badge, button, el, replace, terms } from "./dom.js";
import { actions, JOBS, writeMetadata, writeProgress } from "./jobs.js";
import { announce, attempt, complain } from "./notices.js";
import { follow } from "./stream.js";
import { showImage } from "./viewer.js";
import { count, writeMoment, writeSeconds } from "./words.js";

/** The view; it returns what moves it to another image of the same job. */
export async function showJob(place, [jobId, index], signal) {
  const job = await get(path(JOBS, jobId), {}, signal);
  const view = new JobView(place, job, signal);
  view.choose(index === undefined ? null : Number(index));
  if (!job.finished) view.watch().catch(complain);
  return ([, other]) => view.choose(other === undefined ? null : Number(other));
}

class JobView {
  constructor(place, job, signal) {
    this.signal = signal;
    this.job = job;
    this.images = new Map(job.images.map((image) => [image.index, image]));
    this.following = job.images_next_cursor;
    this.state = el("div", { class: "row" });
    this.meter = el("progress", { max: 100, "aria-label": "Finished" });
    this.told = el("p", { class: "hint" });
    this.progress = el("div", { class: "progress" }, this.meter, this.told);
    this.facts = el("details", { class: "facts" }, el("summary", {}, "About this job"));
    this.acts = el("div", { class: "row" });
    this.list = el("ol", { class: "images", start: 0 });
    this.more = button("More images", (event) => attempt(event.target, () => this.loadMore()));
    this.stage = el("section", { class: "stage", "aria-label": "Image" });
    const many = job.progress.total > 1;
    const title = el("h1", {}, many ? count(job.progress.total, "screenshot") : (job.images[0]?.name ?? "Screenshot"));
    const aside = el("nav", { class: "aside", "aria-label": "Images of this job" }, this.list, this.more);
    replace(
      place,
      el("div", { class: "row head" }, el("div", { class: "row" }, title, this.state), this.acts),
      this.progress,
      el("div", { class: many ? "split" : "" }, many && aside, this.stage),
      this.facts,
    );
    this.update();
  }

  /** The image with this index is shown; without one, the first that has been read. */
  choose(index) {
    const read = [...this.images.values()].find((image) => image.status === "completed");
    this.wanted = index;
    this.index = index ?? read?.index ?? 0;
    this.renderList();
    this.renderStage();
  }

  async watch() {
    await follow(this.job.job_id, {
      signal: this.signal,
      told: ({ data }) => this.take(data),
      looked: (job) => this.take(job),
    });
    const job = await get(path(JOBS, this.job.job_id), {}, this.signal);
    this.take(job);
    announce(`The job is ${job.status}.`);
  }

  /** What an event or a look at the job tells. */
  take({ status, progress, images, ...rest }) {
    this.job = { ...this.job, ...pickKnown(rest), status, progress };
    this.job.finished = ["completed", "partial", "failed", "cancelled"].includes(status);
    for (const image of images ?? []) {
      if (this.images.has(image.index)) this.images.set(image.index, { ...this.images.get(image.index), ...image });
    }
    if (this.job.finished) this.job.queue = null;
    this.update();
    if (this.wanted === null && this.images.get(this.index)?.status !== "completed") this.choose(null);
    else this.renderStage();
    this.renderList();
  }

  update() {
    const { job } = this;
    replace(this.state, badge(job.status), job.cached && el("span", { class: "badge" }, "cached"));
    this.meter.value = job.progress.percent;
    this.meter.hidden = job.finished;
    this.told.textContent = this.tell();
    this.progress.hidden = job.finished && !this.told.textContent;
    this.offerActions();
    const [summary] = this.facts.children;
    replace(
      this.facts,
      summary,
      terms([
        ["Job", el("code", {}, job.job_id)],
        ["Retry of", job.retry_of && el("a", { href: `#/jobs/${job.retry_of}` }, job.retry_of)],
        ["Sent", writeMoment(job.created_at)],
        ["Finished", writeMoment(job.finished_at)],
        ["Kept until", writeMoment(job.expires_at)],
        ["Model", job.model_version === "none" ? null : job.model_version],
        ["Metadata", writeMetadata(job.metadata)],
        ["Options", el("code", {}, JSON.stringify(job.options))],
      ]),
    );
  }

  /** Buttons are made anew only where others are due: one that is about to be pressed must not go away. */
  offerActions() {
    const { finished, progress } = this.job;
    const due = [finished, finished && progress.failed + progress.cancelled > 0, progress.degraded > 0].join();
    if (due === this.offered) return;
    this.offered = due;
    const hadFocus = this.acts.contains(document.activeElement);
    replace(this.acts, actions(this.job, (left) => this.changed(left)));
    if (hadFocus) this.acts.querySelector("button")?.focus();
  }

  tell() {
    const { queue, progress, finished } = this.job;
    const plain = progress.total === 1 || (!progress.cached && !progress.degraded); // the heading says it all
    const done = finished && plain && !progress.failed && !progress.cancelled;
    const parts = [done ? "" : `Screenshots: ${writeProgress(progress)}`];
    if (queue && !finished) {
      parts.push(queue.position ? `${count(queue.position, "image")} before the next` : "next in turn");
      if (queue.eta_seconds !== null) parts.push(`all read in about ${writeSeconds(queue.eta_seconds)}`);
    }
    return parts.filter(Boolean).join(" · ");
  }

  changed(left) {
    if (left === null) location.hash = "#/jobs";
    else this.take(left);
  }

  async loadMore() {
    const query = { images_cursor: this.following };
    const page = await get(path(JOBS, this.job.job_id), query, this.signal);
    for (const image of page.images) this.images.set(image.index, image);
    this.following = page.images_next_cursor;
    this.renderList();
  }

  renderList() {
    const focused = document.activeElement?.closest?.(".images a")?.getAttribute("href");
    replace(this.list, [...this.images.values()].map((image) => this.item(image)));
    if (focused) this.list.querySelector(`a[href="${focused}"]`)?.focus();
    this.more.hidden = !this.following;
  }

  item(image) {
    const here = image.index === this.index;
    const name = image.name ?? image.source_url ?? `Image ${image.index}`;
    return el(
      "li",
      {},
      el(
        "a",
        { href: `#/jobs/${this.job.job_id}/${image.index}`, "aria-current": here ? "true" : null },
        el("span", { class: "name" }, name),
        image.status === "completed" ? el("span", { class: "done", role: "img", "aria-label": "completed" }, "✓") : badge(image.status),
        image.degraded && el("span", { class: "badge degraded" }, "degraded"),
      ),
    );
  }

  renderStage() {
    const image = this.images.get(this.index);
    const key = `${this.index} ${image?.status}`;
    if (key === this.shown) return;
    this.shown = key;
    this.leave?.abort();
    this.leave = new AbortController();
    const signal = AbortSignal.any([this.signal, this.leave.signal]);
    if (image?.status === "completed") {
      showImage(this.stage, this.job.job_id, image, signal).catch((error) => {
        if (!isOver(error)) replace(this.stage, el("p", { class: "card fault", role: "alert" }, error.message));
      });
      return;
    }
    replace(this.stage, el("div", { class: "card waiting" }, ...describe(image)));
  }
}

/** The members of an event that a job has too; the others are the event's own. */
function pickKnown({ metadata, queue, started_at, finished_at, expires_at, cached, model_version }) {
  const known = { metadata, queue, started_at, finished_at, expires_at, cached, model_version };
  return Object.fromEntries(Object.entries(known).filter(([, value]) => value !== undefined));
}

function describe(image) {
  if (image === undefined) return [el("p", {}, "This job has no such image among those listed.")];
  if (image.status === "failed") {
    const { code, message, stage } = image.error;
    return [
      el("h2", {}, image.name ?? "Not read"),
      el("p", { class: "fault" }, message),
      el("p", { class: "hint" }, `${code}${stage ? `, in ${stage}` : ""}`),
    ];
  }
  if (image.status === "cancelled") return [el("p", {}, "This image was cancelled before it was read.")];
  const doing = { queued: "Waiting for its turn …", fetching: "Being fetched …", processing: "Being read …" };
  return [el("span", { class: "spinner", "aria-hidden": true }), el("p", {}, doing[image.status] ?? image.status)];
}
