// Pictures and voice messages. They need the key as a header, so they are fetched and shown as
// blobs; a picture is fetched once it comes near the screen.

import { call, inMemory } from "./api.js";
import { byId, el } from "./dom.js";

let kept = new Map();

/** Let go of the last memory's pictures. */
export function forgetMedia() {
  for (const blob of kept.values()) blob.then(URL.revokeObjectURL, () => {});
  kept = new Map();
}

function blobUrl(path) {
  if (!kept.has(path)) {
    const blob = call(path).then(async (response) => URL.createObjectURL(await response.blob()));
    blob.catch(() => kept.delete(path)); // so that it can be tried again
    kept.set(path, blob);
  }
  return kept.get(path);
}

const nearScreen = new IntersectionObserver(
  (entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      nearScreen.unobserve(target);
      load(target);
    }
  },
  { rootMargin: "400px", scrollMargin: "400px" },
);

async function load(button) {
  const image = button.querySelector("img");
  try {
    image.src = await blobUrl(button.dataset.path);
  } catch {
    button.replaceWith(absent("This picture cannot be shown."));
  }
}

const absent = (text) => el("span", { className: "picture absent" }, text);

/** A picture as a button that opens it in full; only its caption where its bytes are not kept. */
export function picture(memory, image, small = false) {
  const name = image.caption || image.id;
  if (!image.digest) return small ? null : absent("Only the caption is kept.");
  const button = el(
    "button",
    {
      type: "button",
      className: small ? "picture small" : "picture",
      title: name,
      "aria-label": `Open picture: ${name}`,
      "data-path": inMemory(memory, "images", image.digest),
      onclick: () => enlarge(button.dataset.path, `${image.id} ${image.caption}`),
    },
    el("img", { alt: image.caption, decoding: "async" }),
  );
  nearScreen.observe(button);
  return button;
}

async function enlarge(path, caption) {
  const source = await blobUrl(path).catch(() => null);
  if (source === null) return; // its small one says so
  byId("large-image").src = source;
  byId("large-image").alt = caption;
  byId("large-caption").textContent = caption;
  byId("large").showModal();
}

const absentVoice = () => el("p", { className: "small" }, "This voice message cannot be played.");

/** A voice message: a button that fetches it, then a player. */
export function voice(memory, url) {
  const digest = new URL(url, document.baseURI).pathname.split("/").pop();
  const button = el("button", { type: "button", className: "quiet voice" }, "▶ Voice message");
  button.addEventListener("click", async () => {
    button.disabled = true;
    try {
      const source = await blobUrl(inMemory(memory, "audio", digest));
      const unplayable = () => player.replaceWith(absentVoice());
      const player = el("audio", { controls: true, src: source, onerror: unplayable, "aria-label": "Voice message" });
      button.replaceWith(player);
      player.focus();
      player.play().catch(() => {}); // a browser may want another click first
    } catch {
      button.replaceWith(absentVoice());
    }
  });
  return button;
}
