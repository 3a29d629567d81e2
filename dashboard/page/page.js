"use strict";

// The page of package dashboard. Keys are anybody's text: whatever comes from the wheel gets into the page as
// textContent, or as a number into an attribute of the drawing, and in no other way.

const $ = (id) => document.getElementById(id);
const still = matchMedia("(prefers-reduced-motion: reduce)");

const page = {
  begun: false,     // the wheels are known
  wheel: "",        // that is shown
  control: false,
  source: null,     // of the events
  live: false,      // events come
  state: null,      // the last one
  came: 0,          // when it did, by this machine's clock, in ms
  history: [],
  sector: -1,       // that is pointed at
  key: null,        // that is looked up, or null
  found: null,      // its task, when that is shown
  question: 0,      // the number of the last look-up that was sent
  asking: false,    // whether its answer is awaited
  unreachable: false, // whether it failed
  acting: false,    // something is being done about the task that is shown
  beginning: false, // the wheels are being asked for
  again: 0,         // the timer after which they are, or 0
  filled: { text: "", key: "" }, // what a look-up from a list wrote into the field, and for which key
};

// ---- text

// rounded is n with the given number of significant digits.
const rounded = (n, digits) => Number(n.toPrecision(digits));

// compact writes a number, with four digits if it has more than five.
function compact(n) {
  if (Math.abs(n) < 1e5) return n.toLocaleString("en");
  let power = 0;
  n = rounded(n, 4);
  for (; Math.abs(n) >= 1000 && power < 6; power++) n /= 1000;
  return n.toLocaleString("en", { maximumSignificantDigits: 4 }) + " " + " kMGTPE"[power];
}

function rateText(n) {
  if (n === null || n === undefined) return "";
  return (n < 10 ? n.toLocaleString("en", { maximumFractionDigits: 1 }) : compact(Math.round(n))) + "/s";
}

// span writes a number of seconds, which is not negative.
function span(s) {
  for (const [unit, size, end] of [["ns", 1e-9, 1e3], ["µs", 1e-6, 1e3], ["ms", 1e-3, 1e3], ["s", 1, 60]]) {
    const n = rounded(s / size, 3);
    if (n < end) return n.toLocaleString("en", { maximumSignificantDigits: 3 }) + " " + unit;
  }
  s = Math.round(s);
  const days = Math.floor(s / 86400);
  if (days > 999) return compact(Math.round(days / 365.25)) + " years";
  const parts = [[days, "d"], [Math.floor(s / 3600) % 24, "h"], [Math.floor(s / 60) % 60, "m"], [s % 60, "s"]];
  while (parts[0][0] === 0) parts.shift();
  return parts.slice(0, 2).filter(([n], i) => i === 0 || n > 0).map(([n, unit]) => n + " " + unit).join(" ");
}

// until writes how long it is to a time that comes.
function until(s) {
  if (s < 0.005) return "now";
  if (s < 0.995) return Math.round(s * 100) * 10 + " ms";
  return s < 59.95 ? s.toFixed(1) + " s" : span(s);
}

const times = (n) => (n < 0 ? "∞" : compact(n));

// What of a key has no shape, or changes the direction of what follows, and blanks that are not the common one
// or stand at the beginning or the end.
const shapeless = /([\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\u2800]|(?! )\p{Zs}|^ +| +$)/gu;

const escaped = (text) => ({ "\n": "\\n", "\t": "\\t", "\r": "\\r" })[text] ||
  [...text].map((c) => "\\u{" + c.codePointAt(0).toString(16) + "}").join("");

// inscribe writes untrusted text into an element so that two do not look the same: what is shapeless is
// written as an escape, which looks different from a text that reads like one.
function inscribe(e, text) {
  if (e.inscribed === text) return e;
  e.inscribed = text;
  e.replaceChildren(...text.split(shapeless).map((part, i) => i % 2 === 0 ? part : make("span", "escape", escaped(part))));
  return e;
}

// write sets a text that is not there yet, so that what is selected stays so.
function write(e, text) {
  if (e.textContent !== text) e.textContent = text;
}

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
  let response;
  try {
    response = await fetch(path, { signal: AbortSignal.timeout(10000), ...options });
  } catch {
    throw new Error("The server does not answer.");
  }
  let answer = null;
  try {
    answer = await response.json();
  } catch {
    throw new Error(`The server answers ${response.status} ${response.statusText}.`);
  }
  if (!response.ok) throw new Error(answer.error);
  return answer;
}

function listen() {
  forgetAgain();
  if (page.source) page.source.close();
  page.source = null;
  setLive(false);
  if (document.hidden) {
    setStatus("", "paused");
    return;
  }
  if (!$("status").classList.contains("lost")) setStatus("", "connecting"); // or it says so until something comes
  const source = new EventSource("api/events?" + query({ wheel: page.wheel }));
  source.onmessage = (e) => {
    if (source === page.source) show(JSON.parse(e.data));
  };
  source.onerror = () => {
    if (source !== page.source) return;
    setLive(false);
    if (source.readyState !== EventSource.CLOSED) {
      lostNews("connection lost, trying again");
      return;
    }
    lostNews("refused, trying again");
    beginLater(); // the wheels may be others by now
  };
  page.source = source;
}

// setLive notes whether what is shown is current. If it is not, it does not move by itself.
function setLive(live) {
  page.live = live;
  document.body.classList.toggle("old", !live);
}

function setStatus(kind, text) {
  $("status").className = "status " + kind;
  write($("status-text"), text);
}

// lostNews says that what is shown is old, and from when it is.
function lostNews(text) {
  setStatus("lost", page.state ? `${text}; this is of ${new Date(page.state.now).toLocaleTimeString()}` : text);
}

function choose(name) {
  page.wheel = name;
  page.state = null;
  page.history = [];
  document.body.classList.add("empty"); // until there is something of this wheel
  for (const list of ["next", "runs", "panics"]) $(list).replaceChildren();
  point(-1);
  press();
  forget();
  location.replace("#wheel=" + encodeURIComponent(name)); // which is the id of no element
  document.title = name + " · timewheel";
  setStatus("", "connecting");
  listen();
}

// press marks the button of the wheel that is shown.
function press() {
  for (const b of $("wheels").children) b.setAttribute("aria-pressed", String(b.textContent === page.wheel));
}

// wanted is the wheel that the address asks for.
function wanted() {
  const [name, value] = location.hash.slice(1).split("=");
  try {
    return name === "wheel" ? decodeURIComponent(value) : "";
  } catch {
    return "";
  }
}

function beginLater() {
  page.again = setTimeout(begin, 3000);
}

function forgetAgain() {
  clearTimeout(page.again);
  page.again = 0;
}

async function begin() {
  forgetAgain();
  if (page.beginning) return;
  page.beginning = true;
  let all;
  try {
    all = await ask("api/wheels");
  } catch (e) {
    lostNews(e.message);
    beginLater();
    return;
  } finally {
    page.beginning = false;
  }
  page.begun = true;
  page.control = all.control;
  const known = [...$("wheels").children].map((b) => b.textContent);
  if (JSON.stringify(known) !== JSON.stringify(all.wheels)) {
    $("wheels").replaceChildren(...all.wheels.map((name) => {
      const b = make("button", "", name);
      b.type = "button";
      b.onclick = () => choose(name);
      return b;
    }));
  }
  if (page.state && all.wheels.includes(page.wheel)) {
    press();
    listen(); // what is shown, and looked up, may stay
  } else {
    choose(all.wheels.includes(wanted()) ? wanted() : all.wheels[0]);
  }
}

// ---- a new state

function show(state) {
  page.state = state;
  page.came = performance.now();
  if (state.whole) page.history = state.history;
  else page.history.push(...state.history);
  const at = Date.parse(state.now);
  page.history = page.history.filter((p) => { // of the last five minutes, and not of the future, if the clock was set back
    const age = at - Date.parse(p.time);
    return age >= 0 && age < 300000;
  });
  document.body.classList.remove("empty");
  setLive(true);
  setStatus(state.running ? "live" : "lost", state.running ? "running" : "not running");
  showDial();
  showNumbers();
  showLateness();
  showNext();
  showRuns();
  showPanics(state);
}

// ---- the dial

const band = [49, 98];

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

// first is the first slot of a sector, or the number of slots for the one after the last.
const first = (i) => total(page.state.dial.width.slice(0, i));

// sectorAt is the sector that a slot is in.
function sectorAt(slot) {
  const { width } = page.state.dial;
  for (let i = 0, end = 0; i < width.length; i++) {
    end += width[i];
    if (slot < end) return i;
  }
  return width.length - 1;
}

// ring draws how many tasks are in each sector, for one slot of it. The length of a bar is as the root of the
// number, so that a burst in one slot does not hide the others.
function ring(counts, [inner, outer]) {
  const { slots, width } = page.state.dial, n = counts.length;
  const most = Math.max(...counts.map((count, i) => count / width[i]));
  let path = "", from = 0;
  const gap = n > 1 ? Math.min(0.12 / n, 0.004) : 0;
  for (let i = 0; i < n; from += width[i++]) {
    if (counts[i] === 0) continue;
    const share = Math.max(Math.sqrt(counts[i] / width[i] / most), 0.04);
    path += wedge(from / slots + gap, (from + width[i]) / slots - gap, inner, inner + share * (outer - inner));
  }
  return path;
}

const total = (counts) => counts.reduce((sum, n) => sum + n, 0);

function showDial() {
  const { dial, stats } = page.state;
  $("tasks").setAttribute("d", ring(dial.tasks, band));
  write($("pending"), compact(stats.pending));
  write($("shape"), `${span(dial.tick)} × ${dial.slots.toLocaleString("en")}`);
  write($("turn"), `a turn in ${span(dial.tick * dial.slots)}`);
  write($("layout"), dial.layout);
  const tasks = total(dial.tasks);
  write($("tasks-count"), compact(tasks));
  write($("dial-label"), `The wheel: ${dial.slots} slots, ${tasks} tasks wait in them`);
  const marks = $("marks");
  if (marks.dataset.slots !== String(dial.slots)) {
    marks.dataset.slots = dial.slots;
    const parts = [];
    const quarters = Math.min(dial.slots, 4);
    for (let q = 0; q < quarters; q++) {
      const slot = Math.round(q * dial.slots / quarters), share = slot / dial.slots;
      const [x, y] = polar(108, share).split(" ");
      const side = Math.sin(share * 2 * Math.PI);
      const text = draw("text", { x: side > 0.5 ? 102 : side < -0.5 ? -102 : x, y, "text-anchor": side > 0.5 ? "start" : side < -0.5 ? "end" : "middle" });
      text.textContent = compact(slot);
      parts.push(text);
    }
    for (let q = 0; q < 12 && dial.slots >= 12; q++) {
      if (q % 3 === 0) continue;
      const [x1, y1] = polar(100, q / 12).split(" "), [x2, y2] = polar(102.5, q / 12).split(" ");
      parts.push(draw("line", { x1, y1, x2, y2 }));
    }
    marks.replaceChildren(...parts);
  }
  showReading();
  turn();
}

// turn puts the hand where it is now: the server sent its slot, and the clock gives the time since.
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
  if (page.state && page.live && !document.hidden) {
    turn();
    countDown();
  }
  requestAnimationFrame(frame);
}

const hint = matchMedia("(pointer: coarse)").matches ? "Touch a part of the wheel." : $("reading").textContent;

function point(sector) {
  page.sector = sector;
  if (page.state) showReading();
  else write($("reading"), hint);
}

function showReading() {
  const { dial } = page.state, i = page.sector;
  if (i < 0 || i >= dial.tasks.length) {
    $("chosen").removeAttribute("d");
    write($("reading"), hint);
  } else {
    const last = first(i + 1) - 1;
    $("chosen").setAttribute("d", wedge(first(i) / dial.slots, first(i + 1) / dial.slots, ...band));
    const slots = first(i) === last ? "slot " + last : `slots ${first(i)} to ${last}`;
    write($("reading"), `${slots}: ${compact(dial.tasks[i])} ${dial.tasks[i] === 1 ? "task" : "tasks"}`);
  }
  if (page.found && !page.found.waiting) {
    const middle = (page.found.slot + 0.5) / dial.slots, half = Math.max(0.5 / dial.slots, 0.006);
    $("found").setAttribute("d", wedge(middle - half, middle + half, band[0] - 1, band[1] + 1));
  } else {
    $("found").removeAttribute("d");
  }
}

function pointAt(e) {
  if (!page.state) return;
  const { x, y } = new DOMPoint(e.clientX, e.clientY).matrixTransform($("dial").getScreenCTM().inverse());
  if (Math.hypot(x, y) < band[0]) return point(-1);
  point(sectorAt((Math.atan2(x, -y) / (2 * Math.PI) + 1) % 1 * page.state.dial.slots));
}

$("dial").addEventListener("click", pointAt); // which a finger that scrolls the page makes none of
$("dial").addEventListener("pointermove", (e) => { if (e.pointerType !== "touch") pointAt(e); });
$("dial").addEventListener("keydown", (e) => {
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[e.key];
  if (!step || !page.state) return;
  e.preventDefault();
  const n = page.state.dial.tasks.length;
  point(page.sector < 0 ? sectorAt(page.state.dial.hand) : (page.sector + step + n) % n);
  announce($("reading").textContent);
});
$("dial").addEventListener("pointerleave", (e) => { if (e.pointerType !== "touch") point(-1); });

// ---- the accounts

const numbers = [
  { name: "Pending", field: "pending", note: "live tasks" },
  { name: "Waiting", field: "waiting", about: (s) => s.waiting ? `the longest for ${span(s.oldest_wait)}` : "due, for a worker" },
  { name: "Running", field: "running", about: (s) => s.workers ? `jobs, of ${compact(s.workers)} at most` : "jobs" },
  { name: "Started", field: "started", rate: true },
  { name: "Missed", field: "missed", rate: true, alarm: true },
  { name: "Panicked", field: "panicked", rate: true, alarm: true },
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
    write(n.value, compact(stats[n.field]));
    n.value.title = stats[n.field].toLocaleString("en");
    write(n.under, n.about ? n.about(stats) : n.rate ? rateText(last?.[n.field]) || "\u00a0" : changeText(n));
    n.card.classList.toggle("alarm", Boolean(n.alarm) && anyLately(n.field));
    chart(n);
  }
}

// anyLately reports whether there was any in the last minute: an alarm must outlast a glance elsewhere.
function anyLately(field) {
  const from = Date.parse(page.state.now) - 60000;
  return page.history.some((p) => p[field] > 0 && Date.parse(p.time) > from);
}

// changeText says by how much a number changed in a second.
function changeText(n) {
  const h = page.history, a = h[h.length - 2], b = h[h.length - 1];
  const seconds = a && (Date.parse(b.time) - Date.parse(a.time)) / 1000;
  if (n.name !== "Pending" || !a || seconds > 3) return n.note;
  const change = Math.round((b[n.field] - a[n.field]) / seconds);
  return (change > 0 ? "+" : change < 0 ? "−" : "±") + compact(Math.abs(change)) + "/s";
}

// chart draws the last five minutes, or as much of them as is known, with a gap where no page was open.
function chart(n) {
  const end = Date.parse(page.state.now);
  const age = page.history.length > 0 ? (end - Date.parse(page.history[0].time)) / 1000 : 0;
  const width = 300 / Math.max(age, 60); // of a second
  const points = page.history
    .map((p) => [300 - (end - Date.parse(p.time)) / 1000 * width, p[n.field]])
    .filter(([, v]) => v !== null);
  const most = Math.max(0, ...points.map(([, v]) => v)), least = Math.min(Infinity, ...points.map(([, v]) => v));
  // The change of what is large and steady would not be seen from 0 on.
  const floor = n.rate || least <= most * 0.7 ? 0 : least - (most - least || 1) * 0.3;
  const y = (v) => (32 - (v - floor) / (most - floor || 1) * 29).toFixed(1);
  let line = "", area = "", start = null, before = -Infinity;
  const close = () => { if (start !== null) area += `L${before.toFixed(1)} 34L${start.toFixed(1)} 34Z`; start = null; };
  for (const [x, v] of points) {
    const gap = x - before > 3 * width;
    if (gap) {
      close();
      start = x;
    }
    const step = (gap ? "M" : "L") + `${x.toFixed(1)} ${y(v)}`;
    line += step;
    area += step;
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
  { name: "Tick", field: "tick", note: "due to dispatched" },
  { name: "Wait", field: "wait", note: "dispatched to started" },
  { name: "Run", field: "run", note: "started to ended" },
];

{
  const grid = $("late");
  const row = (...cells) => {
    const r = make("div", "row");
    r.setAttribute("role", "row");
    for (const c of cells) c.setAttribute("role", { head: "columnheader", what: "rowheader" }[c.className] || "cell");
    r.append(...cells);
    grid.append(r);
  };
  const corner = make("span", "corner");
  corner.setAttribute("aria-hidden", "true"); // over the drawing, which is so, too
  row(make("span", "corner"), corner, ...["p50", "p99", "max"].map((name) => make("span", "head", name)));
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
  marks.parentElement.setAttribute("aria-hidden", "true");
}

function showLateness() {
  const l = page.state.lateness;
  $("late-none").hidden = Boolean(l);
  $("late").hidden = !l;
  write($("late-runs"), l ? `${compact(l.runs)} runs in the last minute` : "");
  if (!l) return;
  for (const row of late) {
    const q = l[row.field], any = l.runs > 0;
    [q.p50, q.p99, q.max].forEach((s, i) => { write(row.figures[i], !any ? "–" : s < 1e-6 ? "< 1 µs" : span(s)); });
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
    const b = inscribe(make("button"), item.key);
    b.type = "button";
    b.title = b.textContent;
    b.onclick = () => lookUp(item.key);
    td.append(b);
  } else {
    inscribe(td, item.key);
  }
  return td;
}

let finger = false;        // the last pointer was one
let pressed = null;        // the list in which a pointer is down
let released = -Infinity;  // when the last one was up again; the click comes just after that
addEventListener("pointermove", (e) => { finger = e.pointerType === "touch"; });
addEventListener("pointerdown", (e) => {
  finger = e.pointerType === "touch";
  pressed = e.target.closest("tbody");
});
for (const up of ["pointerup", "pointercancel"]) {
  addEventListener(up, () => {
    if (pressed) released = performance.now();
    pressed = null;
  });
}

// isUsed reports whether the user is about to choose something in a list, or selects a text there.
function isUsed(body) {
  const selection = getSelection();
  return body.querySelector(":focus-visible") !== null || !finger && body.matches(":hover") ||
    pressed === body || performance.now() - released < 300 ||
    !selection.isCollapsed && selection.getRangeAt(0).intersectsNode(body);
}

// fill writes the items into the rows of a table, but while that is used: then they stay where they are, and the
// table says so.
function fill(body, items, columns, none) {
  const held = isUsed(body);
  body.closest(".card").classList.toggle("held", held);
  if (held) return;
  const rows = items.map((item) => {
    const row = make("tr");
    row.append(cell(item), ...columns.map((c) => make("td", "n " + (c.kind || ""), c.text(item))));
    row.item = item;
    return row;
  });
  if (rows.length === 0) {
    const row = make("tr"), td = make("td", "none", none);
    td.colSpan = columns.length + 1;
    row.append(td);
    rows.push(row);
  }
  body.replaceChildren(...rows);
}

// due writes how long it is until a task is due; in a wheel that does not run it may never be.
const due = (item) => page.state.running ? until((Date.parse(item.next) - now()) / 1000) : "–";

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
  for (const row of $("next").children) if (row.item) write(row.children[1], due(row.item));
  if (page.found) write($("facts").children[3], nextText(page.found));
}

const keepPanics = 10;

// showPanics adds the new panics, or replaces all if the list is complete. An open one is being read, and stays.
function showPanics({ panics, whole }) {
  const list = $("panics"), known = new Map([...list.children].map((d) => [d.dataset.id, d]));
  const fresh = panics.map((p) => {
    const id = p.time + " " + p.key;
    if (known.has(id)) return known.get(id);
    const d = make("details"), s = make("summary");
    d.dataset.id = id;
    const who = p.key === "" ? make("span", "who timer", "timer") : inscribe(make("span", "who"), p.key);
    s.append(make("span", "when", new Date(p.time).toLocaleTimeString()), who, inscribe(make("span", "what"), p.value));
    d.append(s, make("pre", "", p.stack || "There were too many panics at once to send each stack. Reload the page to see the stacks that were kept."));
    return d;
  });
  const room = whole ? 0 : keepPanics - fresh.length;
  const before = [...list.children].filter((d) => d.dataset.id && !fresh.includes(d));
  const all = [...fresh, ...before.filter((d, i) => i < room || d.open || d.contains(document.activeElement))];
  if (all.length === 0) all.push(make("p", "none", "None was recorded."));
  // What is there already is not moved: it may have the focus, or be selected.
  for (const d of [...list.children]) if (!all.includes(d)) d.remove();
  all.forEach((d, i) => { if (list.children[i] !== d) list.insertBefore(d, list.children[i] || null); });
}

// ---- one task

function say(text, bad) {
  $("look-message").textContent = text;
  $("look-message").classList.toggle("bad", Boolean(bad));
}

// announce gives users of a screen reader the result of what they asked for, and no sooner.
function announce(text) {
  $("announced").textContent = text;
}

function forget() {
  page.question++;
  page.asking = false;
  page.key = page.found = null;
  if ($("task").contains(document.activeElement)) $("key").focus(); // or nothing would have the focus
  $("task").hidden = true;
  $("found").removeAttribute("d");
  say("");
  calm();
}

function lookUp(key) {
  forget();
  page.key = key;
  $("key").value = key; // in which a field of one line has no line breaks
  page.filled = { text: $("key").value, key };
  return refresh();
}

// refresh asks again for the task that is looked up, if no answer is awaited.
async function refresh() {
  const key = page.key;
  if (key === null || page.asking) return;
  const question = ++page.question;
  page.asking = true;
  try {
    const task = await ask("api/task?" + query({ wheel: page.wheel, key }));
    if (question !== page.question) return;
    if (task) {
      const found = page.found;
      if (!found || page.unreachable) say("");
      page.found = task;
      showTask(key);
      if (!found && page.state) announce("Found. Next run " + nextText(task));
    } else {
      const was = page.found;
      forget();
      say(was ? "The task has gone: its last run has begun, or it was removed." : "No live task has this key.");
    }
    page.unreachable = false;
  } catch (e) {
    if (question !== page.question) return;
    page.unreachable = true;
    say(e.message, true);
  }
  page.asking = false;
  if (page.state) showReading();
}

function nextText(task) {
  const at = new Date(task.next), s = (at.getTime() - now()) / 1000;
  if (!page.state.running) return "none: the wheel does not run";
  if (task.waiting) return `was due ${span(Math.max(-s, 0))} ago, waits for a worker`;
  if (s > 3e9) return `in ${span(s)}`;
  const day = at.toDateString() === new Date(now()).toDateString() ? "" : at.toLocaleDateString() + " ";
  return (s < 0.005 ? "now" : "in " + until(s)) + `, at ${day}${at.toLocaleTimeString()}`;
}

const facts = ["key", "next run", "runs left", "interval", "slot", "circle"].map((name) => {
  const dd = make("dd", name === "key" ? "mono" : "");
  $("facts").append(make("dt", "", name), dd);
  return dd;
});

function showTask(key) {
  const task = page.found;
  if (!page.state) return;
  inscribe(facts[0], key);
  [
    nextText(task),
    times(task.times),
    task.interval > 0 ? span(task.interval) : "none",
    task.waiting ? "none" : task.slot.toLocaleString("en"),
    task.waiting ? "none" : task.circle === 0 ? "0, in this turn of the hand" : compact(task.circle),
  ].forEach((text, i) => write(facts[i + 1], text));
  $("task").hidden = false;
  $("controls").hidden = !page.control;
}

// act does something about the task that is shown.
async function act(verb, values, done) {
  const key = page.key, wheel = page.wheel;
  if (page.found === null || page.acting) return;
  calm();
  page.acting = true;
  let failed = "";
  try {
    await ask("api/" + verb, { method: "POST", body: new URLSearchParams({ wheel, key, ...values }) });
  } catch (e) {
    failed = e.message;
  }
  page.acting = false;
  if (key !== page.key || wheel !== page.wheel) return; // another is shown by now
  if (failed !== "") {
    say(failed, true);
    return;
  }
  if (verb === "remove") {
    forget();
  } else {
    page.asking = false; // what is under way may be from before
    refresh();
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
  const text = $("key").value;
  if (text !== "") {
    lookUp(text === page.filled.text ? page.filled.key : text);
  } else {
    forget();
    say("Which key?", true);
  }
});
$("remove").addEventListener("click", (e) => {
  if (e.detail > 1) return; // a double click is one
  if ($("remove").classList.contains("sure")) {
    act("remove", {}, "Removed.");
    return;
  }
  $("remove").classList.add("sure");
  $("remove").textContent = "Remove it?";
  announce("Press once more to remove it");
});
$("remove").addEventListener("keydown", (e) => { if (e.repeat) e.preventDefault(); }); // and a key held down, too
$("remove").addEventListener("blur", calm);
$("key").addEventListener("input", () => { page.filled = { text: "", key: "" }; });
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
document.addEventListener("visibilitychange", () => { if (page.begun) listen(); });
addEventListener("hashchange", () => {
  const known = [...$("wheels").children].some((b) => b.textContent === wanted());
  if (known && wanted() !== page.wheel) choose(wanted());
});

setInterval(() => {
  if (!page.live) return;
  if (performance.now() - page.came > 5000) { // the connection is there, and nothing comes
    listen();
    lostNews("no news, trying again");
    return;
  }
  refresh();
}, 1000);
requestAnimationFrame(frame);
begin();
