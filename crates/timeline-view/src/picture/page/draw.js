// The canvas.

const dark = window.matchMedia("(prefers-color-scheme: dark)");
let colours, surfaces = [];

/** Makes the surfaces of the kinds for the light or the dark. */
function dress() {
  const style = getComputedStyle(document.documentElement);
  const of = name => style.getPropertyValue(name).trim();
  colours = { page: of("--page"), text: of("--text"), muted: of("--muted"), line: of("--line") };
  surfaces = data.kinds.map(kind => {
    const [surface, stripe, words] = kind.colours[dark.matches ? 1 : 0];
    return { fill: kind.stripes ? striped(kind.stripes, surface, stripe) : surface, words };
  });
}

/** Makes a pattern of 6 by 6 pixels. */
function striped(path, surface, stripe) {
  const ratio = Math.max(1, Math.round(window.devicePixelRatio || 1));
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6 * ratio;
  const pen = tile.getContext("2d");
  pen.scale(ratio, ratio);
  pen.fillStyle = surface;
  pen.fillRect(0, 0, 6, 6);
  pen.strokeStyle = stripe;
  pen.stroke(new Path2D(path));
  const pattern = pen.createPattern(tile, "repeat");
  pattern.setTransform(new DOMMatrix().scale(1 / ratio));
  return pattern;
}

let asked = false;
function redraw() {
  if (!asked) requestAnimationFrame(() => { asked = false; draw(); });
  asked = true;
}

function draw() {
  const ratio = window.devicePixelRatio || 1, scrolled = scroller.scrollTop;
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.font = FONT;
  pen.fillStyle = colours.page;
  pen.fillRect(0, 0, view.width, view.height);
  const ticks = axis();
  pen.save();
  pen.beginPath();
  pen.rect(view.gutter, AXIS, plotWidth(), view.height - AXIS);
  pen.clip();
  pen.strokeStyle = colours.line;
  pen.beginPath();
  const end = Math.min(view.height, view.bottom - scrolled);
  for (const [x] of ticks) { pen.moveTo(x, AXIS); pen.lineTo(x, end); }
  pen.stroke();
  pen.translate(0, -scrolled);
  const seen = rows.filter(row => row.y + row.height >= scrolled && row.y < scrolled + view.height);
  for (const row of seen) drawRow(row);
  arrows(seen);
  for (const target of [view.kept, view.hovered]) if (target) outline(target);
  pen.restore();
  names(seen, scrolled);
  pen.fillStyle = colours.page;
  pen.fillRect(0, 0, view.width, AXIS);
  pen.fillStyle = colours.muted;
  pen.textAlign = "center";
  for (const [x, words] of ticks) {
    // The last label ends at the edge.
    pen.fillText(words, Math.min(x, view.width - pen.measureText(words).width / 2 - 2), 15);
  }
  pen.textAlign = "left";
  document.getElementById("range").textContent =
    `${time(Math.max(view.from, 0))} to ${time(Math.max(view.to, 0))}, ${time(view.to - view.from)} of ${time(longest)}`;
}

/** Returns the ticks: place and label. */
function axis() {
  const least = (view.to - view.from) / Math.max(plotWidth() / 90, 2);
  let step = 1;
  for (let at = 0; step < least; at++) step = Math.round(step * [2, 2.5, 2][at % 3]);
  const digits = unit => [0, 1, 2, 3].find(digits => Math.round(step * 10 ** digits) % unit === 0);
  const units = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]];
  const [unit, name] = units.find(([unit]) => view.to >= unit && digits(unit) !== undefined) ?? [1, "ns"];
  const ticks = [];
  for (let tick = Math.max(0, Math.ceil(view.from / step) * step); tick <= view.to; tick += step) {
    ticks.push([toX(tick), tick ? (tick / unit).toFixed(digits(unit)) + " " + name : "0"]);
  }
  return ticks;
}

function names(seen, scrolled) {
  for (const row of seen) {
    for (const { y, words, strong } of row.headings) {
      pen.font = (strong ? "600 12px" : "11px") + FONT.slice(4);
      pen.fillStyle = strong ? colours.text : colours.muted;
      pen.fillText(words, 8, y - scrolled);
    }
    pen.font = FONT;
    pen.fillStyle = colours.text;
    pen.fillText(cut(row.name, view.gutter - 20) || "…", 16, row.top + 11.5 - scrolled);
  }
}

/** Returns as much of a text as fits, or "". */
function cut(words, width) {
  if (words.length * 3 > width && width < 28) return "";
  if (pen.measureText(words).width <= width) return words;
  let low = 0, high = Math.min(words.length, Math.ceil(width / 2));
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (pen.measureText(words.slice(0, middle) + "…").width <= width) low = middle;
    else high = middle - 1;
  }
  return low >= 3 ? words.slice(0, low) + "…" : "";
}

const CELL = 2;

function drawRow(row) {
  if (row.times.length) plot(row);
  row.lists.forEach((lane, at) => drawLane(row, lane, row.top + at * (LANE + BETWEEN)));
  let last = [];
  for (const [when, mark] of row.instants) {
    const x = toX(when);
    if (x < view.gutter - 6 || x > view.width || x - (last[mark] ?? -9) < 3) continue;
    last[mark] = x;
    drawMark(mark, x, row.y + 5);
  }
}

/** Draws slices that are wide enough, and for the others the part of each cell that they cover. */
function drawLane(row, lane, y) {
  const pixel = (view.to - view.from) / plotWidth();
  const cells = new Map();
  const isDim = slice => view.labels !== null && !view.labels.has(row.labels[slice]);
  for (let at = bisect(lane.latest, view.from); at < lane.slices.length; at++) {
    const slice = lane.slices[at], start = row.starts[slice], length = row.lengths[slice];
    if (start > view.to) break;
    if (length >= pixel) continue;
    const number = Math.floor((toX(start) - view.gutter) / CELL);
    let cell = cells.get(number);
    if (!cell) cells.set(number, cell = { count: 0, kinds: [], slice });
    cell.count++;
    const kind = isDim(slice) ? data.kinds.length : row.kinds[slice];
    cell.kinds[kind] = (cell.kinds[kind] ?? 0) + Math.max(length, 1);
  }
  for (const [number, { count, kinds, slice }] of cells) {
    const x = view.gutter + number * CELL;
    if (count === 1) {
      surface(kinds.length - 1);
      pen.fillRect(toX(row.starts[slice]), y, 1, LANE);
      continue;
    }
    const sum = kinds.reduce((sum, time) => sum + time, 0);
    const whole = Math.max(LANE * Math.min(sum / (pixel * CELL), 1), 2);
    let bottom = y + LANE;
    kinds.forEach((time, kind) => {
      surface(kind);
      const height = whole * time / sum;
      pen.fillRect(x, bottom -= height, CELL, height);
    });
  }
  for (let at = bisect(lane.latest, view.from); at < lane.slices.length; at++) {
    const slice = lane.slices[at], start = row.starts[slice], length = row.lengths[slice];
    if (start > view.to) break;
    if (length >= pixel) drawSlice(row, slice, y, isDim(slice));
  }
  pen.globalAlpha = 1;
}

/** Takes the surface of a kind; the number after the last kind is for slices that are not searched for. */
function surface(kind) {
  pen.fillStyle = surfaces[kind]?.fill ?? colours.line;
}

function drawSlice(row, slice, y, isDim) {
  const kind = row.kinds[slice];
  // Canvases lose precision far outside.
  const from = Math.max(toX(row.starts[slice]), view.gutter - 10);
  const to = Math.min(toX(row.starts[slice] + row.lengths[slice]), view.width + 10);
  const width = Math.max(to - from, 1);
  pen.globalAlpha = isDim ? 0.25 : 1;
  surface(kind);
  pen.fillRect(from, y, width, LANE);
  if (width >= 3) {
    pen.strokeStyle = data.kinds[kind].framed ? colours.muted : colours.page;
    pen.lineWidth = 1;
    pen.strokeRect(from + 0.5, y + 0.5, width - 1, LANE - 1);
  }
  const left = Math.max(from, view.gutter), room = Math.min(to, view.gutter + plotWidth()) - left - 8;
  if (room < 8) return;
  const { glyph } = data.kinds[kind];
  const label = cut(text(row.labels[slice]), room - (glyph ? 12 : 0));
  pen.fillStyle = surfaces[kind].words;
  if (label || glyph) pen.fillText(label ? glyph + label : glyph.trim(), left + 4, y + LANE - 4.5);
}

function drawMark(mark, x, y) {
  const { class: name, path } = data.marks[mark];
  pen.save();
  pen.translate(x, y);
  const shape = new Path2D(path);
  pen.fillStyle = name.includes("alarm") ? "#d55e00" : name.includes("full") ? colours.text : colours.page;
  pen.strokeStyle = colours.text;
  pen.fill(shape);
  pen.stroke(shape);
  pen.restore();
}

/** Draws a counter as steps, and the value at the right edge. */
function plot(row) {
  const bottom = row.y + PLOT, level = value => bottom - (PLOT - 1) * value / Math.max(row.most, 1);
  pen.beginPath();
  let x = view.gutter, y = bottom;
  const first = Math.max(bisect(row.times, view.from, true) - 1, 0);
  pen.moveTo(Math.max(toX(row.times[first]), x), bottom);
  for (let at = first; at < row.times.length && row.times[at] <= view.to; at++) {
    x = Math.max(toX(row.times[at]), view.gutter);
    pen.lineTo(x, y);
    pen.lineTo(x, y = level(row.values[at]));
  }
  const right = view.gutter + plotWidth();
  pen.lineTo(right, y);
  pen.lineTo(right, bottom);
  pen.fillStyle = pen.strokeStyle = colours.muted;
  pen.globalAlpha = 0.2;
  pen.fill();
  pen.globalAlpha = 1;
  pen.stroke();
  pen.textAlign = "right";
  pen.fillText("max " + bytes(row.most), right - 4, row.y + 11);
  pen.textAlign = "left";
}

function outline({ row, slice }) {
  const from = Math.max(toX(row.starts[slice]), view.gutter - 10);
  const to = Math.min(toX(row.starts[slice] + row.lengths[slice]), view.width + 10);
  pen.strokeStyle = colours.text;
  pen.lineWidth = 2;
  pen.strokeRect(from - 1, row.top + row.lane[slice] * (LANE + BETWEEN) - 1, Math.max(to - from, 1) + 2, LANE + 2);
  pen.lineWidth = 1;
}

const ARROWS = 300;

/** Draws the arrows between rows in view, and those of the slice that is looked at as thick lines. */
function arrows(seen) {
  if (!data.arrows) return;
  const pixel = (view.to - view.from) / plotWidth(), inView = new Set(seen), thin = [];
  for (const part of new Set(seen.map(row => row.part))) {
    for (const [operation, before] of part.before) {
      const to = part.slices.get(operation);
      if (!to || thin.length > ARROWS) continue;
      for (const one of before) {
        const from = part.slices.get(one);
        if (!from) continue;
        const end = from[0].starts[from[1]] + from[0].lengths[from[1]], start = to[0].starts[to[1]];
        // One of the ends has to be seen, in time and among the rows.
        const isSeen = time => time >= view.from && time <= view.to;
        if (!(isSeen(end) || isSeen(start)) || !(inView.has(from[0]) || inView.has(to[0]))) continue;
        const wide = ([row, slice]) => row.lengths[slice] >= 2 * pixel;
        if ((wide(from) && wide(to)) || start - end >= 8 * pixel) thin.push([from, to]);
      }
    }
  }
  pen.strokeStyle = pen.fillStyle = colours.text;
  if (thin.length <= ARROWS) for (const [from, to] of thin) arrow(from, to);
  pen.lineWidth = 2.5;
  for (const target of [view.kept, view.hovered]) {
    if (!target) continue;
    const { part } = target.row, operation = operationOf(target.row, target.slice), own = part.slices.get(operation);
    if (!own) continue;
    for (const one of part.before.get(operation) ?? []) if (part.slices.has(one)) arrow(part.slices.get(one), own);
    for (const one of part.behind.get(operation) ?? []) if (part.slices.has(one)) arrow(own, part.slices.get(one));
    const submission = part.submissions.get(operation);
    if (submission) arrow([submission[0], submission[1]], own, true);
  }
  pen.lineWidth = 1;
}

/** Draws an arrow from the end of a slice to the start of another; a dashed one from a submission. */
function arrow([from, one], [to, other], dashed = false) {
  const y = (row, slice) => row.top + row.lane[slice] * (LANE + BETWEEN);
  const x1 = toX(from.starts[one] + from.lengths[one]), x2 = toX(to.starts[other]);
  let y1 = y(from, one), y2 = y(to, other);
  const down = y2 > y1;
  if (down) y1 += LANE; else y2 += LANE;
  const bend = Math.min(Math.max(Math.abs(y2 - y1) / 2, 6), 30) * (down ? 1 : -1);
  pen.setLineDash(dashed ? [4, 3] : []);
  pen.beginPath();
  pen.moveTo(x1, y1);
  pen.bezierCurveTo(x1, y1 + bend, x2, y2 - bend, x2, y2);
  pen.stroke();
  pen.setLineDash([]);
  const size = down ? -6 : 6;
  pen.beginPath();
  pen.moveTo(x2, y2);
  pen.lineTo(x2 - 3.5, y2 + size);
  pen.lineTo(x2 + 3.5, y2 + size);
  pen.fill();
}

/** Lists the kinds and marks that occur. */
function legend() {
  const list = document.getElementById("legend");
  list.replaceChildren();
  const kinds = new Set(), marks = new Set();
  for (const row of rows) {
    row.kinds.forEach(kind => kinds.add(kind));
    row.instants.forEach(([, mark]) => marks.add(mark));
  }
  const entry = (name, paint) => {
    const item = document.createElement("li"), sign = document.createElement("canvas");
    const ratio = window.devicePixelRatio || 1, own = sign.getContext("2d");
    sign.width = 16 * ratio;
    sign.height = 11 * ratio;
    own.scale(ratio, ratio);
    paint(own);
    item.append(sign, name);
    list.append(item);
  };
  for (const kind of [...kinds].sort((a, b) => a - b)) {
    entry(data.kinds[kind].name, own => {
      own.fillStyle = surfaces[kind].fill;
      own.fillRect(0, 0, 16, 11);
      own.strokeStyle = colours.muted;
      own.strokeRect(0.5, 0.5, 15, 10);
    });
  }
  for (const mark of [...marks].sort((a, b) => a - b)) {
    entry(data.marks[mark].name, own => {
      const { class: name, path } = data.marks[mark], shape = new Path2D(path);
      own.translate(8, 5.5);
      own.fillStyle = name.includes("alarm") ? "#d55e00" : name.includes("full") ? colours.text : colours.page;
      own.strokeStyle = colours.text;
      own.fill(shape);
      own.stroke(shape);
    });
  }
}
