// The panel in which a language model learns a style of answers.
import { plot } from "./chart.js";
import { by, bytesOf, devices, drawn, load, reason } from "./modules.js";

/** The largest file that fits into a page's memory of 4 GiB, together with the weights that are read from it. */
const MAX_FILE_BYTES = 2 ** 30;

const say = (text) => (by("language-status").textContent = text);
const megabytes = (bytes) => `${Math.round(bytes / 1e6).toLocaleString("en")} MB`;

function drawPlot(losses, steps) {
  plot(by("language-plot"), {
    x: { label: "step", least: 0, most: Math.max(steps, 1) },
    left: { label: "loss of the answers' tokens", least: 0, most: 1.05 * Math.max(1, ...losses), kind: "first" },
    lines: [{ points: losses.map((loss, k) => [k + 1, loss]), axis: "left", kind: "first" }],
  });
}

/** The bytes of the chosen file, or of the built-in model. */
async function modelBytes() {
  const [file] = by("model").files;
  if (!file) return bytesOf("tiny.gguf");
  if (file.size > MAX_FILE_BYTES) {
    const sizes = `${file.name} has ${megabytes(file.size)}, and a page has memory for files of ${megabytes(MAX_FILE_BYTES)}`;
    throw new Error(`${sizes}. Choose a smaller model, or one in fewer bits.`);
  }
  try {
    return new Uint8Array(await file.arrayBuffer());
  } catch (error) {
    throw new Error(`${file.name} cannot be read: ${reason(error)}`);
  }
}

/** Writes an answer into an element as it comes. */
async function answer(tuning, id, adapted) {
  by(id).textContent = "";
  const tell = (piece) => {
    by(id).append(piece);
    return drawn();
  };
  return tuning.answer(by("question").value, adapted, tell);
}

let stopped = true;

/** Fine-tunes the chosen model on a device, until `stopped`; gives what was measured. */
export async function tune(device, epochs, rate) {
  stopped = false;
  for (const id of ["before", "after"]) by(id).textContent = "";
  say("The model is loading.");
  await drawn();
  const module = await load("language");
  const [bytes, conversations] = [await modelBytes(), await bytesOf("ships_log.jsonl")];
  const tuning = await module.FineTuning.open(device, bytes, new TextDecoder().decode(conversations), rate);
  try {
    const name = (await devices)[device];
    const parts = `${tuning.parameters.toLocaleString("en")} parameters, ${tuning.trained.toLocaleString("en")} of them trained`;
    say(`${name}: ${parts}`);
    const baseBefore = await tuning.base_loss();
    const before = await answer(tuning, "before", true);
    const steps = epochs * tuning.steps_per_epoch;
    const losses = [];
    const times = [];
    while (losses.length < steps && !stopped) {
      const started = performance.now();
      losses.push(await tuning.step());
      times.push(performance.now() - started);
      drawPlot(losses, steps);
      // The first steps compile kernels.
      const late = times.slice(Math.min(8, times.length - 1));
      const mean = late.reduce((sum, time) => sum + time, 0) / late.length;
      say(`${name}: step ${losses.length} of ${steps}, ${mean.toFixed(0)} ms each; ${parts}`);
      await drawn();
    }
    const after = await answer(tuning, "after", true);
    const [memory, peak] = [module.memory(), tuning.peak_bytes];
    const late = times.slice(8);
    const milliseconds = late.reduce((sum, time) => sum + time, 0) / Math.max(1, late.length);
    const sizes = `memory of WebAssembly ${megabytes(memory)}, of tensors ${megabytes(peak)} at most`;
    say(`${name}: ${losses.length} steps, ${milliseconds.toFixed(0)} ms each; ${parts}; ${sizes}`);
    const { description } = tuning;
    const check = async () => ({ baseAfter: await tuning.base_loss(), without: await tuning.answer(by("question").value, false, drawn) });
    return { description, losses, before, after, baseBefore, milliseconds, memory, peak, ...(await check()) };
  } finally {
    stopped = true;
    tuning.free();
  }
}

/** Makes the panel work. */
export function language() {
  drawPlot([], 1);
  by("model").addEventListener("change", () => {
    const [file] = by("model").files;
    by("model-note").textContent = file
      ? `${file.name}, ${megabytes(file.size)}, stays in this page. SmolLM2 takes some seconds for a step; its learning rate is 0.002.`
      : "Without a file, the built-in model of 0.9 million parameters is used.";
    if (file) by("rate").value = "0.002";
  });
  by("tune").addEventListener("click", async () => {
    if (!stopped) return (stopped = true);
    by("tune").textContent = "Stop";
    try {
      await tune(by("language-device").value, Number(by("language-epochs").value), Number(by("rate").value));
    } catch (error) {
      say(`This does not work here: ${reason(error)}`);
    } finally {
      stopped = true;
      by("tune").textContent = "Fine-tune";
    }
  });
  addEventListener("resize", () => stopped && drawPlot([], 1));
}
