/* The filters: which jobs are shown, and for which time. */

const NAMED = ["user", "account", "partition"];

const picked = { from: null, until: null }; // seconds; null: no bound

function fillFilters() {
  for (const name of NAMED) {
    const values = [...new Set(jobs[name])].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
    at(name).parentElement.hidden = doc.kind !== "report" && !isNamed(name);
    at(name).append(new Option("All", "", true, true), ...values.map((value) => new Option(value || "(none)", `=${value}`)));
  }
  for (const id of ["after", "before"]) {
    at(id).type = relative ? "number" : "datetime-local";
    at(id).step = relative ? "any" : "1";
    if (relative) {
      at(id).min = "0";
      at(id).placeholder = "hours";
    }
  }
}

function moment(id) {
  const text = at(id).value;
  if (text === "") return null;
  const value = relative ? Number(text) * 3600 : new Date(text).getTime() / 1000;
  return Number.isFinite(value) ? value : null;
}

/* Whether a job's number is asked for. */
function wantedNumbers(text) {
  const patterns = text.split(/[\s,]+/).filter(Boolean);
  if (!patterns.length) return () => true;
  const exact = new Set(patterns.filter((pattern) => !pattern.includes("*")));
  const loose = patterns
    .filter((pattern) => pattern.includes("*"))
    .map((pattern) => new RegExp(`^${pattern.split(/\*+/).map(literally).join(".*")}$`));
  return (id) => exact.has(id) || loose.some((pattern) => pattern.test(id));
}

const literally = (text) => text.replace(/[.+?^${}()|[\]\\]/g, "\\$&");

/* The jobs that all filters let through, in the document's order. */
function filteredJobs() {
  picked.from = moment("after");
  picked.until = moment("before");
  const values = NAMED.map((name) => at(name).value);
  const wanted = wantedNumbers(at("job").value);
  const shown = [];
  for (let job = 0; job < jobCount; job += 1) {
    if (NAMED.some((name, place) => values[place] !== "" && values[place] !== `=${jobs[name][job]}`)) continue;
    if (picked.from !== null && (jobs.end[job] ?? doc.until) < picked.from) continue;
    if (picked.until !== null && jobs.submit[job] > picked.until) continue;
    if (wanted(jobs.id[job])) shown.push(job);
  }
  return shown;
}

/* Call this whenever a filter changes, but not for each key that is pressed. */
function onFilter(act) {
  const form = at("filters");
  let timer = null;
  const soon = (delay) => {
    clearTimeout(timer);
    timer = setTimeout(act, delay);
  };
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", () => soon(150));
  form.addEventListener("reset", () => soon(0)); // the fields are empty after the event
}
