// What is shown: the window of the axis, the lanes from top to bottom, and where an event is on the canvas.

const GUTTER = 104;
const RULER = 22;
const app = {
  runs: [], difference: null, partition: "", causal: null, selected: null, pointer: null, hits: [], wanted: "",
  hidden: { nodes: new Set(), kinds: new Set() },
  // The window in microseconds, or in events if `order` is set.
  view: { from: 0, to: 1, order: false, scroll: 0 },
  lanes: [], lanesHeight: 0, size: { width: 0, height: 0, overviewHeight: 0, logsWidth: 0 },
};

// An event is in the middle of its unit, so that the first and the last one are seen whole.
const place = (run, row) => (app.view.order ? row + 0.5 : run.at[row]);

function placeOfSending(run, row) {
  if (!app.view.order) return run.sent[row];
  return run.cause[row] === NOTHING ? row + 0.5 : run.cause[row] + 0.5;
}

// The last row at or before a place of the axis; NOTHING before the first one.
function rowAt(run, position) {
  if (app.view.order) return Math.min(run.count, Math.max(0, Math.floor(position + 0.5))) - 1;
  return upperBound(run.at, position, run.count) - 1;
}

const scale = () => (app.size.width - GUTTER) / (app.view.to - app.view.from);
const xOf = (position) => GUTTER + (position - app.view.from) * scale();
const positionAt = (x) => app.view.from + (x - GUTTER) / scale();

function wholeExtent() {
  let [from, to] = [Infinity, -Infinity];
  for (const run of app.runs) {
    if (!run.count) continue;
    from = Math.min(from, app.view.order ? 0 : run.at[0]);
    to = Math.max(to, app.view.order ? run.count : run.at[run.count - 1]);
  }
  if (from > to) [from, to] = [0, 1];
  const margin = Math.max((to - from) * 0.01, 1);
  return { from: from - margin, to: to + margin };
}

// Show a window, moved and cut to what there is; at least 20 microseconds or 4 events wide.
function showWindow(from, to) {
  const whole = wholeExtent();
  const width = Math.min(Math.max(to - from, app.view.order ? 4 : 20), whole.to - whole.from);
  const first = Math.min(Math.max((from + to - width) / 2, whole.from), whole.to - width);
  app.view.from = first;
  app.view.to = first + width;
  redraw();
}

function showAll() {
  const whole = wholeExtent();
  showWindow(whole.from, whole.to);
}

function zoom(factor, around) {
  const { from, to } = app.view;
  showWindow(around - (around - from) * factor, around + (to - around) * factor);
}

function pan(share) {
  const step = (app.view.to - app.view.from) * share;
  showWindow(app.view.from + step, app.view.to + step);
}

// Bring a place into the middle half of the window, without a change of the zoom.
function reveal(position) {
  const { from, to } = app.view;
  const width = to - from;
  if (position < from + width / 8 || position > to - width / 8) showWindow(position - width / 2, position + width / 2);
}

function setAxis(order) {
  if (app.view.order === order) return;
  const run = (app.selected || app).run || app.runs[0];
  const rows = [app.view.from, app.view.to].map((position) => Math.max(0, rowAt(run, position)));
  app.view.order = order;
  if (run.count) showWindow(place(run, rows[0]), place(run, rows[1]));
}

// Lanes: the faults of links, the world's events, the partition as the controller has it, then the nodes.
const GROUPS = ["controller", "broker", "producer", "consumer", "seeker", "admin"];
const groupOf = (name) => GROUPS.findIndex((group) => name.startsWith(group));

function nodesOf(run) {
  const rank = (name) => [groupOf(name) < 0 ? GROUPS.length : groupOf(name), Number(/\d+$/.exec(name) || 0)];
  const names = run.nodes.filter((name) => !["world", "network"].includes(name) && !app.hidden.nodes.has(name));
  return names.sort((a, b) => rank(a)[0] - rank(b)[0] || rank(a)[1] - rank(b)[1]);
}

const replicaOf = (run, name) => run.partitions[app.partition]?.replicas[name];

function layOut() {
  const shown = app.runs.map((run) => nodesOf(run));
  const tracks = app.runs.reduce((sum, run, i) => sum + shown[i].filter((name) => replicaOf(run, name)).length, 0);
  const fixed = shown.reduce((sum, names) => sum + names.length * 24 + 64, RULER);
  const links = app.runs.reduce((sum, run) => sum + run.linkRows * 17, 0);
  const track = Math.min(110, Math.max(34, (app.size.height - fixed - links - 16) / Math.max(1, tracks)));
  app.lanes = [];
  let y = RULER;
  const add = (lane) => {
    app.lanes.push({ ...lane, y });
    y += lane.height;
  };
  app.runs.forEach((run, i) => {
    if (app.runs.length > 1) add({ run, kind: "run", height: 20 });
    if (run.linkRows) add({ run, kind: "links", height: run.linkRows * 17 + 4 });
    add({ run, kind: "world", height: 20 });
    if (app.partition in run.partitions) add({ run, kind: "partition", height: 22 });
    for (const name of shown[i]) {
      add({ run, kind: "node", name, node: run.nodes.indexOf(name), height: 24 });
      if (replicaOf(run, name)) add({ run, kind: "track", name, height: track });
    }
  });
  app.lanesHeight = y;
  app.view.scroll = Math.max(0, Math.min(app.view.scroll, y - app.size.height));
  for (const run of app.runs) run.laneY = laneMiddles(run);
}

// The middle of each node's lane by the node's number; undefined for a node without a lane.
function laneMiddles(run) {
  const middles = new Array(run.nodes.length);
  for (const lane of app.lanes) if (lane.kind === "node" && lane.run === run) middles[lane.node] = lane.y + 12;
  return middles;
}

// Rows for the spans of links, so that no two overlap; at most four.
function stackLinkSpans(run) {
  const ends = [];
  for (const span of run.spans) {
    if (span.lane !== "links") continue;
    const free = ends.findIndex((end) => end <= span.first);
    span.row = free >= 0 ? free : Math.min(ends.length, 3);
    ends[span.row] = span.end;
  }
  run.linkRows = ends.length;
}
