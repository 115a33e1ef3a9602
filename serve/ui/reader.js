// The conversation: a window of rounds that grows at both ends, and jumps where a round is asked
// for that it does not hold. Erased rounds are not there.

import { inMemory, json } from "./api.js";
import { arrowKeys, byId, el, problem, showTime, state } from "./dom.js";
import { picture, voice } from "./media.js";

const PAGE = 40;
const AROUND = 6;

let memory = null;
let turn = 0;
let marks = new Map();
let loading = false;
let from = 0; // all rounds from this position up to the last one shown are here

const list = byId("rounds");
arrowKeys(list, ".round");
list.addEventListener("focusin", (event) => {
  const round = event.target.closest(".round");
  if (!round) return;
  list.querySelectorAll('.round[tabindex="0"]').forEach((other) => (other.tabIndex = -1));
  round.tabIndex = 0;
});

const atEnd = new IntersectionObserver(
  (entries) => entries.some((entry) => entry.isIntersecting) && byId("reader-after").querySelector(".more")?.click(),
  { root: byId("reader"), rootMargin: "600px" },
);
atEnd.observe(byId("reader-after"));

/** Open a memory at its first round. */
export async function readMemory(id) {
  memory = id;
  marks = new Map();
  await startAfter(-1);
}

/** Bring a round to the eye and the focus to it. */
export async function showRound(position) {
  if (!cardAt(position)) await startAfter(Math.max(position - AROUND, 0) - 1, AROUND + PAGE);
  const card = cardAt(position);
  if (!card) return;
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  card.scrollIntoView({ block: "center", behavior: calm ? "auto" : "smooth" });
  card.focus({ preventScroll: true });
  list.querySelectorAll(".found").forEach((other) => other.classList.remove("found"));
  card.classList.add("found");
}

/** Mark the rounds that the last search cites, by position, with their rank. */
export function markRounds(ranks) {
  marks = ranks;
  list.querySelectorAll(".round").forEach(mark);
}

const cardAt = (position) => list.querySelector(`.round[data-position="${Number(position)}"]`);

async function startAfter(after, limit = PAGE) {
  const mine = ++turn;
  list.replaceChildren();
  byId("reader-before").replaceChildren();
  loading = false;
  from = after + 1;
  await load(after, limit, mine, byId("reader-after"), (page) => {
    list.replaceChildren(...cards(page.rounds));
    list.querySelector(".round")?.setAttribute("tabindex", "0");
    if (!page.rounds.length) byId("reader-after").append(state("Nothing has been said here yet.", "empty"));
    offerEarlier();
  });
}

async function load(after, limit, mine, edge, place) {
  if (loading) return;
  loading = true;
  edge.replaceChildren(state("Reading…"));
  const query = new URLSearchParams({ limit, ...(after >= 0 && { after }) });
  try {
    const page = await json(`${inMemory(memory, "rounds")}?${query}`);
    if (mine !== turn) return;
    edge.replaceChildren();
    if (edge === byId("reader-after")) offerLater(page.next);
    place(page);
  } catch (error) {
    if (mine !== turn) return;
    const again = () => load(after, limit, mine, edge, place);
    edge.replaceChildren(problem(error, again));
  } finally {
    if (mine === turn) loading = false;
  }
}

function offerLater(next) {
  if ((next ?? null) === null) return;
  const more = () =>
    load(next, PAGE, turn, byId("reader-after"), (page) => {
      const known = list.querySelector(".session:last-of-type")?.dataset.session;
      list.append(...cards(page.rounds, known));
    });
  const button = el("button", { type: "button", className: "second more", onclick: more }, "Later rounds");
  byId("reader-after").append(button);
  atEnd.unobserve(byId("reader-after")); // observing anew tells whether it is on the screen
  atEnd.observe(byId("reader-after"));
}

function offerEarlier() {
  const edge = byId("reader-before");
  if (from === 0) return;
  const after = Math.max(from - PAGE, 0) - 1;
  const earlier = () => load(after, PAGE, turn, edge, (page) => prepend(page, after + 1));
  edge.append(el("button", { type: "button", className: "second", onclick: earlier }, "Earlier rounds"));
}

function prepend(page, start) {
  const pane = byId("reader");
  const height = pane.scrollHeight;
  const earlier = page.rounds.filter((round) => round.position < from);
  const joined = list.querySelector(".session");
  if (earlier.at(-1)?.session === joined?.dataset.session) joined?.remove();
  list.prepend(...cards(earlier));
  pane.scrollTop += pane.scrollHeight - height;
  from = start;
  offerEarlier();
}

function cards(rounds, session = null) {
  const shown = [];
  for (const round of rounds) {
    if (round.session !== session) shown.push(sessionTitle(round));
    session = round.session;
    shown.push(card(round));
  }
  return shown;
}

function sessionTitle(round) {
  const date = showTime(round.time, { time: false });
  const name = round.session === round.time.slice(0, 10) ? null : el("span", { title: round.session }, round.session);
  return el("h2", { className: "session", "data-session": round.session }, name, el("time", {}, date));
}

function card(round) {
  const element = el(
    "article",
    { className: "round", tabIndex: -1, "data-position": round.position, "aria-label": `Round ${round.id}` },
    el(
      "header",
      {},
      el("span", { className: "round-id", title: round.id }, round.id),
      el("time", {}, showTime(round.time, { date: false })),
      el("span", { className: "cited" }),
    ),
    round.turns.map(turnOf),
  );
  mark(element);
  return element;
}

function turnOf(turn) {
  const pictures = turn.images.map((image) =>
    el(
      "figure",
      {},
      picture(memory, image),
      el("figcaption", {}, el("code", {}, image.id), " ", image.caption),
    ),
  );
  return el(
    "div",
    { className: `turn ${turn.speaker === "assistant" ? "assistant" : ""}` },
    el("h3", {}, turn.speaker),
    turn.text ? el("p", {}, turn.text) : null,
    turn.audio_url ? voice(memory, turn.audio_url) : null,
    turn.transcript ? el("p", { className: "transcript" }, turn.transcript) : null,
    pictures.length ? el("div", { className: "pictures" }, pictures) : null,
  );
}

function mark(card) {
  const rank = marks.get(Number(card.dataset.position));
  card.classList.toggle("is-cited", rank !== undefined);
  card.querySelector(".cited").textContent = rank === undefined ? "" : `found, rank ${rank}`;
}
