// The list of jobs, page by page.

import { call, get, path } from "./api.js";
import { age, badge, button, choice, el, field, replace, table } from "./dom.js";
import { announce, ask, attempt, tell } from "./notices.js";
import { Pages } from "./pages.js";
import { has } from "./session.js";
import { count } from "./words.js";

export const JOBS = "/api/extract/image-jobs";
const STATES = ["queued", "processing", "completed", "partial", "failed", "cancelled"];

/** The view: newest first, by status. */
export async function showJobs(place, _, signal) {
  const shown = el("div", { "aria-live": "off" });
  const status = choice("status", [["", "all"], ...STATES]);
  const pages = new Pages(
    (cursor) => get(JOBS, { limit: 20, status: status.value, cursor }, signal),
    ({ data }) => {
      replace(shown, data.length ? listJobs(data, renew) : el("p", {}, "There are no such jobs."));
      announce(count(data.length, "job"));
    },
  );
  /** The list anew after a button in it was pressed, which is gone then: the focus goes to the list. */
  const renew = async () => {
    await pages.again();
    if (document.activeElement === document.body) (shown.querySelector(".scroll") ?? again).focus();
  };
  status.addEventListener("change", () => pages.first());
  const again = button("Look again", (event) => attempt(event.target, () => pages.again()));
  replace(
    place,
    el("div", { class: "row head" }, el("h1", {}, "Jobs"), el("div", { class: "row" }, field("Status", status), again)),
    shown,
    pages.bar,
  );
  await pages.first();
}

/** Jobs as a table; `changed` is called after one was changed here. */
export function listJobs(jobs, changed = null) {
  const heads = ["Job", "Status", "Screenshots", "Metadata", "Sent", ...(changed ? ["Actions"] : [])];
  const rows = jobs.map((job) => [
    el("a", { href: `#/jobs/${job.job_id}` }, el("code", {}, job.job_id)),
    badge(job.status),
    writeProgress(job.progress),
    writeMetadata(job.metadata),
    age(job.created_at),
    ...(changed ? [actions(job, changed)] : []),
  ]);
  return table("Jobs", heads, rows, { class: "cards" });
}

/** What a client wrote on its job. */
export function writeMetadata(metadata) {
  return Object.entries(metadata)
    .map(([key, value]) => `${key}: ${value}`)
    .join(", ");
}

/** What came of a job's images, in words. */
export function writeProgress({ total, completed, failed, cancelled, cached, degraded }) {
  const parts = [
    completed < total && `${completed} read`,
    failed && `${failed} failed`,
    cancelled && `${cancelled} cancelled`,
    cached && `${cached} cached`,
    degraded && `${degraded} degraded`,
  ].filter(Boolean);
  return `${total}${parts.length ? ` (${parts.join(", ")})` : ""}`;
}

/** Buttons that cancel, retry and delete a job; `changed` is given what is left of it, null for nothing. */
export function actions(job, changed) {
  if (!has("vision:write")) return el("span", { class: "hint" }, "—");
  const url = path(JOBS, job.job_id);
  const { failed, cancelled, degraded } = job.progress;
  const act = (label, kind, what) =>
    button(label, (event) => attempt(event.currentTarget, what), { kind, "aria-label": `${label} ${job.job_id}` });
  const cancel = async () => {
    if (!(await ask("Cancel this job?", "Cancel the job", "What has been read is kept."))) return;
    changed(await (await call("POST", `${url}/cancel`)).json());
    tell("Cancelled.");
  };
  const again = async (include) => {
    const made = await (await call("POST", `${url}/retry`, { json: { include } })).json();
    location.hash = `#/jobs/${made.job_id}`;
  };
  const erase = async () => {
    const detail = "Its pictures, results and all that was told of it are erased. There is no way back.";
    if (!(await ask("Delete this job?", "Delete the job", detail))) return;
    await call("DELETE", url);
    changed(null);
    tell("Deleted.");
  };
  return el(
    "div",
    { class: "row tight" },
    !job.finished && act("Cancel", "", cancel),
    job.finished && failed + cancelled > 0 && act("Retry", "", () => again(["failed", "cancelled"])),
    job.finished && failed + cancelled === 0 && degraded > 0 && act("Retry degraded", "", () => again(["degraded"])),
    act("Delete", "danger", erase),
  );
}
