// The panel that finds speech in a recording or in the microphone's sound.
import { plot } from "./chart.js";
import { by, bytesOf, devices, drawn, load, reason } from "./modules.js";

const RATE = 16000;
const CHUNK = 512;
/** The chunks that the drawing shows of the microphone, ten seconds. */
const SHOWN = 313;
/** The seconds of a chunk. */
const SECONDS = CHUNK / RATE;

/** A recording with the probabilities that ONNX Runtime gives, from a safetensors file: the length of a header,
 *  the header in JSON, and the data. */
export async function recording() {
  const { buffer } = await bytesOf("silero_vad.safetensors");
  const length = Number(new DataView(buffer).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)));
  const tensor = (name) => {
    const [start, end] = header[name].data_offsets;
    return new Float32Array(buffer.slice(8 + length + start, 8 + length + end));
  };
  return { audio: tensor("audio"), probabilities: tensor("probability_16k") };
}

/** Draws the loudness of chunks as a band in the upper half, and the probabilities. `count` chunks fit into the plot. */
function draw(levels, probabilities, count) {
  const band = (sign) => levels.map((level, k) => [k * SECONDS, 0.75 + sign * 0.22 * level]);
  plot(by("voice-plot"), {
    x: { label: "seconds", least: 0, most: count * SECONDS },
    left: { label: "probability of speech", least: 0, most: 1, kind: "second" },
    lines: [
      { points: [...band(1), ...band(-1).reverse()], axis: "left", kind: "wave" },
      { points: probabilities.map((p, k) => [k * SECONDS, p]), axis: "left", kind: "second" },
    ],
  });
}

const loudness = (chunk) => Math.min(1, chunk.reduce((most, sample) => Math.max(most, Math.abs(sample)), 0));

/** The probability of each chunk of a sound; gives what the device is and how long a chunk took, too. */
export async function hear(device, audio) {
  const { Listener } = await load("voice");
  const listener = await Listener.open(device, await bytesOf("silero_vad.onnx"));
  const [levels, probabilities] = [[], []];
  const count = Math.floor(audio.length / CHUNK);
  let started = performance.now();
  let first = 0;
  for (let k = 0; k < count; k++) {
    const chunk = audio.slice(k * CHUNK, (k + 1) * CHUNK);
    probabilities.push(await listener.listen(chunk));
    levels.push(loudness(chunk));
    if (k === 0) {
      first = performance.now() - started;
      started = performance.now();
    }
    if (k % 8 === 7 || k === count - 1) {
      draw(levels, probabilities, count);
      await drawn();
    }
  }
  const milliseconds = (performance.now() - started) / Math.max(1, count - 1);
  by("voice-status").textContent = `${(await devices)[device]}: ${milliseconds.toFixed(1)} ms for each 32 ms of sound`;
  const found = { description: listener.description, first, milliseconds, probabilities };
  listener.free();
  return found;
}

/** Hears the microphone until `stopped` resolves. */
async function follow(device, stopped) {
  const { Listener } = await load("voice");
  const name = (await devices)[device];
  const listener = await Listener.open(device, await bytesOf("silero_vad.onnx"));
  const stream = await navigator.mediaDevices.getUserMedia({ audio: { channelCount: 1 } });
  const context = new AudioContext({ sampleRate: RATE });
  const processor = `registerProcessor("samples", class extends AudioWorkletProcessor {
    process([input]) { if (input[0]) this.port.postMessage(input[0].slice()); return true; }
  });`;
  await context.audioWorklet.addModule(URL.createObjectURL(new Blob([processor], { type: "text/javascript" })));
  const node = new AudioWorkletNode(context, "samples");
  context.createMediaStreamSource(stream).connect(node);
  const waiting = [];
  let wake = () => {};
  node.port.onmessage = ({ data }) => {
    waiting.push(...data);
    wake();
  };
  let running = true;
  stopped.then(() => {
    running = false;
    wake();
  });
  const [levels, probabilities] = [[], []];
  while (running) {
    if (waiting.length < CHUNK) {
      await new Promise((resolve) => (wake = resolve));
      continue;
    }
    // A device that is too slow skips what it cannot follow.
    if (waiting.length > RATE) waiting.splice(0, waiting.length - CHUNK);
    const chunk = new Float32Array(waiting.splice(0, CHUNK));
    const probability = await listener.listen(chunk);
    levels.push(loudness(chunk));
    probabilities.push(probability);
    if (levels.length > SHOWN) [levels, probabilities].forEach((list) => list.shift());
    draw(levels, probabilities, SHOWN);
    by("voice-status").textContent = `${name}: ${probability >= 0.5 ? "speech" : "no speech"}`;
  }
  stream.getTracks().forEach((track) => track.stop());
  await context.close();
  listener.free();
}

/** Makes the panel's buttons work. */
export function voice() {
  draw([], [], SHOWN);
  let stop = null;
  const guarded = async (work) => {
    by("recording").disabled = true;
    try {
      await work();
    } catch (error) {
      by("voice-status").textContent = `This does not work here: ${reason(error)}`;
    } finally {
      by("recording").disabled = false;
    }
  };
  by("recording").addEventListener("click", () =>
    guarded(async () => hear(by("voice-device").value, (await recording()).audio)),
  );
  by("microphone").addEventListener("click", async () => {
    if (stop) return stop();
    const stopped = new Promise((resolve) => (stop = resolve));
    by("microphone").textContent = "Stop";
    await guarded(() => follow(by("voice-device").value, stopped));
    by("microphone").textContent = "Listen to the microphone";
    stop = null;
  });
}
