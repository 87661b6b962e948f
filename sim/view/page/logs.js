// The replicas' logs side by side at the cursor: the epochs of their records, what is committed, where each one ends.

const LOG_ROW = 24;
let logContext = null;

// The row whose state is shown: under the pointer, else the selected event, else the end of the window.
function cursorRow(run) {
  if (app.pointer) return rowAt(run, positionAt(app.pointer.x));
  if (app.selected) return app.selected.run === run ? app.selected.row : rowAt(run, place(app.selected.run, app.selected.row));
  return rowAt(run, app.view.to);
}

function logRows() {
  const rows = [];
  for (const run of app.runs) {
    const row = cursorRow(run);
    for (const [name, replica] of Object.entries(run.partitions[app.partition]?.replicas || {})) {
      const log = logAt(replica, row);
      rows.push({ run, name, log, end: logEndOf(log), mark: highWatermarkAt(replica, row), ...roleAt(replica, row) });
    }
  }
  return rows;
}

// The end of the logs, from a little below the first difference in what is committed or what is there.
function tailOf(rows) {
  const end = Math.max(1, ...rows.map((row) => row.end));
  if (app.wholeLogs) return { from: Math.min(...rows.map((row) => row.log.start)), end: end * 1.03 };
  const low = Math.min(...rows.map((row) => Math.min(row.mark || row.end, row.end, firstForeignOffset(row, rows))));
  const from = Math.max(0, Math.min(low - 6, end - 36));
  return { from, end: end + Math.max(2, (end - from) * 0.03) };
}

// The first offset at which a log has another epoch than some other log has there.
function firstForeignOffset(row, rows) {
  let first = Infinity;
  for (const other of rows) {
    const [a, b] = [row.log.runs, other.log.runs];
    for (let i = 0; i < Math.min(a.length, b.length); i++) {
      if (a[i].epoch === b[i].epoch && a[i].end === b[i].end) continue;
      if (a[i].epoch !== b[i].epoch) first = Math.min(first, i ? a[i - 1].end : row.log.start);
      else if (i + 1 < a.length && i + 1 < b.length) first = Math.min(first, a[i].end, b[i].end);
      break;
    }
  }
  return first;
}

function drawLogs() {
  const state = [app.runs.map(cursorRow), app.partition, app.wholeLogs, app.size.logsWidth, colours.ground].join();
  if (state === app.logsState) return;
  app.logsState = state;
  const rows = logRows();
  const canvas = document.getElementById("logs-canvas");
  const width = app.size.logsWidth;
  const height = rows.length * LOG_ROW + 22;
  if (canvas.style.height !== `${height}px`) canvas.style.height = `${height}px`;
  logContext = fitCanvas(canvas, width, height);
  logContext.fillStyle = colours.ground;
  logContext.fillRect(0, 0, width, height);
  if (!rows.length) return;
  titleLogs(rows);
  const range = tailOf(rows);
  const x = (offset) => GUTTER + 86 + ((offset - range.from) / (range.end - range.from)) * (width - GUTTER - 106);
  rows.forEach((row, i) => drawLog(row, 2 + i * LOG_ROW, x, range));
  drawOffsets(rows.length * LOG_ROW + 12, x, range);
}

function titleLogs(rows) {
  const { run } = rows[0];
  const row = cursorRow(run);
  const at = row < 0 ? "before the first event" : `after event ${row + run.skipped} at ${timeText(run.at[row])}`;
  const title = document.getElementById("logs-title");
  const state = stateAt(run.partitions[app.partition], row);
  const isr = state ? `  ·  controller: leader ${state.leader < 0 ? "none" : state.leader}, epoch ${state.epoch}, in sync ${state.isr.join(",")}` : "";
  title.replaceChildren(element("b", `Logs of ${app.partition} `), `${at}${isr}`);
}

function drawLog(row, y, x, range) {
  const text = (words, at, colour) => {
    logContext.fillStyle = colour;
    logContext.fillText(words, at, y + LOG_ROW / 2 - 2);
  };
  const prefix = app.runs.length > 1 ? `${"AB"[row.run.number]} ` : "";
  text(prefix + row.name, 12, colours.ink);
  text(row.role ? `${row.role} ${row.epoch}` : "", GUTTER, row.role === "down" || row.role === "offline" ? colours.fault : colours.faint);
  let start = Math.max(range.from, row.log.start);
  logContext.globalAlpha = row.role === "down" ? 0.45 : 1;
  for (const run of row.log.runs) {
    if (run.end <= start) continue;
    drawRecords(start, run, y, x, range);
    start = run.end;
  }
  logContext.globalAlpha = 1;
  drawLogMarks(row, y, x, range);
}

// Records of one epoch: a cell each where there is room, with the epoch's number in the first one.
function drawRecords(start, run, y, x, range) {
  const [left, right, cell] = [x(start), x(run.end), x(1) - x(0)];
  logContext.fillStyle = epochColour(run.epoch);
  logContext.fillRect(left, y, Math.max(1, right - left), LOG_ROW - 6);
  if (cell >= 5) {
    logContext.fillStyle = colours.ground;
    for (let offset = start + 1; offset <= run.end; offset++) logContext.fillRect(x(offset) - 0.5, y, 1, LOG_ROW - 6);
  }
  const words = run.epoch < 0 ? "?" : cell * 8 > 50 && cell < 30 ? `${run.epoch}` : `epoch ${run.epoch}`;
  const short = logContext.measureText(words).width + 6 < right - left ? words : `${run.epoch < 0 ? "?" : run.epoch}`;
  if (logContext.measureText(short).width + 4 > right - left) return;
  logContext.fillStyle = colours["epoch-ink"];
  logContext.fillText(short, left + 4, y + LOG_ROW / 2 - 2);
}

function drawLogMarks(row, y, x, range) {
  const end = x(row.end);
  logContext.fillStyle = colours["log-end"];
  logContext.fillRect(end - 1, y - 1, 2, LOG_ROW - 4);
  if (row.end >= range.from) logContext.fillText(`${row.end}`, end + 5, y + LOG_ROW / 2 - 2);
  if (row.mark < range.from) return;
  const mark = x(row.mark);
  logContext.fillStyle = colours["high-watermark"];
  logContext.fillRect(mark - 1.5, y - 2, 3, LOG_ROW - 2);
  logContext.beginPath();
  logContext.moveTo(mark - 5, y - 2);
  logContext.lineTo(mark + 5, y - 2);
  logContext.lineTo(mark, y + 4);
  logContext.fill();
}

function drawOffsets(y, x, range) {
  const least = (range.end - range.from) / Math.max(1, Math.floor((x(range.end) - x(range.from)) / 70));
  const power = 10 ** Math.floor(Math.log10(Math.max(1, least)));
  const step = Math.max(1, [1, 2, 5, 10].map((n) => n * power).find((n) => n >= least));
  logContext.fillStyle = colours.faint;
  logContext.fillText("offsets  ▾ high watermark  ▎ log end", 12, y);
  logContext.textAlign = "center";
  for (let offset = Math.ceil(range.from / step) * step; offset < range.end; offset += step) {
    if (x(offset) > GUTTER + 150) logContext.fillText(`${offset}`, x(offset), y);
  }
  logContext.textAlign = "left";
}
