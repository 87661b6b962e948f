// Events as dots and messages as arrows from the step that sent them. A window with more events than can be told apart
// shows how many there are on each lane instead, and only the messages that were lost, doubled, refused or slow.

const MOST_ARROWS = 5000;
const MOST_HEADS = 1200;
const MOST_WORDS = 60;
const CLASSES = ["metadata", "control", "fetch", "produce", "failed"];

function classOf(kind) {
  if (/^(Produce|InitProducerId)/.test(kind)) return "produce";
  if (/^Fetch(Request|Response)$/.test(kind)) return "fetch";
  return /Metadata|Heartbeat/.test(kind) ? "metadata" : "control";
}

function drawEvents(run, visible) {
  if (visible.end - visible.first <= MOST_ARROWS) {
    const rows = shownRows(run, visible);
    drawArrows(run, arrowRows(run, visible), rows.length);
    drawDots(run, rows);
    if (rows.length <= MOST_WORDS) drawWords(run, rows);
  } else {
    drawDensity(run, visible);
    drawArrows(run, strikingRows(run, visible), MOST_ARROWS);
  }
  drawHits(run, visible);
}

function shownRows(run, { first, end }) {
  const rows = [];
  for (let row = first; row < end; row++) if (run.shown[row]) rows.push(row);
  return rows;
}

// The rows in the window with an arrow, and those after it whose message was sent in the window or before.
function arrowRows(run, { first, end }) {
  const rows = [];
  // What was sent until then has come this much later, or is one of the slow.
  const lastAt = (app.view.order ? run.at[end - 1] : app.view.to) + SLOW_US;
  for (let row = first; row < end; row++) if (run.shown[row] && hasArrow(run, row)) rows.push(row);
  for (let row = end; row < run.count && run.at[row] <= lastAt && rows.length < 2 * MOST_ARROWS; row++) {
    if (run.shown[row] && hasArrow(run, row) && placeOfSending(run, row) < app.view.to) rows.push(row);
  }
  const place = upperBound(run.slow, end - 1);
  for (const row of run.slow.slice(place, place + MOST_ARROWS)) {
    if (run.shown[row] && placeOfSending(run, row) < app.view.to) rows.push(row);
  }
  return rows;
}

const hasArrow = (run, row) => isMessage(run, row) || Boolean(run.flags[row] & Flag.LOST);

function strikingRows(run, { first, end }) {
  const rows = [];
  for (const row of run.strikingRows) if (row >= first && row < end && run.shown[row]) rows.push(row);
  return rows.length <= MOST_ARROWS ? rows : [];
}

// Lost and doubled messages, and slow ones. Refusals are too many in a long fault to be drawn at every zoom.
function strikingRowsOf(run) {
  const rows = new Set(run.slow);
  for (let row = 0; row < run.count; row++) {
    if (run.flags[row] & (Flag.LOST | Flag.DUPLICATE)) rows.add(row);
  }
  return Int32Array.from(rows).sort();
}

// Draws arrows class by class: few strokes with long paths are much faster than many with short ones.
function drawArrows(run, rows, shownCount) {
  const marks = app.causal && app.causal.run === run ? app.causal.marks : null;
  for (const wanted of marks ? [false, true] : [true]) {
    for (const name of CLASSES) {
      const chosen = rows.filter((row) => arrowClass(run, row) === name && (!marks || Boolean(marks[row]) === wanted));
      context.globalAlpha = wanted ? 1 : 0.13;
      strokeArrows(run, chosen, colours[name], marks && wanted ? 1.6 : 1, shownCount);
    }
  }
  context.globalAlpha = 1;
}

function arrowClass(run, row) {
  return run.flags[row] & (Flag.LOST | Flag.FAILED) ? "failed" : run.classes[run.kind[row]];
}

function strokeArrows(run, rows, colour, width, shownCount) {
  if (!rows.length) return;
  context.strokeStyle = context.fillStyle = colour;
  context.lineWidth = width;
  const heads = [];
  context.beginPath();
  for (const row of rows) {
    const arrow = arrowOf(run, row);
    if (!arrow) continue;
    context.moveTo(arrow.x1, arrow.y1);
    context.lineTo(arrow.x2, arrow.y2);
    if (arrow.isLost) cross(arrow.x2, arrow.y2);
    else if (shownCount <= MOST_HEADS || run.flags[row] & Flag.DUPLICATE) heads.push([arrow, run.flags[row]]);
  }
  context.stroke();
  context.beginPath();
  for (const [arrow, flags] of heads) {
    head(arrow, 0);
    if (flags & Flag.DUPLICATE) head(arrow, 7);
  }
  context.fill();
}

// Where an arrow begins and ends; a lost message ends on half its way. Null without lanes for both ends.
function arrowOf(run, row) {
  const y1 = run.laneY[run.source[row]];
  const y2 = run.laneY[run.node[row]];
  if (y1 === undefined || y2 === undefined) return null;
  const x1 = xOf(placeOfSending(run, row));
  const x2 = xOf(place(run, row));
  if (!(run.flags[row] & Flag.LOST)) return { x1, y1, x2, y2, isLost: false };
  return { x1, y1, x2: x1 + 14, y2: y1 + (y2 - y1) * 0.5, isLost: true };
}

function cross(x, y) {
  for (const slope of [-1, 1]) {
    context.moveTo(x - 4, y - 4 * slope);
    context.lineTo(x + 4, y + 4 * slope);
  }
}

function head({ x1, y1, x2, y2 }, back) {
  const length = Math.hypot(x2 - x1, y2 - y1);
  if (length < 6) return;
  const [dx, dy] = [(x2 - x1) / length, (y2 - y1) / length];
  const [x, y] = [x2 - dx * back, y2 - dy * back];
  context.moveTo(x, y);
  context.lineTo(x - dx * 8 - dy * 3, y - dy * 8 + dx * 3);
  context.lineTo(x - dx * 8 + dy * 3, y - dy * 8 - dx * 3);
  context.lineTo(x, y);
}

function drawDots(run, rows) {
  const marks = app.causal && app.causal.run === run ? app.causal.marks : null;
  const size = rows.length > 1500 ? 1 : rows.length > 300 ? 1.8 : 2.8;
  for (const row of rows) {
    const y = run.laneY[run.node[row]];
    if (y === undefined || run.flags[row] & Flag.LOST) continue;
    const isTold = run.flags[row] & Flag.TOLD;
    context.fillStyle = run.flags[row] & Flag.FAILED ? colours.failed : isTold ? colours.ink : colours.life;
    if (marks && marks[row]) context.fillStyle = colours[marks[row] & Causal.PAST ? "produce" : marks[row] & Causal.SELF ? "selected" : "fetch"];
    else if (marks) context.globalAlpha = 0.25;
    const radius = isTold ? size + 1 : size;
    context.fillRect(xOf(place(run, row)) - radius, y - radius, 2 * radius, 2 * radius);
    context.globalAlpha = 1;
  }
  if (app.selected && app.selected.run === run) ring(run, app.selected.row, colours.selected);
}

function ring(run, row, colour) {
  const y = run.laneY[run.node[row]];
  if (y === undefined) return;
  context.strokeStyle = colour;
  context.lineWidth = 2;
  context.beginPath();
  context.arc(xOf(place(run, row)), y, 7, 0, 2 * Math.PI);
  context.stroke();
}

// The words of messages at the middle of their arrows, where there is room for them.
function drawWords(run, rows) {
  const taken = [];
  context.textAlign = "center";
  for (const row of rows) {
    const arrow = hasArrow(run, row) && arrowOf(run, row);
    if (!arrow || Math.abs(arrow.x2 - arrow.x1) + Math.abs(arrow.y2 - arrow.y1) < 40) continue;
    const text = shortKind(run.kinds[run.kind[row]]);
    const [x, y] = [arrow.x1 + (arrow.x2 - arrow.x1) * 0.6, arrow.y1 + (arrow.y2 - arrow.y1) * 0.6];
    const half = context.measureText(text).width / 2 + 3;
    if (x - half < GUTTER || taken.some((other) => Math.abs(other.y - y) < 14 && Math.abs(other.x - x) < other.half + half)) continue;
    taken.push({ x, y, half });
    context.fillStyle = colours.ground;
    context.globalAlpha = 0.85;
    context.fillRect(x - half, y - 7, 2 * half, 14);
    context.globalAlpha = 1;
    context.fillStyle = colours[arrowClass(run, row)];
    context.fillText(text, x, y);
  }
  context.textAlign = "left";
}

const shortKind = (kind) => kind.replace(/Request$/, "?").replace(/Response$/, "");

// How many events each lane has in each pixel, as an area around its life line.
function drawDensity(run, { first, end }) {
  const width = Math.ceil(app.size.width - GUTTER);
  const bins = run.laneY.map((y) => (y === undefined ? null : new Uint16Array(width + 1)));
  const factor = scale();
  for (let row = first; row < end; row++) {
    const bin = run.shown[row] && bins[run.node[row]];
    if (bin) bin[((app.view.order ? row + 0.5 : run.at[row]) - app.view.from) * factor | 0]++;
  }
  context.fillStyle = colours.density;
  context.globalAlpha = 0.8;
  bins.forEach((bin, node) => bin && fillDensity(bin, run.laneY[node]));
  context.globalAlpha = 1;
}

function fillDensity(bin, y) {
  const height = (count) => Math.min(11, 2 * Math.log2(1 + count));
  // Pixels of one height are one rectangle: that is much faster to fill than an outline of thousands of points.
  for (let x = 0, from = 0; x < bin.length; x = from) {
    const size = Math.round(height(bin[x]));
    while (from < bin.length && Math.round(height(bin[from])) === size) from++;
    if (size) context.fillRect(GUTTER + x, y - size, from - x, 2 * size);
  }
}

function drawHits(run, visible) {
  const rows = app.hits[run.number] || [];
  const from = upperBound(rows, visible.first - 1);
  const end = upperBound(rows, visible.end - 1);
  const few = end - from <= 300;
  context.fillStyle = colours.hit;
  let last = -1;
  for (let i = from; i < end; i++) {
    const x = Math.round(xOf(place(run, rows[i])));
    if (few) ring(run, rows[i], colours.hit);
    else if (x !== last && run.laneY[run.node[rows[i]]] !== undefined) context.fillRect(x, run.laneY[run.node[rows[i]]] - 9, 1, 18);
    last = x;
  }
}
