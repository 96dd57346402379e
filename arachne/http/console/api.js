// Requests to the API with the caller's token. A refusal becomes a `Problem` whose message is what the service says.

import { currentToken, SignInError } from "./session.js";

/** A refusal in words. `code` is the service's word for it, or `unreachable` or `signed_out`. */
export class Problem extends Error {
  constructor(message, { status = 0, code = "unreachable", retryAfterS = null } = {}) {
    super(message);
    this.status = status;
    this.code = code;
    this.retryAfterS = retryAfterS;
  }

  /** Whether the same request may pass later. */
  get passes() {
    return this.code === "unreachable" || this.code === "idempotency_key_in_use" || this.status === 429 || this.status >= 500;
  }
}

/** Path segments, each escaped. */
export function path(...segments) {
  return segments.map((one, place) => (place ? encodeURIComponent(one) : one)).join("/");
}

/** The response to one request; a token that is refused is renewed once. */
export async function call(method, url, { query = {}, json, headers = {}, signal } = {}) {
  const known = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const target = known.length ? `${url}?${new URLSearchParams(known)}` : url;
  const body = json === undefined ? undefined : JSON.stringify(json);
  const sent = body === undefined ? headers : { ...headers, "Content-Type": "application/json" };
  let token = await takeToken();
  let response = await send(method, target, token, sent, body, signal);
  if (response.status === 401) {
    token = await takeToken(token);
    response = await send(method, target, token, sent, body, signal);
  }
  if (response.ok || response.status === 304) return response;
  throw readProblem(response.status, (name) => response.headers.get(name), await response.json().catch(() => ({})));
}

/** The JSON at a path. */
export async function get(url, query, signal) {
  return (await call("GET", url, { query, signal })).json();
}

/** A token, its refusal as a Problem. */
export async function takeToken(refused = null) {
  try {
    return await currentToken(refused);
  } catch (error) {
    if (!(error instanceof SignInError)) throw error;
    throw new Problem(error.message, { code: error.final ? "signed_out" : "unreachable" });
  }
}

async function send(method, url, token, headers, body, signal) {
  const sent = { ...headers, Authorization: `Bearer ${token}` };
  try {
    return await fetch(url, { method, headers: sent, body, signal, credentials: "omit", cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem("The service can't be reached. Is it running?");
  }
}

/** The Problem an answer tells of; `header` gives its headers. */
export function readProblem(status, header, answer) {
  const retryAfterS = Number(header("Retry-After")) || null;
  const told = [answer.detail || `The service answered ${status}.`];
  for (const { loc = [], msg } of answer.errors ?? []) told.push(`${loc.join(" › ")}: ${msg}.`);
  if (retryAfterS !== null && (status === 429 || status === 503)) told.push(`Try again in ${retryAfterS} s.`);
  return new Problem(told.join(" "), { status, code: answer.code ?? "unknown", retryAfterS });
}

/** Whether an error only says that the view it was for is gone. */
export function isOver(error) {
  return error.name === "AbortError" || error.code === "signed_out";
}
