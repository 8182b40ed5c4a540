// The page's WebAssembly modules, each loaded when its part is used, and the devices.

const loaded = new Map();

/** The functions of a module: `digits`, `voice` or `language`. `memory()` is the size of its memory, in bytes. */
export function load(name) {
  if (!loaded.has(name)) {
    const open = async () => {
      const module = await import(`./${name}_module.js`);
      const { memory } = await module.default({ module_or_path: new URL(`./${name}_module_bg.wasm`, import.meta.url) });
      return { ...module, memory: () => memory.buffer.byteLength };
    };
    loaded.set(name, open());
  }
  return loaded.get(name);
}

/** The name of WebGPU's adapter, or null where there is none. */
async function adapterName() {
  const adapter = await navigator.gpu?.requestAdapter().catch(() => null);
  if (!adapter) return null;
  const { vendor, architecture, device, description } = adapter.info ?? {};
  return description || [vendor, architecture, device].filter(Boolean).join(" ") || "unnamed adapter";
}

/** The names of the devices, by the names that Taper gives them. */
export const devices = adapterName().then((gpu) => ({ wgpu: gpu && `WebGPU: ${gpu}`, cpu: "CPU (wasm)" }));

/** Fills the lists of devices. */
export async function listDevices() {
  const names = await devices;
  for (const list of document.querySelectorAll("select.device")) {
    for (const [device, name] of Object.entries(names)) {
      const option = new Option(name ?? "WebGPU: this browser offers no adapter", device);
      option.disabled = !name;
      list.add(option);
    }
    list.value = names.wgpu ? "wgpu" : "cpu";
  }
}

/** What an error says. */
export const reason = (error) => String(error?.message ?? error);

/** The bytes of a file beside the page. */
export async function bytesOf(name) {
  const response = await fetch(name);
  if (!response.ok) throw new Error(`${name} cannot be loaded (${response.status})`);
  return new Uint8Array(await response.arrayBuffer());
}

/** Lets the browser draw. */
export const drawn = () => new Promise((resolve) => setTimeout(resolve));

export const by = (id) => document.getElementById(id);
