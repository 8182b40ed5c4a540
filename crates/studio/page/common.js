// The events so far and the functions that draw, which the sections share. The files of this folder are
// modules of JavaScript for pages of one's own (see component.js); the studio's own page has them in one
// script.

const COLOURS = ['#2f81c4', '#d5651a', '#0f9b74', '#b964a0', '#c79000', '#7a70d6', '#8a8f94'];
const SVG = 'http://www.w3.org/2000/svg';
// The document or shadow root of the sections, the source of events, the number of the last one, the
// functions that have to draw again, the latest profile and the settings of what-if.
const studio = { root: document, source: null, last: 0, changed: new Set(), profile: null, settings: [] };
const byId = id => studio.root.getElementById(id);
const runs = [];                // {name, shown}
const curves = new Map();       // tag → Map(run → points)
const histograms = new Map();   // tag and run → {tag, run, steps}
const notes = [], models = new Map(), graphs = new Map(), explanations = new Map(), troubles = [];
// The memory after each listed step, the time of each setting, and the limits of each device.
const memories = [], measured = new Map(), limits = new Map();

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
// The heading of a source line: its last folder, file, line and column.
const place = line => line.split('/').slice(-2).join('/');
const colour = run => COLOURS[run % COLOURS.length];

// Rows as a table. Columns are [heading, cell of a row, class].
function table(columns, rows) {
  const head = make('tr', {}, ...columns.map(([name, , kind]) => make('th', { class: kind || '', scope: 'col' }, name)));
  const body = rows.map(row => make('tr', {}, ...columns.map(([, cell, kind]) => make('td', { class: kind || '' }, cell(row)))));
  return make('div', { class: 'scroll', tabindex: 0 }, make('table', {}, make('thead', {}, head), make('tbody', {}, ...body)));
}

// Asks the program for something; it comes with the events.
async function ask(what) {
  const heard = await studio.source.ask(what).catch(() => false);
  byId('state').textContent = heard ? 'The next step will be looked at.' : 'The program does not answer.';
}

export { SVG, COLOURS, studio, byId, runs, curves, histograms, notes, models, graphs, explanations, troubles, memories, measured, limits };
export { make, draw, bytes, flops, duration, short, place, colour, table, ask };
