/* The cluster as a whole: utilisation over time, and the cost and duration of context switches. */

function utilisationChart() {
  const points = doc.utilisation;
  const chart = new Chart("utilisation", {
    ...timeOptions(), y_axis_label: "CPUs", height: 320,
    y_range: points.t.length ? new Bokeh.DataRange1d({ start: 0, only_visible: true }) : new Bokeh.Range1d(),
  });
  chart.blank(!points.t.length);
  const x = points.t.map(onAxis);
  // A mean holds until the next one begins.
  if (x.length) x.push(onAxis(points.t[points.t.length - 1] + doc.utilisation_step_s));
  const lasting = (values) => (values.length ? [...values, values[values.length - 1]] : []);
  const sourceOf = (values) => new Bokeh.ColumnDataSource({ data: numbers({ x, y: lasting(values) }) });
  const used = chart.figure.varea_step({
    x: { field: "x" }, y1: 0, y2: { field: "y" }, source: sourceOf(points.cpu_used), fill_alpha: 0.35, step_mode: "after",
  });
  chart.add("Used (observed demand)", "blue", { area: 0.35 }, used);
  chart.line("Booked by running jobs", "blue", sourceOf(points.cpu_booked), "solid", 2.5);
  doc.others.forEach((schedule, place) => {
    const values = points.without[schedule];
    const role = ROLES[place % ROLES.length];
    if (values.length) chart.line(`Booked: ${scheduleName(schedule)}`, role, sourceOf(values), DASHES[place % DASHES.length]);
  });
  chart.line("All nodes", "text", sourceOf(points.cpu_total), "solid", 1);
  chart.line("Asked for by all jobs", "grey", sourceOf(points.cpu_demanded), "dotdash");
  // A crowded trace asks for so much that what is used would be a line at the bottom.
  const peak = Math.max(...points.cpu_demanded);
  const whole = Math.max(...points.cpu_total);
  const towers = peak > 3 * whole;
  if (towers) chart.legend.lastElementChild.firstElementChild.click();
  // On a cluster that is hardly used, the line of all nodes would press the curves to the bottom.
  const busiest = Math.max(...points.cpu_used, ...points.cpu_booked, ...doc.others.flatMap((schedule) => points.without[schedule]));
  const roomy = whole > 4 * Math.max(busiest, towers ? 0 : peak);
  if (roomy) chart.legend.lastElementChild.previousElementSibling.firstElementChild.click();
  const columns = [
    ["Used", points.cpu_used], ["Booked", points.cpu_booked],
    ...doc.others.map((schedule) => [`Booked: ${scheduleName(schedule)}`, points.without[schedule]]),
    ["Asked for", points.cpu_demanded], ["All nodes", points.cpu_total],
  ];
  const table = new LazyTable(at("utilisation-table"), "CPUs over time", [
    timeColumn("From", (place) => points.t[place]),
    ...columns.map(([name, values]) => numberColumn(name, (place) => values[place] ?? null, shownNumber)),
  ], () => [...points.t.keys()].filter(inPickedTime(points.t)));
  at("utilisation-says").textContent =
    `CPUs of the whole cluster, each value the mean of ${shownDuration(doc.utilisation_step_s)}. Booked is what running jobs had `
    + "requested, used is what their VMs demanded. Only the filter of time changes what is shown here."
    + (towers ? ` All jobs together asked for up to ${shownNumber(peak)}: the legend shows that curve.` : "")
    + (roomy ? ` All nodes have ${shownNumber(whole)}: the legend shows that line.` : "");
  chart.show = () => {
    const whole = (values) => shownNumber(mean(values));
    chart.says(`Curves of CPUs over time; means: ${columns.map(([name, values]) => `${name} ${whole(values)}`).join(", ")}.`);
    table.change();
  };
  return chart;
}

/*
 * A chart of curves over time, with a table of their numbers.
 *
 * Curves: [name, role, dash, width, the values of the steps (null: unknown)]; a curve that is nowhere known is left out.
 */
function curvesChart(id, unit, caption, curves, says) {
  const points = doc.utilisation;
  const known = curves.filter(({ values }) => values.some((value) => value !== null && value !== undefined));
  const chart = new Chart(id, {
    ...timeOptions(), y_axis_label: unit, height: 320,
    y_range: known.length ? new Bokeh.DataRange1d({ start: 0, only_visible: true }) : new Bokeh.Range1d(),
  });
  chart.blank(!known.length);
  const x = points.t.map(onAxis);
  if (x.length) x.push(onAxis(points.t[points.t.length - 1] + doc.utilisation_step_s));
  for (const { name, role, dash, width, values } of known) {
    const y = [...values, values[values.length - 1]].map((value) => value ?? NaN);
    chart.line(name, role, new Bokeh.ColumnDataSource({ data: numbers({ x, y }) }), dash, width);
  }
  const table = new LazyTable(at(`${id}-table`), caption, [
    timeColumn("From", (place) => points.t[place]),
    ...known.map(({ name, values }) => numberColumn(name, (place) => values[place] ?? null, shownNumber)),
  ], () => [...points.t.keys()].filter(inPickedTime(points.t)));
  at(`${id}-says`).textContent = known.length ? says : "Nothing of this is known.";
  chart.show = () => {
    const seen = ({ name, values }) => `${name} ${shownNumber(mean(values))}, at most ${shownNumber(values.reduce((a, b) => Math.max(a, b), 0))}`;
    chart.says(`Curves over time, in ${unit}; means: ${known.map(seen).join("; ")}.`);
    table.change();
  };
  return chart;
}

const inGib = (values) => values.map((mib) => (mib === null || mib === undefined ? null : mib / 1024));

function memoryChart() {
  const { mem_booked_mib: booked, mem_total_mib: whole, store_mib: store } = doc.utilisation;
  return curvesChart("memory", "GiB", "Memory and saved states over time", [
    { name: "Booked by running jobs", role: "blue", dash: "solid", width: 2.5, values: inGib(booked) },
    { name: "All nodes", role: "text", dash: "solid", width: 1, values: inGib(whole) },
    { name: "Saved states of sleeping jobs", role: "orange", dash: "dashed", width: 2, values: inGib(store) },
  ], "Booked is the memory that running jobs had requested. Saved states are what suspends wrote, until the job ran again; checkpoints "
    + "and states put aside are not among them. Only the filter of time changes what is shown here.");
}

function queueChart() {
  const { waiting, asleep } = doc.utilisation;
  return curvesChart("queue", "jobs", "Jobs that wait and sleep over time", [
    { name: "Waiting", role: "orange", dash: "solid", width: 2.5, values: waiting },
    { name: "Asleep (suspended or paused)", role: "purple", dash: "dashed", width: 2, values: asleep },
  ], "Jobs that had not begun, or had to begin anew, and jobs that made way for others; each value the mean of "
    + `${shownDuration(doc.utilisation_step_s)}. Only the filter of time changes what is shown here.`);
}

const inPickedTime = (times) => (place) => (
  (picked.from === null || times[place] >= picked.from) && (picked.until === null || times[place] <= picked.until));

const STEPS = ["start", "suspend", "resume", "migrate", "pause", "unpause"];

/* What a switch consisted of; the first that holds. */
const SWITCHES = [
  ["Failed", "red", "x", ({ state }, place) => state[place] === "failed"],
  ["Suspends or resumes, and migrations", "purple", "square",
    ({ suspend, resume, migrate }, place) => suspend[place] + resume[place] > 0 && migrate[place] > 0],
  ["Suspends or resumes", "orange", "triangle", ({ suspend, resume }, place) => suspend[place] + resume[place] > 0],
  ["Migrations", "teal", "diamond", ({ migrate }, place) => migrate[place] > 0],
  ["Pauses, or ends of pauses", "grey", "inverted_triangle", ({ pause, unpause }, place) => pause[place] + unpause[place] > 0],
  ["Starts only", "blue", "circle", () => true],
];

function switchesChart() {
  const all = doc.switches;
  const chart = new Chart("switches", {
    x_axis_label: "cost of the plan, MiB", y_axis_label: "duration, s", height: 340,
    x_range: new Bokeh.Range1d(), y_range: new Bokeh.Range1d(),
  });
  chart.figure.xaxes[0].formatter = new Bokeh.NumeralTickFormatter({ format: "0,0" });
  const kinds = SWITCHES.map(([name, role, shape]) => {
    const source = newSource("x", "y", "place");
    return { source, points: chart.points(name, role, source, shape, 9) };
  });
  const parts = (place) => STEPS
    .filter((action) => all[action][place]).map((action) => `${all[action][place]} ${action}`).join(", ") || "nothing";
  chart.tell(kinds.map(({ points }) => points), (index, source) => {
    const place = source.data.place[index];
    return `Switch ${all.number[place]}, ${all.state[place]}\n${shownTime(all.at[place])}\n${parts(place)}\n`
      + `${shownCount(all.cost_mib[place])} MiB, ${shownNumber(all.seconds[place])} s`;
  });
  const table = new LazyTable(at("switches-table"), "Context switches", [
    numberColumn("Switch", (place) => all.number[place], String),
    timeColumn("At", (place) => all.at[place]),
    { title: "State", value: (place) => all.state[place] },
    numberColumn("Cost, MiB", (place) => all.cost_mib[place]),
    numberColumn("Seconds", (place) => all.seconds[place], shownNumber),
    ...STEPS.map((action) => (
      numberColumn(`${action[0].toUpperCase()}${action.slice(1)}s`, (place) => all[action][place]))),
  ], () => [...all.at.keys()].filter(inPickedTime(all.at)));
  chart.show = () => {
    const columns = kinds.map(() => ({ x: [], y: [], place: [] }));
    for (const place of all.at.keys()) {
      if (!inPickedTime(all.at)(place) || all.seconds[place] === null) continue;
      const column = columns[SWITCHES.findIndex(([, , , holds]) => holds(all, place))];
      column.x.push(all.cost_mib[place]);
      column.y.push(all.seconds[place]);
      column.place.push(place);
    }
    kinds.forEach(({ source }, kind) => { source.data = numbers(columns[kind]); });
    const drawn = columns.map(({ x }) => x.length);
    const most = (values) => values.reduce((least, value) => Math.max(least, value), 1);
    const [right, top] = [most(columns.flatMap(({ x }) => x)), most(columns.flatMap(({ y }) => y))];
    showRange(chart.figure.x_range, -0.03 * right, 1.05 * right);
    showRange(chart.figure.y_range, 0, 1.1 * top);
    chart.blank(!sum(drawn));
    at("switches-says").textContent =
      `Each mark is one of ${counted(sum(drawn), "context switch", "context switches")} that ended. If the cost model is good, `
      + "switches that cost more take longer. Only the filter of time changes what is shown here.";
    const told = SWITCHES.map(([name], kind) => `${name}: ${shownCount(drawn[kind])}`);
    chart.says(`Scatter of cost and duration. ${told.join("; ")}.`);
    table.change();
  };
  return chart;
}

/* What all actions of a kind cost. */
function showCosts() {
  const kinds = Object.keys(doc.costs);
  if (!kinds.length) return;
  new Table(at("costs"), "What the actions cost in all (no filter applies)", [
    { title: "Action", value: (kind) => kind },
    numberColumn("Actions", (kind) => doc.costs[kind].actions),
    durationColumn("VM time", (kind) => doc.costs[kind].vm_seconds),
    numberColumn("Data", (kind) => doc.costs[kind].bytes, shownBytes),
  ], true).show(kinds);
}

/* What nodes took, where their watts are known: nodes as they were switched, and beside that. */
function showEnergy() {
  if (!doc.energy.length) return;
  at("energy").closest("section").hidden = false;
  const digits = (number) => (value) => (value === null ? "" : value.toFixed(number));
  const column = (title, key, shown = digits(1)) => ({ title, value: (row) => row[key], shown, number: true });
  const known = (key) => doc.energy.some((row) => row[key] !== null);
  new Table(at("energy"), "Kilowatt-hours", [
    { title: "Schedule", value: (row) => (row.policy === "live" ? "nodes as they were" : row.policy) },
    column("kWh", "kwh"),
    column("With all nodes on", "kwh_all_on"),
    ...(known("kwh_not_emptied") ? [column("With no node emptied", "kwh_not_emptied")] : []),
    column("By an oracle", "kwh_oracle"),
    ...(known("cost") ? [column("Cost", "cost", digits(2))] : []),
    ...(known("co2_kg") ? [column("kg of CO2", "co2_kg")] : []),
    column("Switched off", "switched_off", String),
  ]).show(doc.energy);
  showShares("energy-nodes", "Node", doc.energy[0].nodes);
  showShares("energy-users", "User", doc.energy[0].users);
  showShares("energy-accounts", "Account", doc.energy[0].accounts);
}

/* Whose kilowatt-hours they were, the most first; those of nodes without VMs are nobody's. */
function showShares(place, title, shares) {
  if (!shares.length) return;
  const known = (key) => shares.some((row) => row[key] !== null);
  const column = (name, key, places) => (
    { title: name, value: (row) => row[key], shown: (value) => value.toFixed(places), number: true });
  new Table(at(place), `Kilowatt-hours by ${title.toLowerCase()}`, [
    { title, value: (row) => row.name || "(nobody)" },
    column("kWh", "kwh", 1),
    ...(known("cost") ? [column("Cost", "cost", 2)] : []),
    ...(known("co2_kg") ? [column("kg of CO2", "co2_kg", 1)] : []),
  ], true).show([...shares].sort((one, other) => other.kwh - one.kwh));
}
