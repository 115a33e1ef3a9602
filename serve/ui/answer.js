// One question's outcome: searching, the answer as it streams, what it rests on.

import { ApiError, call, events, inMemory } from "./api.js";
import { arrowKeys, byId, el, plural, problem, showTime, state } from "./dom.js";
import { context, costs, firstWords, fused, lanes, roundLink, route, showSeconds } from "./evidence.js";
import { picture } from "./media.js";

/** Search or answer, and show every step as it comes; resolves when nothing more will. */
export async function showOutcome({ memory, kind, query, options, file, signal, onFound, show, retry }) {
  const view = { ...frame(kind, query, file), start: performance.now() };
  const done = (found) => {
    view.found = { ...found, query, memory, show };
    onFound(view.found);
    showEvidence(view);
  };
  try {
    const response = await call(inMemory(memory, kind), { method: "POST", body: bodyOf({ kind, query, options, file }), signal });
    if (kind === "search") done(await response.json());
    else await stream(response, view, done);
    view.status.textContent = `${kind === "search" ? "Searched" : "Answered"} in ${since(view)}${view.first ?? ""}.`;
  } catch (error) {
    if (error.name === "AbortError") view.status.textContent = "Stopped.";
    else fail(view, error, retry);
  } finally {
    view.answer.removeAttribute("aria-busy");
    view.root.classList.remove("running");
  }
}

function bodyOf({ kind, query, options, file }) {
  const flags = { explain: true, ...(kind === "answer" && { stream: true }) };
  if (!file) return { query, options, ...flags };
  const form = new FormData();
  form.set("query", query);
  form.set("options", JSON.stringify(options));
  for (const [name, value] of Object.entries(flags)) form.set(name, String(value));
  form.set("image", file, file.name || "picture");
  return form;
}

function frame(kind, query, file) {
  const status = el("p", { className: "status", role: "status" }, "Searching…");
  const answer = el("div", { className: "answer", "aria-live": "polite", "aria-busy": "true", "aria-label": "Answer" });
  const evidence = el("div", { className: "evidence" });
  const asked = el("h2", { className: "asked" }, query);
  const root = el("div", { className: "running" }, asked, kind === "answer" ? answer : null, status, evidence);
  if (file) asked.prepend(thumbnail(file));
  byId("invitation").hidden = true;
  byId("outcome").hidden = false;
  byId("outcome").replaceChildren(root);
  byId("findings").scrollTop = 0;
  return { kind, root, answer, status, evidence, found: null };
}

function thumbnail(file) {
  const image = el("img", { alt: "The attached picture", src: URL.createObjectURL(file) });
  image.addEventListener("load", () => URL.revokeObjectURL(image.src), { once: true });
  return image;
}

async function stream(response, view, done) {
  for await (const { event, data } of events(response)) {
    if (event === "found") {
      done(data);
      view.status.textContent = "Reading the rounds…";
    } else if (event === "token") {
      view.first ??= `, first words after ${since(view)}`;
      view.status.textContent = "Answering…";
      view.answer.append(data.text);
    } else if (event === "error") {
      throw new ApiError({ ...data.error, requestId: data.error.request_id });
    } else if (event === "done") {
      view.answer.replaceChildren(...withLinks(data.answer, view.found));
      const { seconds, usage } = data;
      view.found = { ...view.found, seconds, usage };
      view.evidence.querySelector(".costs").replaceWith(costs(view.found));
      return;
    }
  }
  throw new ApiError({ message: "The answer broke off.", requestId: view.found?.request_id });
}

const since = (view) => showSeconds((performance.now() - view.start) / 1000);

function fail(view, error, retry) {
  view.status.textContent = "";
  view.status.after(problem(error, retry));
}

/** The answer's text, in which names of found rounds and pictures lead to their round. */
function withLinks(text, found) {
  const places = new Map();
  for (const round of found.rounds ?? []) {
    places.set(round.id, round.position);
    for (const image of round.turns.flatMap((turn) => turn.images)) places.set(image.id, round.position);
  }
  const names = [...places.keys()].sort((a, b) => b.length - a.length).map(RegExp.escape ?? escaped);
  if (!names.length) return [text];
  const parts = text.split(new RegExp(`(?<![\\w:])(${names.join("|")})(?![\\w:])`));
  return parts.map((part, at) => (at % 2 ? roundLink(found, part, places.get(part)) : part));
}

const escaped = (name) => name.replace(/[.*+?^${}()|[\]\\/-]/g, "\\$&");

function showEvidence(view) {
  const { found } = view;
  view.evidence.replaceChildren(
    citations(found, view.kind),
    route(found),
    lanes(found),
    fused(found),
    context(found),
    costs(found),
    el("p", { className: "small" }, "Request ", el("code", {}, found.request_id)),
  );
}

function citations(found, kind) {
  const items = found.citations.map((cited) =>
    el(
      "li",
      { className: cited.shown ? "" : "left-out" },
      el(
        "button",
        { type: "button", className: "citation", onclick: () => found.show(cited.position) },
        el("span", { className: "number" }, String(cited.rank)),
        el("span", { className: "round-id" }, cited.round_id),
        el("time", {}, showTime(cited.time)),
        el("span", { className: "words" }, cited.shown ? null : el("span", { className: "tag" }, "left out"), firstWords(found, cited.position)),
      ),
      cited.images.map((image) => picture(found.memory, image, true)).filter(Boolean),
    ),
  );
  const list = el("ol", { className: "citations" }, items);
  arrowKeys(list, ".citation");
  const nothing = items.length ? null : state("No round was found.", "empty");
  return el(
    "section",
    { "aria-label": "Found rounds" },
    el("h3", {}, kind === "search" ? "Found" : "Rests on"),
    nothing ?? unsent(found.citations),
    list,
  );
}

/** How many of the found rounds had no room in the context. */
function unsent(citations) {
  const left = citations.filter((cited) => !cited.shown).length;
  if (!left) return null;
  const text = `${left} of the ${plural(citations.length, "round")} had no room in the context: the model does not see ${left === 1 ? "it" : "them"}.`;
  return el("p", { className: "small unsent" }, text);
}
