const take = {
  run(e) { runs[e.run] = { name: e.name, shown: true }; changed.add(drawRuns); },
  scalar(e) {
    if (!curves.has(e.tag)) curves.set(e.tag, new Map());
    const ofRun = curves.get(e.tag);
    if (!ofRun.has(e.run)) ofRun.set(e.run, []);
    ofRun.get(e.run).push(e);
    changed.add(drawCurves);
  },
  histogram(e) {
    const key = e.run + ' ' + e.tag;
    if (!histograms.has(key)) histograms.set(key, { tag: e.tag, run: e.run, steps: [] });
    histograms.get(key).steps.push(e);
    changed.add(drawHistograms);
  },
  text(e) { notes.push(e); changed.add(drawNotes); },
  model(e) { models.set(e.name, e); changed.add(drawModels); },
  graph(e) { graphs.set(e.name, e); changed.add(drawGraphs); },
  profile(e) { profile = e; changed.add(drawProfile); changed.add(drawModels); },
  explanation(e) { explanations.set(e.name, e); changed.add(drawExplanations); },
  memory(e) { memories.push(e); changed.add(drawMemory); },
  what_if(e) { settings = e.settings; changed.add(drawSettings); },
  measured(e) { measured.set(e.setting, e); changed.add(drawSettings); },
  trouble(e) { troubles.push(e); changed.add(drawTroubles); },
};

function receive(data) {
  for (const event of data.events) take[event.kind]?.(event);
  last = data.next;
  const due = changed;
  changed = new Set();
  for (const redraw of due) redraw();
  document.documentElement.dataset.events = last;
}
for (const id of ['smoothing', 'log', 'axis', 'find']) byId(id).addEventListener('input', () => { drawCurves(); drawHistograms(); });
byId('find-layer').addEventListener('input', () => { drawModels(); drawGraphs(); });
async function tell(what) {
  const answer = await fetch(what, { method: 'POST' }).catch(() => null);
  byId('state').textContent = answer && answer.ok ? 'The next step will be looked at.' : 'The process does not answer.';
}
for (const button of document.querySelectorAll('[data-ask]')) button.addEventListener('click', () => tell('ask/' + button.dataset.ask));

const saved = byId('events').textContent.trim();
if (saved) {
  document.body.classList.add('saved');
  byId('state').textContent = 'A saved run';
  receive(JSON.parse(saved));
} else {
  const poll = async () => {
    try {
      const answer = await fetch('events?after=' + last);
      if (!answer.ok) throw new Error(answer.status);
      receive(await answer.json());
      byId('state').textContent = 'Live';
    } catch {
      byId('state').textContent = 'The process has ended or does not answer; the page keeps what it has.';
    }
    setTimeout(poll, document.hidden ? 5000 : 1000);
  };
  poll();
}
