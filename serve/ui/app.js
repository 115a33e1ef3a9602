// The page that looks inside a memory: what is open (kept in the address), and the key.

import { forgetKey, hasKey, inMemory, json, keepKey, onKeyNeeded } from "./api.js";
import { showOutcome } from "./answer.js";
import { byId } from "./dom.js";
import { describe, showLibrary } from "./library.js";
import { forgetMedia } from "./media.js";
import { clearQuestion, onQuestion, setRunning } from "./question.js";
import { markRounds, readMemory, showRound } from "./reader.js";

let memory = null;
let underWay = null;

function opened() {
  const [, name] = /^#\/(.+)$/.exec(location.hash) ?? [];
  try {
    return name ? decodeURIComponent(name) : null;
  } catch {
    return null; // not a name that this page wrote
  }
}

async function open() {
  stop();
  memory = opened();
  forgetMedia();
  clearQuestion();
  byId("outcome").replaceChildren();
  byId("outcome").hidden = true;
  byId("invitation").hidden = false;
  byId("library").hidden = memory !== null;
  byId("memory").hidden = memory === null;
  byId("panes").hidden = memory === null;
  byId("place").textContent = memory ?? "";
  byId("counts").textContent = "";
  document.title = memory === null ? "vmem" : `${memory} · vmem`;
  showPane("reader");
  await (memory === null ? showLibrary() : Promise.all([readMemory(memory), showCounts(memory)]));
}

async function showCounts(id) {
  const info = await json(inMemory(id)).catch(() => null); // the reader tells what is wrong
  if (info && id === memory) byId("counts").textContent = describe(info);
}

function showPane(name) {
  byId("memory").dataset.pane = name;
  for (const button of byId("panes").querySelectorAll("button")) {
    button.setAttribute("aria-pressed", String(button.dataset.pane === name));
  }
}

function stop() {
  underWay?.abort();
  underWay = null;
  setRunning(false);
}

async function ask({ kind, query, options, file }) {
  const mine = new AbortController();
  underWay = mine;
  setRunning(true);
  showPane("inquiry");
  markRounds(new Map());
  await showOutcome({
    memory, kind, query, options, file,
    signal: mine.signal,
    retry: () => ask({ kind, query, options, file }),
    onFound: (found) => markRounds(new Map(found.citations.map((cited) => [cited.position, cited.rank]))),
    show: (position) => {
      showPane("reader");
      showRound(position);
    },
  });
  if (underWay === mine) stop();
}

async function askForKey(error) {
  const dialog = byId("key-dialog");
  byId("key-reason").textContent = error.message;
  byId("key").value = "";
  dialog.returnValue = "";
  dialog.showModal();
  await new Promise((resolve) => dialog.addEventListener("close", resolve, { once: true }));
  if (dialog.returnValue !== "ok") return false;
  keepKey(byId("key").value.trim());
  byId("forget").hidden = false;
  return true;
}

byId("key-cancel").addEventListener("click", () => byId("key-dialog").close());
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address names the memory
  byId("main").focus();
});
onKeyNeeded(askForKey);
onQuestion({ ask, stop });
byId("forget").hidden = !hasKey();
byId("forget").addEventListener("click", () => {
  forgetKey();
  location.reload();
});
for (const button of byId("panes").querySelectorAll("button")) {
  button.addEventListener("click", () => showPane(button.dataset.pane));
}
window.addEventListener("hashchange", open);
open();
