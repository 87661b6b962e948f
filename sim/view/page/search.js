// Search over the lines of a trace, and the filter by node and kind of event.

// A pattern between slashes is a regular expression; anything else is looked for as it is, in any case of letters.
function patternOf(wanted) {
  const found = /^\/(.+)\/$/.exec(wanted);
  const source = found ? found[1] : wanted.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  return new RegExp(source, "i");
}

// The rows whose line matches; those that the filter hides are left out. Throws SyntaxError for a broken pattern. The
// pattern sees one line at a time: over the whole text `^` and `[^{]*` would not stay in one.
function searchRows(run, wanted) {
  const pattern = patternOf(wanted);
  const rows = [];
  for (let row = 0; row < run.count; row++) if (run.shown[row] && pattern.test(lineOf(run, row))) rows.push(row);
  return Int32Array.from(rows);
}

function applyFilter(run, hidden) {
  const nodes = run.nodes.map((name) => hidden.nodes.has(name));
  const kinds = run.kinds.map((name) => hidden.kinds.has(name));
  for (let row = 0; row < run.count; row++) {
    const source = run.source[row];
    run.shown[row] = kinds[run.kind[row]] || nodes[run.node[row]] || (source >= 0 && nodes[source]) ? 0 : 1;
  }
}

// The next shown row in a direction; with `node`, only rows of that node. NOTHING if there is none.
function nextRow(run, row, direction, node = NOTHING) {
  for (let i = row + direction; i >= 0 && i < run.count; i += direction) {
    if (run.shown[i] && (node === NOTHING || run.node[i] === node)) return i;
  }
  return NOTHING;
}
