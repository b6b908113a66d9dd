/* Charts: what they have in common: figures of Bokeh in the page's colours, legends, tooltips, buttons to zoom. */

const plotting = Bokeh.Plotting;
const coarse = matchMedia("(pointer: coarse)").matches; // a finger scrolls the page, it draws no boxes
const narrow = () => innerWidth < 600;

const colour = (role) => getComputedStyle(document.documentElement).getPropertyValue(`--${role}`).trim();

/* Ticks for durations, from few to many: people read hours, not powers of ten. */
const DURATIONS = [
  { 1: "1 s", 60: "1 min", 3600: "1 h", 86400: "1 d", 2592000: "30 d" },
  { 10: "10 s", 600: "10 min", 21600: "6 h", 604800: "7 d", 31536000: "365 d" },
  { 5: "5 s", 30: "30 s", 300: "5 min", 1800: "30 min", 7200: "2 h", 43200: "12 h", 172800: "2 d", 1209600: "14 d" },
  { 2: "2 s", 20: "20 s", 120: "2 min", 1200: "20 min", 5400: "1.5 h", 10800: "3 h", 14400: "4 h", 28800: "8 h", 259200: "3 d" },
];

const SHAPES = {
  circle: "M8 3a5 5 0 1 0 .01 0z",
  triangle: "M8 2.5 14 13H2z",
  inverted_triangle: "M8 13.5 2 3h12z",
  diamond: "M8 1.5 13 8l-5 6.5L3 8z",
  square: "M3 3h10v10H3z",
  x: "M3 3l10 10M13 3L3 13",
};

class Chart {
  /* A chart in the place of that id. Options are those of Bokeh's figure. */
  constructor(id, { zoomed = "both", ...options }) {
    this.place = at(id);
    this.paints = [];
    this.told = [];
    this.figure = plotting.figure({
      sizing_mode: "stretch_width", height: 360, tools: [], toolbar_location: null, min_border_right: 16,
      background_fill_color: null, border_fill_color: null, outline_line_color: null, ...options,
    });
    const box = new Bokeh.BoxAnnotation({
      syncable: false, level: "overlay", visible: false, left: NaN, right: NaN, top: NaN, bottom: NaN, line_color: null,
      fill_alpha: 0.2,
    });
    this.paints.push(() => { box.fill_color = colour("blue"); });
    if (!coarse) this.figure.add_tools(new Bokeh.BoxZoomTool({ dimensions: zoomed, overlay: box }));
    for (const { formatter } of this.figure.xaxes) {
      if (formatter instanceof Bokeh.DatetimeTickFormatter) formatter.setv(timeFormats);
    }
    this.legend = element("ul", { class: "legend" });
    this.drawing = element("div", { role: "img" });
    const sentence = "Nothing to draw: no job or switch that is shown has such numbers.";
    this.nothing = element("p", { class: "nothing", hidden: "" }, sentence);
    this.place.append(this.legend, this.nothing, this.drawing);
  }

  /* Add a renderer to the legend. Sign: {dash, width}, {area: opacity}, or {shape}, colour: its role. */
  add(name, role, sign, ...renderers) {
    const paint = () => renderers.forEach(({ glyph }) => {
      const now = colour(role);
      if (sign.shape || sign.area) glyph.fill_color = { value: now };
      if (!sign.area) glyph.line_color = { value: now };
    });
    this.paints.push(paint);
    const swatch = swatchOf(role, sign);
    const toggle = element("button", { type: "button", "aria-pressed": "true" }, swatch, name);
    toggle.addEventListener("click", () => {
      const on = toggle.getAttribute("aria-pressed") !== "true";
      toggle.setAttribute("aria-pressed", String(on));
      renderers.forEach((renderer) => { renderer.visible = on; });
    });
    this.legend.append(element("li", {}, toggle));
  }

  line(name, role, source, dash, width = 2) {
    const line = { source, line_dash: dash, line_width: width };
    this.add(name, role, { dash, width }, this.figure.step({ x: { field: "x" }, y: { field: "y" }, mode: "after", ...line }));
  }

  points(name, role, source, shape, size = 7) {
    const style = { source, marker: shape, size, fill_alpha: 0.55, line_width: shape === "x" ? 2 : 0.5 };
    const points = this.figure.scatter({ x: { field: "x" }, y: { field: "y" }, ...style });
    this.add(name, role, { shape }, points);
    return points;
  }

  /* What is told of the mark under the mouse: text(its place in the source, the source). */
  tell(renderers, text) {
    this.told.push(...renderers.map((renderer) => ({ renderer, text })));
  }

  /* Say that there is nothing to draw. */
  blank(none) {
    this.nothing.hidden = !none;
  }

  /* What a screen reader says instead of the drawing. */
  says(text) {
    this.drawing.setAttribute("aria-label", text);
  }

  /* Call it once the chart is on the page. */
  drawn(view) {
    this.told.forEach((mark) => { mark.view = view.views.find_one(mark.renderer); });
    // The drawing is one picture to keyboards and screen readers; its numbers are in the table below.
    for (const canvas of deep(this.drawing, ".bk-events")) canvas.tabIndex = -1;
    this.drawing.addEventListener("mousemove", (event) => this.#point(event));
    this.drawing.addEventListener("mouseleave", () => { at("tip").hidden = true; });
    new ResizeObserver(() => this.fit()).observe(this.place);
  }

  /* Tell of the mark under the mouse. (Bokeh's own tool for this draws all marks anew for each move.) */
  #point(event) {
    const box = this.drawing.getBoundingClientRect();
    const point = { type: "point", sx: event.clientX - box.left, sy: event.clientY - box.top };
    for (const { renderer, view, text } of this.told) {
      const { indices } = view.hit_test(point) ?? { indices: [] };
      if (indices.length) return showTip(event, text(indices[0], renderer.data_source));
    }
    at("tip").hidden = true;
    return undefined;
  }

  fit() {
    for (const { ticker } of this.figure.xaxes) {
      if ("desired_num_ticks" in ticker) ticker.desired_num_ticks = narrow() ? 4 : 8;
    }
  }

  restyle() {
    for (const axis of this.figure.axes) {
      axis.setv({
        axis_line_color: colour("grey"), major_tick_line_color: colour("grey"), minor_tick_line_color: null,
        major_label_text_color: colour("muted"), axis_label_text_color: colour("muted"),
        major_label_text_font_size: "12px", axis_label_text_font_size: "13px", axis_label_text_font_style: "normal",
      });
    }
    for (const grid of this.figure.grids) grid.grid_line_color = colour("grid");
    this.paints.forEach((paint) => paint());
  }
}

/* All charts are of one document, so that they may share a range. */
async function draw(charts) {
  const together = new Bokeh.Document();
  for (const chart of charts) {
    chart.restyle();
    together.add_root(chart.figure);
  }
  const views = await Bokeh.embed.add_document_standalone(together, document.body, charts.map(({ drawing }) => drawing));
  charts.forEach((chart) => chart.drawn(views.get(chart.figure)));
}

/* The elements in an element's shadows, however deep. */
function deep(root, selector) {
  const found = [];
  for (const inner of root.querySelectorAll("*")) {
    if (inner.matches(selector)) found.push(inner);
    if (inner.shadowRoot) found.push(...deep(inner.shadowRoot, selector));
  }
  return found;
}

function swatchOf(role, { dash, shape, area, width = 2 }) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const part = document.createElementNS("http://www.w3.org/2000/svg", "path");
  const dashes = { dashed: "6 3", dotted: "2 3", dotdash: "2 3 6 3" };
  const lined = !area && (!shape || shape === "x");
  svg.setAttribute("width", shape ? 16 : 28);
  svg.setAttribute("height", 16);
  svg.setAttribute("aria-hidden", "true");
  part.setAttribute("d", shape ? SHAPES[shape] : area ? "M0 3h28v10H0z" : "M0 8h28");
  part.setAttribute("fill", lined ? "none" : `var(--${role})`);
  part.setAttribute("fill-opacity", area ?? 1);
  if (lined) part.setAttribute("stroke", `var(--${role})`);
  part.setAttribute("stroke-width", String(width));
  part.setAttribute("stroke-dasharray", dashes[dash] ?? "none");
  svg.append(part);
  return svg;
}

function showTip({ clientX, clientY }, text) {
  const tip = at("tip");
  tip.textContent = text;
  tip.hidden = false;
  tip.style.left = `${Math.max(4, Math.min(clientX + 14, innerWidth - tip.offsetWidth - 8))}px`;
  tip.style.top = `${Math.max(4, Math.min(clientY + 14, innerHeight - tip.offsetHeight - 8))}px`;
}

/* Columns of numbers, which Bokeh need not search for anything else. */
const numbers = (columns) => Object.fromEntries(
  Object.entries(columns).map(([name, values]) => [name, Float64Array.from(values)]));

const newSource = (...columns) => new Bokeh.ColumnDataSource({
  data: Object.fromEntries(columns.map((name) => [name, new Float64Array()])),
});

/* Give an axis with that range as many ticks as there is room for. */
function ticksOfDurations(figure, side) {
  const range = figure[`${side}_range`];
  const [axis] = figure[`${side}axes`];
  const ticker = new Bokeh.FixedTicker();
  const choose = () => {
    const room = side === "x" && narrow() ? 5 : 9;
    const seen = (labels) => Object.keys(labels).map(Number).filter((seconds) => seconds >= range.start && seconds <= range.end);
    let ticks = seen(DURATIONS[0]);
    for (const more of DURATIONS.slice(1).map(seen)) {
      if (ticks.length + more.length <= room) ticks = ticks.concat(more);
      else break;
    }
    ticker.ticks = ticks.sort((a, b) => a - b);
  };
  axis.ticker = ticker;
  figure[`${side}grids`][0].ticker = ticker;
  const labels = DURATIONS.flatMap((level) => Object.entries(level).map(([seconds, label]) => [Number(seconds), label]));
  axis.major_label_overrides = new Map(labels);
  range.change.connect(choose);
}

/* A logarithmic axis takes no zero. */
const drawable = (seconds) => Math.max(1, seconds);

function showRange(range, start, end) {
  range.setv({ start, end, reset_start: start, reset_end: end });
}

/* -- The axis of time, which charts share ------------------------------------------------------------------------ */

const timeRange = new Bokeh.Range1d({ start: onAxis(doc.since), end: onAxis(doc.until) });

const timeFormats = {
  seconds: "%H:%M:%S", minsec: "%H:%M:%S", minutes: "%H:%M", hourmin: "%H:%M", hours: "%H:%M", days: "%b %d", months: "%b %Y",
};

const timeOptions = () => ({
  x_range: timeRange, x_axis_type: relative ? "linear" : "datetime", zoomed: "width",
  x_axis_label: relative ? "hours since the start of the trace" : `time (${zone()})`,
});

const zone = () => Intl.DateTimeFormat().resolvedOptions().timeZone;

/*
 * The axis follows the jobs that are shown, from the first submission to the last end within the report's time: a month of which a
 * ledger knows two days would be a blank chart. A filter of time is kept to.
 */
const shownTimes = { jobs: [] };

function showTimes() {
  let [from, until] = [doc.until, doc.since];
  for (const job of shownTimes.jobs) {
    from = Math.min(from, jobs.submit[job]);
    const ends = doc.others.map((schedule) => jobs.without[schedule].end[job] ?? doc.since);
    until = Math.max(until, jobs.end[job] ?? doc.until, ...ends);
  }
  from = Math.max(from, doc.since);
  until = Math.min(until, doc.until);
  if (from >= until) [from, until] = [doc.since, doc.until];
  const margin = 0.01 * (until - from);
  showRange(timeRange, onAxis(picked.from ?? from - margin), onAxis(picked.until ?? until + margin));
}

/* Buttons that do what a mouse does with a box. */
function timeButtons(place) {
  const move = (part, zoomed) => () => {
    const { start, end } = timeRange;
    const [middle, half] = [(start + end) / 2 + part * (end - start), ((end - start) * zoomed) / 2];
    timeRange.setv({ start: middle - half, end: middle + half });
  };
  const buttons = [
    ["Zoom in", move(0, 0.5)], ["Zoom out", move(0, 2)], ["Earlier", move(-0.5, 1)], ["Later", move(0.5, 1)],
    ["All the time", showTimes],
  ];
  place.append(...buttons.map(([name, onclick]) => element("button", { type: "button", onclick }, name)));
}

/* A button for charts of other axes. */
function resetButton(place, act) {
  place.append(element("button", { type: "button", onclick: act }, "Reset zoom"));
}
