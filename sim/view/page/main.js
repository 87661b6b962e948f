// Reads the runs of the page, fills its parts, and shows the whole run, or the violation if there is one.

const PROCESSES = ["world", "network"];

function prepareRun(run) {
  run.isProcess = run.nodes.map((name) => !PROCESSES.includes(name));
  run.classes = run.kinds.map(classOf);
  run.toldRows = run.story.map(([row]) => row);
  run.toldText = run.story.map(([, text]) => text);
  run.name = `${run.file}: ${run.scenario}, seed ${run.seed}`;
  run.strikingRows = strikingRowsOf(run);
  stackLinkSpans(run);
}

function fillHeader() {
  const violations = app.runs.flatMap((run) => run.toldRows.filter((row) => run.flags[row] & Flag.VIOLATION));
  const names = app.runs.map((run) => `${run.scenario}, seed ${run.seed}`);
  byId("title").textContent = [...new Set(names)].join("  |  ");
  byId("facts").textContent = app.runs
    .map((run) => `${run.count.toLocaleString("en")} events, ${(run.count ? run.at[run.count - 1] / 1e6 : 0).toFixed(1)} s`)
    .join("  |  ");
  const verdict = byId("verdict");
  const count = violations.length ? `${violations.length} violation${violations.length > 1 ? "s" : ""}` : "no violation";
  verdict.textContent = app.runs.some((run) => run.isPart) ? `${count} in the part shown` : count;
  verdict.className = violations.length ? "violated" : "faint";
}

function fillFilter() {
  const kinds = new Set(app.runs.flatMap((run) => run.kinds));
  const nodes = new Set(app.runs.flatMap((run) => nodesOf(run)));
  const choices = byId("filter-choices");
  const add = (title, names, hidden) => {
    choices.append(element("h3", title));
    for (const name of [...names].sort()) choices.append(choice(name, hidden));
  };
  add("Nodes", nodes, app.hidden.nodes);
  add("Kinds of events", kinds, app.hidden.kinds);
}

function choice(name, hidden) {
  const label = element("label");
  const box = document.createElement("input");
  box.type = "checkbox";
  box.checked = true;
  box.value = name;
  box.onchange = () => {
    if (box.checked) hidden.delete(name);
    else hidden.add(name);
    for (const run of app.runs) applyFilter(run, app.hidden);
    search(app.wanted);
  };
  label.append(box, ` ${name}`);
  return label;
}

function fillPartitions() {
  const names = [...new Set(app.runs.flatMap((run) => Object.keys(run.partitions)))].sort();
  const choices = byId("partition");
  for (const name of names) choices.append(element("option", name));
  byId("partition-choice").hidden = names.length < 2;
  // The partition that a violation names, else the first one.
  const told = app.runs.flatMap((run) => run.toldText).find((text) => text.startsWith("VIOLATED ")) || "";
  app.partition = names.find((name) => told.includes(`${name}:`)) || names[0] || "";
  choices.value = app.partition;
  choices.onchange = () => {
    app.partition = choices.value;
    redraw();
  };
}

function fillKeys() {
  for (const [keys, what] of KEYS) {
    const names = element("span");
    keys.split(/ \/ |, /).forEach((key, i) => names.append(i ? " " : "", element("kbd", key)));
    byId("keys-list").append(names, element("span", what));
  }
}

function resize() {
  const canvas = byId("canvas");
  app.size = {
    width: canvas.clientWidth, height: canvas.clientHeight,
    overviewHeight: byId("overview").clientHeight, logsWidth: byId("logs-canvas").clientWidth,
  };
  redraw();
}

async function main() {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  readColours();
  const stored = [...document.querySelectorAll("script[data-run]")].map((script) => JSON.parse(script.textContent));
  app.runs = await Promise.all(stored.map(readRun));
  const difference = byId("stored-difference");
  app.difference = difference && JSON.parse(difference.textContent);
  app.runs.forEach(prepareRun);
  fillPartitions();
  fillHeader();
  fillFilter();
  fillStory();
  fillKeys();
  showDifference();
  listen();
  new ResizeObserver(resize).observe(byId("diagram"));
  resize();
  showAll();
  if (followLink()) return byId("loading").remove();
  if (app.difference && app.difference.row >= 0) showFirstDifference();
  else showViolation();
  return byId("loading").remove();
}

main().catch((error) => {
  byId("loading").textContent = `This page cannot be shown: ${error.message}`;
});
