// The page: its three panels, its colours, and a test of all of them.
import { digits, redraw } from "./digits.js";
import { language } from "./language.js";
import { listDevices } from "./modules.js";
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

await listDevices();
digits();
language();
voice();
themes();
document.documentElement.dataset.ready = "yes";

if (new URLSearchParams(location.search).has("check")) {
  const { check } = await import("./check.js");
  await check();
}
