// Making elements. Everything that was stored or typed becomes a text node, never markup.

/** An element: properties, `on…` listeners, `aria-…` and `data-…` attributes, children. */
export function el(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name.includes("-") || name === "role") element.setAttribute(name, value);
    else element[name] = value;
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

export const byId = (id) => document.getElementById(id);

export const plural = (n, one, many = `${one}s`) =>
  `${n.toLocaleString("en")} ${n === 1 ? one : many}`;

/** A state that stands where content would: what is being waited for, or what is not there. */
export function state(text, kind = "waiting") {
  return el("p", { className: `state ${kind}`, role: "status" }, text);
}

/** What went wrong: the server's sentence, the request's id, and a way on. */
export function problem(error, retry) {
  const id = error.requestId && el("p", { className: "small" }, "Request ", el("code", {}, error.requestId));
  const again = retry && el("button", { className: "second", type: "button", onclick: retry }, "Try again");
  return el("div", { className: "problem", role: "alert" }, el("p", {}, error.message), id || null, again || null);
}

/** A local time of the conversation as a reader would write it; other texts stay as they are. */
export function showTime(text, { date = true, time = true } = {}) {
  const parts = /^(\d{4})-(\d\d)-(\d\d)(?:T(\d\d:\d\d))?/.exec(text ?? "");
  if (!parts) return text ?? "";
  const [, year, month, day, clock] = parts;
  const shown = new Date(Date.UTC(year, month - 1, day)).toLocaleDateString("en-GB", {
    day: "numeric", month: "short", year: "numeric", timeZone: "UTC",
  });
  return [date ? shown : "", time && clock ? clock : ""].filter(Boolean).join(", ");
}

/** Let the arrow keys, Home and End move the focus between a list's items. */
export function arrowKeys(list, selector) {
  list.addEventListener("keydown", (event) => {
    const items = [...list.querySelectorAll(selector)].filter((item) => item.offsetParent);
    const at = items.indexOf(document.activeElement);
    const last = items.length - 1;
    const next = {
      ArrowDown: at + 1, ArrowRight: at + 1, ArrowUp: at - 1, ArrowLeft: at - 1, Home: 0, End: last,
    }[event.key];
    if (at < 0 || next === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    items[Math.min(Math.max(next, 0), last)].focus();
  });
}
