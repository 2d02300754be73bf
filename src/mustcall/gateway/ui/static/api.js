// Requests to the gateway: always to this origin, with the token of this page on whatever changes something.

let token = "";

export class Refused extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

async function send(path, options = {}) {
  let answer;
  try {
    answer = await fetch(`/ui/api/${path}`, { credentials: "same-origin", cache: "no-store", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, "unreachable", "The gateway cannot be reached. Is it still running?");
  }
  const said = await answer.json().catch(() => ({}));
  options.signal?.throwIfAborted(); // a body that was cut off reads as nothing
  if (!answer.ok) throw new Refused(answer.status, said.error?.code ?? "", said.error?.message ?? `status ${answer.status}`);
  return said;
}

export const get = (path, signal) => send(path, { signal });

export function post(path, body = {}) {
  const headers = { "content-type": "application/json", "x-csrf-token": token };
  return send(path, { method: "POST", headers, body: JSON.stringify(body) });
}

export function remember(session) {
  token = session.token;
  return session;
}
