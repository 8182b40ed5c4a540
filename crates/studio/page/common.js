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
const memories = [], measured = new Map();   // what each listed step held; what each setting took
let settings = [], profile = null, last = 0, changed = new Set();

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

