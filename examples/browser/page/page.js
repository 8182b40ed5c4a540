// The page: its three panels, the studio's sections, its colours, a test of all of them, and a benchmark.
import { digits, redraw } from "./digits.js";
import { language } from "./language.js";
import { by, listDevices, load, reason } from "./modules.js";
import { voice } from "./voice.js";

const THEMES = [
  ["", "◐", "as the system has them"],
  ["light", "☀", "light"],
  ["dark", "☾", "dark"],
];

/** The colours that a reader has chosen; the browser may forbid to keep them. */
function themes() {
  const button = document.getElementById("theme");
  let chosen = 0;
  try {
    chosen = Math.max(0, THEMES.findIndex(([name]) => name === localStorage.getItem("theme")));
  } catch {}
  const show = () => {
    const [name, sign, words] = THEMES[chosen];
    if (name) document.documentElement.dataset.theme = name;
    else delete document.documentElement.dataset.theme;
    button.textContent = sign;
    button.setAttribute("aria-label", `Colours: ${words}`);
    redraw();
  };
  button.addEventListener("click", () => {
    chosen = (chosen + 1) % THEMES.length;
    try {
      localStorage.setItem("theme", THEMES[chosen][0]);
    } catch {}
    show();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  show();
}

/** The studio's sections, which are loaded when they are opened. They show what the module has recorded. */
function inside() {
  const details = by("inside");
  let opened = false;
  const events = (module) => async (after) => (details.open ? JSON.parse(module.studio_events(after)) : null);
  details.addEventListener("toggle", async () => {
    if (!details.open || opened) return;
    opened = true;
    try {
      const [{ open }, module] = await Promise.all([import("./component.js"), load("digits")]);
      const ask = async (what) => module.studio_ask(what);
      // A search for NaN reads every result, for which a page cannot wait.
      await open(by("studio"), { events: events(module), ask, asks: ["profile", "limits", "memory"] });
    } catch (error) {
      opened = false;
      by("studio").textContent = `This does not work here: ${reason(error)}`;
    }
  });
}

await listDevices();
digits();
inside();
language();
voice();
themes();
document.documentElement.dataset.ready = "yes";

const asked = new URLSearchParams(location.search);
if (asked.has("check")) {
  const { check } = await import("./check.js");
  await check();
}
if (asked.has("bench")) {
  const { bench } = await import("./bench.js");
  await bench();
}
