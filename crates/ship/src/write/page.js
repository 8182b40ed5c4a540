// Written by Taper: a network for pages with WebGPU, without WebAssembly and libraries.
//
//   import { load } from './NAME.js';
//   const network = await load();
//   const [y0] = await network.run(x0);
//
// Arguments and results are typed arrays in row-major order: inputs and outputs have their dtypes and shapes.
import weights from './NAME_weights.js';

const PLAN = {};

/** The arguments and the results: for each a dtype and a shape. */
export const inputs = PLAN.arguments;
export const outputs = PLAN.results;

const KINDS = {
  f32: Float32Array, bool: Uint8Array, u8: Uint8Array, i8: Int8Array, u16: Uint16Array, i16: Int16Array,
  u32: Uint32Array, i32: Int32Array, i64: BigInt64Array,
};
const WORKGROUP = 64;
const MAX_WORKGROUPS = 65535;
const WORD = 4;

const count = (value) => value.shape.reduce((a, b) => a * b, 1);

/** The array of zeros that an argument or a result may be. */
export const zeros = (value) => new KINDS[value.dtype](count(value));

/** Elements as words of the device: integers of 64 bits must fit into 32. */
function toWords(dtype, elements) {
  if (dtype === 'f32' || dtype === 'u32' || dtype === 'i32') {
    return new Uint32Array(elements.buffer, elements.byteOffset, elements.length);
  }
  if (dtype !== 'i64') return Int32Array.from(elements);
  return Int32Array.from(elements, (x) => {
    if (BigInt.asIntN(32, x) !== x) throw new RangeError(`${x} does not fit into 32 bits`);
    return Number(x);
  });
}

/** Elements from words of the device. */
function fromWords(dtype, words) {
  const Kind = KINDS[dtype];
  if (Kind.BYTES_PER_ELEMENT === WORD) return new Kind(words.buffer, words.byteOffset, words.length);
  const whole = new Int32Array(words.buffer, words.byteOffset, words.length);
  return dtype === 'i64' ? Kind.from(whole, BigInt) : Kind.from(whole);
}

/** The static data as words. */
function constants() {
  const bytes = Uint8Array.from(atob(weights), (digit) => digit.charCodeAt(0));
  const words = new Uint32Array(Math.max(PLAN.words.weights, 1));
  let [from, to] = [0, 0];
  for (const [dtype, length] of PLAN.constants) {
    from = Math.ceil(from / 8) * 8;
    words.set(toWords(dtype, new KINDS[dtype](bytes.buffer, from, length)), to);
    from += length * KINDS[dtype].BYTES_PER_ELEMENT;
    to += length;
  }
  return words;
}

/** A device whose buffers may be as large as the network's. */
async function open(bytes) {
  if (!globalThis.navigator?.gpu) throw new Error('this browser has no WebGPU');
  const adapter = await navigator.gpu.requestAdapter();
  if (!adapter) throw new Error('WebGPU finds no adapter');
  const requiredLimits = {};
  for (const name of ['maxStorageBufferBindingSize', 'maxBufferSize']) {
    const limit = adapter.limits[name];
    if (bytes > limit) throw new Error(`the network takes a buffer of ${bytes} bytes, and the limit is ${limit}`);
    if (bytes > 2 ** 27) requiredLimits[name] = limit;
  }
  return adapter.requestDevice({ requiredLimits });
}

class Network {
  #device;
  #buffers;
  #group;
  #passes;
  #last = Promise.resolve();

  constructor(device, buffers, group, passes) {
    this.#device = device;
    this.#buffers = buffers;
    this.#group = group;
    this.#passes = passes;
  }

  /** The results for these arguments. Calls are computed one after the other. */
  run(...values) {
    const result = this.#last.then(() => this.#run(values));
    this.#last = result.catch(() => {});
    return result;
  }

  async #run(values) {
    const { queue } = this.#device;
    const { arena, failed, read } = this.#buffers;
    if (values.length !== inputs.length) {
      throw new TypeError(`${values.length} arguments, expected ${inputs.length}`);
    }
    inputs.forEach((input, k) => {
      const [value, Kind] = [values[k], KINDS[input.dtype]];
      if (!(value instanceof Kind) || value.length !== count(input)) {
        throw new TypeError(`argument ${k}: expected ${Kind.name} of ${count(input)} elements`);
      }
      if (input.at !== null) queue.writeBuffer(arena, input.at * WORD, toWords(input.dtype, value));
    });
    const encoder = this.#device.createCommandEncoder();
    encoder.clearBuffer(failed);
    const pass = encoder.beginComputePass();
    for (const [pipeline, invocations, offset] of this.#passes) {
      const groups = Math.ceil(invocations / WORKGROUP);
      pass.setPipeline(pipeline);
      pass.setBindGroup(0, this.#group, [offset]);
      pass.dispatchWorkgroups(Math.min(groups, MAX_WORKGROUPS), Math.ceil(groups / MAX_WORKGROUPS));
    }
    pass.end();
    encoder.copyBufferToBuffer(failed, 0, read, 0, WORD);
    let at = 1;
    for (const output of outputs) {
      if (count(output)) encoder.copyBufferToBuffer(arena, output.at * WORD, read, at * WORD, count(output) * WORD);
      at += count(output);
    }
    queue.submit([encoder.finish()]);
    await read.mapAsync(GPUMapMode.READ);
    const words = new Uint32Array(read.getMappedRange().slice(0));
    read.unmap();
    if (words[0]) throw new RangeError('an index is outside of the axis that it selects from');
    at = 1;
    return outputs.map((output) => {
      const start = at;
      at += count(output);
      return fromWords(output.dtype, words.slice(start, at));
    });
  }
}

/** Compiles the kernels and uploads the weights; on `device`, or on a new one. */
export async function load(device) {
  const contents = constants();
  device ??= await open(Math.max(contents.byteLength, PLAN.words.arena * WORD));
  const response = await fetch(new URL('./NAME.wgsl', import.meta.url));
  if (!response.ok) throw new Error(`NAME.wgsl: ${response.status}`);
  const module = device.createShaderModule({ code: await response.text() });

  const { STORAGE, UNIFORM, COPY_SRC, COPY_DST, MAP_READ } = GPUBufferUsage;
  const buffer = (words, usage) => device.createBuffer({ size: Math.max(words, 1) * WORD, usage });
  // The places of the windows of each step, from a multiple of 256 bytes on.
  const stride = Math.ceil((4 + PLAN.words.windows) / 64) * 64;
  const params = new Uint32Array(Math.max(PLAN.steps.length, 1) * stride);
  PLAN.steps.forEach(([, ...windows], k) => params.set(windows, k * stride + 4));
  const results = outputs.reduce((sum, output) => sum + count(output), 1);
  const buffers = {
    weights: buffer(contents.length, STORAGE | COPY_DST),
    arena: buffer(PLAN.words.arena, STORAGE | COPY_SRC | COPY_DST),
    params: buffer(params.length, UNIFORM | COPY_DST),
    failed: buffer(1, STORAGE | COPY_SRC | COPY_DST),
    read: buffer(results, MAP_READ | COPY_DST),
  };
  device.queue.writeBuffer(buffers.weights, 0, contents);
  device.queue.writeBuffer(buffers.params, 0, params);

  const visibility = GPUShaderStage.COMPUTE;
  const layout = device.createBindGroupLayout({
    entries: [
      { binding: 0, visibility, buffer: { type: 'read-only-storage' } },
      { binding: 1, visibility, buffer: { type: 'storage' } },
      { binding: 2, visibility, buffer: { type: 'uniform', hasDynamicOffset: true } },
      { binding: 3, visibility, buffer: { type: 'storage' } },
    ],
  });
  const size = (4 + PLAN.words.windows) * WORD;
  const group = device.createBindGroup({
    layout,
    entries: [
      { binding: 0, resource: { buffer: buffers.weights } },
      { binding: 1, resource: { buffer: buffers.arena } },
      { binding: 2, resource: { buffer: buffers.params, size } },
      { binding: 3, resource: { buffer: buffers.failed } },
    ],
  });
  const pipelineLayout = device.createPipelineLayout({ bindGroupLayouts: [layout] });
  const compile = ([entryPoint, invocations]) =>
    device.createComputePipelineAsync({ layout: pipelineLayout, compute: { module, entryPoint } })
      .then((pipeline) => [pipeline, invocations]);
  const kernels = await Promise.all(PLAN.kernels.map((entries) => Promise.all(entries.map(compile))));
  const passes = PLAN.steps.flatMap(([kernel], k) =>
    kernels[kernel].map(([pipeline, invocations]) => [pipeline, invocations, k * stride * WORD]));
  return new Network(device, buffers, group, passes);
}
