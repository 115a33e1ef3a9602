// The HTTP calls of the page: JSON, server-sent events, pictures; the key where one is asked for.

const API = new URL("../v1/", document.baseURI);
const KEY = "vmem-key";

/** What a call failed with: the server's sentence, its word, and the request's id. */
export class ApiError extends Error {
  constructor({ message, code = "", requestId = "", status = 0 }) {
    super(message);
    this.name = "ApiError";
    this.code = code;
    this.requestId = requestId;
    this.status = status;
  }
}

export const hasKey = () => sessionStorage.getItem(KEY) !== null;
export const keepKey = (key) => sessionStorage.setItem(KEY, key);
export const forgetKey = () => sessionStorage.removeItem(KEY);

let askForKey = async () => false;
let asking = null;

/** Name what asks the reader for a key; it keeps one and resolves to true, or to false. */
export function onKeyNeeded(ask) {
  askForKey = ask;
}

/** One call; a path below /v1/, such as `memories`. */
export async function call(path, { method = "GET", body, signal } = {}) {
  for (;;) {
    const key = sessionStorage.getItem(KEY);
    const response = await send(path, { method, body, signal }, key);
    if (response.ok) return response;
    const error = await errorOf(response);
    if (response.status !== 401) throw error;
    if (key !== sessionStorage.getItem(KEY)) continue; // another call was given one meanwhile
    asking ??= askForKey(error).finally(() => (asking = null));
    if (!(await asking)) throw error;
  }
}

/** A call's JSON. */
export async function json(path, options) {
  return (await call(path, options)).json();
}

/** The path of a thing inside a memory. */
export function inMemory(memory, ...parts) {
  return ["memories", memory, ...parts].map(encodeURIComponent).join("/");
}

async function send(path, { method, body, signal }, key) {
  const headers = {};
  if (key !== null) headers.authorization = `Bearer ${key}`;
  if (body !== undefined && !(body instanceof FormData)) {
    headers["content-type"] = "application/json";
    body = JSON.stringify(body);
  }
  try {
    return await fetch(new URL(path, API), { method, headers, body, signal });
  } catch (error) {
    throw error.name === "AbortError" ? error : unreachable();
  }
}

const unreachable = () => new ApiError({ message: "The server cannot be reached." });

async function errorOf(response) {
  const requestId = response.headers.get("x-request-id") ?? "";
  const body = await response.json().catch(() => ({}));
  const message = body.error?.message ?? `The server answered with status ${response.status}.`;
  const code = body.error?.code;
  return new ApiError({ message, code, requestId, status: response.status });
}

/** The server-sent events of a response, each as its name and its data. */
export async function* events(response) {
  let event = "message";
  let data = [];
  for await (const line of lines(response.body)) {
    if (line === "") {
      if (data.length) yield { event, data: JSON.parse(data.join("\n")) };
      event = "message";
      data = [];
    } else if (line.startsWith("event:")) {
      event = line.slice(6).trim();
    } else if (line.startsWith("data:")) {
      data.push(line.slice(5));
    } // a line that starts with a colon keeps the connection alive
  }
}

async function* lines(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      // a carriage return at the very end may be half of a line's end
      const parts = (rest + value).split(/\r\n|\n|\r(?!$)/);
      rest = parts.pop();
      yield* parts;
    }
  } catch (error) {
    throw error.name === "AbortError" ? error : unreachable();
  } finally {
    reader.cancel().catch(() => {}); // its error, if any, was thrown above
  }
  if (rest) yield rest;
}
