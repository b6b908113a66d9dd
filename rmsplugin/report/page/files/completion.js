/* Completion with and without context switches: of each job, and as distributions. */

const DASHES = ["dashed", "dotted", "dotdash"];
const ROLES = ["orange", "purple", "teal", "red", "grey"];
const POINTS = 1000; // of a curve: more than a screen has pixels for it

const own = scheduleName(doc.policy);
const baselineName = (schedule) => (schedule === "run" ? "Run time alone" : scheduleName(schedule));

function completionChart() {
  const axes = { x_axis_type: "log", y_axis_type: "log", x_axis_label: " ", y_axis_label: `completion: ${lowered(own)}` };
  const ranges = { x_range: new Bokeh.Range1d({ start: 1, end: 10 }), y_range: new Bokeh.Range1d({ start: 1, end: 10 }) };
  const chart = new Chart("completion", { ...axes, ...ranges });
  ticksOfDurations(chart.figure, "x");
  ticksOfDurations(chart.figure, "y");
  const equal = newSource("x", "y");
  const kinds = [
    ["Sooner with it", "blue", "circle"], ["Later", "orange", "triangle"], ["Within a second", "grey", "square"],
  ].map(([name, role, shape]) => {
    const source = newSource("x", "y", "job");
    return { source, points: chart.points(name, role, source, shape, 6) };
  });
  chart.add("Equal", "muted", { dash: "dashed" }, chart.figure.line({
    x: { field: "x" }, y: { field: "y" }, source: equal, line_dash: "dashed",
  }));
  const baseline = at("baseline");
  baseline.append(...[...doc.others, "run"].map((schedule) => new Option(baselineName(schedule), schedule)));
  chart.tell(kinds.map(({ points }) => points), (place, source) => {
    const job = source.data.job[place];
    return `${namedJob(job)}\n${own}: ${shownDuration(jobs.completion_s[job])}\n`
      + `${baselineName(baseline.value)}: ${shownDuration(completionOf(job, baseline.value))}`;
  });
  const table = new LazyTable(at("completion-table"), "Completion of each job", [
    { title: "Job", value: (job) => jobs.id[job] },
    { title: "User", value: (job) => jobs.user[job] },
    durationColumn(own, (job) => jobs.completion_s[job]),
    ...doc.others.map((schedule) => durationColumn(scheduleName(schedule), (job) => completionOf(job, schedule))),
    durationColumn("Run time", (job) => jobs.run_s[job]),
  ], () => chart.shown);
  const home = () => {
    ranges.x_range.setv(chart.home);
    ranges.y_range.setv(chart.home);
  };
  const show = () => {
    const columns = kinds.map(() => ({ x: [], y: [], job: [] }));
    let [low, high] = [Infinity, 10];
    for (const job of endedUnderBoth(chart.shown, baseline.value)) {
      const [x, y] = [completionOf(job, baseline.value), jobs.completion_s[job]];
      const { x: xs, y: ys, job: of } = columns[Math.abs(x - y) < 1 ? 2 : y < x ? 0 : 1];
      xs.push(drawable(x));
      ys.push(drawable(y));
      of.push(job);
      low = Math.min(low, drawable(x), drawable(y));
      high = Math.max(high, x, y);
    }
    low = Math.min(low, high);
    const size = chart.shown.length > 2000 ? 4 : 7;
    kinds.forEach(({ source, points }, kind) => {
      source.data = numbers(columns[kind]);
      points.glyph.setv({ size: { value: size } });
    });
    equal.data = numbers({ x: [low / 1.5, high * 1.5], y: [low / 1.5, high * 1.5] });
    chart.home = { start: low / 1.5, end: high * 1.5 };
    home();
    chart.figure.xaxes[0].axis_label = `completion: ${lowered(baselineName(baseline.value))}`;
    const [sooner, later, alike] = columns.map(({ x }) => x.length);
    chart.blank(sooner + later + alike === 0);
    at("completion-says").textContent =
      "Each mark is a job; below the dashed line it ended sooner than it would have under the other schedule. "
      + `${shownCount(sooner)} sooner, ${shownCount(later)} later, ${shownCount(alike)} within a second.`;
    chart.says(`Scatter of ${counted(sooner + later + alike, "job")}: completion ${own} against `
      + `${baselineName(baseline.value)}. ${at("completion-says").textContent}`);
  };
  baseline.addEventListener("change", show);
  resetButton(at("completion-controls"), home);
  chart.show = (shown) => {
    chart.shown = shown;
    show();
    table.change();
  };
  return chart;
}

function distributionChart() {
  const chart = new Chart("distribution", {
    x_axis_type: "log", x_axis_label: "completion", y_axis_label: "jobs completed by then, %",
    x_range: new Bokeh.Range1d({ start: 1, end: 10 }), y_range: new Bokeh.Range1d({ start: 0, end: 102 }), zoomed: "width",
  });
  ticksOfDurations(chart.figure, "x");
  const schedules = [doc.policy, ...doc.others];
  const sources = schedules.map((schedule, place) => {
    const source = newSource("x", "y");
    const role = place ? ROLES[(place - 1) % ROLES.length] : "blue";
    chart.line(scheduleName(schedule), role, source, place ? DASHES[(place - 1) % DASHES.length] : "solid", place ? 2 : 3);
    return source;
  });
  let spreads = [];
  const percents = [5, 10, 25, 50, 75, 90, 95, 99, 100];
  const table = new LazyTable(at("distribution-table"), "Percentiles of completion by schedule", [
    { title: "Percentile", value: (percent) => percent, shown: (percent) => `${percent} %`, number: true },
    ...schedules.map((schedule, place) => durationColumn(scheduleName(schedule), (percent) => percentile(spreads[place], percent))),
  ], () => percents);
  chart.show = (shown) => {
    // The same jobs under each schedule, or the curves would not be of the same thing.
    const alike = schedules.reduce((left, schedule) => endedUnderBoth(left, schedule), shown);
    spreads = schedules.map((schedule) => ascending(alike.map((job) => completionOf(job, schedule))));
    spreads.forEach((values, place) => { sources[place].data = numbers(curve(values)); });
    chart.blank(!alike.length);
    const ends = spreads.flatMap((values) => (values.length ? [values[0], values[values.length - 1]] : []));
    showRange(chart.figure.x_range, drawable(Math.min(...ends, 1e9)) / 1.2, drawable(Math.max(...ends, 10)) * 1.2);
    at("distribution-says").textContent =
      `Of the ${counted(alike.length, "job")} that ended under every schedule, the share that had completed within each time; `
      + "the further left a curve, the better.";
    chart.says(`Curves of completion. ${schedules.map((schedule, place) => (
      `${scheduleName(schedule)}: half within ${shownDuration(percentile(spreads[place], 50))}, `
      + `95 % within ${shownDuration(percentile(spreads[place], 95))}`)).join("; ")}.`);
    table.change();
  };
  return chart;
}

/* The steps of a distribution, thinned out. */
function curve(values) {
  const [x, y] = [[], []];
  const step = Math.max(1, Math.floor(values.length / POINTS));
  for (let place = 0; place < values.length; place += step) {
    x.push(drawable(values[place]));
    y.push((100 * (place + 1)) / values.length);
  }
  if (values.length) {
    x.push(drawable(values[values.length - 1]));
    y.push(100);
  }
  return { x, y };
}
