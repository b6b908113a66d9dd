"use strict";
// Replaces the main part of the page when the engine has something new, and draws the ways of VMs that move.
(() => {
  const news = document.getElementById("news");
  const words = document.createElement("span");
  const hold = document.createElement("button");
  const main = () => document.getElementById("main");
  // An answer comes within the wait; after so long a silence nobody is there.
  const WAIT_S = 20, SILENT_MS = 40000, AGAIN_MS = 5000;
  let source = null, failures = 0, silence = 0, again = 0;

  hold.type = "button";
  hold.textContent = "Hold still";
  hold.setAttribute("aria-pressed", "false");
  news.append(words, " ");
  news.after(hold);

  function say(sentence, bad) {
    if (words.textContent !== sentence) words.textContent = sentence;
    news.classList.toggle("lost", bad);
  }

  function connected() {
    failures = 0;
    say("This page follows the engine.", false);
    clearTimeout(silence);
    silence = setTimeout(lost, SILENT_MS);
  }

  function lost() {
    say("The engine does not answer: the page is as it was.", true);
  }

  function failed() {
    failures += 1;
    if (failures > 1) lost();
  }

  function listen() {
    stop();
    source = new EventSource(address());
    source.addEventListener("open", connected);
    source.addEventListener("changed", replace);
    source.addEventListener("error", () => {
      // Each answer ends its connection, which is told as an error: only two without an answer between are a fault.
      failed();
      if (source && source.readyState === EventSource.CLOSED) later();
    });
  }

  function address() {
    const found = new URL("page/news", location.href);
    const group = new URLSearchParams(location.search).get("group");
    found.search = new URLSearchParams({ after: main().dataset.number, wait: WAIT_S, ...(group ? { group } : {}) });
    return found;
  }

  function later() {
    stop();
    again = setTimeout(listen, AGAIN_MS);
  }

  function stop() {
    clearTimeout(again);
    clearTimeout(silence);
    if (source) source.close();
    source = null;
  }

  async function replace() {
    stop();
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" }, cache: "no-store" });
      if (!answer.ok) throw new Error(answer.statusText);
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("main");
      if (hold.getAttribute("aria-pressed") === "true") return;
      put(fresh);
      connected();
      listen();
    } catch (error) {
      failed();
      later();
    }
  }

  function put(fresh) {
    // Focus and the scrolled place of tables stay where they were.
    const before = main(), focused = before.contains(document.activeElement) ? keyOf(document.activeElement) : "";
    const scrolled = [...before.querySelectorAll(".wide")].map((each) => [keyOf(each), each.scrollLeft]);
    before.replaceWith(document.adoptNode(fresh));
    for (const each of fresh.querySelectorAll("a, .wide, h2")) {
      const key = keyOf(each);
      if (key === focused) each.focus({ preventScroll: true });
      for (const [table, left] of scrolled) if (table === key) each.scrollLeft = left;
    }
    draw();
  }

  function keyOf(element) {
    return element.id || element.getAttribute("href") || element.getAttribute("aria-labelledby") || "";
  }

  // -- the ways of VMs that move ------------------------------------------------------------------------------------

  function shape(name, attributes) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  }

  function draw() {
    const map = document.querySelector(".map");
    if (!map) return;
    map.querySelector(".ways")?.remove();
    const rows = [...document.querySelectorAll("tr[data-from]")];
    const ways = shape("svg", { class: "ways", "aria-hidden": "true", focusable: "false" });
    for (const row of rows) ways.append(...way(map, row.dataset.from, row.dataset.to));
    if (ways.childNodes.length) map.append(ways);
  }

  function way(map, from, to) {
    const [one, other] = [from, to].map((name) => document.getElementById(`n-${name}`));
    if (!one || !other) return [];
    const [a, b] = [one, other].map((box) => ({
      x: box.offsetLeft + box.offsetWidth / 2, y: box.offsetTop + box.offsetHeight / 2,
    }));
    const bend = { x: (a.x + b.x) / 2 + (b.y - a.y) / 8, y: (a.y + b.y) / 2 - Math.abs(b.x - a.x) / 8 - 12 };
    return [
      shape("path", { d: `M${a.x} ${a.y}Q${bend.x} ${bend.y} ${b.x} ${b.y}` }),
      shape("circle", { cx: b.x, cy: b.y, r: 5 }),
    ];
  }

  hold.addEventListener("click", () => {
    const held = hold.getAttribute("aria-pressed") !== "true";
    hold.setAttribute("aria-pressed", String(held));
    if (held) {
      stop();
      say("This page holds still.", false);
    } else replace();
  });
  addEventListener("resize", draw);
  addEventListener("pagehide", stop);
  addEventListener("pageshow", (shown) => { if (shown.persisted) replace(); });
  draw();
  listen();
  connected();
  document.documentElement.dataset.ready = "yes";
})();
