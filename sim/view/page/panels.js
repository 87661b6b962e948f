// The panels beside the diagram: the selected event, the story, the difference of two runs, and the overview above.

function element(name, text = "", className = "") {
  const made = document.createElement(name);
  made.textContent = text;
  if (className) made.className = className;
  return made;
}

const byId = (id) => document.getElementById(id);

function select(run, row) {
  app.selected = { run, row };
  app.causal = causality(run, row);
  app.pointer = null;
  reveal(place(run, row));
  showEvent();
  linkTo(run, row);
  redraw();
}

// The address of the page names the selected event, so that it can be sent to somebody who has the page.
function linkTo(run, row) {
  history.replaceState(null, "", `#event=${"AB"[run.number]}${row + run.skipped}`);
}

// Select the event that the address names; returns whether it names one.
function followLink() {
  const found = /^#event=([AB])(\d+)$/.exec(location.hash);
  const run = found && app.runs["AB".indexOf(found[1])];
  const row = run ? Number(found[2]) - run.skipped : NOTHING;
  if (!run || row < 0 || row >= run.count) return false;
  showAround(run, row, 0.5);
  return true;
}

// Select an event, in a window that shows single events.
function showAround(run, row, shareBefore) {
  const whole = wholeExtent();
  const width = app.view.order ? 80 : Math.min(whole.to - whole.from, 60_000);
  showWindow(place(run, row) - width * shareBefore, place(run, row) + width * (1 - shareBefore));
  select(run, row);
}

function unselect() {
  app.selected = app.causal = null;
  byId("event").replaceChildren(element("p", "Click an event or an arrow. Its causal past and future are highlighted.", "faint"));
  redraw();
}

// The members of a message that a reader looks for first, in one line.
function summaryOf(members) {
  const body = members.body || members;
  const part = (body.partitions && body.partitions[0]) || body;
  const words = [];
  for (const [name, short] of [["what", ""], ["topic_partition", ""], ["fetch_offset", "from "], ["last_fetched_epoch", "last epoch "],
    ["current_leader_epoch", "epoch "], ["leader_epoch", "epoch "], ["first_offset", "from "], ["base_offset", "base "],
    ["last_offset", "to "], ["high_watermark", "HW "], ["log_end_offset", "log end "], ["to_offset", "to "], ["acks", "acks "],
    ["isr", "in sync "], ["error", ""], ["reason", ""], ["key", ""], ["why", ""], ["of", ""], ["outcome", ""]]) {
    const value = part[name] ?? body[name];
    if (value !== undefined && typeof value !== "object" && value !== "NONE") words.push(`${short}${value}`);
  }
  return words.join(" · ");
}

function eventFacts(run, row) {
  const isLost = run.flags[row] & Flag.LOST;
  const facts = [["number", `${row + run.skipped} of ${run.count + run.skipped}`], ["time", timeText(run.at[row])]];
  facts.push([isLost ? "for" : "node", run.nodes[run.node[row]]]);
  if (run.source[row] !== NOTHING) facts.push(["from", run.nodes[run.source[row]]]);
  if (isMessage(run, row) && !isLost) facts.push(["took", `${((run.at[row] - run.sent[row]) / 1000).toFixed(3)} ms, waiting in the inbox included`]);
  const { why, messages } = isLost ? membersOf(run, row) : {};
  // Nobody knows when these were sent, so they have no past either.
  const isWithConnection = why === "connection broken";
  const lost = isWithConnection ? `${messages} message${messages > 1 ? "s" : ""} lost with their connection` : "lost on the way";
  const words = [[Flag.LOST, lost], [Flag.DUPLICATE, "a second copy of the same message"], [Flag.FAILED, "refused or failed"]];
  for (const [flag, text] of words) if (run.flags[row] & flag) facts.push(["", text]);
  const { past, future } = causalCounts(app.causal);
  if (run.isProcess[run.node[app.causal.row]] && !isWithConnection) facts.push(["causal", `${past} events before, ${future} after`]);
  return facts;
}

function showEvent() {
  const { run, row } = app.selected;
  const members = membersOf(run, row);
  const list = element("dl");
  for (const [name, value] of eventFacts(run, row)) list.append(element("dt", name), element("dd", value));
  const title = element("p");
  title.append(element("b", `${app.runs.length > 1 ? `${"AB"[run.number]}: ` : ""}${run.kinds[run.kind[row]]}`), ` ${summaryOf(members)}`);
  const parts = [title, list];
  if (run.cause[row] !== NOTHING) {
    const button = element("button", "Go to the step that sent it");
    button.onclick = () => select(run, run.cause[row]);
    parts.push(button);
  }
  byId("event").replaceChildren(...parts, element("pre", JSON.stringify(members.body || members, null, 1)));
}

function fillStory() {
  const list = byId("story");
  list.replaceChildren();
  const entries = app.runs.flatMap((run) => run.story.map(([row, text]) => ({ run, row, text })));
  entries.sort((a, b) => a.run.at[a.row] - b.run.at[b.row] || a.run.number - b.run.number);
  for (const entry of entries) list.append(storyItem(entry));
  app.story = entries;
}

function storyItem(entry) {
  const { run, row, text } = entry;
  const who = run.nodes[run.node[row]];
  const kind = run.flags[row] & Flag.VIOLATION ? "violation" : run.flags[row] & Flag.FAULT ? "fault" : "";
  const item = element("li", "", kind);
  const prefix = app.runs.length > 1 ? `${"AB"[run.number]} ` : "";
  item.append(element("span", (run.at[row] / 1e6).toFixed(3), "time"), element("span", `${prefix}${who === "world" ? "" : `${who}: `}${text}`));
  item.onclick = () => select(run, row);
  entry.item = item;
  return item;
}

// Mark the last line of the story before the cursor.
function markStory() {
  if (!app.story) return;
  const row = cursorRow(app.runs[0]);
  const at = row < 0 ? -1 : app.runs[0].at[row];
  let now = null;
  for (const entry of app.story) {
    if (entry.run.at[entry.row] > at || (entry.run.number === 0 && entry.row > row)) break;
    now = entry.item;
  }
  if (now === app.storyNow) return;
  app.storyNow?.classList.remove("now");
  now?.classList.add("now");
  app.storyNow = now;
  if (now) now.parentNode.scrollTop = now.offsetTop - now.parentNode.offsetTop - now.parentNode.clientHeight / 2;
}

function showDifference() {
  const { difference } = app;
  if (!difference) return;
  const box = byId("difference");
  box.hidden = false;
  if (difference.event < 0) {
    box.replaceChildren(element("b", "The two runs are the same, event by event."));
    return;
  }
  const button = element("button", "Show it");
  button.onclick = showFirstDifference;
  const isShown = difference.row >= 0;
  const where = `First difference: event ${difference.event}${isShown ? " " : ", outside the part shown"}`;
  box.replaceChildren(element("b", where), ...(isShown ? [button] : []));
  difference.lines.forEach((text, i) => {
    const paragraph = element("p", `${"AB"[i]}: `);
    paragraph.append(...differingPart(text, difference.lines[1 - i]));
    box.append(paragraph);
  });
}

// A line from a little before the place where it differs from the other one, that place in bold.
function differingPart(text, other) {
  if (!text) return [element("code", "the run has ended")];
  let at = 0;
  while (at < text.length && text[at] === other[at]) at++;
  const from = Math.max(0, at - 90);
  const rest = element("b", text.slice(at, at + 90));
  const code = element("code", `${from ? "…" : ""}${text.slice(from, at)}`);
  code.append(rest, text.length > at + 90 ? "…" : "");
  return [code];
}

function showFirstDifference() {
  const { run, row } = app.difference;
  showAround(app.runs[run], row, 0.5);
}

// The overview: how many events there are over the whole run, its faults and violations, and the window.
function drawOverview() {
  const { width, overviewHeight: height } = app.size;
  app.overview = document.createElement("canvas");
  const drawing = fitCanvas(app.overview, width, height);
  const whole = wholeExtent();
  const x = (position) => GUTTER + ((position - whole.from) / (whole.to - whole.from)) * (width - GUTTER);
  drawing.fillStyle = colours.panel;
  drawing.fillRect(0, 0, width, height);
  app.runs.forEach((run, i) => {
    const share = height / app.runs.length;
    drawOverviewOf(run, drawing, x, i * share, share, width);
  });
  drawing.fillStyle = colours.faint;
  drawing.fillText("whole run", 10, height / 2);
}

function drawOverviewOf(run, drawing, x, top, height, width) {
  const bins = new Uint32Array(width + 2);
  for (let row = 0; row < run.count; row++) bins[x(place(run, row)) | 0] += run.shown[row];
  const most = bins.reduce((a, b) => Math.max(a, b), 1);
  drawing.fillStyle = colours.density;
  for (let i = GUTTER; i < width; i++) {
    const size = (bins[i] / most) * (height - 6);
    drawing.fillRect(i, top + height - size, 1, size);
  }
  for (const row of run.toldRows) {
    const kind = run.flags[row] & Flag.VIOLATION ? "violation" : run.flags[row] & Flag.FAULT ? "fault" : "";
    if (!kind || !isToldHere(run, row)) continue;
    drawing.fillStyle = colours[kind];
    drawing.fillRect(x(place(run, row)) - 1, top, 2, kind === "violation" ? height : height * 0.6);
  }
}

function drawOverviewWindow() {
  const canvas = byId("overview");
  const { width, overviewHeight: height } = app.size;
  const drawing = fitCanvas(canvas, width, height);
  const state = `${width},${app.view.order},${[...app.hidden.nodes, ...app.hidden.kinds]},${colours.ground}`;
  if (app.overviewState !== state) {
    app.overviewState = state;
    drawOverview();
  }
  drawing.drawImage(app.overview, 0, 0, width, height);
  const whole = wholeExtent();
  const x = (position) => GUTTER + ((position - whole.from) / (whole.to - whole.from)) * (width - GUTTER);
  const [left, right] = [x(app.view.from), x(app.view.to)];
  drawing.strokeStyle = colours.selected;
  drawing.lineWidth = 2;
  drawing.strokeRect(left + 1, 1, Math.max(3, right - left - 2), height - 2);
  drawing.globalAlpha = 0.12;
  drawing.fillStyle = colours.selected;
  drawing.fillRect(left, 0, Math.max(3, right - left), height);
  drawing.globalAlpha = 1;
}
