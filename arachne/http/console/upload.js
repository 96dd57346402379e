// Sends screenshots as one job and tells how much of them has gone out. `fetch` can't tell that, so this doesn't use it.

import { Problem, readProblem, takeToken } from "./api.js";

/** A key for a submission, so that sending it again makes no second job. */
export function newKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return `console-${Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

/** The job made of these files; `progress` is told the share that has been sent. */
export async function submit(files, options, key, { progress, signal }) {
  const form = new FormData();
  for (const file of files) form.append(files.length === 1 ? "file" : "files", file, file.name || "screenshot.png");
  form.append("options", JSON.stringify(options));
  form.append("metadata", JSON.stringify({ from: "console" }));
  const url = files.length === 1 ? "/api/extract/image" : "/api/extract/images";
  const token = await takeToken();
  try {
    return await send(url, form, token, key, progress, signal);
  } catch (error) {
    if (error.status !== 401) throw error;
    return send(url, form, await takeToken(token), key, progress, signal);
  }
}

function send(url, form, token, key, progress, signal) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("POST", url);
    request.responseType = "json";
    request.setRequestHeader("Authorization", `Bearer ${token}`);
    request.setRequestHeader("Idempotency-Key", key);
    request.upload.onprogress = (event) => event.lengthComputable && progress(event.loaded / event.total);
    request.onload = () => {
      const answer = request.response ?? {};
      if (request.status < 300) resolve(answer);
      else reject(readProblem(request.status, (name) => request.getResponseHeader(name), answer));
    };
    request.onerror = () =>
      reject(new Problem("The connection broke while sending. Send again: no picture is read twice."));
    request.onabort = () => reject(new DOMException("Given up", "AbortError"));
    signal.addEventListener("abort", () => request.abort());
    request.send(form);
  });
}
