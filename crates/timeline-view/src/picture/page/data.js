// The records, read from the page into typed arrays.

const data = JSON.parse(document.getElementById("data").textContent);
const text = number => data.strings[number];

/** Sums up differences. */
function rising(differences) {
  const times = new Float64Array(differences.length);
  let time = 0;
  for (let at = 0; at < times.length; at++) times[at] = time += differences[at];
  return times;
}

/** Lists the slices of each lane, with the latest end up to each, so that the first one in view is found by bisection. */
function lanes(row) {
  const lists = Array.from({ length: row.lanes }, () => []);
  for (let at = 0; at < row.starts.length; at++) lists[row.lane[at]].push(at);
  return lists.map(list => {
    const latest = new Float64Array(list.length);
    let end = 0;
    list.forEach((slice, at) => { latest[at] = end = Math.max(end, row.starts[slice] + row.lengths[slice]); });
    return { slices: Int32Array.from(list), latest };
  });
}

/** Returns the first place in an ascending list whose value is at least (or, if `after`, more than) `value`. */
function bisect(list, value, after = false) {
  let low = 0, high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (list[middle] < value || (after && list[middle] === value)) low = middle + 1;
    else high = middle;
  }
  return low;
}

const OPERATION = 0, SUBMISSION = 1, SPAN = 2, PIECE = 3;

const rows = [];
for (const part of data.parts) {
  // The slice of each operation, and of each submission: [row, slice].
  part.slices = new Map();
  part.submissions = new Map();
  part.before = new Map(part.after.map(([operation, ...before]) => [operation, before]));
  part.behind = new Map();
  for (const [operation, before] of part.before) {
    for (const one of before) {
      if (!part.behind.has(one)) part.behind.set(one, []);
      part.behind.get(one).push(operation);
    }
  }
  let heading = "";
  part.rows.forEach((row, at) => {
    row.part = part;
    row.first = at === 0;
    row.newHeading = row.heading !== heading ? row.heading : "";
    heading = row.heading;
    row.starts = rising(row.starts);
    row.lengths = Float64Array.from(row.lengths);
    row.lane = Uint8Array.from(row.lane);
    row.kinds = Uint8Array.from(row.kinds);
    row.times = rising(row.times);
    row.most = row.values.reduce((most, value) => Math.max(most, value), 0);
    row.lists = lanes(row);
    row.sources.forEach((source, slice) => {
      if (source % 4 === OPERATION) part.slices.set(source >> 2, [row, slice]);
      if (source % 4 === SUBMISSION) part.submissions.set(source >> 2, [row, slice]);
    });
    rows.push(row);
  });
}

/** Returns a length of time with three or four digits. */
function time(nanos) {
  for (const [unit, name] of [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]]) {
    if (nanos >= unit) {
      const value = nanos / unit;
      return value.toFixed(value < 10 ? 3 : value < 100 ? 2 : 1) + " " + name;
    }
  }
  return Math.round(nanos) + " ns";
}

function bytes(count) {
  for (const [power, name] of [[40, "TiB"], [30, "GiB"], [20, "MiB"], [10, "KiB"]]) {
    if (count >= 2 ** power) return +(count / 2 ** power).toFixed(2) + " " + name;
  }
  return count + " B";
}

/** Returns what work is, with its bytes and rate. */
function work(words, count, length) {
  const rate = count && length ? ` at ${(count / length).toFixed(count / length < 10 ? 2 : 1)} GB/s` : "";
  return (count ? bytes(count) + rate + " " : "") + words;
}

const named = (part, operation) => {
  const found = part.slices.get(operation);
  return found ? `${text(found[0].labels[found[1]])} on ${found[0].name}` : "an operation without times";
};

/** Returns the operation that a slice is of or belongs to, or -1. */
function operationOf(row, slice) {
  const source = row.sources[slice], at = source >> 2;
  if (source % 4 === SPAN) return -1;
  return source % 4 === PIECE ? row.part.pieces[at][0] : at;
}

/** Returns the lines about a slice, its label first. */
function describe(row, slice) {
  const { part } = row, source = row.sources[slice], at = source >> 2;
  const start = row.starts[slice], length = row.lengths[slice];
  const lines = [text(row.labels[slice]), `${time(start)} to ${time(start + length)}: ${time(length)}, ${row.name}`];
  if (source % 4 === OPERATION) {
    lines.push(work(text(part.work[at]), part.bytes[at], length), text(part.places[at]));
    const submission = part.submissions.get(at);
    if (submission) {
      const [thread, which] = submission;
      const waited = Math.max(0, start - thread.starts[which] - thread.lengths[which]);
      lines.push(`submitted by ${thread.name} at ${time(thread.starts[which])} in ${time(thread.lengths[which])}, ${time(waited)} before the start`);
    }
    for (const before of part.before.get(at) ?? []) lines.push("waited for " + named(part, before));
    const behind = part.behind.get(at) ?? [];
    for (const after of behind.slice(0, 4)) lines.push("waited for by " + named(part, after));
    if (behind.length > 4) lines.push(`… and by ${behind.length - 4} more`);
  } else if (source % 4 === SUBMISSION) {
    lines.push("submission of " + named(part, at), text(part.places[at]));
  } else if (source % 4 === SPAN) {
    const [place, words, before] = part.spans[at];
    lines.push(text(words), text(place));
    if (before >= 0) lines.push("waited for " + named(part, before));
  } else {
    const [operation, words, count] = part.pieces[at];
    lines.push(work(text(words), count, length), "in " + named(part, operation));
  }
  return lines.filter(line => line !== "");
}
