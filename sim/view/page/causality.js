// The causal past and future of an event. An event follows the one before it on its node, and the step that sent its
// message. A message that was lost is an event of nobody: it has a past, and no future.

const Causal = { PAST: 1, FUTURE: 2, SELF: 4 };

const happensOnNode = (run, row) => !(run.flags[row] & Flag.LOST) && run.isProcess[run.node[row]];

// A violation is told right after the event that showed it, and has the past and the future of that one.
function shownBy(run, row) {
  let before = row;
  while (before > 0 && run.flags[before] & Flag.VIOLATION) before--;
  return run.at[before] === run.at[row] ? before : row;
}

function causality(run, selected) {
  const row = shownBy(run, selected);
  const marks = new Uint8Array(run.count);
  if (run.isProcess[run.node[row]]) {
    markPast(run, row, marks);
    if (!(run.flags[row] & Flag.LOST)) markFuture(run, row, marks);
  }
  marks[selected] = Causal.SELF;
  return { run, row, marks };
}

// One pass back: for each node, how far its events belong to the past.
function markPast(run, row, marks) {
  const last = new Int32Array(run.nodes.length).fill(NOTHING);
  const reach = (other) => {
    if (other !== NOTHING) last[run.node[other]] = Math.max(last[run.node[other]], other);
  };
  reach(run.cause[row]);
  if (happensOnNode(run, row)) last[run.node[row]] = row;
  for (let i = row; i >= 0; i--) {
    if (!happensOnNode(run, i) || i > last[run.node[i]]) continue;
    marks[i] |= Causal.PAST;
    reach(run.cause[i]);
  }
}

// One pass forward: for each node, from where on its events belong to the future.
function markFuture(run, row, marks) {
  const reached = new Uint8Array(run.nodes.length);
  reached[run.node[row]] = 1;
  marks[row] |= Causal.FUTURE;
  for (let i = row + 1; i < run.count; i++) {
    const cause = run.cause[i];
    const isCaused = cause !== NOTHING && cause >= row && marks[cause] & Causal.FUTURE;
    if (isCaused && happensOnNode(run, i)) reached[run.node[i]] = 1;
    if (isCaused || (happensOnNode(run, i) && reached[run.node[i]])) marks[i] |= Causal.FUTURE;
  }
}

function causalCounts(causal) {
  let [past, future] = [0, 0];
  for (const mark of causal.marks) {
    past += mark & Causal.PAST ? 1 : 0;
    future += mark & Causal.FUTURE ? 1 : 0;
  }
  return { past, future };
}
