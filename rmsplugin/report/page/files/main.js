/* The page: fill it, and keep it in step with the filters and the colours. */

const KINDS = { report: "Report on a live cluster", simulation: "Simulation", comparison: "Comparison of policies" };

function showAbout() {
  const span = relative ? "" : `, ${shownTime(doc.since)} to ${shownTime(doc.until)}, times in ${zone()}`;
  const asked = Object.entries(doc.selection).filter(([, values]) => values.length)
    .map(([what, values]) => `; only ${what} ${values.join(", ")}`).join("");
  at("about").textContent = `${KINDS[doc.kind]}: ${counted(jobCount, "job")}${span}${asked}`;
}

/* What is a report's, a simulation calls otherwise; nodes and switches are of one policy of a comparison. */
function showTitles() {
  if (doc.kind === "report") return;
  at("notes-title").textContent = "Notes on this simulation";
  at("totals-title").closest("section").hidden = !["user", "account", "partition"].some(isNamed);
  if (!doc.others.length) return;
  for (const id of ["allocation-title", "switches-title", "jobs-title"]) at(id).append(`, ${own}`);
}

/* What the other schedules leave out stands beside the numbers, not only at the end. */
const AT_ONCE = ["one-queue", "replayed"];

function showNotes() {
  const first = doc.notes.filter((note) => AT_ONCE.includes(note.code));
  at("left-out").textContent = first.map((note) => `${capital(note.sentence)}.`).join(" ");
  const notes = doc.notes.map((note) => element("li", {}, note.sentence));
  at("notes").append(...(notes.length ? notes : [element("li", {}, "Nothing: all that it needs is known.")]));
}

/* Do something with one chart after the other; in between the page answers its reader, and new work ends the old. */
let work = 0;

async function eachInTurn(charts, act) {
  work += 1;
  const mine = work;
  at("main").setAttribute("aria-busy", "true");
  for (const chart of charts) {
    await new Promise((done) => { setTimeout(done); });
    if (mine !== work) return;
    act(chart);
  }
  at("main").setAttribute("aria-busy", "false");
}

async function start() {
  Bokeh.set_log_level("warn");
  showAbout();
  showTitles();
  showNotes();
  showCosts();
  showEnergy();
  fillFilters();
  const charts = [
    completionChart(), distributionChart(), allocationChart(), utilisationChart(), memoryChart(), queueChart(), switchesChart(),
  ];
  const onlyJob = (id) => {
    at("job").value = id;
    change();
    at("job").focus();
  };
  const parts = [summary(), totals(), lossesTable(onlyJob), jobsTable(onlyJob)];
  let shown = [];
  const refresh = () => eachInTurn(charts, (chart) => {
    if (chart.showing !== shown) chart.show(shown);
    chart.showing = shown;
    chart.restyle();
  });
  function change() {
    shown = filteredJobs();
    at("count").textContent = `${shownCount(shown.length)} of ${counted(jobCount, "job")} shown`;
    shownTimes.jobs = shown;
    showTimes();
    parts.forEach((show) => show(shown));
    return refresh();
  }
  await change();
  await draw(charts);
  onFilter(change);

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", refresh);
  for (const theme of document.querySelectorAll("input[name=theme]")) {
    theme.addEventListener("change", () => {
      document.documentElement.dataset.theme = theme.value;
      refresh();
    });
  }
  document.documentElement.dataset.ready = "yes";
}

start();
