// The tracks: the partition as the controller has it, the roles of the replicas, and under each broker its log end and
// high watermark. All replicas share one scale, that of the offsets in the window.

function drawPartition(lane) {
  const { states } = lane.run.partitions[app.partition];
  states.forEach(([row, leader, epoch, isr], i) => {
    const end = i + 1 < states.length ? states[i + 1][0] : lane.run.count;
    const [x, right] = spanEdges(lane.run, { first: row, end });
    if (right < GUTTER || x > app.size.width) return;
    context.fillStyle = leader < 0 ? colours.down : epochColour(epoch);
    context.fillRect(x, lane.y + 3, Math.max(1, right - x - 1), lane.height - 6);
    const words = leader < 0 ? `no leader, epoch ${epoch}` : `leader ${leader}, epoch ${epoch}`;
    clippedText(`${words} · in sync ${isr.join(",")}`, x + 5, lane.y + lane.height / 2, right - x - 8, colours["epoch-ink"]);
  });
}

// A leader's life line is thick and has the colour of its epoch, a follower's is thin.
function drawRoles(lane) {
  const replica = replicaOf(lane.run, lane.name);
  if (!replica) return;
  replica.roles.forEach(([row, role, epoch], i) => {
    if (role !== "leader" && role !== "follower") return;
    const end = i + 1 < replica.roles.length ? replica.roles[i + 1][0] : lane.run.count;
    const [x, right] = spanEdges(lane.run, { first: row, end });
    if (right < GUTTER || x > app.size.width) return;
    const height = role === "leader" ? 8 : 3;
    context.fillStyle = epochColour(epoch);
    context.fillRect(x, lane.y + 12 - height / 2, Math.max(1, right - x), height);
  });
}

// The offsets that the replicas of a run have in the window, to which the curves are scaled.
function offsetRange(run, visible) {
  let [low, high] = [Infinity, -Infinity];
  for (const replica of Object.values(run.partitions[app.partition].replicas)) {
    for (const [rows, values] of [[replica.changeRow, replica.logEnd], [replica.markRow, replica.mark]]) {
      const first = Math.max(0, upperBound(rows, visible.first) - 1);
      for (let i = first; i < rows.length && (i === first || rows[i] < visible.end); i++) {
        low = Math.min(low, values[i]);
        high = Math.max(high, values[i]);
      }
    }
  }
  if (low > high) return { low: 0, high: 1 };
  return { low, high: Math.max(high, low + 4) };
}

function drawTrack(lane, visible) {
  const replica = replicaOf(lane.run, lane.name);
  const range = offsetRange(lane.run, visible);
  const y = (offset) => lane.y + lane.height - 5 - ((offset - range.low) / (range.high - range.low)) * (lane.height - 12);
  const marks = curve(lane, replica.markRow, replica.mark, y, visible);
  const ends = curve(lane, replica.changeRow, replica.logEnd, y, visible);
  fillUncommitted(ends, marks);
  stroke(ends, colours["log-end"], 1.25, []);
  // Dashes along many steps cost more than everything else in a frame, and cannot be seen there.
  stroke(marks, colours["high-watermark"], 1.25, marks.length < 400 ? [5, 3] : []);
  line(GUTTER, lane.y + lane.height - 0.5, app.size.width, lane.y + lane.height - 0.5, colours.grid);
}

// A step for each change, one for each pixel where there are more.
function curve(lane, rows, values, y, visible) {
  const points = [];
  let i = Math.max(0, upperBound(rows, visible.first) - 1);
  if (i >= rows.length) return points;
  let [x, height] = [Math.max(GUTTER, xOf(place(lane.run, Math.min(rows[i], lane.run.count - 1)))), y(values[i])];
  points.push(x, height);
  for (i++; i < rows.length && rows[i] < visible.end; i++) {
    const next = xOf(place(lane.run, rows[i]));
    height = y(values[i]);
    if (next - x >= 1) {
      points.push(next, points[points.length - 1], next, height);
      x = next;
    } else {
      points[points.length - 1] = height;
    }
  }
  points.push(app.size.width, height);
  return points;
}

// What is between the high watermark and the log end is not committed.
function fillUncommitted(ends, marks) {
  if (!ends.length || !marks.length) return;
  context.fillStyle = colours.density;
  context.globalAlpha = 0.45;
  context.beginPath();
  for (let i = 0; i < ends.length; i += 2) context.lineTo(ends[i], ends[i + 1]);
  for (let i = marks.length - 2; i >= 0; i -= 2) context.lineTo(marks[i], marks[i + 1]);
  context.fill();
  context.globalAlpha = 1;
}

function stroke(points, colour, width, dash) {
  context.strokeStyle = colour;
  context.lineWidth = width;
  context.setLineDash(dash);
  context.beginPath();
  for (let i = 0; i < points.length; i += 2) context.lineTo(points[i], points[i + 1]);
  context.stroke();
  context.setLineDash([]);
}

function drawTrackLabel(lane) {
  const middle = lane.y + lane.height / 2;
  const replica = replicaOf(lane.run, lane.name);
  const row = cursorRow(lane.run);
  const end = valueAt(replica.changeRow, replica.logEnd, row);
  clippedText(`log end ${end}`, 18, middle - 8, GUTTER - 22, colours["log-end"]);
  clippedText(`HW ${highWatermarkAt(replica, row)}`, 18, middle + 8, GUTTER - 22, colours["high-watermark"]);
}
