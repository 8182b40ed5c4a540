// Times networks from ONNX files in Taper on the processor and in ONNX Runtime Web, both in WebAssembly on
// one thread, and sends the results to the server.
import * as ort from "./ort.wasm.min.mjs";
import { bytesOf, load, reason } from "./modules.js";

/** The networks with their inputs: shapes of waves, or an integer. */
const NETWORKS = [
  { file: "silero_vad.onnx", inputs: { input: [1, 576], state: [2, 1, 128], sr: 16000n } },
  { file: "ch_ppocr_mobile_v2.0_cls_infer.onnx", inputs: { x: [1, 3, 48, 192] } },
  { file: "basic_pitch.onnx", inputs: { "serving_default_input_2:0": [1, 43844, 1] } },
];
/** The least time of the runs that are timed together, in milliseconds: a browser's clock ticks every 0.1 ms. */
const TOGETHER = 50;
const ROUNDS = 21;
/** The time of the first runs, after which the browser has compiled all functions a second time, well. */
const WARM_UP = 3000;

const product = (shape) => shape.reduce((count, size) => count * size, 1);
const wave = (shape) => Float32Array.from({ length: product(shape) }, (_, i) => Math.sin(0.37 * i));
const median = (list) => list.toSorted((a, b) => a - b)[list.length >> 1];

/** A function that runs a network in Taper on inputs, and gives its outputs: lists of numbers. */
async function inTaper(bytes) {
  const { Network } = await load("voice");
  const network = Network.open(bytes);
  return async (inputs) => {
    for (const [name, { shape, numbers }] of inputs) {
      if (typeof numbers === "bigint") network.set_integer(name, numbers);
      else network.set(name, shape, numbers);
    }
    return [await network.run()];
  };
}

/** The same in ONNX Runtime Web. */
async function inPeer(bytes) {
  const session = await ort.InferenceSession.create(bytes, { executionProviders: ["wasm"] });
  const tensor = ({ shape, numbers }) =>
    typeof numbers === "bigint"
      ? new ort.Tensor("int64", BigInt64Array.of(numbers), [])
      : new ort.Tensor("float32", numbers, shape);
  return async (inputs) => {
    const results = await session.run(Object.fromEntries(inputs.map(([name, input]) => [name, tensor(input)])));
    return session.outputNames.map((name) => results[name].data);
  };
}

async function timed(run, inputs, count) {
  const started = performance.now();
  for (let k = 0; k < count; k++) await run(inputs);
  return (performance.now() - started) / count;
}

/** The medians of both, in turns, the largest difference of their outputs, and the largest output. */
async function measured({ file, inputs }) {
  const bytes = await bytesOf(file);
  const given = Object.entries(inputs).map(([name, shape]) => [
    name,
    Array.isArray(shape) ? { shape, numbers: wave(shape) } : { numbers: shape },
  ]);
  const sides = [await inTaper(bytes), await inPeer(bytes)];
  const outputs = async (run) => (await run(given)).flatMap((list) => [...list]);
  const [found, wanted] = [await outputs(sides[0]), await outputs(sides[1])];
  const apart = wanted.reduce((most, number, k) => Math.max(most, Math.abs(number - found[k])), 0);
  const largest = wanted.reduce((most, number) => Math.max(most, Math.abs(number)), 0);
  const counts = [];
  for (const run of sides) {
    const started = performance.now();
    while (performance.now() - started < WARM_UP) await timed(run, given, 5);
    counts.push(Math.ceil(TOGETHER / (await timed(run, given, 5))));
  }
  const times = [[], []];
  for (let round = 0; round < ROUNDS; round++) {
    for (const [side, run] of sides.entries()) times[side].push(await timed(run, given, counts[side]));
  }
  const same = found.length === wanted.length;
  return { file, taper: median(times[0]), peer: median(times[1]), apart: same ? apart : null, largest };
}

export async function bench() {
  const results = { bench: [], version: ort.env.versions.web };
  ort.env.wasm.numThreads = 1;
  ort.env.wasm.wasmPaths = new URL("./", import.meta.url).href;
  try {
    for (const network of NETWORKS) {
      await fetch("doing", { method: "POST", body: network.file });
      results.bench.push(await measured(network));
    }
  } catch (error) {
    results.error = reason(error);
  }
  await fetch("result", { method: "POST", body: JSON.stringify(results) });
}
