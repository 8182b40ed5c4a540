'use strict';
// Reads events (see crates/studio/src/record.rs and reports.rs), from the page itself if it was saved and
// from the server otherwise, and draws the sections that they change.

const COLOURS = ['#2f81c4', '#d5651a', '#0f9b74', '#b964a0', '#c79000', '#7a70d6', '#8a8f94'];
const SVG = 'http://www.w3.org/2000/svg';
const byId = id => document.getElementById(id);
const runs = [];                // {name, shown}
const curves = new Map();       // tag → Map(run → points)
const histograms = new Map();   // tag and run → {tag, run, steps}
const notes = [], models = new Map(), graphs = new Map(), explanations = new Map(), troubles = [];
let profile = null, memory = null, last = 0, changed = new Set();

// An element with attributes, and children: elements and texts. Texts are never read as HTML.
function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith('on')) element.addEventListener(key.slice(2), value); else element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}
function draw(parent, name, attributes, text) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  return parent.appendChild(element);
}
function prefixed(value, base, units) {
  let k = 0;
  while (value >= base && k + 1 < units.length) { value /= base; k++; }
  return (k ? value.toFixed(2) : String(value)) + ' ' + units[k];
}
const bytes = n => prefixed(n, 1024, ['B', 'KiB', 'MiB', 'GiB', 'TiB']);
const flops = n => n === null ? 'unknown' : prefixed(n, 1000, ['FLOP', 'kFLOP', 'MFLOP', 'GFLOP', 'TFLOP']);
const duration = nanos => nanos >= 1e9 ? (nanos / 1e9).toFixed(2) + ' s' : nanos >= 1e7 ? (nanos / 1e6).toFixed(2) + ' ms' : (nanos / 1e3).toFixed(1) + ' µs';
const short = n => n === 0 ? '0' : Math.abs(n) >= 1e5 || Math.abs(n) < 1e-3 ? n.toExponential(1) : String(+n.toPrecision(4));
const place = line => line.split('/').slice(-2).join('/');
const colour = run => COLOURS[run % COLOURS.length];

// Rows as a table. Columns are [heading, cell of a row, class].
function table(columns, rows) {
  const head = make('tr', {}, ...columns.map(([name, , kind]) => make('th', { class: kind || '', scope: 'col' }, name)));
  const body = rows.map(row => make('tr', {}, ...columns.map(([, cell, kind]) => make('td', { class: kind || '' }, cell(row)))));
  return make('div', { class: 'scroll', tabindex: 0 }, make('table', {}, make('thead', {}, head), make('tbody', {}, ...body)));
}

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
  profile(e) { profile = e; changed.add(drawProfile); },
  explanation(e) { explanations.set(e.name, e); changed.add(drawExplanations); },
  memory(e) { memory = e; changed.add(drawMemory); },
  trouble(e) { troubles.push(e); changed.add(drawTroubles); },
};

function drawRuns() {
  const boxes = runs.map((run, k) => {
    const box = make('input', { type: 'checkbox', onchange: event => { run.shown = event.target.checked; drawCurves(); drawHistograms(); } });
    box.checked = run.shown;
    return make('label', {}, box, make('span', { class: 'swatch', style: 'background:' + colour(k) }), run.name);
  });
  byId('runs').replaceChildren(make('legend', {}, 'Runs'), ...boxes);
}

// The exponential mean, divided by the sum of its weights so that it starts at the first value.
function smoothed(points, share) {
  let mean = 0, weight = 0;
  return points.map(([x, y]) => {
    mean = share * mean + (1 - share) * y;
    weight = share * weight + (1 - share);
    return [x, mean / weight];
  });
}
// At most `most` points: the least and the greatest of each stretch, so that peaks stay.
function thinned(points, most) {
  if (points.length <= most) return points;
  const kept = [], stretch = Math.ceil(points.length / (most / 2));
  for (let k = 0; k < points.length; k += stretch) {
    const part = points.slice(k, k + stretch);
    const low = part.reduce((a, b) => b[1] < a[1] ? b : a), high = part.reduce((a, b) => b[1] > a[1] ? b : a);
    kept.push(...(low === high ? [low] : low[0] < high[0] ? [low, high] : [high, low]));
  }
  return kept;
}

const WIDTH = 360, HEIGHT = 190, LEFT = 50, BOTTOM = 22, TOP = 8;
function chart(tag, ofRun) {
  const axis = byId('axis').value, log = byId('log').checked, share = +byId('smoothing').value;
  const lines = [...ofRun].filter(([run]) => runs[run] && runs[run].shown).map(([run, events]) => {
    const points = events.filter(e => e.value !== null && (!log || e.value > 0)).map(e => [e[axis], e.value]);
    return { run, points, shown: share > 0 ? smoothed(points, share) : points };
  }).filter(line => line.points.length > 0);
  const output = make('output'), figure = make('figure', {}, make('figcaption', {}, tag), output);
  if (!lines.length) { output.textContent = log ? 'No values above 0.' : 'No values in the runs shown.'; return figure; }
  const all = lines.flatMap(line => line.points), y = value => log ? Math.log10(value) : value;
  let [x0, x1, y0, y1] = [Infinity, -Infinity, Infinity, -Infinity];
  for (const [px, py] of all) { x0 = Math.min(x0, px); x1 = Math.max(x1, px); y0 = Math.min(y0, y(py)); y1 = Math.max(y1, y(py)); }
  if (y0 === y1) { y0 -= Math.abs(y0) / 10 || 1; y1 += Math.abs(y1) / 10 || 1; }
  const toX = v => LEFT + (x1 > x0 ? (v - x0) / (x1 - x0) : 0.5) * (WIDTH - LEFT - 6);
  const toY = v => TOP + (y1 - y(v)) / (y1 - y0) * (HEIGHT - TOP - BOTTOM);
  const svg = document.createElementNS(SVG, 'svg');
  svg.setAttribute('viewBox', `0 0 ${WIDTH} ${HEIGHT}`);
  svg.setAttribute('tabindex', 0);
  svg.setAttribute('role', 'img');
  svg.setAttribute('aria-label', `${tag}; the arrow keys read its values`);
  for (let k = 0; k <= 3; k++) {
    const v = y0 + (y1 - y0) * k / 3, at = TOP + (3 - k) / 3 * (HEIGHT - TOP - BOTTOM);
    draw(svg, 'line', { class: 'grid', x1: LEFT, x2: WIDTH - 6, y1: at, y2: at });
    draw(svg, 'text', { x: LEFT - 5, y: at + 4, 'text-anchor': 'end' }, short(log ? 10 ** v : v));
  }
  const unit = axis === 'time' ? ' s' : '';
  draw(svg, 'text', { x: LEFT, y: HEIGHT - 6 }, short(x0) + unit);
  draw(svg, 'text', { x: WIDTH - 6, y: HEIGHT - 6, 'text-anchor': 'end' }, short(x1) + unit);
  const path = points => 'M' + points.map(([a, b]) => toX(a).toFixed(1) + ' ' + toY(b).toFixed(1)).join('L') + (points.length === 1 ? 'h2' : '');
  for (const { run, points, shown } of lines) {
    if (share > 0) draw(svg, 'path', { class: 'raw', stroke: colour(run), d: path(thinned(points, 700)) });
    draw(svg, 'path', { stroke: colour(run), d: path(thinned(shown, 700)) });
  }
  const cursor = draw(svg, 'line', { class: 'cursor', y1: TOP, y2: HEIGHT - BOTTOM, visibility: 'hidden' });
  const read = x => {
    const parts = lines.map(({ run, points }) => {
      const nearest = points.reduce((a, b) => Math.abs(b[0] - x) < Math.abs(a[0] - x) ? b : a);
      return (lines.length > 1 ? runs[run].name + ' ' : '') + short(nearest[1]);
    });
    output.textContent = `${axis} ${short(x)}${unit}: ${parts.join(', ')}`;
    for (const end of ['x1', 'x2']) cursor.setAttribute(end, toX(x));
    cursor.setAttribute('visibility', 'visible');
  };
  const rest = () => {
    cursor.setAttribute('visibility', 'hidden');
    output.textContent = lines.map(line => (lines.length > 1 ? runs[line.run].name + ' ' : 'last ') + short(line.points.at(-1)[1])).join(', ');
  };
  const longest = lines.reduce((a, b) => b.points.length > a.points.length ? b : a).points;
  let at = longest.length - 1;
  svg.addEventListener('pointermove', event => {
    const box = svg.getBoundingClientRect(), wanted = x0 + ((event.clientX - box.left) / box.width * WIDTH - LEFT) / (WIDTH - LEFT - 6) * (x1 - x0);
    at = longest.reduce((best, point, k) => Math.abs(point[0] - wanted) < Math.abs(longest[best][0] - wanted) ? k : best, 0);
    read(longest[at][0]);
  });
  svg.addEventListener('pointerleave', rest);
  svg.addEventListener('blur', rest);
  svg.addEventListener('keydown', event => {
    const move = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -longest.length, End: longest.length }[event.key];
    if (!move) return;
    event.preventDefault();
    at = Math.max(0, Math.min(longest.length - 1, at + move));
    read(longest[at][0]);
  });
  rest();
  figure.append(svg);
  return figure;
}
const wanted = tag => tag.toLowerCase().includes(byId('find').value.toLowerCase());
function drawCurves() {
  // A chart that is read with the keyboard stays as it is until the focus leaves it.
  if (byId('charts').contains(document.activeElement)) { changed.add(drawCurves); return; }
  const tags = [...curves.keys()].filter(wanted).sort();
  byId('charts').replaceChildren(...tags.map(tag => chart(tag, curves.get(tag))));
}

// A column for each step and a row for each range of values; the darker, the more values.
function drawHistograms() {
  const ROWS = 32, MOST = 60;
  const figures = [...histograms.values()].filter(h => wanted(h.tag) && runs[h.run] && runs[h.run].shown).map(({ tag, run, steps }) => {
    const stride = Math.ceil(steps.length / MOST), chosen = steps.filter((_, k) => (steps.length - 1 - k) % stride === 0);
    const full = h => h.limits.filter((_, k) => h.counts[k] > 0);
    let low = Infinity, high = -Infinity;
    for (const h of chosen) {
      const first = h.counts.findIndex(count => count > 0);
      low = Math.min(low, first > 0 ? h.limits[first - 1] : h.limits[0]);
      high = Math.max(high, ...full(h));
    }
    const svg = document.createElementNS(SVG, 'svg'), wide = (WIDTH - LEFT - 6) / chosen.length, tall = (HEIGHT - TOP - BOTTOM) / ROWS;
    svg.setAttribute('viewBox', `0 0 ${WIDTH} ${HEIGHT}`);
    chosen.forEach((h, column) => {
      const rows = new Array(ROWS).fill(0);
      h.counts.forEach((count, k) => {
        if (!count) return;
        const from = k > 0 ? h.limits[k - 1] : h.limits[0], to = h.limits[k];
        const row = v => (v - low) / (high - low || 1) * ROWS, a = row(from), b = Math.max(row(to), a + 1e-9);
        for (let r = Math.max(0, Math.floor(a)); r < Math.min(ROWS, b); r++) rows[r] += count * (Math.min(b, r + 1) - Math.max(a, r)) / (b - a);
      });
      const most = Math.max(...rows);
      rows.forEach((count, r) => {
        if (count > 0) draw(svg, 'rect', { x: LEFT + column * wide, y: HEIGHT - BOTTOM - (r + 1) * tall, width: wide, height: tall, fill: colour(run), opacity: (0.08 + 0.92 * count / most).toFixed(2) });
      });
    });
    draw(svg, 'text', { x: LEFT - 5, y: TOP + 8, 'text-anchor': 'end' }, short(high));
    draw(svg, 'text', { x: LEFT - 5, y: HEIGHT - BOTTOM, 'text-anchor': 'end' }, short(low));
    draw(svg, 'text', { x: LEFT, y: HEIGHT - 6 }, chosen[0].step);
    draw(svg, 'text', { x: WIDTH - 6, y: HEIGHT - 6, 'text-anchor': 'end' }, chosen.at(-1).step);
    return make('figure', {}, make('figcaption', {}, tag), make('output', {}, 'histogram of ' + runs[run].name), svg);
  });
  byId('histograms').replaceChildren(...figures);
}
function drawNotes() {
  byId('notes').replaceChildren(...notes.flatMap(e => [make('h3', {}, `${e.tag}, step ${e.step}`), make('pre', {}, e.text)]));
}

function drawModels() {
  const search = byId('find-layer').value.toLowerCase();
  const parts = [...models.values()].map(model => {
    const root = { inner: new Map(), entries: [], count: 0, bytes: 0 };
    for (const entry of model.entries.filter(entry => entry.path.toLowerCase().includes(search))) {
      const names = entry.path.split('.'), chain = [root];
      for (const name of names.slice(0, -1)) {
        const inner = chain.at(-1).inner;
        if (!inner.has(name)) inner.set(name, { inner: new Map(), entries: [], count: 0, bytes: 0 });
        chain.push(inner.get(name));
      }
      for (const layer of chain) { layer.count += entry.numel; layer.bytes += entry.bytes; }
      chain.at(-1).entries.push(entry);
    }
    const show = (name, layer, depth) => make('details', depth < 2 || search ? { open: '' } : {},
      make('summary', {}, name + ' ', make('span', { class: 'quiet' }, `${layer.count.toLocaleString('en')} numbers, ${bytes(layer.bytes)}`)),
      ...[...layer.inner].map(([inner, value]) => show(inner, value, depth + 1)),
      ...(layer.entries.length ? [table([['name', e => e.path.split('.').at(-1), 'l'], ['shape', e => e.shape, 'l'], ['dtype', e => e.dtype, 'l'],
        ['device', e => e.device, 'l'], ['numbers', e => e.numel.toLocaleString('en')], ['memory', e => bytes(e.bytes)],
        ['', e => e.role === 'buffer' ? 'buffer' : e.trained ? 'trained' : 'frozen', 'l']], layer.entries)] : []));
    return make('div', {}, make('p', {}, `${model.parameters.toLocaleString('en')} parameters`), show(model.name, root, 0));
  });
  if (parts.length) byId('layers').replaceChildren(...parts);
}
function drawGraphs() {
  byId('graphs').replaceChildren(...[...graphs.values()].map(graph => {
    const image = make('img', { alt: `graph of ${graph.name}, ${graph.nodes} nodes`, src: 'data:image/svg+xml;charset=utf-8,' + encodeURIComponent(graph.svg),
      onload: () => zoom() });
    return make('div', {}, make('h3', {}, `Graph of ${graph.name}`), make('div', { class: 'picture', tabindex: 0 }, image));
  }));
}
function zoom() {
  for (const image of byId('graphs').querySelectorAll('img')) image.width = image.naturalWidth * byId('zoom').value;
}

function drawProfile() {
  const { runs: kernels, lines, time, step } = profile, devices = [...new Set(kernels.map(run => run.device))];
  const end = Math.max(1e-9, ...kernels.map(run => run.start + run.time)), svg = document.createElementNS(SVG, 'svg');
  const places = [...new Set(lines.map(line => line.line))], WIDE = 1000, ROW = 34;
  svg.setAttribute('viewBox', `0 0 ${WIDE} ${ROW * devices.length + 2}`);
  const told = make('p', { class: 'quiet', 'aria-live': 'polite' }, 'Choose a kernel of the timeline for its figures.');
  devices.forEach((device, k) => draw(svg, 'text', { x: 0, y: k * ROW + 12 }, device));
  [...kernels].sort((a, b) => b.time - a.time).slice(0, 2000).forEach(run => {
    const bar = draw(svg, 'rect', { x: run.start / end * WIDE, y: devices.indexOf(run.device) * ROW + 16, width: Math.max(0.6, run.time / end * WIDE), height: 16, fill: colour(places.indexOf(run.line)) });
    const words = `${run.kernel} for ${run.op}: ${duration(run.time)}, reads ${bytes(run.read)}, writes ${bytes(run.written)}, ${flops(run.flops)}, ${place(run.line)}`;
    draw(bar, 'title', {}, words);
    bar.addEventListener('click', () => { told.textContent = words; });
  });
  byId('profile').replaceChildren(
    make('p', {}, `Step ${step}: ${kernels.length} kernels, ${duration(time)}. Profiled kernels run one at a time, so the whole takes longer than usual.`),
    make('div', { class: 'scroll timeline', tabindex: 0 }, svg), told,
    table([['device', l => l.device, 'l'], ['kernel', l => l.kernel, 'l'], ['for', l => l.op, 'l'], ['runs', l => String(l.runs)], ['time', l => duration(l.time)],
      ['share', l => (l.time / (time || 1) * 100).toFixed(1) + ' %'], ['bytes', l => bytes(l.bytes)], ['GB/s', l => (l.bytes / (l.time || 1)).toFixed(2)],
      ['GFLOP/s', l => (l.flops / (l.time || 1)).toFixed(2)], ['line', l => place(l.line), 'l code']], lines));
}
function drawExplanations() {
  byId('explanations').replaceChildren(...[...explanations.values()].map(e => make('div', {}, make('h3', {}, `How ${e.name} is computed`),
    make('p', {}, `${e.kernels.length} kernels, ${flops(e.flops)}, reads ${bytes(e.read)}, writes ${bytes(e.written)}, new buffers ${bytes(e.allocates)}.`),
    ...e.kernels.map((kernel, k) => make('details', {},
      make('summary', {}, `${k + 1}. ${kernel.name} over ${kernel.space} `, make('span', { class: 'quiet' },
        `${kernel.operations.length > 1 ? 'fuses ' + kernel.operations.length + ' operations, ' : ''}${flops(kernel.flops)}, reads ${bytes(kernel.read)}, writes ${bytes(kernel.written)}, on ${kernel.device}`)),
      table([['operation', o => o.name, 'l'], ['shape', o => o.shape, 'l'], ['dtype', o => o.dtype, 'l'], ['result', o => o.stored ? 'stored' : 'only inside', 'l'], ['line', o => place(o.line), 'l code']], kernel.operations),
      ...(kernel.program ? [make('pre', { tabindex: 0 }, kernel.program)] : []),
      ...kernel.sources.map(source => make('details', {}, make('summary', {}, 'Source that the device compiles'), make('pre', { tabindex: 0 }, source))))))));
}
function drawMemory() {
  byId('snapshot').replaceChildren(
    make('p', {}, `After step ${memory.step}. The curves named memory show it over time.`),
    table([['device', d => d.device, 'l'], ['allocated', d => bytes(d.allocated)], ['peak', d => bytes(d.peak)], ['reserved', d => bytes(d.reserved)], ['in no line below', d => bytes(d.elsewhere)]], memory.devices),
    ...memory.lines.map(line => make('details', {},
      make('summary', {}, `${bytes(line.bytes)} in ${line.buffers} on ${line.device}: `, make('code', {}, place(line.line))),
      table([['made by', k => k.op, 'l'], ['shape', k => k.shape, 'l'], ['dtype', k => k.dtype, 'l'], ['buffers', k => String(k.buffers)], ['memory', k => bytes(k.bytes)]], line.kinds))));
}
function drawTroubles() {
  byId('trouble-count').textContent = ` ${troubles.length}`;
  byId('troubles').replaceChildren(...troubles.map(e => make('div', { class: 'trouble' }, make('h3', {}, e.title), make('p', {}, `Step ${e.step}. ${e.detail}`), make('p', {}, 'Try: ' + e.try))));
}

function receive(data) {
  for (const event of data.events) take[event.kind]?.(event);
  last = data.next;
  const due = changed;
  changed = new Set();
  for (const redraw of due) redraw();
  document.documentElement.dataset.events = last;
}
for (const id of ['smoothing', 'log', 'axis', 'find']) byId(id).addEventListener('input', () => { drawCurves(); drawHistograms(); });
byId('find-layer').addEventListener('input', drawModels);
byId('zoom').addEventListener('input', zoom);
for (const button of document.querySelectorAll('[data-ask]')) {
  button.addEventListener('click', async () => {
    const answer = await fetch('ask/' + button.dataset.ask, { method: 'POST' }).catch(() => null);
    byId('state').textContent = answer && answer.ok ? 'The next step will be looked at.' : 'The process does not answer.';
  });
}

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
