// Who is signed in. Token and credentials live in this module's memory alone: never in storage, cookies or a URL. They
// are forgotten on signing out, on leaving the page and when the service no longer takes them.

const TOKEN_PATH = "/api/auth/token";
const EARLY_MS = 30_000; // a token is renewed so long before its end, or at half its life if that is shorter

let held = null;
let renewing = null;
const watchers = new Set();

/** Why there is no token: what the service said, in words. */
export class SignInError extends Error {
  /** Whether nobody is signed in any more. */
  final = false;
}

/** Call `watcher` with why, whenever somebody was signed out; an empty text if they wanted it. */
export function onSignedOut(watcher) {
  watchers.add(watcher);
}

/** Signed in, or a SignInError. */
export async function signIn(clientId, secret) {
  held = await ask({ clientId, secret });
}

/** Nothing of the session is left. */
export function signOut(why = "") {
  if (held === null) return;
  held = null;
  renewing = null;
  for (const watcher of watchers) watcher(why);
}

export function isSignedIn() {
  return held !== null;
}

/** Whether the token grants `scope`. */
export function has(scope) {
  return held?.scopes.includes(scope) ?? false;
}

/** A token that is good for a while yet; `refused` is one that the service no longer takes. */
export async function currentToken(refused = null) {
  if (held === null) throw signedOut();
  const usable = held.token !== refused && Date.now() < held.renewAtMs;
  if (usable) return held.token;
  renewing ??= renew().finally(() => {
    renewing = null;
  });
  await renewing;
  if (held === null) throw signedOut();
  return held.token;
}

function signedOut() {
  const error = new SignInError("You are signed out.");
  error.final = true;
  return error;
}

async function renew() {
  const before = held;
  try {
    const renewed = await ask(before);
    if (held === before) held = renewed;
  } catch (error) {
    if (error.final && held === before) signOut(`Your sign-in ended: ${error.message}`);
    throw error;
  }
}

async function ask({ clientId, secret }) {
  const form = new URLSearchParams({ grant_type: "client_credentials", client_id: clientId, client_secret: secret });
  let response;
  try {
    response = await fetch(TOKEN_PATH, { method: "POST", body: form, credentials: "omit", cache: "no-store" });
  } catch {
    throw new SignInError("The service can't be reached. Is it running?");
  }
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) throw refusal(response, answer);
  const lifeMs = answer.expires_in * 1000;
  return {
    clientId,
    secret,
    token: answer.access_token,
    scopes: answer.scope.split(" "),
    renewAtMs: Date.now() + lifeMs - Math.min(EARLY_MS, lifeMs / 2),
  };
}

function refusal(response, answer) {
  const wait = response.headers.get("Retry-After");
  const told = answer.error_description || answer.detail || `The service answered ${response.status}.`;
  const error = new SignInError(wait ? `${told} Try again in ${wait} s.` : told);
  error.final = response.status === 400 || response.status === 401;
  return error;
}
