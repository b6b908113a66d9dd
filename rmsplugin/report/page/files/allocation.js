/* Allocation: which node held VMs of which job, when; suspends, resumes and migrations. */

const TONES = ["run1", "run2", "run3"];
const MARKS = 1000; // more are neither readable nor quickly drawn

const [WAITING, RUNNING, SLEEPING] = [0, 1, 2];
const STATES = ["waiting", "running", "sleeping"];

/*
 * The bars of all jobs, {job, node, vms, from, until, lane}, and their marks, {job, kind, time, vms, before: bar, after: bar}.
 * A bar is a job's VMs on a node for a time.
 */
function allocate() {
  const { job, state, from, until, nodes } = doc.intervals;
  const bars = [];
  const marks = [];
  let last = null; // the job's interval before, as [state, bars]
  for (let place = 0; place < job.length; place += 1) {
    const now = [];
    for (let pair = 0; pair < nodes[place].length; pair += 2) {
      const [node, vms] = [nodes[place][pair], nodes[place][pair + 1]];
      now.push({ job: job[place], node, vms, from: from[place], until: until[place], lane: 0 });
    }
    bars.push(...now);
    const before = place && job[place - 1] === job[place] ? last : [WAITING, []];
    marks.push(...marksBetween(before, [state[place], now], from[place]));
    // Asleep, a job is remembered where it was.
    last = [state[place], state[place] === SLEEPING ? before[1] : now];
  }
  return { bars, marks };
}

function marksBetween([was, left], [is, came], time) {
  if (was === RUNNING && is === SLEEPING) {
    return left.map((bar) => ({ job: bar.job, kind: "suspend", time, vms: bar.vms, before: bar, after: bar }));
  }
  if (was === SLEEPING && is === RUNNING) {
    return came.map((bar, place) => (
      { job: bar.job, kind: "resume", time, vms: bar.vms, before: left[place] ?? bar, after: bar }));
  }
  if (was !== RUNNING || is !== RUNNING) return [];
  const vmsOn = (bars, node) => bars.find((bar) => bar.node === node)?.vms ?? 0;
  const sources = left.filter((bar) => vmsOn(came, bar.node) < bar.vms);
  const goals = came.filter((bar) => vmsOn(left, bar.node) < bar.vms);
  return goals.map((bar, place) => ({
    job: bar.job, kind: "migrate", time, vms: bar.vms - vmsOn(left, bar.node), before: sources[place] ?? sources[0] ?? bar,
    after: bar,
  }));
}

/* Give each bar a lane of its node that no other bar has at that time; returns the number of lanes of each node. */
function takeLanes(bars) {
  const lanes = doc.nodes.map(() => []);
  for (const bar of [...bars].sort((a, b) => a.from - b.from || a.job - b.job)) {
    const of = lanes[bar.node];
    const free = ({ until }) => until <= bar.from;
    bar.lane = of.findIndex((lane) => lane.job === bar.job && free(lane));
    if (bar.lane < 0) bar.lane = of.findIndex(free);
    if (bar.lane < 0) bar.lane = of.length;
    of[bar.lane] = bar;
  }
  return lanes.map((of) => Math.max(1, of.length));
}

function allocationChart() {
  const { bars, marks } = allocate();
  const lanes = takeLanes(bars);
  const nodes = doc.nodes.length;
  const bottom = (bar) => nodes - 1 - bar.node + 0.06 + (0.88 * bar.lane) / lanes[bar.node];
  const middle = (bar) => bottom(bar) + 0.42 / lanes[bar.node];
  const chart = new Chart("allocation", {
    ...timeOptions(), zoomed: "both", y_axis_label: "node", y_range: new Bokeh.Range1d({ start: 0, end: Math.max(1, nodes) }),
    height: Math.min(720, Math.max(220, 90 + 14 * sum(lanes))),
  });
  ticksOfNodes(chart);
  const tones = TONES.map((role) => {
    const source = newSource("left", "right", "bottom", "top", "bar");
    const quad = chart.figure.quad({
      left: { field: "left" }, right: { field: "right" }, bottom: { field: "bottom" }, top: { field: "top" }, source,
      line_color: null,
    });
    return { source, quad, role };
  });
  chart.add("Running VMs of a job (shades only tell neighbours apart)", TONES[0], { area: 1 }, ...tones.map(({ quad }) => quad));
  chart.paints.push(() => tones.forEach(({ quad, role }) => { quad.glyph.fill_color = { value: colour(role) }; }));
  const asleep = newSource("x0", "y0", "x1", "y1");
  const moves = newSource("x0", "y0", "x1", "y1");
  const segment = (source, dash) => chart.figure.segment({
    x0: { field: "x0" }, y0: { field: "y0" }, x1: { field: "x1" }, y1: { field: "y1" }, source, line_dash: dash, line_width: 1.5,
  });
  chart.add("Asleep", "muted", { dash: "dotted" }, segment(asleep, "dotted"));
  const moving = segment(moves, "solid");
  const kinds = Object.fromEntries([
    ["suspend", "Suspend", "orange", "inverted_triangle"], ["resume", "Resume", "teal", "triangle"],
    ["migrate", "Migration", "purple", "diamond"],
  ].map(([kind, name, role, shape]) => {
    const source = newSource("x", "y", "mark");
    const style = { source, marker: shape, size: 9, line_width: 1, x: { field: "x" }, y: { field: "y" } };
    const points = chart.figure.scatter(style);
    chart.add(name, role, { shape }, points, ...(kind === "migrate" ? [moving] : []));
    chart.paints.push(() => { points.glyph.line_color = { value: colour("card") }; });
    if (kind === "migrate") chart.paints.push(() => { moving.glyph.line_color = { value: colour("purple") }; });
    return [kind, { source, points }];
  }));
  chart.tell(Object.values(kinds).map(({ points }) => points), (place, source) => {
    const mark = marks[source.data.mark[place]];
    const [from, to] = [doc.nodes[mark.before.node], doc.nodes[mark.after.node]];
    const where = from === to ? from : `${from} to ${to}`;
    return `Job ${jobs.id[mark.job]}: ${mark.kind} ${counted(mark.vms, "VM")}\n${where}\n${shownTime(mark.time)}`;
  });
  chart.tell(tones.map(({ quad }) => quad), (place, source) => {
    const bar = bars[source.data.bar[place]];
    return `${namedJob(bar.job)}\n${counted(bar.vms, "VM")} on ${doc.nodes[bar.node]}\n`
      + `${shownTime(bar.from)} to ${shownTime(bar.until)}`;
  });
  const table = intervalsTable(() => chart.shown);

  chart.wanted = new Set();
  const showMarks = () => {
    const [start, end] = [timeRange.start, timeRange.end];
    const seen = marks.flatMap((mark, place) => {
      const time = onAxis(mark.time);
      return chart.wanted.has(mark.job) && time >= start && time <= end ? [place] : [];
    });
    const drawn = seen.length <= MARKS ? seen : [];
    for (const [kind, { source }] of Object.entries(kinds)) {
      const of = drawn.filter((place) => marks[place].kind === kind);
      const [x, y] = [of.map((place) => onAxis(marks[place].time)), of.map((place) => middle(marks[place].after))];
      source.data = numbers({ x, y, mark: of });
    }
    const linked = (kind, begin) => {
      const of = drawn.map((place) => marks[place]).filter((mark) => mark.kind === kind);
      return numbers({
        x0: of.map((mark) => onAxis(begin(mark))), y0: of.map((mark) => middle(mark.before)),
        x1: of.map((mark) => onAxis(mark.time)), y1: of.map((mark) => middle(mark.after)),
      });
    };
    moves.data = linked("migrate", (mark) => mark.time);
    asleep.data = linked("resume", (mark) => mark.before.until);
    const many = seen.length > MARKS ? ` ${counted(seen.length, "mark")} are too many to be told apart: zoom in, or filter.` : "";
    at("allocation-says").textContent =
      "Each row is a node, each bar the VMs of one job that run on it. A triangle that points down is a suspend, one that "
      + "points up a resume, a diamond a migration, on the node that the VM comes to; a dotted line leads through the sleep."
      + many;
  };

  chart.show = (shown) => {
    chart.shown = shown;
    chart.wanted = new Set(shown);
    const columns = TONES.map(() => ({ left: [], right: [], bottom: [], top: [], bar: [] }));
    bars.forEach((bar, place) => {
      if (!chart.wanted.has(bar.job)) return;
      const column = columns[bar.job % TONES.length];
      column.left.push(onAxis(bar.from));
      column.right.push(onAxis(bar.until));
      column.bottom.push(bottom(bar));
      column.top.push(bottom(bar) + (0.8 / lanes[bar.node]));
      column.bar.push(place);
    });
    tones.forEach(({ source }, tone) => { source.data = numbers(columns[tone]); });
    showMarks();
    const drawn = sum(columns.map(({ bar }) => bar.length));
    const moved = (kind) => sum(
      marks.filter((mark) => mark.kind === kind && chart.wanted.has(mark.job)).map(({ vms }) => vms));
    chart.says(`Bars of ${counted(shown.length, "job")} on ${counted(nodes, "node")}: ${counted(drawn, "bar")}, `
      + ["suspend", "resume", "migrate"].map((kind) => (
        counted(moved(kind), ...COUNTED[kind]))).join(", ") + " of VMs.");
    chart.blank(drawn === 0);
    table.change();
  };
  let timer = null;
  timeRange.change.connect(() => {
    clearTimeout(timer);
    timer = setTimeout(showMarks, 100);
  });
  timeButtons(at("allocation-controls"));
  return chart;
}

const COUNTED = { suspend: ["suspend"], resume: ["resume"], migrate: ["migration"] };

/* The names of nodes, of so many as there is room for. */
function ticksOfNodes({ figure }) {
  const nodes = doc.nodes.length;
  const step = Math.ceil(nodes / 30);
  const places = doc.nodes.map((_, node) => node).filter((node) => node % step === 0);
  const [axis] = figure.yaxes;
  axis.ticker = new Bokeh.FixedTicker({ ticks: places.map((node) => nodes - 0.5 - node) });
  axis.major_label_overrides = new Map(places.map((node) => [nodes - 0.5 - node, shortName(doc.nodes[node])]));
  figure.ygrids[0].grid_line_width = 2;
  figure.ygrids[0].ticker = new Bokeh.FixedTicker({ ticks: doc.nodes.map((_, node) => node) });
}

const shortName = (name) => (name.length > 14 ? `${name.slice(0, 13)}…` : name);

function intervalsTable(shown) {
  const { job, state, from, until, nodes } = doc.intervals;
  const named = (place) => nodes[place].flatMap((node, pair) => {
    const vms = nodes[place][pair + 1];
    return pair % 2 ? [] : [vms > 1 ? `${doc.nodes[node]} (${vms} VMs)` : doc.nodes[node]];
  }).join(", ");
  return new LazyTable(at("allocation-table"), "What each job did, when, and on which nodes", [
    { title: "Job", value: (place) => jobs.id[job[place]] },
    { title: "State", value: (place) => STATES[state[place]] },
    timeColumn("From", (place) => from[place]),
    timeColumn("Until", (place) => until[place]),
    durationColumn("Duration", (place) => until[place] - from[place]),
    { title: "Nodes", value: named },
  ], () => {
    const wanted = new Set(shown());
    return [...job.keys()].filter((place) => wanted.has(job[place]));
  });
}
