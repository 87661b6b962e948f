// Draws the diagram. Only what is in the window is looked at: rows are found by binary search, because a trace is in the
// order of time. A frame is drawn at most once for each refresh of the screen.

const colours = {};
let context = null;
let isDue = false;

function readColours() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["ground", "panel", "ink", "faint", "grid", "rule", "life", "produce", "fetch", "metadata", "control",
    "failed", "violation", "fault", "fault-band", "down", "paused", "hit", "log-end", "high-watermark", "density", "cursor",
    "selected", "epoch-unknown", "epoch-ink"]) {
    colours[name] = style.getPropertyValue(`--${name}`).trim();
  }
  colours.epochs = Array.from({ length: 8 }, (_, i) => style.getPropertyValue(`--epoch-${i}`).trim());
}

const epochColour = (epoch) => (epoch < 0 ? colours["epoch-unknown"] : colours.epochs[epoch % colours.epochs.length]);

function redraw() {
  if (isDue) return;
  isDue = true;
  requestAnimationFrame(() => {
    isDue = false;
    drawAll();
  });
}

function drawAll() {
  const start = performance.now();
  layOut();
  drawDiagram();
  drawOverviewWindow();
  drawLogs();
  markStory();
  app.frameMs = performance.now() - start;
}

function fitCanvas(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
  }
  const drawing = canvas.getContext("2d");
  drawing.setTransform(ratio, 0, 0, ratio, 0, 0);
  drawing.font = "12px system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif";
  drawing.textBaseline = "middle";
  return drawing;
}

function drawDiagram() {
  const canvas = document.getElementById("canvas");
  const { width, height } = app.size;
  context = fitCanvas(canvas, width, height);
  context.fillStyle = colours.ground;
  context.fillRect(0, 0, width, height);
  context.save();
  context.beginPath();
  context.rect(0, RULER, width, height - RULER);
  context.clip();
  context.translate(0, -app.view.scroll);
  drawGrid();
  for (const run of app.runs) {
    const visible = windowOf(run);
    drawSpans(run);
    for (const lane of app.lanes) if (lane.run === run) drawLane(lane, visible);
    drawEvents(run, visible);
    drawMoments(run, visible);
  }
  drawCursor();
  drawLabels();
  context.restore();
  drawRuler();
}

// The rows in the window, from `first` to `end` (exclusive).
function windowOf(run) {
  const first = rowAt(run, app.view.from) + 1;
  return { first: Math.max(0, first), end: Math.max(first, rowAt(run, app.view.to) + 1) };
}

// Steps of the axis: 1, 2 or 5 times a power of ten, at least 90 pixels apart.
function ticks() {
  const least = 90 / scale();
  const power = 10 ** Math.floor(Math.log10(least));
  const step = Math.max(app.view.order ? 1 : 1, [1, 2, 5, 10].map((n) => n * power).find((n) => n >= least));
  const found = [];
  for (let at = Math.ceil(Math.max(0, app.view.from) / step) * step; at <= app.view.to; at += step) found.push(at);
  return { step, found };
}

function drawGrid() {
  context.strokeStyle = colours.grid;
  context.lineWidth = 1;
  context.beginPath();
  for (const at of ticks().found) {
    const x = Math.round(xOf(at)) + 0.5;
    context.moveTo(x, RULER);
    context.lineTo(x, app.lanesHeight + app.size.height);
  }
  context.stroke();
}

function drawRuler() {
  context.fillStyle = colours.panel;
  context.fillRect(0, 0, app.size.width, RULER);
  context.fillStyle = colours.faint;
  context.textAlign = "center";
  const { step, found } = ticks();
  const digits = Math.max(0, 6 - Math.floor(Math.log10(step)));
  for (const at of found) {
    context.fillText(app.view.order ? `#${Math.round(at)}` : `${(at / 1e6).toFixed(digits)} s`, xOf(at), RULER / 2);
  }
  context.textAlign = "left";
  context.fillRect(0, RULER - 1, app.size.width, 0.5);
  context.fillStyle = colours.panel;
  context.fillRect(0, 0, GUTTER - 30, RULER - 1);
  context.fillStyle = colours.faint;
  context.fillText(app.view.order ? "events" : "virtual time", 10, RULER / 2);
}

// Faults as bands: on the lane of their node, or through all lanes if they strike links.
function drawSpans(run) {
  const top = app.lanes.find((lane) => lane.run === run);
  const bottom = app.lanes.findLast((lane) => lane.run === run);
  for (const span of run.spans) {
    const [x, end] = spanEdges(run, span);
    if (end < GUTTER || x > app.size.width) continue;
    if (span.lane === "links") {
      context.fillStyle = colours["fault-band"];
      context.fillRect(x, top.y, Math.max(1, end - x), bottom.y + bottom.height - top.y);
    } else {
      drawNodeSpan(run, span, x, Math.max(end, x + 2));
    }
  }
}

function spanEdges(run, span) {
  const end = span.end < run.count ? place(run, span.end) : app.view.to;
  return [Math.max(GUTTER, xOf(place(run, Math.min(span.first, run.count - 1)))), Math.min(app.size.width, xOf(end))];
}

function drawNodeSpan(run, span, x, end) {
  const lanes = app.lanes.filter((lane) => lane.run === run && lane.name === span.lane);
  if (!lanes.length) return;
  const [y, height] = [lanes[0].y + 1, lanes.reduce((sum, lane) => sum + lane.height, 0) - 2];
  const isDown = span.what === "down";
  context.fillStyle = isDown ? colours.down : colours.paused;
  context.globalAlpha = isDown ? 0.75 : 0.9;
  context.fillRect(x, y, end - x, height);
  context.globalAlpha = 1;
  if (isDown) hatch(x, y, end - x, height);
  const words = isDown ? `down: ${span.text}` : span.what;
  if (end - x > 60) clippedText(words, x + 6, y + height - 9, end - x - 8, colours.ink);
}

function hatch(x, y, width, height) {
  context.save();
  context.beginPath();
  context.rect(x, y, width, height);
  context.clip();
  context.strokeStyle = colours.life;
  context.globalAlpha = 0.35;
  context.beginPath();
  for (let at = x - height; at < x + width; at += 9) {
    context.moveTo(at, y + height);
    context.lineTo(at + height, y);
  }
  context.stroke();
  context.restore();
}

function clippedText(text, x, y, width, colour) {
  if (width < 8) return;
  let shown = text;
  while (shown && context.measureText(shown).width > width) shown = shown.slice(0, Math.floor(shown.length * 0.8) - 1);
  context.fillStyle = colour;
  context.fillText(shown.length < text.length && shown ? `${shown}…` : shown, x, y);
}

function drawLane(lane, visible) {
  if (lane.kind === "links") drawLinkSpans(lane);
  if (lane.kind === "partition") drawPartition(lane);
  if (lane.kind === "track") drawTrack(lane, visible);
  if (lane.kind === "node") {
    context.strokeStyle = colours.life;
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(GUTTER, lane.y + 12);
    context.lineTo(app.size.width, lane.y + 12);
    context.stroke();
    drawRoles(lane);
  }
}

function drawLinkSpans(lane) {
  for (const span of lane.run.spans) {
    if (span.lane !== "links") continue;
    const [x, end] = spanEdges(lane.run, span);
    if (end < GUTTER || x > app.size.width) continue;
    const y = lane.y + 2 + span.row * 17;
    context.fillStyle = colours.fault;
    context.fillRect(x, y, Math.max(2, end - x), 15);
    clippedText(span.text, x + 5, y + 8, end - x - 8, colours.ground);
  }
}

function drawLabels() {
  context.fillStyle = colours.ground;
  context.fillRect(0, RULER, GUTTER, app.lanesHeight + app.size.height);
  context.fillStyle = colours.rule;
  context.fillRect(GUTTER - 1, RULER, 1, app.lanesHeight + app.size.height);
  for (const lane of app.lanes) drawLabel(lane);
}

function drawLabel(lane) {
  const words = { links: "link faults", world: "events", partition: app.partition, node: lane.name };
  if (lane.kind === "run") {
    context.fillStyle = colours.panel;
    context.fillRect(0, lane.y, app.size.width, lane.height);
    clippedText(`${"AB"[lane.run.number]}: ${lane.run.name}`, 10, lane.y + 10, app.size.width - 20, colours.ink);
  } else if (lane.kind === "track") {
    drawTrackLabel(lane);
  } else {
    const isNode = lane.kind === "node";
    clippedText(words[lane.kind], 10, lane.y + (isNode ? 12 : lane.height / 2), GUTTER - 14, isNode ? colours.ink : colours.faint);
  }
}

// A violation is shown whatever the filter hides.
const isToldHere = (run, row) => Boolean(run.shown[row] || run.flags[row] & Flag.VIOLATION);

// What happened at one moment: the events of the world as flags, and each violation as a line through all lanes.
function drawMoments(run, visible) {
  const lane = app.lanes.find((each) => each.run === run && each.kind === "world");
  const bottom = app.lanes.findLast((each) => each.run === run);
  let free = -Infinity;
  for (let i = upperBound(run.toldRows, visible.first - 1); i < run.toldRows.length && run.toldRows[i] < visible.end; i++) {
    const row = run.toldRows[i];
    if (!isToldHere(run, row)) continue;
    const x = xOf(place(run, row));
    const isViolation = run.flags[row] & Flag.VIOLATION;
    const isFault = run.flags[row] & Flag.FAULT;
    if (isViolation) line(x, lane.y, x, bottom.y + bottom.height, colours.violation, 2);
    if (run.nodes[run.node[row]] !== "world") continue;
    const colour = isViolation ? colours.violation : isFault ? colours.fault : colours.faint;
    context.fillStyle = colour;
    flag(x, lane.y + 4);
    // A violation has room for its words; other words end where the next flag is.
    const room = isViolation ? Math.max(nextToldX(run, i) - x - 12, 260) : nextToldX(run, i) - x - 12;
    if (x > free && room > 40) {
      if (isViolation) plate(x + 8, lane.y + 1, Math.min(room, context.measureText(run.toldText[i]).width) + 4, 18);
      clippedText(run.toldText[i], x + 10, lane.y + 10, room, colour);
      free = isViolation ? x + room : x;
    }
  }
}

function plate(x, y, width, height) {
  context.fillStyle = colours.ground;
  context.fillRect(x, y, width, height);
}

// Where the next flag of the lane is; flags of the same moment do not count.
function nextToldX(run, i) {
  for (let next = i + 1; next < run.toldRows.length; next++) {
    if (run.at[run.toldRows[next]] === run.at[run.toldRows[i]] || !isToldHere(run, run.toldRows[next])) continue;
    if (run.nodes[run.node[run.toldRows[next]]] === "world") return xOf(place(run, run.toldRows[next]));
  }
  return app.size.width;
}

function flag(x, y) {
  context.fillRect(x - 0.5, y, 1.5, 14);
  context.beginPath();
  context.moveTo(x, y);
  context.lineTo(x + 7, y + 3.5);
  context.lineTo(x, y + 7);
  context.fill();
}

function line(x1, y1, x2, y2, colour, width = 1, dash = []) {
  context.strokeStyle = colour;
  context.lineWidth = width;
  context.setLineDash(dash);
  context.beginPath();
  context.moveTo(x1, y1);
  context.lineTo(x2, y2);
  context.stroke();
  context.setLineDash([]);
}

function drawCursor() {
  const bottom = app.lanesHeight;
  if (app.pointer) line(app.pointer.x, RULER, app.pointer.x, bottom, colours.cursor, 1, [2, 3]);
  if (!app.selected) return;
  const x = xOf(place(app.selected.run, app.selected.row));
  line(x, RULER, x, bottom, colours.selected, 1.5);
}
