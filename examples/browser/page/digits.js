// The panel in which a network learns digits and reads the drawn one.
import { plot } from "./chart.js";
import { by, devices, drawn, load, reason } from "./modules.js";

/** The epochs of a training. */
const EPOCHS = 20;
/** The steps between two looks at the drawing, of the 45 of an epoch. */
const STEPS = 9;
/** The way of the pen for an arrow key, as a part of the drawing's side. */
const KEY_STEP = 0.05;

/** Strokes, each a list of points from 0 to 1. */
const strokes = [];
let learner = null;
let opened = "";
let epochs = [];
let remaining = 0;
let stale = false;
let working = null;

const say = (text) => (by("digits-status").textContent = text);

/** The points of all strokes in turn, each stroke ended by a pair of NaN. */
const points = () => new Float32Array(strokes.flatMap((stroke) => [...stroke.flat(), NaN, NaN]));

function drawStrokes(pen) {
  const canvas = by("drawing");
  const [context, side] = [canvas.getContext("2d"), canvas.width];
  const style = getComputedStyle(canvas);
  context.clearRect(0, 0, side, side);
  Object.assign(context, { lineWidth: 0.075 * side, lineCap: "round", lineJoin: "round" });
  context.strokeStyle = style.getPropertyValue("--ink");
  for (const stroke of strokes) {
    context.beginPath();
    const [[x, y]] = stroke;
    context.moveTo(x * side, y * side);
    for (const [x, y] of stroke) context.lineTo(x * side, y * side);
    context.stroke();
  }
  if (pen) {
    context.fillStyle = style.getPropertyValue(pen.down ? "--first" : "--second");
    context.beginPath();
    context.arc(pen.x * side, pen.y * side, 6, 0, 7);
    context.fill();
  }
}

function drawSeen(image) {
  const canvas = by("seen");
  const context = canvas.getContext("2d");
  context.clearRect(0, 0, 8, 8);
  context.fillStyle = getComputedStyle(canvas).getPropertyValue("--ink");
  image?.forEach((ink, k) => {
    context.globalAlpha = ink;
    context.fillRect(k % 8, Math.floor(k / 8), 1, 1);
  });
}

function drawBars(probabilities) {
  const best = probabilities ? probabilities.indexOf(Math.max(...probabilities)) : -1;
  [...by("bars").children].forEach((row, digit) => {
    const share = probabilities?.[digit] ?? 0;
    row.className = digit === best ? "best" : "";
    row.querySelector("i").style.width = `${(100 * share).toFixed(1)}%`;
    row.querySelector(".share").textContent = probabilities ? `${(100 * share).toFixed(0)} %` : "";
  });
}

function drawPlot() {
  const most = Math.max(0.1, ...epochs.map((epoch) => epoch.loss));
  const line = (of) => epochs.map((epoch) => [epoch.number, of(epoch)]);
  plot(by("digits-plot"), {
    x: { label: "epoch", least: 0, most: Math.max(EPOCHS, epochs.length) },
    left: { label: "loss", least: 0, most: 1.05 * most, kind: "first" },
    right: { label: "accuracy on digits held out", least: 0, most: 1, kind: "second" },
    lines: [
      { points: line((epoch) => epoch.loss), axis: "left", kind: "first" },
      { points: line((epoch) => epoch.accuracy), axis: "right", kind: "second" },
    ],
  });
}

/** Reads the drawing; gives the probabilities, or null if there is none. */
async function read() {
  const { drawn_image } = await load("digits");
  stale = false;
  const image = drawn_image(points());
  drawSeen(image);
  const probabilities = image && learner ? [...(await learner.read(image))] : null;
  drawBars(probabilities);
  return probabilities;
}

/** Opens the chosen network, if it is not the one that learns. */
async function choose() {
  const [device, network] = [by("digits-device").value, by("network").value];
  if (opened === `${device} ${network}`) return;
  opened = `${device} ${network}`;
  learner?.free();
  learner = null;
  epochs = [];
  const { Learner } = await load("digits");
  learner = await Learner.open(device, network);
  drawPlot();
}

/** Trains and reads until there is nothing more to do. The module's objects serve one call at a time, so that all calls are here. */
async function work() {
  by("train").textContent = "Stop";
  let seconds = epochs.reduce((sum, epoch) => sum + epoch.seconds, 0);
  try {
    while (remaining > 0 || stale) {
      await choose();
      if (remaining > 0) {
        const started = performance.now();
        const ended = await learner.advance(STEPS);
        seconds += (performance.now() - started) / 1000;
        if (ended) {
          const { number, loss, accuracy } = ended;
          ended.free();
          const before = epochs.reduce((sum, epoch) => sum + epoch.seconds, 0);
          epochs.push({ number, loss, accuracy, seconds: seconds - before });
          remaining -= 1;
          const name = (await devices)[by("digits-device").value];
          const share = `${(100 * accuracy).toFixed(1)} %`;
          const numbers = learner.parameters.toLocaleString("en");
          say(`${name}: epoch ${number}, ${share} right, ${seconds.toFixed(1)} s, ${numbers} parameters`);
          drawPlot();
        }
      }
      await read();
      await drawn();
    }
  } catch (error) {
    remaining = 0;
    stale = false;
    opened = "";
    say(`This does not work here: ${reason(error)}`);
    throw error;
  } finally {
    by("train").textContent = "Train";
    working = null;
  }
}

/** Begins to work, unless that is under way. */
const begin = () => (working ??= work());

/** Trains a network on a device for some epochs; gives their results. For the test. */
export async function train(device, network, count) {
  by("digits-device").value = device;
  by("network").value = network;
  opened = "";
  remaining = count;
  await begin();
  return { description: learner.description, epochs, seconds: epochs.reduce((sum, epoch) => sum + epoch.seconds, 0) };
}

/** The digit that the bars show, after the present work. For the test. */
export async function shown() {
  await working;
  return [...by("bars").children].findIndex((row) => row.className === "best");
}

function changed() {
  stale = true;
  if (epochs.length === 0 && remaining === 0) remaining = EPOCHS;
  begin().catch(() => {});
}

function listenToPen() {
  const canvas = by("drawing");
  const place = (event) => {
    const { left, top, width, height } = canvas.getBoundingClientRect();
    return [(event.clientX - left) / width, (event.clientY - top) / height];
  };
  let down = false;
  canvas.addEventListener("pointerdown", (event) => {
    down = true;
    strokes.push([place(event)]);
    drawStrokes();
    changed();
  });
  addEventListener("pointermove", (event) => {
    if (!down) return;
    const all = event.getCoalescedEvents?.() ?? [];
    strokes.at(-1).push(...(all.length ? all : [event]).map(place));
    drawStrokes();
    changed();
  });
  for (const end of ["pointerup", "pointercancel"]) addEventListener(end, () => (down = false));

  const pen = { x: 0.5, y: 0.5, down: false };
  const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  canvas.addEventListener("keydown", (event) => {
    const move = moves[event.key];
    if (move) {
      pen.x = Math.min(1, Math.max(0, pen.x + KEY_STEP * move[0]));
      pen.y = Math.min(1, Math.max(0, pen.y + KEY_STEP * move[1]));
    } else if (event.key === " ") {
      pen.down = !pen.down;
      if (pen.down) strokes.push([]);
    } else if (event.key === "Delete" || event.key === "Backspace") {
      pen.down = false;
      return clear();
    } else {
      return;
    }
    event.preventDefault();
    if (pen.down) {
      strokes.at(-1).push([pen.x, pen.y]);
      changed();
    }
    drawStrokes(pen);
  });
  canvas.addEventListener("blur", () => {
    pen.down = false;
    drawStrokes();
  });
}

function clear() {
  strokes.length = 0;
  drawStrokes();
  drawSeen(null);
  drawBars(null);
}

/** Makes the panel work. */
export function digits() {
  for (let digit = 0; digit < 10; digit++) {
    const row = document.createElement("li");
    row.innerHTML = `<span>${digit}</span><span class="bar"><i></i></span><span class="share"></span>`;
    by("bars").append(row);
  }
  listenToPen();
  by("clear").addEventListener("click", clear);
  by("train").addEventListener("click", () => {
    remaining = remaining > 0 ? 0 : EPOCHS;
    if (remaining > 0) say("The network is loading.");
    begin().catch(() => {});
  });
  for (const id of ["network", "digits-device"]) {
    by(id).addEventListener("change", () => {
      epochs = [];
      remaining = working ? EPOCHS : 0;
    });
  }
  addEventListener("resize", drawPlot);
  drawPlot();
}

/** Draws everything again, after a change of colours. */
export function redraw() {
  drawStrokes();
  drawPlot();
  if (strokes.length === 0) return;
  stale = true;
  begin().catch(() => {});
}
