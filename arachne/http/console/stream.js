// A job's events as they happen: server-sent events read by `fetch`, since `EventSource` can't send a token. A stream
// that breaks is resumed after its last event; where streams don't come through, the job is polled.

import { call, get, path } from "./api.js";
import { JOBS } from "./jobs.js";

const TERMINAL = new Set(["job.completed", "job.partial", "job.failed", "job.cancelled"]);
const TRIES = 3;
const PAUSE_MS = 1000;
const SILENCE_MS = 40_000; // the service sends a comment every 15 s

/** Nothing, once the job is finished. `told` gets the body of each event, `looked` the job where it was polled. */
export async function follow(jobId, { signal, told, looked }) {
  const url = path(JOBS, jobId);
  let last = "";
  for (let failed = 0; failed < TRIES; ) {
    const before = last;
    try {
      const headers = last ? { "Last-Event-ID": last } : {};
      const response = await call("GET", `${url}/events`, { headers, signal });
      if (response.status === 204) return;
      if (!/^text\/event-stream/.test(response.headers.get("Content-Type"))) break;
      for await (const event of readEvents(response.body)) {
        last = event.id;
        told(JSON.parse(event.data));
        if (TERMINAL.has(event.type)) return;
      }
    } catch (error) {
      if (isFinal(error) || signal.aborted) throw error;
    }
    if (await isFinished(url, signal)) return;
    failed = last === before ? failed + 1 : 0;
    if (failed) await pause(PAUSE_MS * failed, signal);
  }
  await poll(url, signal, looked);
}

/** Refusals that trying again would not change. */
function isFinal(error) {
  return error.code === "signed_out" || (error.status >= 400 && error.status < 500 && error.status !== 429);
}

async function isFinished(url, signal) {
  try {
    return (await get(url, {}, signal)).finished;
  } catch (error) {
    if (isFinal(error) || signal.aborted) throw error;
    return false;
  }
}

async function poll(url, signal, looked) {
  let etag = "";
  while (true) {
    try {
      const response = await call("GET", url, {
        query: { wait: 20 },
        headers: etag ? { "If-None-Match": etag } : {},
        signal,
      });
      if (response.status === 304) {
        await pause(PAUSE_MS, signal); // something on the way may answer at once
        continue;
      }
      etag = response.headers.get("ETag") ?? "";
      const job = await response.json();
      looked(job);
      if (job.finished) return;
      if (!etag) await pause(PAUSE_MS, signal);
    } catch (error) {
      if (isFinal(error) || signal.aborted) throw error;
      await pause((error.retryAfterS ?? 2) * 1000, signal);
    }
  }
}

function pause(ms, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(new DOMException("Left", "AbortError"));
    });
  });
}

/** The events in a stream of bytes. Source: WHATWG HTML, 9.2.6. */
export async function* readEvents(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let event = { type: "message", id: "", data: [] };
  try {
    while (true) {
      const { done, value } = await Promise.race([reader.read(), silence()]);
      if (done) return;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines.map((one) => one.replace(/\r$/, ""))) {
        if (line) take(event, line);
        else if (event.data.length) {
          yield { ...event, data: event.data.join("\n") };
          event = { type: "message", id: event.id, data: [] };
        }
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/** The end of a stream that says nothing for so long that its connection must be gone. */
function silence() {
  clearTimeout(silence.timer);
  return new Promise((resolve) => {
    silence.timer = setTimeout(() => resolve({ done: true }), SILENCE_MS);
  });
}

function take(event, line) {
  const [, name, value] = /^([^:]*):? ?(.*)$/s.exec(line);
  if (name === "event") event.type = value;
  else if (name === "id") event.id = value;
  else if (name === "data") event.data.push(value);
}
