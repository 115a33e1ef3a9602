// How an answer came about: route, lanes, fused list, context, costs.

import { arrowKeys, el, plural } from "./dom.js";

const SIGNALS = {
  text_dense: ["Texts by meaning", "text lane"],
  text_sparse: ["Texts by words", "text lane"],
  caption_dense: ["Captions by meaning", "image lane"],
  caption_sparse: ["Captions by words", "image lane"],
  visual: ["Pictures by likeness", "image lane"],
  visual_by_text: ["Pictures by description", "image lane"],
};
const SEEKS = { text: "looks for what was said", image: "looks for pictures" };
const FLAGS = {
  counts_images: "It counts pictures.",
  aggregates: "It gathers things from the whole conversation.",
  asks_conflict: "It asks about a contradiction.",
};
const LANE_ROWS = 8;
const FUSED_ROWS = 12;
const open = { lanes: true, fused: true, context: false, costs: false };

/** The signals that were searched; some may have ranked nothing. */
const signalsOf = (found) =>
  Object.keys({ ...found.anchors?.by_signal, ...found.lanes });
const signalName = (signal) => SIGNALS[signal]?.[0] ?? signal;

/** A button that leads to a round. */
export function roundLink(found, id, position) {
  return el(
    "button",
    { type: "button", className: "round-link", title: firstWords(found, position), onclick: () => found.show(position) },
    id,
  );
}

/** The first words of a round that the response speaks of. */
export function firstWords(found, position) {
  const round = found.rounds?.find((each) => each.position === position);
  const said = round?.turns.map((turn) => turn.text || turn.transcript).find(Boolean);
  return said ?? round?.turns.flatMap((turn) => turn.images).map((image) => image.caption).find(Boolean) ?? "";
}

/** What the wording decided, as sentences. */
export function route(found) {
  const { query_modality, target, reason } = found.route;
  const asked = query_modality === "image" ? "A question with a picture" : "A question in words";
  const flags = Object.keys(FLAGS).filter((flag) => found.route[flag]);
  return el(
    "section",
    { className: "route", "aria-label": "Route" },
    el("h3", {}, "Route"),
    el(
      "p",
      {},
      el("strong", {}, `${asked} that ${SEEKS[target] ?? `seeks ${target}`}`),
      reason ? `: ${reason}.` : ".",
      flags.map((flag) => ` ${FLAGS[flag]}`),
    ),
    found.notes.map((note) => el("p", { className: "note" }, note)),
  );
}

function section(name, title, aside, ...content) {
  const details = el(
    "details",
    { className: name, open: open[name], ontoggle: () => (open[name] = details.open) },
    el("summary", {}, el("span", {}, title), el("span", { className: "aside" }, aside)),
    ...content,
  );
  return details;
}

/** What each signal ranked, and what it searched with. */
export function lanes(found) {
  const signals = signalsOf(found);
  const grid = el("div", { className: "lane-grid" }, signals.map((signal) => lane(found, signal)));
  return section("lanes", "What each lane ranked", plural(signals.length, "signal"), grid, seen(found.anchors));
}

/** What the model read off the attached picture. */
function seen(anchors) {
  const words = anchors?.keywords?.length ? `Read off the picture: ${anchors.keywords.join(", ")}. ` : "";
  const caption = anchors?.query_caption ? `It shows: ${anchors.query_caption}` : "";
  return words || caption ? el("p", { className: "small" }, words, caption) : "";
}

function lane(found, signal) {
  const ranked = found.lanes?.[signal] ?? [];
  const rows = ranked.map((item) =>
    el(
      "tr",
      {},
      el("td", { className: "rank" }, String(item.rank)),
      el("td", {}, roundLink(found, item.round_id, item.position)),
    ),
  );
  const table = el(
    "table",
    {},
    el("caption", {}, el("strong", {}, signalName(signal)), el("span", {}, SIGNALS[signal]?.[1] ?? "")),
    el("thead", { className: "unseen" }, el("tr", {}, el("th", { scope: "col" }, "Rank"), el("th", { scope: "col" }, "Round"))),
    el("tbody", {}, rows),
  );
  arrowKeys(table, ".round-link");
  const nothing = ranked.length ? null : el("p", { className: "small" }, "Nothing matched.");
  return el("div", { className: "lane" }, table, nothing, rest(rows, LANE_ROWS), searchedWith(found, signal));
}

/** Hide what is past the first rows, and offer it. */
function rest(rows, shown) {
  if (rows.length <= shown) return null;
  rows.slice(shown).forEach((row) => (row.hidden = true));
  const all = () => {
    rows.forEach((row) => (row.hidden = false));
    button.remove();
  };
  const button = el("button", { type: "button", className: "quiet way", onclick: all }, `Show all ${rows.length}`);
  return button;
}

function searchedWith(found, signal) {
  const anchor = found.anchors?.by_signal?.[signal];
  if (anchor === undefined || anchor === null) return null;
  const text = typeof anchor === "string" ? `“${anchor}”` : "the attached picture";
  return el("p", { className: "anchor" }, "searched with ", anchor === found.query ? "the question itself" : text);
}

/** The fused ranking, with each signal's rank. */
export function fused(found) {
  const signals = signalsOf(found);
  const items = found.fused ?? [];
  const most = Math.max(...items.map((item) => item.score), Number.MIN_VALUE);
  const head = ["", "Round", "Score", ...signals.map(signalName)];
  const rows = items.map((item) => fusedRow(found, item, signals, most));
  const table = el(
    "table",
    { className: "fused-table" },
    el("thead", {}, el("tr", {}, head.map((name) => el("th", { scope: "col" }, name)))),
    el("tbody", {}, rows),
  );
  arrowKeys(table, ".round-link");
  const frame = { className: "scroll", tabIndex: 0, role: "region", "aria-label": "Fused list" };
  return section("fused", "Fused list", plural(items.length, "round"), el("div", frame, table), rest(rows, FUSED_ROWS));
}

function fusedRow(found, item, signals, most) {
  const bar = el("span", { className: "bar" });
  bar.style.setProperty("--share", item.score / most);
  return el(
    "tr",
    {},
    el("td", { className: "rank" }, String(item.rank)),
    el("td", {}, roundLink(found, item.round_id, item.position)),
    el("td", { className: "score" }, item.score.toFixed(4), bar),
    signals.map((signal) => el("td", { className: "rank" }, String(item.ranks[signal] ?? "–"))),
  );
}

/** The context exactly as it is put before the model. */
export function context(found) {
  const { text, tokens, words, dropped } = found.context;
  const left = dropped.length
    ? el("p", { className: "small" }, `Left out, over the token budget: ${dropped.join(", ")}.`)
    : null;
  const copy = el("button", { type: "button", className: "quiet way" }, "Copy");
  copy.addEventListener("click", async () => {
    await navigator.clipboard.writeText(text);
    copy.textContent = "Copied";
  });
  const frame = { tabIndex: 0, role: "region", "aria-label": "Context as sent" };
  const aside = `${plural(tokens, "token")}, ${plural(words, "word")}`;
  return section("context", "Context as sent", aside, left, el("pre", frame, text), copy);
}

/** Seconds by stage, tokens by role. */
export function costs(found) {
  const stages = Object.entries(found.seconds ?? {});
  const total = stages.reduce((sum, [, seconds]) => sum + seconds, 0);
  const rows = stages.map(([stage, seconds]) => {
    const bar = el("span", { className: "bar" });
    bar.style.setProperty("--share", total ? seconds / total : 0);
    return el("tr", {}, el("th", { scope: "row" }, stage), el("td", { className: "score" }, showSeconds(seconds), bar));
  });
  const calls = (found.usage ?? []).map((usage) =>
    el(
      "tr",
      {},
      el("th", { scope: "row" }, usage.role.replaceAll("_", " ")),
      el("td", {}, `${usage.prompt_tokens.toLocaleString("en")} read, ${usage.completion_tokens.toLocaleString("en")} written`),
      el("td", {}, usage.cached ? "from the cache" : ""),
    ),
  );
  const tables = [
    el("table", {}, el("caption", {}, "Seconds by stage"), el("tbody", {}, rows)),
    calls.length ? el("table", {}, el("caption", {}, "Tokens by role"), el("tbody", {}, calls)) : null,
  ];
  return section("costs", "Time and tokens", `${showSeconds(total)}`, tables.filter(Boolean));
}

/** Seconds with about three digits. */
export const showSeconds = (seconds) =>
  seconds < 0.0001 ? "< 0.1 ms" : seconds < 1 ? `${(seconds * 1000).toFixed(seconds < 0.01 ? 1 : 0)} ms` : `${seconds.toFixed(1)} s`;
