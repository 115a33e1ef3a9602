// The list of memories, page by page.

import { json } from "./api.js";
import { arrowKeys, byId, el, plural, problem, showTime, state } from "./dom.js";

const PAGE = 50;
let turn = 0;

arrowKeys(byId("memories"), "a");

/** Show the first page. */
export async function showLibrary() {
  byId("memories").replaceChildren();
  await nextPage("", ++turn);
}

async function nextPage(after, mine) {
  const below = byId("library-state");
  below.replaceChildren(state("Reading the list…"));
  const query = new URLSearchParams({ limit: PAGE, ...(after && { after }) });
  try {
    const page = await json(`memories?${query}`);
    if (mine !== turn) return; // the list was opened again meanwhile
    byId("memories").append(...page.memories.map(entry));
    below.replaceChildren(...ending(page, mine));
  } catch (error) {
    if (mine === turn) below.replaceChildren(problem(error, () => nextPage(after, mine)));
  }
}

function ending(page, mine) {
  if (page.next ?? null) {
    const more = () => nextPage(page.next, mine);
    return [el("button", { type: "button", className: "second", onclick: more }, "More memories")];
  }
  const none = byId("memories").childElementCount === 0;
  return none ? [state("There are no memories yet. The first append over HTTP makes one.", "empty")] : [];
}

function entry(memory) {
  return el(
    "li",
    {},
    el(
      "a",
      { href: `#/${encodeURIComponent(memory.id)}`, className: "memory-link" },
      el("span", { className: "memory-name" }, memory.id),
      el("span", { className: "small" }, describe(memory)),
    ),
  );
}

/** A memory's counts in words. */
export function describe(memory) {
  const since = memory.created_at ? ` · since ${showTime(memory.created_at, { time: false })}` : "";
  return `${plural(memory.rounds - memory.erased, "round")} · ${plural(memory.images, "picture")}${since}`;
}
