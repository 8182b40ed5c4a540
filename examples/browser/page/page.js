import * as taper from "./browser.js";
import { hear, listenOnClick, recording } from "./voice.js";

const EPOCHS = 20;
const by = (id) => document.getElementById(id);
const ready = taper.default({ module_or_path: new URL("./browser_bg.wasm", import.meta.url) });

/** Trains on a device and draws each epoch; gives all of them, and what the device is. */
async function train(device) {
  await ready;
  const epochs = [];
  by("epochs").replaceChildren();
  by("status").textContent = "training …";
  const started = performance.now();
  const tell = (number, loss, accuracy) => {
    epochs.push({ number, loss, accuracy });
    const row = by("epochs").insertRow();
    for (const text of [number, loss.toFixed(4), accuracy.toFixed(4)]) row.insertCell().textContent = text;
    const most = Math.max(...epochs.map((epoch) => epoch.loss));
    const line = (height) =>
      epochs.map((epoch, k) => `${(100 * k) / (EPOCHS - 1)},${(100 - 96 * height(epoch)).toFixed(2)}`).join(" ");
    by("loss").setAttribute("points", line((epoch) => epoch.loss / most));
    by("accuracy").setAttribute("points", line((epoch) => epoch.accuracy));
    // Lets the browser draw.
    return new Promise((resolve) => setTimeout(resolve));
  };
  const description = await taper.learn(device, EPOCHS, tell);
  const seconds = (performance.now() - started) / 1000;
  by("status").textContent = `${description}: ${seconds.toFixed(1)} s`;
  return { description, seconds, epochs };
}

by("start").addEventListener("click", async () => {
  by("start").disabled = true;
  try {
    await train(by("device").value);
  } catch (error) {
    by("status").textContent = String(error.message ?? error);
  } finally {
    by("start").disabled = false;
  }
});

listenOnClick(ready);

/** Tells the server, which waits for the results, what the page is at. */
const doing = (what) => fetch("doing", { method: "POST", body: what });

// `?check`, for a test: runs both devices, one after the other, for both networks, and each operation on the
// GPU if the table is built in (`?check=linalg`: those with this in their names), and sends the results to
// the server.
if (new URLSearchParams(location.search).has("check")) {
  const send = (results) => fetch("result", { method: "POST", body: JSON.stringify(results) });
  // After a panic, some promises never resolve.
  addEventListener("error", (event) => send({ error: event.message }));
  addEventListener("unhandledrejection", (event) => send({ error: String(event.reason) }));
  const results = {};
  for (const device of ["cpu", "wgpu"]) {
    try {
      await doing(`training on ${device}`);
      results[device] = await train(device);
    } catch (error) {
      results[device] = { error: String(error.message ?? error) };
    }
  }
  results.voice = {};
  for (const device of ["cpu", "wgpu"]) {
    try {
      await doing(`listening on ${device}`);
      const { audio, probabilities } = await recording();
      results.voice[device] = { wanted: [...probabilities], ...(await hear(ready, device, audio)) };
    } catch (error) {
      results.voice[device] = { error: String(error.message ?? error) };
    }
  }
  const prefix = new URLSearchParams(location.search).get("check");
  if (taper.operations) {
    const wrong = [];
    const tell = (name, what) => {
      by("status").textContent = name;
      if (what !== undefined) wrong.push(`${name}: ${what}`);
      return doing(name);
    };
    try {
      results.operations = { count: await taper.operations("wgpu", prefix, tell), wrong };
    } catch (error) {
      results.operations = { count: 0, wrong: [String(error.message ?? error)] };
    }
  }
  await send(results);
}
