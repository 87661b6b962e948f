// Mouse and keyboard.

const KEYS = [
  ["j / k", "next / previous event", { j: () => step(1), k: () => step(-1) }],
  ["J / K", "next / previous event of the same node", { J: () => step(1, true), K: () => step(-1, true) }],
  ["← / →, h / l", "pan", { ArrowLeft: () => pan(-0.2), ArrowRight: () => pan(0.2), h: () => pan(-0.2), l: () => pan(0.2) }],
  ["+ / −", "zoom", { "+": () => zoom(0.6, middle()), "=": () => zoom(0.6, middle()), "-": () => zoom(1 / 0.6, middle()) }],
  ["0", "the whole run", { 0: showAll }],
  ["/", "search", { "/": () => byId("search").focus() }],
  ["n / N", "next / previous line found", { n: () => stepHit(1), N: () => stepHit(-1) }],
  ["f / F", "next / previous fault", { f: () => stepFlag(Flag.FAULT, 1), F: () => stepFlag(Flag.FAULT, -1) }],
  ["v", "the first violation", { v: () => showViolation() }],
  ["d", "the first difference of two runs", { d: () => app.difference && app.difference.row >= 0 && showFirstDifference() }],
  ["o", "time or order of events", { o: () => toggleAxis() }],
  ["w", "the whole logs or their ends", { w: () => toggleWholeLogs() }],
  ["t", "light or dark", { t: () => toggleTheme() }],
  ["Esc", "select nothing", { Escape: () => unselect() }],
  ["?", "these keys", { "?": () => byId("keys").showModal() }],
];
const ACTIONS = Object.assign({}, ...KEYS.map((key) => key[2]));
const middle = () => (app.selected ? place(app.selected.run, app.selected.row) : (app.view.from + app.view.to) / 2);

// The place from which the keys step: the selected event, else the first one of the window.
function startOfSteps(direction) {
  if (app.selected) return app.selected;
  const run = app.runs[0];
  return { run, row: rowAt(run, app.view.from) + (direction > 0 ? 0 : 1) };
}

function step(direction, onNode = false) {
  const { run, row } = startOfSteps(direction);
  const next = nextRow(run, row, direction, onNode && app.selected ? run.node[row] : NOTHING);
  if (next !== NOTHING) select(run, next);
}

// The first row of a run that is not before the place from which the keys step. Events of one moment are in the order
// of the runs.
function firstAfterStart(run, direction) {
  if (!app.selected) return rowAt(run, app.view.from) + 1;
  const { run: own, row } = app.selected;
  if (run === own) return direction > 0 ? row + 1 : row;
  const at = own.at[row];
  return upperBound(run.at, run.number < own.number ? at : at - 1, run.count);
}

// Select the next of some rows of each run, in the order of time.
function stepAmong(rowsOf, direction) {
  let best = null;
  for (const run of app.runs) {
    const rows = rowsOf(run);
    const place = upperBound(rows, firstAfterStart(run, direction) - 1) - (direction > 0 ? 0 : 1);
    if (place < 0 || place >= rows.length) continue;
    const row = rows[place];
    // Of one moment the first run's is first: on the way back it is the last.
    const isNearer = best && (run.at[row] - best.run.at[best.row]) * direction;
    if (!best || isNearer < 0 || (isNearer === 0 && direction < 0)) best = { run, row };
  }
  if (best) select(best.run, best.row);
}

const stepHit = (direction) => stepAmong((run) => app.hits[run.number] || [], direction);

function stepFlag(flag, direction) {
  stepAmong((run) => run.toldRows.filter((row) => run.shown[row] && run.flags[row] & flag), direction);
}

function showViolation() {
  for (const run of app.runs) {
    const row = run.toldRows.find((each) => run.flags[each] & Flag.VIOLATION);
    if (row === undefined) continue;
    showAround(run, row, 0.7);
    return;
  }
}

function toggleAxis() {
  setAxis(!app.view.order);
  byId("axis").textContent = `Axis: ${app.view.order ? "events" : "time"}`;
}

function toggleWholeLogs() {
  app.wholeLogs = !app.wholeLogs;
  redraw();
}

function toggleTheme() {
  const root = document.documentElement;
  root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
  readColours();
  redraw();
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || byId("keys").open) return;
  // A box of the filter that was clicked takes no keys but the space bar.
  if (event.target.matches("input[type=search], select")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const action = ACTIONS[event.key];
  if (!action) return;
  event.preventDefault();
  action();
}

function onSearch(event) {
  if (event.key !== "Enter") return;
  event.preventDefault();
  search(byId("search").value);
  stepHit(event.shiftKey ? -1 : 1);
  // The next key may be n, for the next line found.
  if (app.hits.some((rows) => rows.length)) byId("search").blur();
}

function search(wanted) {
  app.wanted = wanted;
  try {
    app.hits = wanted ? app.runs.map((run) => searchRows(run, wanted)) : [];
    const count = app.hits.reduce((sum, rows) => sum + rows.length, 0);
    byId("hits").textContent = wanted ? `${count.toLocaleString("en")} found` : "";
  } catch (error) {
    app.hits = [];
    byId("hits").textContent = "no regular expression";
  }
  redraw();
}

// The event whose dot or arrow is nearest to a point of the canvas; null if none is near.
function eventNear(x, y) {
  let best = { distance: 9, run: null, row: NOTHING };
  const inLanes = y + app.view.scroll;
  for (const run of app.runs) {
    const first = rowAt(run, positionAt(x - 9)) + 1;
    const end = rowAt(run, positionAt(x + 9)) + 1;
    for (let row = Math.max(0, first); row < Math.min(end, first + 20_000); row++) {
      const distance = dotDistance(run, row, x, inLanes);
      if (distance < best.distance) best = { distance, run, row };
    }
    const visible = windowOf(run);
    if (best.run || visible.end - visible.first > MOST_ARROWS) continue;
    for (const row of arrowRows(run, visible)) {
      const distance = arrowDistance(arrowOf(run, row), x, inLanes) + 4;
      if (distance < best.distance) best = { distance, run, row };
    }
  }
  return best.run && best;
}

function dotDistance(run, row, x, y) {
  const isWorld = run.nodes[run.node[row]] === "world";
  const lane = isWorld ? app.lanes.find((each) => each.run === run && each.kind === "world").y + 10 : run.laneY[run.node[row]];
  if (!run.shown[row] || lane === undefined || run.flags[row] & Flag.LOST || Math.abs(y - lane) > 10) return Infinity;
  return Math.abs(xOf(place(run, row)) - x) + Math.abs(y - lane) / 4;
}

function arrowDistance(arrow, x, y) {
  if (!arrow) return Infinity;
  const [dx, dy] = [arrow.x2 - arrow.x1, arrow.y2 - arrow.y1];
  const share = Math.max(0, Math.min(1, ((x - arrow.x1) * dx + (y - arrow.y1) * dy) / (dx * dx + dy * dy || 1)));
  return Math.hypot(x - arrow.x1 - share * dx, y - arrow.y1 - share * dy);
}

function onMove(event) {
  const rectangle = byId("canvas").getBoundingClientRect();
  const [x, y] = [event.clientX - rectangle.left, event.clientY - rectangle.top];
  app.pointer = x >= GUTTER ? { x, y } : null;
  const near = app.pointer && eventNear(x, y);
  const tip = byId("tip");
  tip.hidden = !near;
  if (near) {
    const { run, row } = near;
    tip.textContent = `${run.kinds[run.kind[row]]}  ${timeText(run.at[row])}\n${summaryOf(membersOf(run, row))}`;
    tip.style.left = `${Math.min(x + 14, app.size.width - 260)}px`;
    tip.style.top = `${y + byId("overview").clientHeight + 14}px`;
  }
  redraw();
}

function onPress(event) {
  const canvas = byId("canvas");
  byId("diagram").focus();
  canvas.setPointerCapture(event.pointerId);
  app.drag = { x: event.clientX, y: event.clientY, from: app.view.from, to: app.view.to, scroll: app.view.scroll, isMoved: false };
}

function onDrag(event) {
  const { drag } = app;
  if (!drag) return onMove(event);
  const [dx, dy] = [event.clientX - drag.x, event.clientY - drag.y];
  if (!drag.isMoved && Math.abs(dx) + Math.abs(dy) < 4) return undefined;
  drag.isMoved = true;
  app.pointer = null;
  byId("tip").hidden = true;
  byId("canvas").classList.add("dragged");
  app.view.scroll = drag.scroll - dy;
  const shift = (dx * (drag.to - drag.from)) / (app.size.width - GUTTER);
  return showWindow(drag.from - shift, drag.to - shift);
}

function onRelease(event) {
  const { drag } = app;
  app.drag = null;
  byId("canvas").classList.remove("dragged");
  if (!drag || drag.isMoved) return;
  const rectangle = byId("canvas").getBoundingClientRect();
  const near = eventNear(event.clientX - rectangle.left, event.clientY - rectangle.top);
  if (near) select(near.run, near.row);
  else unselect();
}

function onWheel(event) {
  event.preventDefault();
  const x = event.clientX - byId("canvas").getBoundingClientRect().left;
  if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan((event.deltaX || event.deltaY) / 1500);
  else zoom(1.0015 ** event.deltaY, positionAt(Math.max(x, GUTTER)));
}

function onOverview(event) {
  if (!event.buttons) return;
  const whole = wholeExtent();
  const share = (event.offsetX - GUTTER) / (byId("overview").clientWidth - GUTTER);
  const at = whole.from + share * (whole.to - whole.from);
  const half = (app.view.to - app.view.from) / 2;
  showWindow(at - half, at + half);
}

function listen() {
  const canvas = byId("canvas");
  document.addEventListener("keydown", onKey);
  canvas.addEventListener("pointerdown", onPress);
  canvas.addEventListener("pointermove", onDrag);
  canvas.addEventListener("pointerup", onRelease);
  canvas.addEventListener("pointerleave", () => {
    app.pointer = null;
    byId("tip").hidden = true;
    redraw();
  });
  canvas.addEventListener("wheel", onWheel, { passive: false });
  byId("overview").addEventListener("pointerdown", onOverview);
  byId("overview").addEventListener("pointermove", onOverview);
  byId("search").addEventListener("keydown", onSearch);
  byId("search").addEventListener("input", (event) => event.target.value || search(""));
  byId("axis").onclick = toggleAxis;
  byId("fit").onclick = showAll;
  byId("theme").onclick = toggleTheme;
  byId("help").onclick = () => byId("keys").showModal();
  byId("next").onclick = () => step(1);
  byId("previous").onclick = () => step(-1);
}
