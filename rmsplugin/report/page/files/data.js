/* The document: columns as they came, and what schedules, users and times are called. */

const doc = JSON.parse(document.getElementById("document").textContent);
const jobs = doc.jobs;
const jobCount = jobs.id.length;

/* Traces begin near 0, clusters do not: their times are those of a clock. */
const relative = doc.until < 3e8;

const scheduleNames = { live: "With context switches", fcfs: "FCFS", easy: "EASY" };

function scheduleName(schedule) {
  const name = scheduleNames[schedule] ?? schedule;
  return doc.kind === "report" && schedule !== doc.policy ? `${name} without context switches` : name;
}

/* The title of a column beside many others. */
const columnName = (schedule) => scheduleNames[schedule] ?? schedule;

/* A job as charts call it: of a trace, its user is not known. */
const namedJob = (job) => `Job ${jobs.id[job]}${jobs.user[job] && ` of ${jobs.user[job]}`}`;

/* Whether jobs have names of this kind at all: those of a trace have none. */
const isNamed = (name) => jobs[name].some((value) => value !== "");

/* Seconds from submission to end under a schedule; null where that is not known. */
function completionOf(job, schedule) {
  if (schedule === doc.policy) return jobs.completion_s[job];
  if (schedule === "run") return jobs.run_s[job];
  const end = jobs.without[schedule].end[job];
  return end === null ? null : end - jobs.submit[job];
}

/* The jobs that ended under both schedules. */
function endedUnderBoth(shown, schedule) {
  return shown.filter((job) => jobs.completion_s[job] !== null && completionOf(job, schedule) !== null);
}

const sum = (values) => values.reduce((total, value) => total + value, 0);
const mean = (values) => (values.length ? sum(values) / values.length : null);
const ascending = (values) => Float64Array.from(values).sort();

/* A percentile of ascending values, interpolated between the two nearest. */
function percentile(values, percent) {
  if (!values.length) return null;
  const place = (percent / 100) * (values.length - 1);
  const below = Math.floor(place);
  const above = Math.min(below + 1, values.length - 1);
  return values[below] + (place - below) * (values[above] - values[below]);
}

/* A name in the midst of a sentence; abbreviations stay. */
const lowered = (name) => (/^[A-Z]{2}/.test(name) ? name : name[0].toLowerCase() + name.slice(1));

/* -- What is shown of values ------------------------------------------------------------------------------------- */

const grouped = new Intl.NumberFormat("en");
const decimal = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const UNKNOWN = "–";

const shownCount = (value) => (value === null || value === undefined ? UNKNOWN : grouped.format(value));
const shownNumber = (value) => (value === null || value === undefined ? UNKNOWN : decimal.format(value));
const counted = (count, one, many = `${one}s`) => `${shownCount(count)} ${count === 1 ? one : many}`;

/* A duration as squeue prints it: [D-]H:MM:SS, or M:SS. */
function shownDuration(seconds) {
  if (seconds === null || seconds === undefined) return UNKNOWN;
  const whole = Math.floor(Math.max(0, seconds) + 1e-6);
  const two = (value) => String(value).padStart(2, "0");
  const [days, hours, minutes] = [Math.floor(whole / 86400), Math.floor(whole / 3600) % 24, Math.floor(whole / 60) % 60];
  if (days) return `${days}-${two(hours)}:${two(minutes)}:${two(whole % 60)}`;
  return hours ? `${hours}:${two(minutes)}:${two(whole % 60)}` : `${minutes}:${two(whole % 60)}`;
}

/* A duration in a column: of days without seconds. */
const shortDuration = (seconds) => shownDuration(seconds).replace(/^(\d+-\d\d:\d\d):\d\d$/, "$1");

/* Seconds that the clock on the reader's wall is ahead of UTC. */
const ahead = (time) => -60 * new Date(time * 1000).getTimezoneOffset();

/* A moment: as YYYY-MM-DD HH:MM:SS on the reader's clock, or since the start of a trace. */
function shownTime(time) {
  if (time === null || time === undefined) return UNKNOWN;
  if (relative) return shownDuration(time);
  return new Date((time + ahead(time)) * 1000).toISOString().slice(0, 19).replace("T", " ");
}

/* A moment in a column: without the year where all of the document is in one, and without seconds where it is of days. */
const oneYear = !relative && shownYear(doc.since) === shownYear(doc.until);
const ofDays = !relative && doc.until - doc.since > 2 * 86400;

function shownYear(time) {
  return new Date((time + ahead(time)) * 1000).getUTCFullYear();
}

function shortTime(time) {
  if (time === null || time === undefined) return UNKNOWN;
  return shownTime(time).slice(oneYear ? 5 : 0, ofDays ? -3 : undefined);
}

const capital = (text) => text[0].toUpperCase() + text.slice(1);

/* Where a moment is on the axis of time: milliseconds of the reader's clock, or hours of a trace. */
const onAxis = (time) => (relative ? time / 3600 : (time + ahead(time)) * 1000);

function shownBytes(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  const power = Math.min(units.length - 1, bytes ? Math.floor(Math.log2(bytes) / 10) : 0);
  return `${decimal.format(bytes / 1024 ** power)} ${units[power]}`;
}

/* By how many percent the first is more than the second; null where one is not known. */
const difference = (own, other) => (own === null || !other ? null : (100 * (own - other)) / other);

function shownDifference(percent) {
  if (percent === null) return UNKNOWN;
  if (Math.abs(percent) < 0.05) return "equal";
  return `${percent < 0 ? "−" : "+"}${decimal.format(Math.abs(percent))} %`;
}

/* An element with attributes and children; text stays text, whatever is in it. */
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "onclick") made.addEventListener("click", value);
    else if (value !== null) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

const at = (id) => document.getElementById(id);
