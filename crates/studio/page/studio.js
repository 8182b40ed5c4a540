// Takes events (see crates/studio/src/record.rs and reports.rs) from a source, and draws the sections that
// they change.
import { ask, byId, curves, explanations, graphs, histograms, limits, measured, memories, models, notes, runs, studio, troubles } from './common.js';
import { drawCurves, drawHistograms, drawNotes, drawRuns } from './curves.js';
import { drawGraphs } from './graph.js';
import { drawExplanations, drawMemory, drawModels, drawProfile, drawSettings, drawTroubles } from './step.js';

const take = {
  run(e) { runs[e.run] = { name: e.name, shown: true }; studio.changed.add(drawRuns); },
  scalar(e) {
    if (!curves.has(e.tag)) curves.set(e.tag, new Map());
    const ofRun = curves.get(e.tag);
    if (!ofRun.has(e.run)) ofRun.set(e.run, []);
    ofRun.get(e.run).push(e);
    studio.changed.add(drawCurves);
  },
  histogram(e) {
    const key = e.run + ' ' + e.tag;
    if (!histograms.has(key)) histograms.set(key, { tag: e.tag, run: e.run, steps: [] });
    histograms.get(key).steps.push(e);
    studio.changed.add(drawHistograms);
  },
  text(e) { notes.push(e); studio.changed.add(drawNotes); },
  model(e) { models.set(e.name, e); studio.changed.add(drawModels); },
  idle(e) {
    for (const entry of models.get(e.model)?.entries ?? []) if (e.paths.includes(entry.path)) entry.idle = true;
    studio.changed.add(drawModels);
  },
  graph(e) { graphs.set(e.name, e); studio.changed.add(drawGraphs); },
  profile(e) { studio.profile = e; studio.changed.add(drawProfile); studio.changed.add(drawModels); },
  explanation(e) { explanations.set(e.name, e); studio.changed.add(drawExplanations); },
  memory(e) { memories.push(e); studio.changed.add(drawMemory); },
  what_if(e) { studio.settings = e.settings; studio.changed.add(drawSettings); },
  limits(e) { limits.set(e.device, e); if (studio.profile) studio.changed.add(drawProfile); },
  measured(e) { measured.set(e.setting, e); studio.changed.add(drawSettings); },
  trouble(e) { troubles.push(e); studio.changed.add(drawTroubles); },
};

function receive(data) {
  for (const event of data.events) take[event.kind]?.(event);
  studio.last = data.next;
  const due = studio.changed;
  studio.changed = new Set();
  for (const redraw of due) redraw();
}

// Makes the sections in a document or a shadow root work. `source.ask(what)` asks the program for what a
// button says, and resolves to whether it does; `source.asks`, if there, are the only buttons shown.
function mount(root, source) {
  Object.assign(studio, { root, source });
  for (const id of ['smoothing', 'log', 'axis', 'find']) byId(id).addEventListener('input', () => { drawCurves(); drawHistograms(); });
  byId('find-layer').addEventListener('input', () => { drawModels(); drawGraphs(); });
  for (const button of root.querySelectorAll('[data-ask]')) {
    button.hidden = Boolean(source?.asks && !source.asks.includes(button.dataset.ask));
    button.addEventListener('click', () => ask('ask/' + button.dataset.ask));
  }
}

// Asks for new events every second. `source.events(after)` resolves to those after a number, `{next,
// events}`, or to null when there is no need to draw.
async function follow() {
  try {
    const data = await studio.source.events(studio.last);
    if (data) {
      receive(data);
      byId('state').textContent = 'Live';
    }
  } catch {
    byId('state').textContent = 'The program has ended or does not answer; the page keeps what it has.';
  }
  setTimeout(follow, document.hidden ? 5000 : 1000);
}

export { follow, mount, receive, studio };
