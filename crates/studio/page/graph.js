// The graph of a model, folded by layer. A group (a module, a call of a layer, the operations of one line)
// is a box that opens to its parts. Each open group is laid out by itself in rows (K. Sugiyama and others,
// 1981): a line over several rows has a place of its own in each of them, so that it crosses no box.
import { SVG, byId, draw, graphs, make, place } from './common.js';

const BOX = { height: 24, letter: 6.7, padding: 18, gap: 14, rise: 20, header: 22, bend: 8, most: 2000 };
const ROUNDS = 10;

// The groups of a graph's nodes: {key, label, parts, up, last, count}, and leaves with a node. Constants are
// written into their readers.
function grouped(graph) {
  const { nodes, calls } = graph, shown = nodes.map(node => node.kind !== 'constant');
  const group = (key, label, up) => ({ key, label, parts: new Map(), up, first: null, last: null, count: 0 });
  const root = group('', graph.name, null), home = [];
  const into = (up, key, label) => {
    if (!up.parts.has(key)) up.parts.set(key, group(key, label, up));
    return up.parts.get(key);
  };
  // Neighbours of one line and layer, outside of calls, are one group.
  const leader = nodes.map((_, k) => k), find = k => { while (leader[k] !== k) k = leader[k] = leader[leader[k]]; return k; };
  const loose = node => node.call === null && node.inputs.length > 0;
  const alike = (a, b) => loose(a) && loose(b) && a.layer === b.layer && a.line === b.line;
  nodes.forEach((node, k) => node.inputs.forEach(input => { if (alike(node, nodes[input])) leader[find(k)] = find(input); }));
  const sizes = new Map();
  nodes.forEach((_, k) => sizes.set(find(k), (sizes.get(find(k)) || 0) + 1));
  nodes.forEach((node, k) => {
    if (!shown[k]) return;
    let at = root, path = '';
    for (const name of node.layer ? node.layer.split('.') : []) at = into(at, 'layer ' + (path += '.' + name), name);
    const call = node.call === null ? null : calls[node.call];
    if (call && !call.outer && call.layer === node.layer) at = into(at, 'call ' + node.call, call.type);
    else if (sizes.get(find(k)) > 1) at = into(at, 'line ' + find(k), place(node.line));
    const constants = node.inputs.filter(input => !shown[input]).map(input => nodes[input].title);
    const leaf = { key: 'node ' + k, label: [node.title, ...constants].join(' '), form: node.form, isNode: true, node, up: at, count: 1 };
    at.parts.set(leaf.key, leaf);
    home[k] = leaf;
    for (let up = at; up; up = up.up) { up.count++; if (!node.inputs.length) continue; up.last = node; }
  });
  // A group with only one group inside is one box, and a group of one node is the node.
  const merge = item => {
    if (item.isNode) return item;
    item.parts = new Map([...item.parts].map(([key, part]) => [key, merge(part)]));
    const [only] = item.parts.values();
    if (item.parts.size !== 1 || item === root) return item;
    const label = only.isNode || item.key.startsWith('line') ? item.label : item.label + (only.label === item.label ? '' : ' ' + only.label);
    only.up = item.up;
    if (!item.key.startsWith('line')) only.label = only.isNode && only.node.kind !== 'operation' ? only.label : label;
    return only;
  };
  merge(root);
  const adopt = item => { if (!item.isNode) for (const part of item.parts.values()) { part.up = item; adopt(part); } };
  adopt(root);
  const edges = [];
  nodes.forEach((node, k) => shown[k] && node.inputs.forEach(input => shown[input] && edges.push([home[input], home[k]])));
  return { root, edges, leaves: home.filter(Boolean) };
}

// The box that stands for an item: its outermost folded group, or itself.
function standing(item, open) {
  let found = item;
  for (let up = item.up; up; up = up.up) if (!open.has(up.key)) found = up;
  return found;
}

// The layout of an open group: its size, the boxes in it, the paths of its lines, and the places where
// lines enter and leave.
function layOut(group, edges, open) {
  const partOf = item => { for (let at = item; at; at = at.up) if (at.up === group) return at; return null; };
  const cells = [], byPart = new Map();
  const cell = (item, width, height) => { const c = { item, width, height, row: 0, x: 0, up: [], down: [] }; cells.push(c); return c; };
  for (const part of group.parts.values()) {
    const sub = open.has(part.key) && !part.isNode ? layOut(part, edges, open) : null;
    const text = part.isNode ? part.label + '  ' + part.form : part.label + '  ' + (part.last ? part.last.form : '');
    const width = sub ? Math.max(sub.width, part.label.length * BOX.letter + 2 * BOX.padding) : text.length * BOX.letter + BOX.padding;
    byPart.set(part, Object.assign(cell(part, width, sub ? sub.height : BOX.height), { sub, text }));
  }
  const ports = { in: new Map(), out: new Map() }, links = new Map();
  const port = (side, key) => {
    if (!ports[side].has(key)) ports[side].set(key, cell(null, BOX.bend, 0));
    return ports[side].get(key);
  };
  for (const [from, to] of edges) {
    const a = partOf(from), b = partOf(to);
    if (!a && !b || a === b) continue;
    const key = standing(from, open).key;
    const upper = a ? byPart.get(a) : port('in', key), lower = b ? byPart.get(b) : port('out', key);
    links.set(key + '|' + cells.indexOf(upper) + '|' + cells.indexOf(lower), { key, upper, lower });
  }
  rank(cells, links, ports);
  // A bend in each row that a line passes.
  for (const link of links.values()) {
    link.chain = [link.upper];
    for (let row = link.upper.row + 1; !link.isBack && row < link.lower.row; row++) {
      const bend = cell(null, BOX.bend, 0);
      bend.row = row;
      link.chain.push(bend);
    }
    link.chain.push(link.lower);
    if (!link.isBack) for (let k = 1; k < link.chain.length; k++) { link.chain[k - 1].down.push(link.chain[k]); link.chain[k].up.push(link.chain[k - 1]); }
  }
  const rows = [];
  for (const c of cells) (rows[c.row] ||= []).push(c);
  for (let k = 0; k < rows.length; k++) rows[k] ||= [];
  order(rows);
  arrange(rows);
  const left = Math.min(0, ...cells.map(c => c.x - c.width / 2)), pad = group.up ? BOX.gap : 4;
  let y = group.up ? BOX.header : 4;
  const tops = [], ends = [];
  rows.forEach((row, k) => {
    const tall = Math.max(0, ...row.map(c => c.height));
    // Ports are on the frame itself.
    tops[k] = row.some(c => [...ports.in.values()].includes(c)) ? 0 : y;
    if (tops[k]) { ends[k] = y + tall; y += tall + BOX.rise; } else { ends[k] = 0; y = BOX.header + BOX.rise; }
  });
  let right = Math.max(0, ...cells.map(c => c.x + c.width / 2)) - left + pad;
  const height = ports.out.size ? tops[rows.length - 1] : y - BOX.rise + (group.up ? BOX.gap : 4);
  for (const c of cells) { c.left = c.x - left + pad - c.width / 2; c.top = tops[c.row]; }
  const at = (c, side, key) => c.left + (c.sub && c.sub[side].has(key) ? c.sub[side].get(key) + (c.width - c.sub.width) / 2 : c.width / 2);
  const paths = [...links.values()].map(link => {
    const { upper, lower, chain, key } = link;
    const x0 = at(upper, 'out', key), x1 = at(lower, 'in', key), y0 = upper.top + upper.height;
    if (link.isBack) {
      // Along the right edge, outside of all boxes: only weights that are used twice make such lines.
      const side = right += 6, down = ends[upper.row] + BOX.rise / 2, over = Math.max(2, lower.top - BOX.rise / 2);
      return { key, isBack: true, d: `M${x0} ${y0}V${down}H${side}V${over}H${x1}V${lower.top}` };
    }
    let d = `M${x0.toFixed(1)} ${y0.toFixed(1)}V${ends[upper.row].toFixed(1)}`, x = x0, y = ends[upper.row];
    chain.slice(1).forEach((c, k) => {
      const isLast = k === chain.length - 2, to = isLast ? x1 : at(c), top = c.top, middle = (y + top) / 2;
      d += `C${x.toFixed(1)} ${middle.toFixed(1)} ${to.toFixed(1)} ${middle.toFixed(1)} ${to.toFixed(1)} ${top.toFixed(1)}`;
      if (!isLast) d += `V${ends[c.row].toFixed(1)}`;
      x = to;
      y = ends[c.row];
    });
    return { key, d };
  });
  const place = side => new Map([...ports[side]].map(([key, c]) => [key, at(c)]));
  return { width: right + pad, height: Math.max(height, BOX.height), boxes: [...byPart.values()], paths, in: place('in'), out: place('out') };
}

// The row of each cell: below all its inputs, and directly above its readers if it has no inputs.
function rank(cells, links, ports) {
  const out = new Map(cells.map(c => [c, []])), into = new Map(cells.map(c => [c, []]));
  for (const link of links.values()) { out.get(link.upper).push(link); into.get(link.lower).push(link); }
  // Depth first in a loop: a line to a cell whose readers are still being visited closes a circle.
  const state = new Map(), sorted = [];
  for (const start of cells) {
    if (state.has(start)) continue;
    const stack = [[start, 0]];
    state.set(start, 1);
    while (stack.length) {
      const top = stack.at(-1), link = out.get(top[0])[top[1]++];
      if (!link) { state.set(top[0], 2); sorted.unshift(top[0]); stack.pop(); continue; }
      const seen = state.get(link.lower);
      if (seen === 1) link.isBack = true;
      if (!seen) { state.set(link.lower, 1); stack.push([link.lower, 0]); }
    }
  }
  const first = ports.in.size ? 1 : 0, isIn = new Set(ports.in.values()), isOut = new Set(ports.out.values());
  for (const c of sorted) {
    const rows = into.get(c).filter(link => !link.isBack).map(link => link.upper.row + 1);
    c.row = isIn.has(c) ? 0 : Math.max(first, ...rows);
  }
  for (const c of sorted.toReversed()) {
    const lower = out.get(c).filter(link => !link.isBack).map(link => link.lower.row);
    if (!isIn.has(c) && !into.get(c).length && lower.length) c.row = Math.max(first, Math.min(...lower) - 1);
  }
  const last = Math.max(0, ...cells.filter(c => !isOut.has(c)).map(c => c.row)) + 1;
  for (const c of isOut) c.row = last;
}

// Moves each cell to the mean position of its neighbours, down and up, so that few lines cross.
function order(rows) {
  const number = () => rows.forEach(row => row.forEach((c, k) => { c.at = k; }));
  number();
  for (let round = 0; round < ROUNDS; round++) {
    const side = round % 2 ? 'down' : 'up';
    for (const row of round % 2 ? rows.toReversed() : rows) {
      for (const c of row) c.wish = c[side].length ? c[side].reduce((sum, other) => sum + other.at, 0) / c[side].length : c.at;
      row.sort((a, b) => a.wish - b.wish || a.at - b.at);
      row.forEach((c, k) => { c.at = k; });
    }
  }
}

// Shifts cells towards their neighbours; those that would overlap move as one block (the pool-adjacent-
// violators algorithm).
function arrange(rows) {
  for (const row of rows) row.reduce((x, c) => { c.x = x + c.width / 2; return x + c.width + BOX.gap; }, 0);
  for (let round = 0; round < ROUNDS; round++) {
    const side = round % 2 ? 'down' : 'up';
    for (const row of round % 2 ? rows.toReversed() : rows) {
      let offset = 0;
      const blocks = [];
      row.forEach((c, k) => {
        if (k) offset += (row[k - 1].width + c.width) / 2 + BOX.gap;
        c.offset = offset;
        const wish = c[side].length ? c[side].reduce((sum, other) => sum + other.x, 0) / c[side].length : c.x;
        let block = { sum: wish - offset, cells: [c] };
        while (blocks.length && blocks.at(-1).sum / blocks.at(-1).cells.length > block.sum / block.cells.length) {
          const before = blocks.pop();
          block = { sum: before.sum + block.sum, cells: [...before.cells, ...block.cells] };
        }
        blocks.push(block);
      });
      for (const block of blocks) for (const c of block.cells) c.x = block.sum / block.cells.length + c.offset;
    }
  }
}

const graphViews = new Map();   // name → {graph, root, edges, leaves, open, scale, found}
function graphView(graph) {
  const known = graphViews.get(graph.name);
  if (known && known.graph === graph) return known;
  const view = { graph, ...grouped(graph), open: known ? known.open : new Set(['']), scale: known ? known.scale : null, found: [] };
  graphViews.set(graph.name, view);
  return view;
}

function drawGraph(view) {
  const { graph, root, edges, open } = view;
  const shown = layOut(root, edges, open);
  const svg = document.createElementNS(SVG, 'svg');
  svg.setAttribute('viewBox', `0 0 ${shown.width} ${shown.height}`);
  svg.setAttribute('role', 'group');
  svg.setAttribute('aria-label', `graph of ${graph.name}`);
  const told = make('p', { class: 'quiet', 'aria-live': 'polite' }, 'Choose a box: a layer opens to its parts, an operation shows its line.');
  const search = byId('find-layer').value.toLowerCase();
  view.found = [];
  const redraw = focus => {
    const next = drawGraph(view);
    box.replaceWith(next);
    const target = focus !== undefined && [...next.querySelectorAll('[data-key]')].find(element => element.dataset.key === focus);
    if (target) target.focus();
  };
  const paint = (part, layout, x, y) => {
    for (const { d, isBack } of layout.paths) draw(part, 'path', { class: isBack ? 'line back' : 'line', d, transform: `translate(${x} ${y})` });
    for (const c of layout.boxes) {
      const item = c.item, isOpen = Boolean(c.sub), left = x + c.left, top = y + c.top;
      const hits = search && item.isNode && isWanted(item, search) || search && !item.isNode && !isOpen && holds(item, search);
      const kind = item.isNode ? item.node.output ? 'output' : item.node.kind : isOpen ? 'frame' : 'layer';
      const g = draw(part, 'g', { class: `box ${kind}${hits ? ' found' : ''}`, tabindex: 0, role: 'button', 'data-key': item.key,
        'aria-label': item.isNode ? `${item.label} ${item.form}` : `${item.label}, ${item.count} nodes` });
      if (!item.isNode) g.setAttribute('aria-expanded', isOpen);
      draw(g, 'rect', { x: left, y: top, width: c.width, height: c.height, rx: 4 });
      const text = draw(g, 'text', { x: left + (isOpen ? 8 : c.width / 2), y: top + 16, 'text-anchor': isOpen ? 'start' : 'middle' });
      draw(text, 'tspan', { class: 'name' }, item.label);
      const form = item.isNode ? item.form : item.last ? item.last.form : '';
      if (!isOpen && form) draw(text, 'tspan', { dx: 8 }, form);
      const words = item.isNode ? `${item.label}: ${item.form}, ${item.node.layer || 'outside of layers'}, ${place(item.node.line)}` : `${item.label}: ${item.count} nodes`;
      draw(g, 'title', {}, words);
      const choose = () => {
        if (item.isNode) { told.textContent = words; return; }
        if (isOpen) open.delete(item.key); else open.add(item.key);
        redraw(item.key);
      };
      g.addEventListener('click', event => { event.stopPropagation(); choose(); });
      g.addEventListener('keydown', event => {
        const all = [...svg.querySelectorAll('[data-key]')], step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
        if (event.target !== g) return;
        if (event.key === 'Enter' || event.key === ' ') { event.preventDefault(); choose(); }
        if (step) { event.preventDefault(); (all[all.indexOf(g) + step] || g).focus(); }
      });
      if (hits) view.found.push(g);
      if (isOpen) paint(part, c.sub, left + (c.width - c.sub.width) / 2, top);
    }
  };
  paint(svg, shown, 0, 0);
  const frame = make('div', { class: 'picture', tabindex: 0, role: 'region', 'aria-label': `graph of ${graph.name}, scrollable` }, svg);
  const size = () => { svg.style.width = shown.width * view.scale + 'px'; svg.style.height = shown.height * view.scale + 'px'; };
  const fit = () => { view.scale = Math.min(1, Math.max(0.3, (frame.clientWidth - 2) / shown.width)); size(); };
  const by = factor => { view.scale = Math.min(3, Math.max(0.1, view.scale * factor)); size(); };
  const all = isOpen => {
    const each = item => { if (!item.isNode) { if (isOpen) open.add(item.key); item.parts.forEach(each); } };
    open.clear();
    open.add('');
    if (isOpen) each(root);
    view.scale = null;
    redraw();
  };
  const button = (label, title, onclick) => make('button', { type: 'button', title, onclick }, label);
  frame.addEventListener('keydown', event => { ({ '+': () => by(1.25), '-': () => by(0.8), 0: fit })[event.key]?.(); });
  frame.addEventListener('wheel', event => { if (event.ctrlKey) { event.preventDefault(); by(event.deltaY < 0 ? 1.1 : 0.9); } }, { passive: false });
  const box = make('div', { class: 'graph' }, make('h3', {}, `Graph of ${graph.name}`),
    make('div', { class: 'controls' }, button('+', 'Zoom in (+)', () => by(1.25)), button('−', 'Zoom out (-)', () => by(0.8)),
      button('Fit', 'Fit the width (0)', fit), button('Fold all', 'Only the layers', () => all(false)),
      ...(root.count <= BOX.most ? [button('Open all', 'Every operation', () => all(true))] : []),
      make('span', { class: 'quiet' }, `${graph.nodes.length} nodes`)), told, frame);
  // Once it is a part of the page.
  queueMicrotask(() => { if (view.scale === null) fit(); else size(); if (search && view.found[0]) view.found[0].scrollIntoView({ block: 'nearest', inline: 'nearest' }); });
  return box;
}
const isWanted = (item, search) => [item.label, item.node.layer, item.node.line].some(text => text.toLowerCase().includes(search));
const holds = (item, search) => item.label.toLowerCase().includes(search) || [...item.parts.values()].some(part => part.isNode ? isWanted(part, search) : holds(part, search));
function drawGraphs() {
  byId('graphs').replaceChildren(...[...graphs.values()].map(graph => drawGraph(graphView(graph))));
}

export { drawGraphs };
