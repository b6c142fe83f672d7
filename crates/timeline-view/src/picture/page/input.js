// Pointer, wheel, keys, buttons and search.

const tip = document.getElementById("tip");
const details = document.getElementById("details");
const search = document.getElementById("search");
const found = document.getElementById("found");

/** Writes lines into an element, the first in bold. Labels are text, whatever is in them. */
function write(element, lines, between) {
  const first = document.createElement("b");
  first.textContent = lines[0] ?? "";
  element.replaceChildren(first, lines.slice(1).map(line => between + line).join(""));
}

function keep(target) {
  view.kept = target;
  if (target) write(details, describe(target.row, target.slice), " · ");
  else details.replaceChildren();
  redraw();
}

/** Returns the instant near a place of the canvas: its lines. */
function instantAt(x, y) {
  const top = y + scroller.scrollTop;
  const row = rows.find(row => row.instants.length && top >= row.y && top < row.y + MARKS);
  const instant = row?.instants.find(([when]) => Math.abs(toX(when) - x) < 6);
  return instant && text(instant[2]).split("\n");
}

/** Returns the counter's value at a place of the canvas, as lines. */
function valueAt(x, y) {
  const top = y + scroller.scrollTop;
  const row = rows.find(row => row.times.length && top >= row.y && top < row.y + PLOT);
  const at = row && x >= view.gutter ? bisect(row.times, toTime(x), true) - 1 : -1;
  return at >= 0 ? [row.name, `${bytes(row.values[at])} at ${time(Math.max(toTime(x), 0))}`] : null;
}

function hover(x, y, pageX, pageY) {
  const target = hit(x, y), before = view.hovered;
  view.hovered = target;
  let lines = target ? describe(target.row, target.slice) : instantAt(x, y) ?? valueAt(x, y);
  if (target?.count > 1) lines = [...lines, `${target.count} slices here are narrower than a pixel: zoom in`];
  tip.hidden = !lines;
  if (lines) {
    write(tip, lines, "\n");
    const { width, height } = tip.getBoundingClientRect();
    tip.style.left = Math.max(4, Math.min(pageX + 14, window.innerWidth - width - 4)) + "px";
    tip.style.top = (pageY + 18 + height < window.innerHeight ? pageY + 18 : Math.max(4, pageY - height - 10)) + "px";
  }
  if (before?.slice !== target?.slice || before?.row !== target?.row) redraw();
}

function leave() {
  tip.hidden = true;
  if (view.hovered) { view.hovered = null; redraw(); }
}

// Pointers that are down, by their number: where each was last.
const down = new Map();
let moved = 0;

canvas.addEventListener("pointerdown", event => {
  canvas.setPointerCapture(event.pointerId);
  down.set(event.pointerId, { x: event.offsetX, y: event.offsetY });
  moved = down.size > 1 ? Infinity : 0;
});

canvas.addEventListener("pointermove", event => {
  const { offsetX: x, offsetY: y } = event, last = down.get(event.pointerId);
  if (!last) return hover(x, y, event.clientX, event.clientY);
  const others = [...down].filter(([id]) => id !== event.pointerId).map(([, where]) => where);
  if (others.length === 1) {
    const [other] = others, before = Math.abs(last.x - other.x), now = Math.abs(x - other.x);
    if (before > 4 && now > 4) zoom(now / before, (x + other.x) / 2);
  } else if (others.length === 0) {
    moved += Math.abs(x - last.x) + Math.abs(y - last.y);
    if (moved > 3) {
      leave();
      canvas.classList.add("moving");
      move(last.x - x);
      if (event.pointerType === "mouse") scroller.scrollTop += last.y - y;
    }
  }
  down.set(event.pointerId, { x, y });
});

const release = event => {
  if (event.type === "pointerup" && down.has(event.pointerId) && moved <= 3) {
    const target = hit(event.offsetX, event.offsetY);
    keep(target && { row: target.row, slice: target.slice });
  }
  down.delete(event.pointerId);
  canvas.classList.remove("moving");
};
canvas.addEventListener("pointerup", release);
canvas.addEventListener("pointercancel", release);
canvas.addEventListener("pointerleave", leave);

canvas.addEventListener("wheel", event => {
  // Over the names, the wheel scrolls the rows.
  if (event.offsetX < view.gutter && !event.ctrlKey) return;
  event.preventDefault();
  const unit = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? 400 : 1;
  if (!event.ctrlKey && Math.abs(event.deltaX) > Math.abs(event.deltaY)) move(event.deltaX * unit);
  // A pinch on a touchpad comes as small steps with the control key.
  else zoom(Math.exp(-event.deltaY * unit * (event.ctrlKey ? 0.01 : 0.002)), event.offsetX);
  hover(event.offsetX, event.offsetY, event.clientX, event.clientY);
}, { passive: false });

/** Keeps the next slice of the row, or the previous one. */
function step(by) {
  const { row, slice } = view.kept ?? { row: rows.find(row => row.starts.length), slice: -1 };
  if (!row) return;
  const list = row.lists[slice < 0 ? 0 : row.lane[slice]].slices, next = list[slice < 0 ? 0 : list.indexOf(slice) + by];
  if (next === undefined) return;
  keep({ row, slice: next });
  reveal(row, next);
}

const keys = {
  "+": () => zoom(1.5), "=": () => zoom(1.5), "-": () => zoom(1 / 1.5), w: () => zoom(1.5), s: () => zoom(1 / 1.5),
  ArrowLeft: () => move(-100), ArrowRight: () => move(100), a: () => move(-100), d: () => move(100),
  0: () => show(0, longest), Home: () => show(0, longest),
  ".": () => step(1), ",": () => step(-1), Escape: () => { keep(null); leave(); },
};

document.addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target === search) {
    if (event.key === "Enter") { event.preventDefault(); next(event.shiftKey ? -1 : 1); }
    if (event.key === "Escape") { search.value = ""; look(); canvas.focus(); }
    return;
  }
  if (event.key === "/") { event.preventDefault(); search.focus(); search.select(); return; }
  if (event.key === "Enter" && event.target === canvas) return next(event.shiftKey ? -1 : 1);
  const action = keys[event.key];
  if (action) { event.preventDefault(); action(); }
});

for (const [id, action] of [
  ["in", keys["+"]], ["out", keys["-"]], ["left", keys.ArrowLeft], ["right", keys.ArrowRight], ["all", keys[0]],
]) document.getElementById(id).addEventListener("click", action);

// The slices that are found, in the order of the rows, and the one that was shown last.
let matches = [], shown = -1;

function look() {
  view.search = search.value.trim().toLowerCase();
  [matches, shown] = [[], -1];
  view.labels = null;
  if (view.search) {
    view.labels = new Set();
    data.strings.forEach((string, number) => {
      if (string.toLowerCase().includes(view.search)) view.labels.add(number);
    });
    for (const row of rows) {
      row.labels.forEach((label, slice) => { if (view.labels.has(label)) matches.push([row, slice]); });
    }
  }
  found.textContent = view.search ? `${matches.length} found` : "";
  redraw();
}

function next(by) {
  if (!matches.length) return;
  shown = shown < 0 && by < 0 ? matches.length - 1 : (shown + by + matches.length) % matches.length;
  const [row, slice] = matches[shown];
  found.textContent = `${shown + 1} of ${matches.length}`;
  keep({ row, slice });
  reveal(row, slice);
}

search.addEventListener("input", look);
scroller.addEventListener("scroll", redraw);
dark.addEventListener("change", () => { dress(); legend(); redraw(); });
new ResizeObserver(resize).observe(scroller);
dress();
legend();
resize();
