// The ask bar: the question, the attached picture, the options, the keys.

import { byId, el } from "./dom.js";

const question = byId("question");
let attached = null;
let running = false;
let handlers = { ask: () => {}, stop: () => {} };

/** Name what asks (`ask({ kind, form })`) and what stops an answer under way (`stop()`). */
export function onQuestion(given) {
  handlers = given;
}

/** Show whether a question is under way: then the main button stops it. */
export function setRunning(now) {
  running = now;
  byId("submit").textContent = now ? "Stop" : "Ask";
  byId("search").disabled = now;
}

/** Empty the bar, as for another memory. */
export function clearQuestion() {
  question.value = "";
  fit();
  attach(null);
}

/** The picture that is attached, or null. */
export const attachedPicture = () => attached;

function send(kind) {
  if (running) return handlers.stop();
  if (!question.value.trim()) {
    question.focus();
    return undefined;
  }
  openOptions(false);
  if (matchMedia("(pointer: coarse)").matches) question.blur(); // puts the screen's keyboard away
  return handlers.ask({ kind, query: question.value.trim(), options: options(), file: attached?.file });
}

function openOptions(open) {
  byId("ask").classList.toggle("open", open);
  byId("more").setAttribute("aria-expanded", String(open));
}

function options() {
  const number = (id) => (byId(id).value === "" ? undefined : Number(byId(id).value));
  return {
    target: document.querySelector('input[name="target"]:checked').value,
    top_k: number("top-k"),
    window: number("window"),
  };
}

function fit() {
  question.style.height = "";
  if (question.scrollHeight) question.style.height = `${question.scrollHeight}px`; // 0 while hidden
}

function attach(file) {
  if (attached) URL.revokeObjectURL(attached.url);
  attached = file && { file, url: URL.createObjectURL(file) };
  byId("picture").value = "";
  const place = byId("attachment");
  place.hidden = !attached;
  if (!attached) return place.replaceChildren();
  const drop = () => {
    attach(null);
    question.focus();
  };
  return place.replaceChildren(
    el("img", { src: attached.url, alt: "" }),
    el("span", { className: "file" }, file.name || "Pasted picture"),
    el("button", { type: "button", className: "quiet", onclick: drop }, "Remove picture"),
  );
}

const pictureOf = (transfer) =>
  [...(transfer?.files ?? [])].find((file) => file.type.startsWith("image/")) ?? null;

byId("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  send("answer");
});
byId("search").addEventListener("click", () => send("search"));
byId("picture").addEventListener("change", (event) => {
  attach(event.target.files[0] ?? null);
  question.focus();
});
byId("more").addEventListener("click", () => openOptions(!byId("ask").classList.contains("open")));
question.addEventListener("input", fit);
window.addEventListener("resize", fit); // the lines break elsewhere
question.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  if (!running) send("answer");
});

document.addEventListener("keydown", (event) => {
  if (document.querySelector("dialog[open]") || byId("memory").hidden) return;
  if (event.key === "Escape" && running) handlers.stop();
  const writes = event.target.closest("input:not([type=radio]):not([type=file]), textarea, select");
  if (event.key !== "/" || writes || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  question.focus();
});
document.addEventListener("paste", (event) => {
  const file = pictureOf(event.clipboardData);
  if (!file || byId("memory").hidden) return;
  event.preventDefault();
  attach(file);
});
for (const kind of ["dragenter", "dragover"]) {
  document.addEventListener(kind, (event) => {
    event.preventDefault(); // else the browser leaves the page for the file
    byId("ask").classList.add("over");
  });
}
document.addEventListener("dragleave", (event) => {
  if (!event.relatedTarget) byId("ask").classList.remove("over");
});
document.addEventListener("drop", (event) => {
  event.preventDefault();
  byId("ask").classList.remove("over");
  const file = pictureOf(event.dataTransfer);
  if (file && !byId("memory").hidden) attach(file);
});
