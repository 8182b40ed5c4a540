// Plots with axes.

/** Numbers at equal distances within a range, at most about `count`: multiples of 1, 2 or 5 times a power of ten. */
export function ticks(least, most, count) {
  const rough = (most - least || 1) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough * 0.999);
  const [first, last] = [Math.ceil(least / step - 1e-9), Math.floor(most / step + 1e-9)];
  return Array.from({ length: last - first + 1 }, (_, k) => (first + k) * step);
}

const written = (number) => String(Number(number.toPrecision(4)));

/**
 * Draws lines in an SVG element. `x`, `left` and `right` are axes `{ label, least, most, kind }`, of which `right` may be absent;
 * `lines` are `{ points: [[x, y], …], axis: "left" or "right", kind }`. A kind is a class of the style sheet.
 */
export function plot(svg, { x, left, right, lines }) {
  const [width, height] = [svg.clientWidth || 600, svg.clientHeight || 200];
  const edge = { left: 48, right: right ? 48 : 12, top: 22, bottom: 36 };
  const [wide, high] = [width - edge.left - edge.right, height - edge.top - edge.bottom];
  const across = (value) => edge.left + ((value - x.least) / (x.most - x.least || 1)) * wide;
  const up = (axis, value) => edge.top + high - ((value - axis.least) / (axis.most - axis.least || 1)) * high;
  const at = (number) => number.toFixed(1);
  const text = (left, top, anchor, kind, content) =>
    `<text x="${at(left)}" y="${at(top)}" text-anchor="${anchor}" class="${kind ?? ""}">${content}</text>`;
  let drawn = "";
  for (const value of ticks(left.least, left.most, high / 40)) {
    const y = up(left, value);
    drawn += `<line class="grid" x1="${edge.left}" y1="${at(y)}" x2="${at(edge.left + wide)}" y2="${at(y)}"/>`;
    drawn += text(edge.left - 6, y + 4, "end", "", written(value));
  }
  for (const value of ticks(x.least, x.most, wide / 70)) {
    drawn += text(across(value), height - edge.bottom + 16, "middle", "", written(value));
  }
  if (right) {
    for (const value of ticks(right.least, right.most, high / 40)) {
      drawn += text(edge.left + wide + 6, up(right, value) + 4, "start", "", written(value));
    }
    drawn += text(width - 2, 12, "end", right.kind, right.label);
  }
  drawn += text(2, 12, "start", left.kind, left.label) + text(edge.left + wide / 2, height - 4, "middle", "", x.label);
  for (const { points, axis, kind } of lines) {
    const of = axis === "right" ? right : left;
    const path = points.map(([a, b]) => `${at(across(a))},${at(up(of, b))}`).join(" ");
    drawn += `<polyline class="${kind}" points="${path}"/>`;
  }
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.innerHTML = drawn;
}
