// Curves of the runs, histograms and notes.
import { SVG, byId, colour, curves, draw, histograms, make, notes, runs, short, studio } from './common.js';

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
  if (byId('charts').contains(studio.root.activeElement)) { studio.changed.add(drawCurves); return; }
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

export { drawCurves, drawHistograms, drawNotes, drawRuns };
