// Reads what the page holds: each run as columns of numbers (one row an event), its lines, and its state as JSON.

const Flag = { LOST: 1, DUPLICATE: 2, FAILED: 4, VIOLATION: 8, FAULT: 16, TOLD: 32 };
const NOTHING = -1;
const ARRAYS = { d: Float64Array, h: Int16Array, i: Int32Array, B: Uint8Array };

async function inflate(base64) {
  const packed = atob(base64);
  const bytes = new Uint8Array(packed.length);
  for (let i = 0; i < packed.length; i++) bytes[i] = packed.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).arrayBuffer();
}

async function readRun(stored, number) {
  const state = JSON.parse(new TextDecoder().decode(await inflate(stored.state)));
  const run = { ...state, number, count: state.count };
  for (const [name, column] of Object.entries(stored.columns)) {
    run[name] = new ARRAYS[column.type](await inflate(column.data));
  }
  const bytes = new Uint8Array(await inflate(stored.text));
  run.lineStart = lineStarts(bytes, run.count);
  // Traces are ASCII, so a position in the bytes is one in the string.
  run.text = new TextDecoder("latin1").decode(bytes);
  run.slow = slowMessages(run);
  run.shown = new Uint8Array(run.count).fill(1);
  for (const partition of Object.values(run.partitions)) {
    for (const replica of Object.values(partition.replicas)) prepareReplica(replica);
  }
  return run;
}

function lineStarts(bytes, count) {
  const starts = new Uint32Array(count + 1);
  let line = 0;
  for (let i = 0; i < bytes.length; i++) if (bytes[i] === 10) starts[++line] = i + 1;
  if (line !== count) throw new Error(`the page has ${line} lines for ${count} events`);
  return starts;
}

const lineOf = (run, row) => run.text.slice(run.lineStart[row], run.lineStart[row + 1] - 1);
const membersOf = (run, row) => JSON.parse(lineOf(run, row));
const isMessage = (run, row) => run.source[row] !== NOTHING && run.sent[row] >= 0;
const timeText = (us) => `${(us / 1e6).toFixed(6)} s`;

// Messages that were on their way for longer than most: they cross windows in which they neither leave nor arrive.
const SLOW_US = 50_000;

function slowMessages(run) {
  const rows = [];
  for (let row = 0; row < run.count; row++) {
    if (isMessage(run, row) && run.at[row] - run.sent[row] > SLOW_US) rows.push(row);
  }
  return rows;
}

// The first place in sorted numbers (of which there are `length`) that is above the value.
function upperBound(sorted, value, length = sorted.length) {
  let low = 0;
  let high = length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (sorted[middle] <= value) low = middle + 1;
    else high = middle;
  }
  return low;
}
