// The layers with their times, the timeline of a step, explanations, memory, troubles and other settings.
import { COLOURS, SVG, ask, byId, bytes, colour, draw, duration, explanations, flops, limits, make, measured, memories, models, place, short, studio, table, troubles } from './common.js';

// The time of a layer and of all layers inside it, in a profile's rows.
function timeOf(layers, path, part) {
  const inside = row => !path || row.layer === path || row.layer.startsWith(path + '.');
  return layers.filter(inside).reduce((sum, row) => ({ time: sum.time + row[part].time, written: sum.written + row[part].written, runs: sum.runs + row[part].runs }), { time: 0, written: 0, runs: 0 });
}
// A GPU in a browser cannot be waited for: the times of its kernels are not known.
const isTimed = () => studio.profile.runs.every(run => run.waited);
function drawModels() {
  const search = byId('find-layer').value.toLowerCase(), layers = studio.profile ? studio.profile.layers : [];
  const parts = [...models.values()].map(model => {
    const root = { inner: new Map(), entries: [], count: 0, bytes: 0, path: '' };
    for (const entry of model.entries.filter(entry => entry.path.toLowerCase().includes(search))) {
      const names = entry.path.split('.'), chain = [root];
      for (const name of names.slice(0, -1)) {
        const { inner, path } = chain.at(-1);
        if (!inner.has(name)) inner.set(name, { inner: new Map(), entries: [], count: 0, bytes: 0, path: path ? path + '.' + name : name });
        chain.push(inner.get(name));
      }
      for (const layer of chain) { layer.count += entry.numel; layer.bytes += entry.bytes; }
      chain.at(-1).entries.push(entry);
    }
    const words = (layer, part) => {
      const { time, written, runs } = timeOf(layers, layer.path, part);
      return runs ? `, ${part} ${isTimed() ? duration(time) + ', ' : ''}${bytes(written)} written` : '';
    };
    const show = (name, layer, depth) => make('details', depth < 2 || search ? { open: '' } : {},
      make('summary', {}, name + ' ', make('span', { class: 'quiet' }, `${layer.count.toLocaleString('en')} numbers, ${bytes(layer.bytes)}${words(layer, 'forward')}${words(layer, 'backward')}${words(layer, 'update')}`)),
      ...[...layer.inner].map(([inner, value]) => show(inner, value, depth + 1)),
      ...(layer.entries.length ? [table([['name', e => e.path.split('.').at(-1), 'l'], ['shape', e => e.shape, 'l'], ['dtype', e => e.dtype, 'l'],
        ['device', e => e.device, 'l'], ['numbers', e => e.numel.toLocaleString('en')], ['memory', e => bytes(e.bytes)],
        ['', e => e.role === 'buffer' ? 'buffer' : e.idle ? 'no gradient' : e.trained ? 'trained' : 'frozen', 'l']], layer.entries)] : []));
    const told = layers.length ? ` ${isTimed() ? 'Times' : 'Bytes'} are of step ${studio.profile.step}; a fused kernel counts for the operation it ran for.` : '';
    return make('div', {}, make('p', {}, `${model.parameters.toLocaleString('en')} parameters.${told}`), show(model.name, root, 0));
  });
  if (parts.length) byId('layers').replaceChildren(...parts);
}

// A kernel's or a line's work as parts of the limits of its device, where they are measured: [part, words],
// of the bytes against the rate of memory and of the arithmetic against its peak.
function shares({ device, time, bytes, flops }) {
  const limit = limits.get(device);
  if (!limit || !time) return [];
  const part = (amount, most, words) => amount && most ? [[amount / (time / 1e9) / most, words]] : [];
  return [...part(bytes, limit.bytes, 'of the rate of memory'), ...part(flops, limit.flops, 'of the peak of arithmetic')];
}
const percent = part => (100 * part).toFixed(part < 0.0995 ? 1 : 0) + ' %';
const work = run => ({ device: run.device, time: run.waited ? run.time : 0, bytes: run.read + run.written, flops: run.flops });
const rates = device => limits.has(device) ? [`Limits of ${device}: ${(limits.get(device).bytes / 1e9).toFixed(1)} GB/s, ${(limits.get(device).flops / 1e9).toFixed(1)} GFLOP/s. `] : [];
function aboutKernel(run) {
  const { program, sources } = run.program === null ? { program: null, sources: [] } : studio.profile.programs[run.program];
  const bars = shares(work(run)).map(([part, words]) => make('div', { class: 'share' },
    make('span', { class: 'bar' }, make('i', { style: `width:${Math.min(100, 100 * part)}%` })), `${percent(part)} ${words}`));
  return [...bars, ...(bars.length || !run.waited ? [] : [make('p', { class: 'quiet' }, 'Measure the limits of the devices for its shares of them.')]),
    ...(program ? [make('h4', {}, 'Program, at each position'), make('pre', { tabindex: 0 }, program)] : []),
    ...sources.flatMap(source => [make('h4', {}, 'Source that the device compiles'), make('pre', { tabindex: 0 }, source)]),
    ...(program || sources.length ? [] : [make('p', { class: 'quiet' }, 'A kernel of the library, without a program of its own.')])];
}

// The rows of the timeline: what the host does, then each device. Bars are {row, start, time, colour, words}.
function timelineBars() {
  const { runs: kernels, plans, built, lines } = studio.profile, places = [...new Set(lines.map(line => line.line))];
  const tint = line => places.includes(line) ? colour(places.indexOf(line)) : '#8a8f94', bars = [];
  for (const node of built) bars.push({ row: 'host builds', start: node.start, time: 0, colour: tint(node.line), words: `${node.gradient ? 'a gradient, ' : ''}${node.op}, built after ${duration(node.start)}, ${place(node.line)}` });
  for (const plan of plans) bars.push({ row: 'host plans', start: plan.start, time: plan.time, colour: plan.new ? COLOURS[1] : COLOURS[2], words: `plan of ${plan.nodes} nodes for ${plan.device}, ${plan.new ? 'made' : 'found'} in ${duration(plan.time)}` });
  for (const run of kernels) {
    bars.push({ row: 'host submits', start: run.start, time: run.submission, colour: tint(run.line), words: `${run.kernel} for ${run.op}, submitted to ${run.device} in ${duration(run.submission)}` });
    const took = run.waited ? duration(run.time) : 'time unknown', parts = shares(work(run)).map(([part, words]) => `, ${percent(part)} ${words}`).join('');
    bars.push({ row: run.device, run, start: run.start, time: run.time, colour: tint(run.line), words: `${run.kernel} for ${run.op} over ${run.space}: ${took}, reads ${bytes(run.read)}, writes ${bytes(run.written)}, ${flops(run.flops)}${parts}, ${place(run.line)}` });
  }
  const kept = new Set([...bars].sort((a, b) => b.time - a.time).slice(0, 4000));
  return bars.filter(bar => kept.has(bar));
}
function drawTimeline() {
  const devices = [...new Set(studio.profile.runs.map(run => run.device))], rows = ['host builds', 'host plans', 'host submits', ...devices];
  const bars = timelineBars(), end = Math.max(1e-9, ...bars.map(bar => bar.start + bar.time));
  const svg = document.createElementNS(SVG, 'svg'), WIDE = 1000, ROW = 30;
  svg.setAttribute('viewBox', `0 0 ${WIDE} ${ROW * rows.length + 2}`);
  svg.setAttribute('tabindex', 0);
  svg.setAttribute('role', 'application');
  svg.setAttribute('aria-label', 'timeline; left and right choose a bar, up and down a row, plus and minus zoom');
  const told = make('p', { class: 'quiet', 'aria-live': 'polite', id: 'told' }, 'Choose a bar of the timeline for its figures and its program: with the pointer, or with the arrow keys. + and − zoom.');
  const about = make('div', { id: 'kernel' });
  rows.forEach((row, k) => draw(svg, 'text', { x: 0, y: k * ROW + 11 }, row));
  const byRow = rows.map(row => bars.filter(bar => bar.row === row).sort((a, b) => a.start - b.start));
  let chosen = null, scale = 1;
  const choose = bar => {
    chosen?.rect.classList.remove('chosen');
    chosen = bar;
    bar.rect.classList.add('chosen');
    told.textContent = `${bar.row}: ${bar.words}`;
    about.replaceChildren(...(bar.run ? aboutKernel(bar.run) : []));
    if (scale > 1) bar.rect.scrollIntoView({ block: 'nearest', inline: 'nearest' });
  };
  byRow.forEach((row, k) => row.forEach(bar => {
    bar.rect = draw(svg, 'rect', { x: bar.start / end * WIDE, y: k * ROW + 14, width: Math.max(0.8, bar.time / end * WIDE), height: 13, fill: bar.colour });
    draw(bar.rect, 'title', {}, bar.words);
    bar.rect.addEventListener('click', () => choose(bar));
  }));
  const nearest = (row, start) => row.reduce((a, b) => Math.abs(b.start - start) < Math.abs(a.start - start) ? b : a);
  svg.addEventListener('keydown', event => {
    const { key } = event, step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity }[key];
    const up = { ArrowUp: -1, ArrowDown: 1 }[key];
    if (key === '+' || key === '-') { scale = Math.min(50, Math.max(1, scale * (key === '+' ? 1.5 : 1 / 1.5))); svg.style.width = scale * 100 + '%'; if (chosen) choose(chosen); }
    if (!step && !up) return;
    event.preventDefault();
    const full = byRow.filter(row => row.length);
    if (!full.length) return;
    const row = chosen ? full.find(row => row.includes(chosen)) : full.at(-1);
    if (!chosen) return choose(row[0]);
    if (up) return choose(nearest(full[Math.max(0, Math.min(full.length - 1, full.indexOf(row) + up))], chosen.start));
    choose(row[Math.max(0, Math.min(row.length - 1, row.indexOf(chosen) + step))]);
  });
  return [make('div', { class: 'scroll timeline' }, svg), told, about];
}
function drawProfile() {
  const { runs: kernels, lines, time, step, plans, built } = studio.profile, devices = [...new Set(kernels.map(run => run.device))];
  const timed = isTimed(), compared = timed && devices.some(device => limits.has(device));
  const share = words => line => { const found = shares(line).find(([, of]) => of === words); return found ? percent(found[0]) : ''; };
  byId('profile').replaceChildren(
    make('p', {}, `Step ${step}: ${built.length} operations built, ${plans.length} plans, ${kernels.length} kernels${timed ? ' in ' + duration(time) : ''}. ${timed ? 'Profiled kernels run one at a time, so the whole takes longer than usual.' : 'The device cannot be waited for here: the bars of its kernels are the times of their submissions.'}`),
    ...(compared ? [make('p', { class: 'quiet' }, ...devices.flatMap(rates))] : []),
    ...drawTimeline(),
    table([['device', l => l.device, 'l'], ['kernel', l => l.kernel, 'l'], ['for', l => l.op, 'l'], ['runs', l => String(l.runs)],
      ...(timed ? [['time', l => duration(l.time)], ['share', l => (l.time / (time || 1) * 100).toFixed(1) + ' %']] : []), ['bytes', l => bytes(l.bytes)],
      ...(timed ? [['GB/s', l => (l.bytes / (l.time || 1)).toFixed(2)], ['GFLOP/s', l => (l.flops / (l.time || 1)).toFixed(2)]] : [['arithmetic', l => flops(l.flops)]]),
      ...(compared ? [['memory', share('of the rate of memory')], ['arithmetic', share('of the peak of arithmetic')]] : []), ['line', l => place(l.line), 'l code']], lines));
}
function drawExplanations() {
  byId('explanations').replaceChildren(...[...explanations.values()].map(e => make('div', {}, make('h3', {}, `How ${e.name} is computed`),
    make('p', {}, `${e.kernels.length} kernels, ${flops(e.flops)}, reads ${bytes(e.read)}, writes ${bytes(e.written)}, new buffers ${bytes(e.allocates)}.`),
    ...e.kernels.map((kernel, k) => make('details', {},
      make('summary', {}, `${k + 1}. ${kernel.name} over ${kernel.space} `, make('span', { class: 'quiet' },
        `${kernel.operations.length > 1 ? 'fuses ' + kernel.operations.length + ' operations, ' : ''}${flops(kernel.flops)}, reads ${bytes(kernel.read)}, writes ${bytes(kernel.written)}, on ${kernel.device}`)),
      ...(kernel.separate ? [make('p', { class: 'why' }, `A kernel of its own: ${kernel.separate}.`)] : []),
      table([['operation', o => o.name, 'l'], ['shape', o => o.shape, 'l'], ['dtype', o => o.dtype, 'l'], ['result', o => o.because ? 'stored: ' + o.because : o.stored ? 'stored' : 'only inside', 'l'], ['line', o => place(o.line), 'l code']], kernel.operations),
      ...(kernel.program ? [make('pre', { tabindex: 0 }, kernel.program)] : []),
      ...kernel.sources.map(source => make('details', {}, make('summary', {}, 'Source that the device compiles'), make('pre', { tabindex: 0 }, source))))))));
}

const memoryLines = lines => lines.map(line => make('details', {},
  make('summary', {}, `${bytes(line.bytes)} in ${line.buffers} on ${line.device}: `, make('code', {}, place(line.line))),
  table([['made by', k => k.op, 'l'], ['shape', k => k.shape, 'l'], ['dtype', k => k.dtype, 'l'], ['buffers', k => String(k.buffers)], ['memory', k => bytes(k.bytes)]], line.kinds)));
// The lines that held the most, a column for each listed step.
function memoryOverTime() {
  if (memories.length < 2) return [];
  const names = new Map();
  for (const { lines } of memories) for (const { line, bytes } of lines) names.set(line, Math.max(names.get(line) || 0, bytes));
  const top = [...names].sort((a, b) => b[1] - a[1]).slice(0, 12).map(([line]) => line), shown = memories.slice(-8);
  const cell = at => line => { const found = at.lines.filter(l => l.line === line); return found.length ? bytes(found.reduce((sum, l) => sum + l.bytes, 0)) : '–'; };
  return [make('h3', {}, 'Over time'), table([['line', line => place(line), 'l code'], ...shown.map(at => ['step ' + at.step, cell(at)])], top)];
}
function drawMemory() {
  const memory = memories.at(-1);
  byId('snapshot').replaceChildren(
    ...memory.peaks.flatMap(peak => [make('h3', {}, `At the peak on ${peak.device}: ${bytes(peak.allocated)}`),
      make('p', { class: 'quiet' }, `${bytes(peak.elsewhere)} of it in no line.`), make('div', { class: 'peak' }, ...memoryLines(peak.lines))]),
    make('h3', {}, `After step ${memory.step}`), make('p', { class: 'quiet' }, 'The curves named memory show the whole over time.'),
    table([['device', d => d.device, 'l'], ['allocated', d => bytes(d.allocated)], ['peak', d => bytes(d.peak)], ['reserved', d => bytes(d.reserved)], ['in no line below', d => bytes(d.elsewhere)]], memory.devices),
    ...memoryLines(memory.lines), ...memoryOverTime());
}

const range = o => o.min === null ? 'no finite number' : `${short(o.min)} to ${short(o.max)}`;
const odd = o => [[o.nans, 'NaN'], [o.infinities, 'infinite']].filter(([n]) => n).map(([n, name]) => `${n} ${name}`).join(', ') || 'none';
const statistics = [['shape', o => o.shape, 'l'], ['dtype', o => o.dtype, 'l'], ['finite values', range, 'l'], ['not finite', odd, 'l']];
function drawAnomaly({ op, line, output, inputs, before }) {
  const of = (name, get) => statistics.map(([heading, cell, kind]) => [heading, row => cell(get(row)), kind]);
  return [table([['', row => row.name, 'l'], ...of('', row => row.of)], [...inputs.map((input, k) => ({ name: 'input ' + (k + 1), of: input })), { name: op, of: output }]),
    make('details', { open: '' }, make('summary', {}, 'The operations before it'),
      table([['operation', row => row.op, 'l'], ...of('', row => row.output), ['line', row => place(row.line), 'l code']], [...before, { op, output, line }]))];
}
function drawTroubles() {
  byId('trouble-count').textContent = ` ${troubles.length}`;
  byId('troubles').replaceChildren(...troubles.map(e => make('div', { class: 'trouble' }, make('h3', {}, e.title), make('p', {}, `Step ${e.step}. ${e.detail}`),
    ...(e.anomaly ? drawAnomaly(e.anomaly) : []), make('p', {}, 'Try: ' + e.try))));
}

function drawSettings() {
  const base = measured.get(studio.settings[0]);
  const ratio = m => base && base.time && m.time ? (base.time / m.time * (m.batch / base.batch)).toFixed(2) + ' ×' : '';
  byId('settings').replaceChildren(
    make('div', { class: 'controls live' }, ...studio.settings.map((name, k) => make('button', { type: 'button', onclick: () => ask('what-if/' + k) }, name[0].toUpperCase() + name.slice(1)))),
    ...(measured.size ? [table([['setting', m => m.setting, 'l'], ['batch', m => m.error ? '' : String(m.batch)], ['median step', m => m.error ? '' : duration(m.time)], ['an item', m => m.error ? '' : duration(m.time / m.batch)],
      ['items per second, relative', ratio], ['loss', m => m.error ? '' : m.loss === null ? 'not finite' : short(m.loss)], ['', m => m.error || '', 'l']], [...measured.values()])] : []));
}

export { drawExplanations, drawMemory, drawModels, drawProfile, drawSettings, drawTroubles };
