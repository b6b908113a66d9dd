/* Numbers of jobs: the summary, totals by group, and the table of all jobs. */

const SUMS = ["wait_s", "run_s", "asleep_s", "suspends", "resumes", "migrations"];

/* The jobs' own schedule against another, for the jobs that ended under both. */
function compared(shown, schedule) {
  const both = endedUnderBoth(shown, schedule);
  const owns = both.map((job) => jobs.completion_s[job]);
  const others = both.map((job) => completionOf(job, schedule));
  const gains = owns.map((value, place) => others[place] - value);
  return {
    jobs: both.length, own: mean(owns), other: mean(others), spread: ascending(others), gained: sum(gains),
    sooner: gains.filter((gain) => gain >= 1).length, later: gains.filter((gain) => gain <= -1).length,
    paid: -sum(gains.filter((gain) => gain <= -1)),
  };
}

function summary() {
  const table = new Table(at("schedules"), "Completion under each schedule, beside that of the same jobs as they ran", [
    { title: "Schedule", value: (row) => row.name },
    numberColumn("Jobs", (row) => row.jobs),
    durationColumn("Mean completion", (row) => row.other),
    durationColumn("Median", (row) => percentile(row.spread, 50)),
    durationColumn("95 %", (row) => percentile(row.spread, 95)),
    durationColumn(`Same jobs, ${lowered(own)}`, (row) => row.own),
    numberColumn("Difference", (row) => (row.gained === null ? null : difference(row.own, row.other)), shownDifference),
    numberColumn("Sooner", (row) => row.sooner),
    numberColumn("Later", (row) => row.later),
  ], true);
  return (shown) => {
    const ended = shown.filter((job) => jobs.completion_s[job] !== null);
    const values = ended.map((job) => jobs.completion_s[job]);
    const mine = { name: own, jobs: ended.length, other: mean(values), spread: ascending(values), own: mean(values) };
    const rows = doc.others.map((schedule) => ({ name: scheduleName(schedule), ...compared(shown, schedule) }));
    table.show([{ ...mine, gained: null, sooner: null, later: null }, ...rows]);
    at("verdict").textContent = verdict(rows);
    showTiles(shown, mine);
  };
}

function verdict(rows) {
  const said = rows.filter(({ jobs: count }) => count).map(({ name, own: mine, other, sooner, later, jobs: count }) => {
    const less = shownDifference(difference(mine, other));
    const how = less === "equal" ? "as long as" : `${less.slice(1)} ${mine < other ? "less" : "longer"} than`;
    const jobsSooner = `${shownCount(sooner)} of ${counted(count, "job")} sooner, ${shownCount(later)} later`;
    return `${how} under ${name} (${jobsSooner})`;
  });
  return said.length ? `On average jobs took ${said.join(", and ")}.` : "";
}

function showTiles(shown, mine) {
  const total = (name) => sum(shown.map((job) => jobs[name][job]));
  const slept = `${counted(total("suspends"), "suspend")}, ${counted(total("resumes"), "resume")}`;
  const tiles = [
    ["Jobs", shownCount(shown.length), `${shownCount(mine.jobs)} ended`],
    ["Mean completion", shownDuration(mine.other), `median ${shownDuration(percentile(mine.spread, 50))}`],
    ["Waited", shownDuration(total("wait_s")), "all jobs together"],
    ["Ran", shownDuration(total("run_s")), "all jobs together"],
    ["Asleep", shownDuration(total("asleep_s")), slept],
    ["Migrations", shownCount(total("migrations")), "of running VMs"],
  ];
  at("tiles").replaceChildren(...tiles.map(([name, value, more]) => (
    element("div", {}, element("dt", {}, name), element("dd", {}, value, element("small", {}, more))))));
}

/* The Monday of the week in which a job was submitted. */
function weekOf(job) {
  const time = new Date((jobs.submit[job] + ahead(jobs.submit[job])) * 1000);
  time.setUTCDate(time.getUTCDate() - ((time.getUTCDay() + 6) % 7));
  return time.toISOString().slice(0, 10);
}

/* Short or long (an hour), narrow or wide (8 CPUs). */
function classOf(job) {
  const wide = jobs.vms[job] * jobs.cpus[job] > 8;
  return `${jobs.run_s[job] > 3600 ? "long" : "short"} and ${wide ? "wide" : "narrow"}`;
}

function totals() {
  const groups = {
    user: ["User", (job) => jobs.user[job]], account: ["Account", (job) => jobs.account[job]],
    partition: ["Partition", (job) => jobs.partition[job]], class: ["Class", classOf],
    ...(relative ? {} : { week: ["Week of submission", weekOf] }),
  };
  const select = at("group");
  select.append(...Object.entries(groups).map(([key, [name]]) => new Option(name, key)));
  let shown = [];
  const show = () => {
    const [name, groupOf] = groups[select.value];
    const rows = [...Map.groupBy(shown, groupOf)].map(([value, members]) => totalOf(value, members));
    new Table(at("totals"), `Totals by ${name.toLowerCase()}`, [
      { title: name, value: (row) => row.name, shown: (value) => value || "(none)" },
      numberColumn("Jobs", (row) => row.jobs.length),
      numberColumn("Ended", (row) => row.ended),
      durationColumn("Mean completion", (row) => row.mean),
      ...doc.others.map((schedule) => (
        numberColumn(`Against ${columnName(schedule)}`, (row) => row.against[schedule], shownDifference))),
      durationColumn("Waited", (row) => row.wait_s),
      durationColumn("Ran", (row) => row.run_s),
      durationColumn("Asleep", (row) => row.asleep_s),
      numberColumn("Suspends", (row) => row.suspends),
      numberColumn("Resumes", (row) => row.resumes),
      numberColumn("Migrations", (row) => row.migrations),
    ]).show(rows);
    at("paid").hidden = select.value !== "class" || !doc.others.length;
    if (!at("paid").hidden) showPaid(rows);
  };
  select.addEventListener("change", show);
  return (now) => {
    shown = now;
    show();
  };
}

/* Of each class: who ended later than under another schedule, by how much, and the longest. */
function showPaid(rows) {
  const beside = rows.flatMap((row) => doc.others.map((schedule) => ({ name: row.name, longest: row.longest, schedule, ...row.beside[schedule] })));
  new Table(at("paid"), "Who ended later, by class", [
    { title: "Class", value: (row) => row.name },
    { title: "Against", value: (row) => scheduleName(row.schedule) },
    numberColumn("Jobs", (row) => row.jobs),
    numberColumn("Later than there", (row) => row.later),
    durationColumn("By, all together", (row) => row.paid),
    durationColumn("Longest", (row) => row.longest),
    durationColumn("Longest there", (row) => row.spread.at(-1) ?? null),
  ], true).show(beside);
}

function totalOf(name, members) {
  const ended = members.filter((job) => jobs.completion_s[job] !== null);
  const beside = Object.fromEntries(doc.others.map((schedule) => [schedule, compared(members, schedule)]));
  const against = Object.fromEntries(
    Object.entries(beside).map(([schedule, { own: mine, other }]) => [schedule, difference(mine, other)]));
  const longest = ascending(ended.map((job) => jobs.completion_s[job])).at(-1) ?? null;
  const sums = SUMS.map((field) => [field, sum(members.map((job) => jobs[field][job]))]);
  const average = mean(ended.map((job) => jobs.completion_s[job]));
  const own = { mean: average, longest, against, beside };
  return { name, jobs: members, ended: ended.length, ...own, ...Object.fromEntries(sums) };
}

function jobsTable(only) {
  const text = (title, name) => ({ title, value: (job) => jobs[name][job] });
  const table = new Table(at("jobs"), "A job's number filters all of the page to this job.", [
    { ...text("Job", "id"), act: (job) => only(jobs.id[job]) },
    ...[["User", "user"], ["Account", "account"], ["Partition", "partition"]]
      .filter(([, name]) => doc.kind === "report" || isNamed(name)).map(([title, name]) => text(title, name)),
    text("State", "state"),
    numberColumn("VMs", (job) => jobs.vms[job]),
    timeColumn("Submitted", (job) => jobs.submit[job]),
    timeColumn("Started", (job) => jobs.start[job]),
    timeColumn("Ended", (job) => jobs.end[job]),
    durationColumn("Waited", (job) => jobs.wait_s[job]),
    durationColumn("Ran", (job) => jobs.run_s[job]),
    durationColumn("Asleep", (job) => jobs.asleep_s[job]),
    numberColumn("Migrations", (job) => jobs.migrations[job]),
    durationColumn("Completion", (job) => jobs.completion_s[job]),
    ...doc.others.map((schedule) => durationColumn(columnName(schedule), (job) => completionOf(job, schedule))),
    numberColumn("Slowdown", (job) => jobs.slowdown[job], shownNumber),
  ], true);
  return (shown) => table.show(shown);
}

/* What was lost of the jobs that are shown; in a simulation nothing is. */
function lossesTable(only) {
  at("losses").closest("section").hidden = doc.kind !== "report";
  const kinds = { lost: "began anew", "went-back": "went back to a checkpoint" };
  const table = new Table(at("losses"), "Losses", [
    timeColumn("At", (loss) => loss.at),
    { title: "Job", value: (loss) => loss.id, act: (loss) => only(loss.id) },
    { title: "It", value: (loss) => kinds[loss.kind] ?? loss.kind },
    { title: "What was lost, and why", value: (loss) => loss.sentence, long: true },
  ]);
  return (shown) => {
    const ids = new Set(shown.map((job) => jobs.id[job]));
    const rows = doc.losses.filter((loss) => ids.has(loss.id));
    table.show(rows);
    at("losses").hidden = !rows.length;
    const anew = rows.filter(({ kind }) => kind === "lost").length;
    at("losses-says").textContent = rows.length
      ? `VMs of jobs were lost ${counted(rows.length, "time")}: ${shownCount(anew)} began anew, `
        + `${shownCount(rows.length - anew)} went back to a checkpoint.`
      : "No VMs of these jobs were lost.";
  };
}
