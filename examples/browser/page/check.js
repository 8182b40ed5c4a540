// A test of the page, for `cargo xtask browser --check`: it does what a reader would do, and sends the
// results to the server.
// `?check=linalg` checks only the operations with this at the beginning of their names.
import { shown, train } from "./digits.js";
import { tune } from "./language.js";
import { by, load, reason } from "./modules.js";
import { hear, recording } from "./voice.js";

/** Tells the server, which waits for the results, what the page is at. */
const doing = (what) => fetch("doing", { method: "POST", body: what });

/** The files that the page has fetched, with the bytes that were sent. */
const fetched = () =>
  [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")].map((entry) => ({
    name: entry.name,
    sent: entry.encodedBodySize,
    whole: entry.decodedBodySize,
  }));

/** Draws strokes with a mouse, in parts of the drawing's side. */
function draw(strokes) {
  by("clear").click();
  const { left, top, width, height } = by("drawing").getBoundingClientRect();
  for (const stroke of strokes) {
    stroke.forEach(([x, y], k) => {
      const place = { clientX: left + x * width, clientY: top + y * height, bubbles: true };
      by("drawing").dispatchEvent(new PointerEvent(k === 0 ? "pointerdown" : "pointermove", place));
    });
    dispatchEvent(new PointerEvent("pointerup"));
  }
}

/** Presses keys in the drawing. */
function press(keys) {
  by("clear").click();
  by("drawing").focus();
  for (const key of keys) by("drawing").dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
}

const ONE = [[[0.4, 0.3], [0.5, 0.2], [0.5, 0.8]]];
const SEVEN = [[[0.3, 0.2], [0.7, 0.2], [0.45, 0.8]], [[0.38, 0.5], [0.64, 0.5]]];
const repeated = (key, count) => Array(count).fill(key);
/** A zero, by the keyboard. */
const ZERO_KEYS = [
  " ",
  ...["ArrowLeft", "ArrowDown", "ArrowRight", "ArrowUp"].flatMap((key, k) => repeated(key, k % 2 ? 10 : 6)),
  " ",
];

async function readDrawings() {
  const found = {};
  draw(ONE);
  found[1] = await shown();
  draw(SEVEN);
  found[7] = await shown();
  press(ZERO_KEYS);
  found[0] = await shown();
  return found;
}

/** Waits until something is there. */
async function until(found, what) {
  for (let tries = 0; tries < 200; tries++) {
    const value = found();
    if (value) return value;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  throw new Error(`the studio shows no ${what}`);
}

/** Opens the studio's sections, asks for a profile and for the memory of steps on a device, and counts what they show. */
async function lookInside(device) {
  by("inside").open = true;
  const root = await until(() => by("studio").shadowRoot, "sections");
  const all = (selector) => [...root.querySelectorAll(selector)];
  const ask = async (what) => {
    (await until(() => root.querySelector(`[data-ask=${what}]`), `button ${what}`)).click();
    await train(device, "mlp", 1);
  };
  await until(() => root.querySelector("#charts path"), "curves");
  if (device === "cpu") await ask("limits");
  await ask("memory");
  await ask("profile");
  const bars = await until(() => {
    const kernels = all("#profile .timeline rect").filter((bar) => bar.textContent.includes(" reads "));
    return kernels.length && kernels[0].textContent.includes(device === "cpu" ? " for " : "time unknown") && kernels;
  }, "kernels");
  const programs = bars.map((bar) => {
    bar.dispatchEvent(new MouseEvent("click"));
    return all("#kernel pre").map((pre) => pre.textContent);
  });
  return {
    device,
    curves: all("#charts path").length,
    parameters: all("#layers tbody tr").length,
    boxes: all("#graphs .box").length,
    kernels: bars.length,
    programs: programs.filter((texts) => texts.length > 0).length,
    sources: programs.flat().filter((text) => text.includes("@compute")).length,
    shares: bars.filter((bar) => bar.textContent.includes(" % of the ")).length,
    memory: all("#snapshot details").length,
    buttons: all("[data-ask]").filter((button) => !button.hidden).length,
    width: root.host.clientWidth,
    widest: root.host.scrollWidth,
  };
}

/** The sentence that the page shows when a file is chosen and the button pressed. */
async function refused(file) {
  const files = new DataTransfer();
  files.items.add(file);
  by("model").files = files.files;
  by("model").dispatchEvent(new Event("change"));
  by("language-status").textContent = "";
  by("tune").click();
  while (by("tune").textContent !== "Fine-tune") await new Promise((resolve) => setTimeout(resolve, 50));
  by("model").value = "";
  by("model").dispatchEvent(new Event("change"));
  return by("language-status").textContent;
}

/** A file that says it has many bytes. */
function large(bytes) {
  const file = new File(["GGUF"], "large.gguf");
  Object.defineProperty(file, "size", { value: bytes });
  return file;
}

/** The widths of the page and of its widest part, in a frame as wide as a phone. */
async function onPhone() {
  const frame = document.createElement("iframe");
  frame.style.cssText = "width: 360px; height: 700px; border: 0";
  frame.src = "./";
  document.body.append(frame);
  await new Promise((resolve) => (frame.onload = resolve));
  const root = frame.contentDocument.documentElement;
  while (!root.dataset.ready) await new Promise((resolve) => setTimeout(resolve, 50));
  const button = frame.contentDocument.getElementById("theme");
  const backs = [0, 1, 2].map(() => {
    button.click();
    return frame.contentWindow.getComputedStyle(frame.contentDocument.body).backgroundColor;
  });
  const widths = { width: root.clientWidth, widest: root.scrollWidth, backs };
  frame.remove();
  return widths;
}

export async function check() {
  const send = (results) => fetch("result", { method: "POST", body: JSON.stringify(results) });
  // After a panic, some promises never resolve.
  addEventListener("error", (event) => send({ error: event.message }));
  addEventListener("unhandledrejection", (event) => send({ error: reason(event.reason) }));
  const guarded = async (work) => {
    try {
      return await work();
    } catch (error) {
      return { error: reason(error) };
    }
  };
  const results = { digits: [], studio: [], language: [], voice: [], operations: [] };
  const prefix = new URLSearchParams(location.search).get("check");
  await load("digits");
  results.first = fetched();
  results.phone = await guarded(onPhone);
  for (const device of ["cpu", "wgpu"]) {
    for (const [network, epochs] of [["mlp", 20], ["cnn", 8], ["transformer", 12]]) {
      await doing(`${network} learns digits on ${device}`);
      const result = await guarded(async () => {
        const learned = await train(device, network, epochs);
        return { ...learned, found: await readDrawings() };
      });
      results.digits.push({ device, network, ...result });
    }
    await doing(`the studio on ${device}`);
    results.studio.push({ device, ...(await guarded(() => lookInside(device))) });
  }
  for (const device of ["cpu", "wgpu"]) {
    await doing(`a language model learns on ${device}`);
    results.language.push({ device, ...(await guarded(() => tune(device, 4, 0.005))) });
  }
  await doing("files that are refused");
  const text = new File(["This is no model."], "text.gguf");
  const cut = new File(["GGUF\u0003\u0000\u0000\u0000"], "cut.gguf");
  results.refused = await guarded(async () => [await refused(text), await refused(large(3e9)), await refused(cut)]);
  for (const device of ["cpu", "wgpu"]) {
    await doing(`listening on ${device}`);
    const heard = await guarded(async () => {
      const { audio, probabilities } = await recording();
      return { wanted: [...probabilities], ...(await hear(device, audio)) };
    });
    results.voice.push({ device, ...heard });
  }
  const { operations } = await load("voice");
  for (const device of operations ? ["cpu", "wgpu"] : []) {
    const wrong = [];
    const tell = (name, what) => {
      by("digits-status").textContent = name;
      if (what !== undefined) wrong.push(`${name} on ${device}: ${what}`);
      return doing(`${name} on ${device}`);
    };
    let count = 0;
    try {
      count = await operations(device, prefix, tell);
    } catch (error) {
      wrong.push(reason(error));
    }
    results.operations.push({ device, count, wrong });
  }
  results.fetched = fetched();
  await send(results);
}
