// The view: the window of time, and the places of the rows.

const LANE = 16, BETWEEN = 2, MARKS = 12, PLOT = 30, SPACE = 5, HEADING = 19, AXIS = 24, RIGHT = 14;

const canvas = document.getElementById("canvas");
const scroller = document.getElementById("scroll");
const pen = canvas.getContext("2d");
const FONT = "11px system-ui, 'Segoe UI', Helvetica, Arial, sans-serif";

const view = {
  from: data.from, to: data.to, width: 0, height: 0, gutter: 100,
  // The slice that details are kept of, and the one under the pointer: {row, slice}, or null.
  kept: null, hovered: null,
  // The text that is searched for, and the numbers of the labels that have the text.
  search: "", labels: null,
};
const longest = data.parts.reduce((most, part) => Math.max(most, part.length), 1);

/** Gives each row its place from the top of everything. */
function layOut() {
  pen.font = FONT;
  const widest = rows.reduce((most, row) => Math.max(most, pen.measureText(row.name).width), 0);
  view.gutter = Math.round(Math.min(Math.max(widest + 28, 70), Math.max(view.width / 4, 70)));
  let y = AXIS;
  for (const row of rows) {
    row.headings = [];
    const heading = (words, strong) => { row.headings.push({ y: y + HEADING - 6, words, strong }); y += HEADING; };
    if (row.first) {
      if (row.part !== data.parts[0]) y += SPACE;
      if (row.part.name) heading(`${row.part.name}: ${time(row.part.length)}`, true);
      if (row.part.lost) heading(`${row.part.lost} records were lost, because they came too fast`, false);
    }
    if (row.newHeading) heading(row.newHeading, false);
    row.y = y;
    row.top = y + (row.instants.length ? MARKS : 0);
    const inLanes = row.lanes ? row.lanes * (LANE + BETWEEN) - BETWEEN : 0;
    row.height = row.times.length ? PLOT : row.top - y + inLanes;
    y += row.height + SPACE;
  }
  view.bottom = y + SPACE;
  document.getElementById("space").style.height = Math.max(view.bottom, 1) + "px";
}

function resize() {
  const ratio = window.devicePixelRatio || 1;
  view.width = scroller.clientWidth;
  view.height = scroller.clientHeight;
  canvas.style.height = view.height + "px";
  canvas.width = Math.round(view.width * ratio);
  canvas.height = Math.round(view.height * ratio);
  layOut();
  redraw();
}

const plotWidth = () => Math.max(view.width - view.gutter - RIGHT, 1);
const toX = time => view.gutter + (time - view.from) / (view.to - view.from) * plotWidth();
const toTime = x => view.from + (x - view.gutter) / plotWidth() * (view.to - view.from);

/** Shows a window of time, but nothing shorter than 20 ns, and little outside of the timelines. */
function show(from, to) {
  const margin = Math.max(longest * 0.05, 10);
  const length = Math.min(Math.max(to - from, 20), longest + 2 * margin);
  view.from = Math.min(Math.max((from + to - length) / 2, -margin), longest + margin - length);
  view.to = view.from + length;
  redraw();
}

/** Zooms around the time under `x`. */
function zoom(factor, x) {
  const time = toTime(x ?? view.gutter + plotWidth() / 2);
  show(time - (time - view.from) / factor, time + (view.to - time) / factor);
}

const move = pixels => {
  const time = pixels / plotWidth() * (view.to - view.from);
  show(view.from + time, view.to + time);
};

/** Makes a slice visible, large enough to be seen. */
function reveal(row, slice) {
  const start = row.starts[slice], length = row.lengths[slice], middle = start + length / 2;
  let shown = view.to - view.from;
  if (length / shown * plotWidth() < 30 || length > shown) shown = Math.max(length * 8, 20);
  if (start < view.from || start + length > view.to || shown !== view.to - view.from) {
    show(middle - shown / 2, middle + shown / 2);
  }
  const top = row.top + row.lane[slice] * (LANE + BETWEEN);
  if (top < scroller.scrollTop + AXIS) scroller.scrollTop = top - AXIS - 20;
  if (top + LANE > scroller.scrollTop + view.height) scroller.scrollTop = top + LANE + 20 - view.height;
}

/** Returns the slice at a place of the canvas: {row, slice, count}, where `count` slices are too narrow to be told apart. */
function hit(x, y) {
  if (x < view.gutter || y < AXIS) return null;
  const top = y + scroller.scrollTop;
  const row = rows.find(row => top >= row.y && top < row.y + row.height + SPACE);
  const lane = row && row.lists[Math.floor((top - row.top) / (LANE + BETWEEN))];
  if (!lane || top < row.top) return null;
  const time = toTime(x), pixel = (view.to - view.from) / plotWidth();
  let best = null, distance = 3 * pixel, count = 0;
  for (let at = bisect(lane.latest, time - 2 * pixel); at < lane.slices.length; at++) {
    const slice = lane.slices[at], start = row.starts[slice], end = start + row.lengths[slice];
    if (start > time + 3 * pixel) break;
    const away = Math.max(start - time, time - end, 0);
    if (away < distance || (away === 0 && distance === 0)) { best = slice; distance = away; }
    if (end - start < pixel && away < pixel) count++;
  }
  return best === null ? null : { row, slice: best, count };
}
