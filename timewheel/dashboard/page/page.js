"use strict";

// The page of package dashboard. Keys are anybody's text: whatever comes from the wheel gets into the page as
// textContent, or as a number into an attribute of the drawing, and in no other way.

const $ = (id) => document.getElementById(id);
const still = matchMedia("(prefers-reduced-motion: reduce)");

const page = {
  wheel: "",        // that is shown
  control: false,
  source: null,     // of the events
  state: null,      // the last one
  came: 0,          // when it did, by this machine's clock, in ms
  history: [],
  sector: -1,       // that is pointed at
  key: null,        // that is looked up, or null
  found: null,      // its task
  unreachable: false, // was the server when the task was asked for last
};

// ---- text

function compact(n) {
  for (const [limit, unit] of [[1e9, " G"], [1e6, " M"], [1e5, " k"]]) {
    if (Math.abs(n) >= limit) {
      const scaled = n / (unit === " k" ? 1e3 : limit);
      return scaled.toLocaleString("en", { maximumSignificantDigits: 4 }) + unit;
    }
  }
  return n.toLocaleString("en");
}

function rateText(n) {
  if (n === null || n === undefined) return "";
  return (n < 10 ? n.toLocaleString("en", { maximumFractionDigits: 1 }) : compact(Math.round(n))) + "/s";
}

// span writes so many seconds.
function span(s) {
  const short = (x, unit) => x.toLocaleString("en", { maximumSignificantDigits: 3, useGrouping: false }) + " " + unit;
  const sign = s < 0 ? "−" : "";
  s = Math.abs(s);
  if (s < 1e-6) return "< 1 µs";
  if (s < 1e-3) return sign + short(s * 1e6, "µs");
  if (s < 1) return sign + short(s * 1e3, "ms");
  if (s < 60) return sign + short(s, "s");
  const parts = [[Math.floor(s / 86400), "d"], [Math.floor(s / 3600) % 24, "h"], [Math.floor(s / 60) % 60, "m"], [Math.floor(s) % 60, "s"]];
  while (parts[0][0] === 0) parts.shift();
  if (parts[0][0] > 999) return sign + compact(parts[0][0]) + " d";
  return sign + parts.slice(0, 2).filter(([n], i) => i === 0 || n > 0).map(([n, unit]) => n + " " + unit).join(" ");
}

// until writes how long it is to a time that comes, in tenths while it is near.
function until(s) {
  if (s < 0.05) return "now";
  return s < 60 ? s.toFixed(1) + " s" : span(s);
}

const times = (n) => (n < 0 ? "∞" : compact(n));

function make(name, className, text) {
  const e = document.createElement(name);
  if (className) e.className = className;
  if (text !== undefined) e.textContent = text;
  return e;
}

function draw(name, attributes) {
  const e = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const a in attributes) e.setAttribute(a, attributes[a]);
  return e;
}

// ---- the server

// now is the present by the server's clock, in ms.
const now = () => Date.parse(page.state.now) + (performance.now() - page.came);

const query = (values) => new URLSearchParams(values).toString();

async function ask(path, options) {
  const response = await fetch(path, options);
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error);
  return answer;
}

function listen() {
  if (page.source) page.source.close();
  page.source = null;
  if (document.hidden) {
    setStatus("", "paused");
    return;
  }
  setStatus("", "connecting");
  const source = new EventSource("api/events?" + query({ wheel: page.wheel }));
  source.onmessage = (e) => {
    if (source === page.source) show(JSON.parse(e.data));
  };
  source.onerror = () => {
    if (source !== page.source) return;
    setStatus("lost", "connection lost, trying again");
    if (source.readyState === EventSource.CLOSED) setTimeout(() => { if (source === page.source) listen(); }, 3000);
  };
  page.source = source;
}

function setStatus(kind, text) {
  $("status").className = "status " + kind;
  if ($("status-text").textContent !== text) $("status-text").textContent = text;
}

function choose(name) {
  page.wheel = name;
  page.state = null;
  page.history = [];
  for (const b of $("wheels").children) b.setAttribute("aria-pressed", String(b.textContent === name));
  forget();
  location.replace("#" + encodeURIComponent(name));
  document.title = name + " · timewheel";
  listen();
}

async function begin() {
  let all;
  try {
    all = await ask("api/wheels");
  } catch {
    setStatus("lost", "connection lost, trying again");
    setTimeout(begin, 3000);
    return;
  }
  page.control = all.control;
  const buttons = all.wheels.map((name) => {
    const b = make("button", "", name);
    b.type = "button";
    b.onclick = () => choose(name);
    return b;
  });
  $("wheels").replaceChildren(...buttons);
  let wanted = "";
  try { wanted = decodeURIComponent(location.hash.slice(1)); } catch { /* not one of ours */ }
  choose(all.wheels.includes(wanted) ? wanted : all.wheels[0]);
}

// ---- a new state

function show(state) {
  page.state = state;
  page.came = performance.now();
  if (state.whole) page.history = state.history || [];
  else page.history.push(...(state.history || []));
  page.history.splice(0, page.history.length - 300);
  setStatus(state.running ? "live" : "lost", state.running ? "running" : "not running");
  showDial();
  showNumbers();
  showLateness();
  showNext();
  showRuns();
  if (state.whole || state.panics) showPanics(state.panics || []);
}

// ---- the dial

const nearRing = [49, 70], farRing = [75.5, 98];

const polar = (r, turn) => {
  const a = turn * 2 * Math.PI;
  return (r * Math.sin(a)).toFixed(2) + " " + (-r * Math.cos(a)).toFixed(2);
};

// wedge is the outline of a part of a ring, from one share of the turn to another.
function wedge(from, to, inner, outer) {
  const large = to - from > 0.5 ? 1 : 0;
  if (to - from > 0.9999) to = from + 0.9999;
  return `M${polar(inner, from)}L${polar(outer, from)}A${outer} ${outer} 0 ${large} 1 ${polar(outer, to)}` +
    `L${polar(inner, to)}A${inner} ${inner} 0 ${large} 0 ${polar(inner, from)}Z`;
}

// first is the first slot of a sector.
const first = (i) => Math.floor(i * page.state.dial.slots / page.state.dial.near.length);

// ring draws how many tasks are in each sector, for one slot of it. The length of a bar is as the root of the
// number, so that a burst in one slot does not hide the others.
function ring(counts, [inner, outer]) {
  const dial = page.state.dial, n = counts.length;
  const width = (i) => first(i + 1) - first(i);
  let most = 0;
  for (let i = 0; i < n; i++) most = Math.max(most, counts[i] / width(i));
  let path = "";
  const gap = n > 1 ? 0.12 / n : 0;
  for (let i = 0; i < n; i++) {
    if (counts[i] === 0) continue;
    const share = Math.max(Math.sqrt(counts[i] / width(i) / most), 0.04);
    path += wedge(first(i) / dial.slots + gap, first(i + 1) / dial.slots - gap, inner, inner + share * (outer - inner));
  }
  return path;
}

const total = (counts) => counts.reduce((sum, n) => sum + n, 0);

function showDial() {
  const { dial, stats } = page.state;
  $("near").setAttribute("d", ring(dial.near, nearRing));
  $("far").setAttribute("d", ring(dial.far, farRing));
  $("pending").textContent = compact(stats.pending);
  $("shape").textContent = `${span(dial.tick)} × ${dial.slots.toLocaleString("en")}`;
  $("turn").textContent = `${dial.layout}, a turn in ${span(dial.tick * dial.slots)}`;
  const near = total(dial.near), far = total(dial.far);
  $("near-count").textContent = compact(near);
  $("far-count").textContent = compact(far);
  $("dial-label").textContent = `The wheel: ${dial.slots} slots, ${near} tasks due in this turn of the hand, ${far} in later ones`;
  const marks = $("marks");
  if (marks.dataset.slots !== String(dial.slots)) {
    marks.dataset.slots = dial.slots;
    const parts = [];
    for (let q = 0; q < 12; q++) {
      const slot = Math.round(q * dial.slots / 12);
      if (dial.slots < 12 && q % 3) continue;
      const [x1, y1] = polar(100, slot / dial.slots).split(" ");
      const [x2, y2] = polar(q % 3 ? 102 : 103.5, slot / dial.slots).split(" ");
      parts.push(draw("line", { x1, y1, x2, y2 }));
      if (q % 3) continue;
      const [x, y] = polar(q % 6 ? 105 : 109, slot / dial.slots).split(" ");
      const text = draw("text", { x, y, "text-anchor": ["middle", "start", "middle", "end"][q / 3] });
      text.textContent = slot.toLocaleString("en");
      parts.push(text);
    }
    marks.replaceChildren(...parts);
  }
  showReading();
  turn();
}

// turn puts the hand where it is now: the server told its slot, and the clock what has passed since.
let turned = NaN;
function turn() {
  const { dial, running } = page.state;
  const passed = running ? Math.floor((performance.now() - page.came) / 1000 / dial.tick) : 0;
  const slot = (dial.hand + (still.matches ? 0 : passed)) % dial.slots;
  const degrees = (slot + 0.5) / dial.slots * 360;
  if (Math.abs(degrees - turned) < 0.05) return;
  turned = degrees;
  $("hand").setAttribute("transform", `rotate(${degrees.toFixed(2)})`);
  $("hand").dataset.slot = slot;
}

function frame() {
  if (page.state && !document.hidden) {
    turn();
    countDown();
  }
  requestAnimationFrame(frame);
}

function point(sector) {
  page.sector = sector;
  if (page.state) showReading();
}

function showReading() {
  const { dial } = page.state, i = page.sector;
  if (i < 0 || i >= dial.near.length) {
    $("chosen").removeAttribute("d");
  } else {
    const last = first(i + 1) - 1;
    $("chosen").setAttribute("d", wedge(first(i) / dial.slots, first(i + 1) / dial.slots, nearRing[0], farRing[1]));
    const slots = first(i) === last ? "slot " + last : `slots ${first(i)} to ${last}`;
    const text = `${slots}: ${compact(dial.near[i])} this turn, ${compact(dial.far[i])} later`;
    if ($("reading").textContent !== text) $("reading").textContent = text;
  }
  if (page.found && !page.found.waiting) {
    const middle = (page.found.slot + 0.5) / dial.slots, half = Math.max(0.5 / dial.slots, 0.006);
    $("found").setAttribute("d", wedge(middle - half, middle + half, nearRing[0] - 1, farRing[1] + 1));
  } else {
    $("found").removeAttribute("d");
  }
}

$("dial").addEventListener("pointermove", (e) => {
  if (!page.state) return;
  const { x, y } = new DOMPoint(e.clientX, e.clientY).matrixTransform($("dial").getScreenCTM().inverse());
  if (Math.hypot(x, y) < nearRing[0]) return point(-1);
  const share = (Math.atan2(x, -y) / (2 * Math.PI) + 1) % 1;
  point(Math.floor(share * page.state.dial.near.length));
});
$("dial").addEventListener("keydown", (e) => {
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[e.key];
  if (!step || !page.state) return;
  e.preventDefault();
  const n = page.state.dial.near.length;
  point(page.sector < 0 ? Math.floor(page.state.dial.hand / page.state.dial.slots * n) : (page.sector + step + n) % n);
});

// ---- the accounts

const numbers = [
  { name: "Pending", of: (s) => s.pending, series: (p) => p.pending, note: "live tasks" },
  { name: "Waiting", of: (s) => s.waiting, series: (p) => p.waiting, note: "due, for a worker" },
  { name: "Running", of: (s) => s.running, series: (p) => p.running, note: "jobs" },
  { name: "Started", of: (s) => s.started, series: (p) => p.started, rate: true },
  { name: "Missed", of: (s) => s.missed, series: (p) => p.missed, rate: true, alarm: true },
  { name: "Panicked", of: (s) => s.panicked, series: (p) => p.panicked, rate: true, alarm: true },
];

for (const n of numbers) {
  const card = make("div", "number");
  n.card = card;
  n.value = make("div", "value", "–");
  n.under = make("div", "rate", "\u00a0");
  n.chart = draw("svg", { viewBox: "0 0 300 34", preserveAspectRatio: "none", "aria-hidden": "true" });
  n.area = draw("path", { class: "area" });
  n.line = draw("path", { class: "line" });
  n.chart.append(n.area, n.line);
  card.append(make("h3", "", n.name), n.value, n.under, n.chart);
  $("numbers").append(card);
}

function showNumbers() {
  const { stats } = page.state, last = page.history[page.history.length - 1];
  for (const n of numbers) {
    n.value.textContent = compact(n.of(stats));
    n.value.title = n.of(stats).toLocaleString("en");
    n.under.textContent = n.rate ? rateText(last && n.series(last)) || "\u00a0" : changeText(n);
    n.card.classList.toggle("alarm", Boolean(n.alarm && last && n.series(last) > 0));
    chart(n);
  }
}

// changeText says by how much a number changed in a second.
function changeText(n) {
  const h = page.history, a = h[h.length - 2], b = h[h.length - 1];
  const seconds = a && (Date.parse(b.time) - Date.parse(a.time)) / 1000;
  if (n.name !== "Pending" || !a || seconds > 3) return n.note;
  const change = Math.round((n.series(b) - n.series(a)) / seconds);
  return (change > 0 ? "+" : change < 0 ? "−" : "±") + compact(Math.abs(change)) + "/s";
}

// chart draws the last five minutes, or as much of them as was looked at, with a gap where nobody looked.
function chart(n) {
  const end = Date.parse(page.state.now);
  const age = page.history.length > 0 ? (end - Date.parse(page.history[0].time)) / 1000 : 0;
  const scale = 300 / Math.min(Math.max(age, 60), 300);
  const points = [];
  let most = 0, least = Infinity;
  for (const p of page.history) {
    const v = n.series(p);
    points.push([300 - (end - Date.parse(p.time)) / 1000 * scale, v]);
    if (v !== null) {
      most = Math.max(most, v);
      least = Math.min(least, v);
    }
  }
  // The change of what is large and steady would not be seen from 0 on.
  const floor = n.rate || least <= most * 0.7 ? 0 : least - (most - least || 1) * 0.3;
  const y = (v) => (32 - (v - floor) / (most - floor || 1) * 29).toFixed(1);
  let line = "", area = "", start = null, before = -Infinity;
  const close = () => { if (start !== null) area += `L${before.toFixed(1)} 34L${start.toFixed(1)} 34Z`; start = null; };
  for (const [x, v] of points) {
    if (v === null || x < 0) continue;
    if (x - before > 3 * scale) {
      close();
      start = x;
      line += `M${x.toFixed(1)} ${y(v)}`;
      area += `M${x.toFixed(1)} ${y(v)}`;
    } else {
      line += `L${x.toFixed(1)} ${y(v)}`;
      area += `L${x.toFixed(1)} ${y(v)}`;
    }
    before = x;
  }
  close();
  n.line.setAttribute("d", line);
  n.area.setAttribute("d", area);
}

// ---- the lateness

const scale = [1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1, 10, 100];
const place = (s) => Math.min(Math.max(Math.log10(Math.max(s, 1e-9) / scale[0]) / Math.log10(scale[scale.length - 1] / scale[0]), 0), 1) * 100;

const late = [
  { of: (l) => l.tick, name: "Tick", note: "due to handed over" },
  { of: (l) => l.wait, name: "Wait", note: "handed over to started" },
  { of: (l) => l.run, name: "Run", note: "started to ended" },
];

{
  const grid = $("late");
  const row = (...cells) => {
    const r = make("div", "row");
    r.append(...cells);
    grid.append(r);
  };
  row(make("span", "corner"), make("span", "corner"), ...["p50", "p99", "max"].map((name) => make("span", "head", name)));
  for (const l of late) {
    const what = make("span", "what", l.name);
    what.append(make("small", "", l.note));
    const svg = draw("svg", { viewBox: "0 0 100 26", preserveAspectRatio: "none", "aria-hidden": "true" });
    l.span = draw("rect", { class: "span", y: 9, height: 8, rx: 0.6 });
    l.core = draw("rect", { class: "core", y: 5, height: 16, width: 0.8 });
    l.most = draw("rect", { class: "most", y: 7, height: 12, width: 0.6 });
    svg.append(draw("line", { class: "track", x1: 0, x2: 100, y1: 13, y2: 13 }), l.span, l.core, l.most);
    l.figures = [0, 1, 2].map(() => make("span", "figure", "–"));
    row(what, svg, ...l.figures);
  }
  const marks = make("div", "scale");
  for (const s of scale.filter((_, i) => i % 2 === 0)) {
    const mark = make("span", "", s < 60 ? span(s) : s + " s");
    mark.style.left = place(s) + "%";
    marks.append(mark);
  }
  row(make("span", "corner"), marks);
}

function showLateness() {
  const l = page.state.lateness;
  $("late-none").hidden = Boolean(l);
  $("late").hidden = !l;
  $("late-runs").textContent = l ? `${compact(l.runs)} runs in the last minute` : "";
  if (!l) return;
  for (const row of late) {
    const q = row.of(l), any = l.runs > 0;
    [q.p50, q.p99, q.max].forEach((s, i) => { row.figures[i].textContent = any ? span(s) : "–"; });
    row.span.setAttribute("x", place(q.p50));
    row.span.setAttribute("width", any ? Math.max(place(q.p99) - place(q.p50), 0.3) : 0);
    row.core.setAttribute("x", place(q.p50) - 0.4);
    row.core.setAttribute("width", any ? 0.8 : 0);
    row.most.setAttribute("x", place(q.max) - 0.3);
    row.most.setAttribute("width", any ? 0.6 : 0);
  }
}

// ---- the lists

// cell returns a cell for a key, from which the task can be looked up if that is the whole key.
function cell(item) {
  const td = make("td", "k");
  if (item.key === "") {
    td.append(make("span", "timer", "timer"));
  } else if (item.exact) {
    const b = make("button", "", item.key);
    b.type = "button";
    b.title = item.key;
    b.onclick = () => lookUp(item.key);
    td.append(b);
  } else {
    td.textContent = item.key;
  }
  return td;
}

// fill writes the items into the rows of a table. A row is written anew only if it is of another key, so that
// what has the focus keeps it.
function fill(body, items, columns, none) {
  const kept = new Map();
  for (const row of body.children) if (row.dataset.key !== undefined) kept.set(row.dataset.key, row);
  const rows = items.map((item) => {
    const id = item.key + (item.exact ? "" : "…") + (item.key === "" ? item.next || item.due : "");
    let row = kept.get(id);
    kept.delete(id);
    if (!row) {
      row = make("tr");
      row.dataset.key = id;
      row.append(cell(item), ...columns.map((c) => make("td", "n " + (c.kind || ""))));
    }
    columns.forEach((c, i) => { row.children[i + 1].textContent = c.text(item); });
    row.item = item;
    return row;
  });
  if (rows.length === 0) {
    const row = make("tr"), td = make("td", "none", none);
    td.colSpan = columns.length + 1;
    row.append(td);
    rows.push(row);
  }
  rows.forEach((row, i) => { if (body.children[i] !== row) body.insertBefore(row, body.children[i] || null); });
  while (body.children.length > rows.length) body.lastChild.remove();
}

const due = (item) => until((Date.parse(item.next) - now()) / 1000);

function showNext() {
  fill($("next"), page.state.upcoming, [
    { text: due },
    { text: (t) => t.slot.toLocaleString("en"), kind: "wide" },
    { text: (t) => compact(t.circle), kind: "wide" },
    { text: (t) => times(t.times) },
  ], "No task waits.");
}

function showRuns() {
  fill($("runs"), page.state.runs, [
    { text: (r) => span(r.for) },
    { text: (r) => new Date(r.due).toLocaleTimeString(), kind: "time" },
  ], "No job runs.");
}

let counted = 0;
function countDown() {
  const t = performance.now();
  if (t - counted < 100) return;
  counted = t;
  for (const row of $("next").children) if (row.item) row.children[1].textContent = due(row.item);
  if (page.found && $("facts").firstChild) $("facts").children[3].textContent = nextText(page.found);
}

function showPanics(panics) {
  const open = new Set();
  for (const d of $("panics").children) if (d.open) open.add(d.dataset.id);
  const all = panics.map((p) => {
    const d = make("details"), s = make("summary");
    d.dataset.id = p.time + p.key;
    d.open = open.has(d.dataset.id);
    s.append(make("span", "when", new Date(p.time).toLocaleTimeString()), make("span", "who", p.key || "timer"), make("span", "what", p.value));
    d.append(s, make("pre", "", p.stack));
    return d;
  });
  if (all.length === 0) all.push(make("p", "none", "None was recorded."));
  $("panics").replaceChildren(...all);
}

// ---- one task

function say(text, bad) {
  $("look-message").textContent = text;
  $("look-message").classList.toggle("bad", Boolean(bad));
}

function forget() {
  page.key = page.found = null;
  $("task").hidden = true;
  $("found").removeAttribute("d");
  say("");
  calm();
}

function lookUp(key) {
  $("key").value = key;
  page.key = key;
  say("");
  calm();
  return refresh();
}

// refresh asks again for the task that is looked up.
async function refresh() {
  const key = page.key, wheel = page.wheel;
  if (key === null) return;
  try {
    const task = await ask("api/task?" + query({ wheel, key }));
    if (key !== page.key || wheel !== page.wheel) return;
    if (page.unreachable) say("");
    page.unreachable = false;
    if (task) {
      page.found = task;
      showTask(key);
    } else {
      const was = page.found;
      forget();
      say(was ? "The task has gone: its last run has begun, or it was removed." : "No live task has this key.");
    }
  } catch (e) {
    if (key !== page.key || wheel !== page.wheel) return;
    page.unreachable = true;
    say(e.message, true);
  }
  if (page.state) showReading();
}

function nextText(task) {
  const at = new Date(task.next), s = (at.getTime() - now()) / 1000;
  if (task.waiting) return `was due ${span(-s)} ago, waits for a worker`;
  if (s > 3e9) return `in ${span(s)}`;
  const day = at.toDateString() === new Date(now()).toDateString() ? "" : at.toLocaleDateString() + " ";
  return `in ${until(s)}, at ${day}${at.toLocaleTimeString()}`;
}

function showTask(key) {
  const task = page.found;
  if (!page.state) return;
  const facts = [
    ["key", key, "mono"],
    ["next run", nextText(task)],
    ["runs left", times(task.times)],
    ["interval", task.interval > 0 ? span(task.interval) : "none"],
    ["slot", task.waiting ? "none" : task.slot.toLocaleString("en")],
    ["circle", task.circle === 0 ? "0, in this turn of the hand" : compact(task.circle)],
  ];
  $("facts").replaceChildren(...facts.flatMap(([name, value, kind]) => [make("dt", "", name), make("dd", kind || "", value)]));
  $("task").hidden = false;
  $("controls").hidden = !page.control;
}

async function act(verb, values, done) {
  const key = page.key;
  if (key === null) return;
  calm();
  try {
    await ask("api/" + verb, { method: "POST", body: new URLSearchParams({ wheel: page.wheel, key, ...values }) });
  } catch (e) {
    say(e.message, true);
    return;
  }
  if (verb === "remove") {
    forget();
  } else {
    await refresh();
  }
  say(done);
}

// calm takes back the first of the two clicks of a removal.
function calm() {
  $("remove").classList.remove("sure");
  $("remove").textContent = "Remove";
}

$("look").addEventListener("submit", (e) => {
  e.preventDefault();
  forget();
  if ($("key").value === "") say("Which key?", true);
  else lookUp($("key").value);
});
$("remove").addEventListener("click", () => {
  if ($("remove").classList.contains("sure")) {
    act("remove", {}, "Removed.");
    return;
  }
  $("remove").classList.add("sure");
  $("remove").textContent = "Remove it?";
});
$("remove").addEventListener("blur", calm);
$("run").addEventListener("click", () => act("run", {}, "It runs at the next tick."));
$("move").addEventListener("submit", (e) => {
  e.preventDefault();
  act("reschedule", { delay: $("delay").value.trim() }, "Rescheduled.");
});
document.addEventListener("keydown", (e) => {
  if (e.key === "/" && !e.target.closest("input") && !e.ctrlKey && !e.metaKey && !e.altKey) {
    e.preventDefault();
    $("key").focus();
    $("key").select();
  }
});
document.addEventListener("visibilitychange", () => { if (page.wheel !== "" || page.state) listen(); });
addEventListener("hashchange", () => {
  let name = "";
  try { name = decodeURIComponent(location.hash.slice(1)); } catch { return; }
  const known = [...$("wheels").children].some((b) => b.textContent === name);
  if (known && name !== page.wheel) choose(name);
});

setInterval(() => { if (!document.hidden) refresh(); }, 1000);
requestAnimationFrame(frame);
begin();
