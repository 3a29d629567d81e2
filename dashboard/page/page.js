"use strict";

// The page of package dashboard. Keys are anybody's text: whatever comes from the server gets into the page as
// textContent, or as a number into an attribute of the drawing, and in no other way. What is of durable schedulers alone is
// in scheduler.js.

const $ = (id) => document.getElementById(id);
const still = matchMedia("(prefers-reduced-motion: reduce)");

const page = {
  sources: null,    // that are known, with their health
  wheel: "",        // whose events come, or ""
  scheduler: "",    // that is asked again and again, or ""; never both
  view: "",         // overview, wheel, scheduler, list or task
  address: "",      // of the view
  control: false,
  source: null,     // of the events
  live: false,      // events come
  state: null,      // the last one of the wheel
  tasks: null,      // the last one of the scheduler
  came: 0,          // when it did, by this machine's clock, in ms
  recent: [],       // the accounts of the last second and a half
  history: [],
  range: 900,       // seconds of it that the charts show
  sector: -1,       // that is pointed at
  ref: null,        // the task of the view: {key} or {id}, or null
  found: null,      // the task, when it is shown
  question: 0,      // the number of the last request for it
  asking: false,    // whether its answer is awaited
  acting: false,    // something is being done about the task that is shown
  beginning: false, // the sources are being asked for
  again: 0,         // the timer after which they are, or 0
  said: "",         // the kinds of findings that were announced
};

// ---- text

// rounded is n with the given number of significant digits.
const rounded = (n, digits) => Number(n.toPrecision(digits));

// compact writes a number as the health does, with four digits if it has more than seven.
const compact = (n) => shortened(n, 1e7);

// shortened writes a number, with four digits from one of them on.
function shortened(n, from) {
  if (Math.abs(n) < from) return n.toLocaleString("en");
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

// stamp writes a time with its date and its zone, and clock with its date if that is not today's.
const two = (n) => String(n).padStart(2, "0");
const dateOf = (t) => `${t.getFullYear()}-${two(t.getMonth() + 1)}-${two(t.getDate())}`;
const timeOf = (t) => `${two(t.getHours())}:${two(t.getMinutes())}:${two(t.getSeconds())}`;
const clock = (t) => dateOf(t) === dateOf(new Date()) ? timeOf(t) : `${dateOf(t)} ${timeOf(t)}`;
const zone = new Intl.DateTimeFormat("en", { timeZoneName: "short" });
const zoneOf = (t) => zone.formatToParts(t).find((p) => p.type === "timeZoneName").value;
const stamp = (t) => `${dateOf(t)} ${timeOf(t)} ${zoneOf(t)}`;

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

// A Gone is the error of a server that does not answer. What it says is over when something comes.
class Gone extends Error {}

async function ask(path, options) {
  let response;
  try {
    response = await fetch(path, { signal: AbortSignal.timeout(10000), ...options });
  } catch {
    throw new Gone("The server does not answer.");
  }
  let answer = null;
  try {
    answer = await response.json();
  } catch {
    throw new Gone(`The server answers ${response.status} ${response.statusText}.`);
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
  if (page.wheel === "") {
    if (page.scheduler === "") look();
    else poll();
    return;
  }
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
    beginLater(); // the sources may be others by now
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

// setCame notes that the server answers.
function setCame() {
  setLive(true);
  setStatus("live", "page is live");
  for (const message of document.querySelectorAll(".message.gone")) say("", false, message);
}

// lostNews says that what is shown is old, and from when it is.
function lostNews(text) {
  const shown = page.state || page.tasks;
  setStatus("lost", shown ? `${text}; this is from ${stamp(new Date(shown.now))}` : text);
}

// ---- where the page is: #, #wheel=name, or #wheel=name&key=key. A key that cannot be written there has an id. With
// scheduler in place of wheel it is the same for a scheduler; with list=tasks it is a list, and the rest is what is searched.

const place = (wheel, ref) => "#" + query({ wheel, ...ref });
const placeOf = (s) => "#" + query({ [s.kind]: s.name });

// refOf is what an item of a list is asked for by, or null.
const refOf = (item) => item.key === "" ? null : item.exact ? { key: item.key } : item.id ? { id: item.id } : null;

// wanted is what the address asks for.
function wanted() {
  const values = new URLSearchParams(location.hash.slice(1)), nowhere = { wheel: "", scheduler: "", ref: null, list: null };
  const kind = values.has("scheduler") ? "scheduler" : "wheel", name = values.get(kind);
  const found = page.sources.find((s) => s.kind === kind && s.name === name);
  if (!found && name === null && !values.has("key") && page.sources.length > 1) return nowhere;
  const source = found || page.sources[0];
  const to = { ...nowhere, [source.kind]: source.name };
  if (name !== null && !found) return to;
  const ref = values.get("key") ? { key: values.get("key") } : values.get("id") ? { id: values.get("id") } : null;
  if (ref === null && source.kind === "scheduler" && values.has("list")) {
    values.delete("scheduler");
    values.delete("list");
    return { ...to, list: Object.fromEntries(values) };
  }
  return { ...to, ref };
}

// go shows what the address asks for.
function go() {
  const { wheel, scheduler, ref, list } = wanted();
  const view = ref ? "task" : list ? "list" : scheduler !== "" ? "scheduler" : wheel !== "" ? "wheel" : "overview";
  const address = query({ wheel, scheduler, ...ref }) + (list ? " " + query(list) : "");
  const moved = page.view !== "" && (view !== page.view || address !== page.address);
  const other = page.view === "" || wheel !== page.wheel || scheduler !== page.scheduler;
  forget();
  calmBulk();
  if (other) {
    page.state = page.tasks = null;
    page.history = [];
    page.recent = [];
    page.said = "";
    document.body.classList.add("empty"); // until there is something of this source
    for (const name of ["next", "runs", "panics", "found-tasks"]) $(name).replaceChildren();
    $("results").hidden = true;
    say("", false, $("look-message"));
    point(-1);
    forgetScheduler();
  }
  page.view = view;
  page.address = address;
  page.ref = ref;
  for (const [id, name] of Object.entries(views)) $(id).hidden = name !== view;
  if (other || wheel !== "" && !page.source) {
    page.wheel = wheel;
    page.scheduler = scheduler;
    setStatus("", "connecting");
    listen();
  }
  showPath();
  if (view === "task") {
    write($("task-title"), "");
    inscribe($("task-title"), ref.key ?? "a key that is not text");
    for (const e of document.querySelectorAll("#task-view .of-wheel")) e.hidden = scheduler !== "";
    for (const e of document.querySelectorAll("#task-view .of-scheduler")) e.hidden = scheduler === "";
    setFacts(scheduler === "" ? wheelFacts : storedFacts);
    write($("run"), "Run now");
    refresh();
  }
  if (view === "list") showList(list);
  if (view === "scheduler") {
    readFailures();
    readSets();
    readHour();
  }
  if (!moved) return;
  scrollTo(0, 0);
  $(Object.keys(views).find((id) => views[id] === view)).focus({ preventScroll: true });
}

const views = { overview: "overview", wheel: "wheel", scheduler: "scheduler", "list-view": "list", "task-view": "task" };

// allOf says how many sources there are, such as "3 wheels".
function allOf(n) {
  const kinds = new Set(page.sources.map((s) => s.kind));
  const what = kinds.size > 1 ? "sources" : kinds.has("wheel") ? "wheels" : "schedulers";
  return n === undefined ? what : `${n} ${what}`;
}

function showPath() {
  const steps = [], source = page.wheel || page.scheduler, kind = page.wheel ? "wheel" : "scheduler";
  if (page.sources.length > 1) steps.push(["All " + allOf(), "#"]);
  if (source !== "") steps.push([source, "#" + query({ [kind]: source })]);
  if (page.view === "list") steps.push(["tasks", location.hash]);
  if (page.ref) steps.push(["task", "#" + query({ [kind]: source, ...page.ref })]);
  const text = JSON.stringify(steps);
  if ($("path").dataset.steps !== text) {
    $("path").dataset.steps = text;
    $("path").replaceChildren(...steps.map(([name, href], i) => {
      const a = inscribe(make("a"), name);
      a.href = href;
      if (i === steps.length - 1) a.setAttribute("aria-current", "page");
      return a;
    }));
  }
  const bad = page.sources.filter((s) => !s.health.well && s.name !== source).length;
  const first = $("path").firstChild;
  if (page.sources.length > 1 && source !== "") {
    write(first, bad > 0 ? `All ${allOf()} (${bad} ${bad > 1 ? "others" : "other"} in trouble)` : `All ${allOf(page.sources.length)}`);
  }
  const shown = page.ref ? page.ref.key ?? "task" : page.view === "list" ? "tasks" : "";
  document.title = [shown, source, "timewheel"].filter(Boolean).join(" · ");
}

function beginLater() {
  page.again = setTimeout(begin, 3000);
}

function forgetAgain() {
  clearTimeout(page.again);
  page.again = 0;
}

// begin asks for the sources and shows what the address asks for, or what is shown already.
async function begin() {
  forgetAgain();
  if (page.beginning) return;
  page.beginning = true;
  let all;
  try {
    all = await ask("api/sources");
  } catch (e) {
    lostNews(e.message);
    beginLater();
    return;
  } finally {
    page.beginning = false;
  }
  const known = page.sources;
  page.sources = all.sources;
  page.control = all.control;
  if (known && (page.state || page.tasks) && all.sources.some(isShown)) {
    showPath();
    listen(); // what is shown, and looked up, may stay
  } else {
    page.view = "";
    if (page.source) page.source.close();
    page.source = null;
    go();
  }
}

const isShown = (s) => s.name === (s.kind === "wheel" ? page.wheel : page.scheduler);

// look asks for the health of all sources.
let looked = -Infinity, looking = false;
async function look() {
  if (looking || document.hidden || !page.sources) return;
  looking = true;
  looked = performance.now();
  try {
    const { sources } = await ask("api/sources");
    if (page.view !== "overview") {
      if (sources.some(isShown)) {
        page.sources = sources;
        showPath();
      }
    } else {
      page.sources = sources;
      setCame();
      showPath();
    }
  } catch (e) {
    if (page.view === "overview") {
      setLive(false);
      lostNews(e.message + " Trying again");
    }
  } finally {
    looking = false;
  }
  if (page.view === "overview") showSources();
}

// ---- all sources

function showSources() {
  document.body.classList.remove("empty");
  const list = $("sources");
  while (list.children.length > page.sources.length) list.lastChild.remove();
  page.sources.forEach((s, i) => {
    let li = list.children[i];
    if (!li) {
      li = make("li", "card source");
      li.append(make("h3"), make("p", "verdict"), make("p", "quiet"));
      li.firstChild.append(make("a"));
      li.children[1].append(make("span", "sign"), make("span"));
      list.append(li);
    }
    const [h, verdict, more] = li.children;
    inscribe(h.firstChild, s.name);
    h.firstChild.href = placeOf(s);
    li.classList.toggle("wrong", !s.health.well);
    li.classList.toggle("watch", s.health.watch);
    sign(verdict.firstChild, s.health.well);
    write(verdict.lastChild, s.health.text);
    const others = [...s.health.findings.slice(1), ...s.health.notes].map((f) => f.text);
    const figures = s.kind === "wheel" ? `${compact(s.stats.pending)} live tasks, ${compact(s.stats.started)} runs started`
      : `durable scheduler, ${compact(s.stats.pending)} tasks, ${compact(s.stats.parked)} parked`;
    write(more, [...others, figures].join(" · "));
  });
  const bad = page.sources.filter((s) => !s.health.well).length;
  write($("overview-title"), bad === 0 ? `All ${allOf(page.sources.length)} work` : `${bad} of ${allOf(page.sources.length)} in trouble`);
}

function sign(e, well) {
  write(e, well ? "✓" : "!");
  e.setAttribute("aria-hidden", "true"); // the words say it
}

// ---- a new state

function show(state) {
  page.state = state;
  if (state.whole) page.history = [];
  remember(state, 1500);
  showHealth($("health"), state.health, where);
  showDial();
  showNumbers(numbers, state);
  showLateness();
  showNext();
  showRuns();
  showPanics($("panics"), state, "None was recorded.");
  showTask();
}

// remember keeps what the charts and the rates are made of, for as many milliseconds.
function remember(state, recently) {
  page.came = performance.now();
  const at = Date.parse(state.now);
  page.history = [...page.history, ...state.history].filter((p) => { // of the last hour, and not of the future, if the clock was set back
    const age = at - Date.parse(p.time);
    return age >= 0 && age < 3600000;
  });
  page.recent = page.recent.filter((r) => r.at < at && at - r.at < recently);
  page.recent.push({ at, stats: state.stats });
  document.body.classList.remove("empty");
  setCame();
}

// ---- the health

// Where to look, for each kind of finding.
const where = {
  overloaded: [["Running longest", "runs-title"], ["Due next", "next-title"]],
  panicked: [["Last panics", "panics-title"]],
  missed: [["Missed", "number-missed"], ["Running longest", "runs-title"]],
  stopped: [],
};

// showHealth writes the health into a card. Where to look is an element of the page, or an address in it. Acts are what can
// be done about a finding: a name, a question, which is empty if there is none, and a function.
function showHealth(card, { well, watch, text, findings, notes }, where, acts = () => []) {
  const list = card.querySelector("ul");
  card.classList.toggle("wrong", !well);
  card.classList.toggle("watch", watch);
  const items = [...(well ? [{ kind: "", text, since: null }] : findings), ...notes];
  const kinds = items.map((f) => f.kind).join(" ");
  const shown = page.address + JSON.stringify(items.map((f) => [f.kind, ...acts(f).map(([name]) => [name, f.about])]));
  if (list.dataset.shown !== shown) {
    list.dataset.shown = shown;
    list.replaceChildren(...items.map((f) => {
      const li = make("li"), more = make("span", "more");
      li.append(make("span", "sign"), make("span", "verdict"), make("span", "since quiet"), more);
      li.classList.toggle("note", notes.includes(f));
      sign(li.firstChild, well);
      if (notes.includes(f)) write(li.firstChild, f.kind === "paused" ? "‖" : "…");
      for (const [name, id] of where[f.kind] || []) {
        if (id.startsWith("#")) {
          const a = make("a", "go", name);
          a.href = id;
          more.append(a);
          continue;
        }
        const b = make("button", "go", name);
        b.type = "button";
        b.onclick = () => {
          $(id).focus({ preventScroll: true });
          $(id).closest(".card, .number").scrollIntoView({ block: "center" });
        };
        more.append(b);
      }
      if (more.firstChild) more.prepend("Look at ");
      for (const [name, question, act] of acts(f)) {
        const b = make("button", "do", name);
        b.type = "button";
        twice(b, () => question, act);
        li.append(b);
      }
      return li;
    }));
    if (page.said !== kinds && (page.said !== "" || !well)) announce(items.map((f) => f.text).join(". "));
    page.said = kinds;
  }
  items.forEach((f, i) => {
    const [, verdict, since] = list.children[i].children;
    write(verdict, f.text + ".");
    write(since, f.since ? `Since ${stamp(new Date(f.since))}.` : "");
  });
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
  write($("pending"), shortened(stats.pending, 1e5)); // there is room for so much
  write($("shape"), `${span(dial.tick)} × ${dial.slots.toLocaleString("en")}`);
  write($("turn"), `a circle in ${span(dial.tick * dial.slots)}`);
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
      text.textContent = shortened(slot, 1e5);
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
  { name: "Waiting", field: "waiting", alarm: "overloaded", about: (s) => s.waiting ? `the longest for ${span(s.oldest_wait)}` : "due, for a worker" },
  { name: "Running", field: "running", about: (s) => s.workers ? `jobs, of ${compact(s.workers)} at most` : "jobs" },
  { name: "Started", field: "started", rate: true },
  { name: "Missed", field: "missed", rate: true, alarm: "missed" },
  { name: "Panicked", field: "panicked", rate: true, alarm: "panicked" },
];

// addNumbers adds the cards of the numbers to a grid, and the buttons that choose how much of the history they show.
function addNumbers(all, grid, range, prefix) {
  for (const n of all) {
    const card = make("div", "number");
    n.card = card;
    n.value = make("div", "value", "–");
    n.under = make("div", "rate", "\u00a0");
    n.chart = draw("svg", { viewBox: "0 0 300 34", preserveAspectRatio: "none", "aria-hidden": "true" });
    n.area = draw("path", { class: "area" });
    n.line = draw("path", { class: "line" });
    n.chart.append(n.area, n.line);
    n.axis = make("div", "axis");
    n.axis.append(make("span"), make("span", "", "now"));
    const title = make("h3", "", n.name);
    title.id = prefix + n.field;
    title.tabIndex = -1;
    card.append(title, n.value, n.under, n.chart, n.axis);
    grid.append(card);
  }
  for (const [name, seconds] of [["5 min", 300], ["15 min", 900], ["1 h", 3600]]) {
    const b = make("button", "", name);
    b.type = "button";
    b.dataset.range = seconds;
    b.onclick = () => {
      page.range = seconds;
      for (const other of document.querySelectorAll("[data-range]")) other.setAttribute("aria-pressed", String(other.dataset.range === b.dataset.range));
      const shown = page.state || page.tasks;
      if (shown) showNumbers(all, shown);
    };
    b.setAttribute("aria-pressed", String(seconds === page.range));
    range.append(b);
  }
}
addNumbers(numbers, $("numbers"), $("range"), "number-");

function showNumbers(all, { stats, health, now }) {
  for (const n of all) {
    write(n.value, compact(stats[n.field]));
    n.value.title = stats[n.field].toLocaleString("en");
    write(n.under, n.about ? n.about(stats, page.tasks) : changeText(n));
    const alarm = health.findings.some((f) => [n.alarm].flat().includes(f.kind)) && (!n.mine || n.mine(stats));
    n.card.classList.toggle("alarm", alarm);
    chart(n, stats, now);
  }
}

// changeText says by how much a number changed in the last second.
function changeText(n) {
  const a = page.recent[0], b = page.recent[page.recent.length - 1];
  const seconds = (b.at - a.at) / 1000;
  if (seconds < 0.5) return n.note || "\u00a0";
  const change = (b.stats[n.field] - a.stats[n.field]) / seconds;
  if (n.rate) return rateText(change);
  return (change > 0.5 ? "+" : change < -0.5 ? "−" : "±") + compact(Math.abs(Math.round(change))) + "/s";
}

// chart draws the range that was chosen, or as much of it as is known.
function chart(n, stats, now) {
  const end = Date.parse(now);
  const age = page.history.length > 0 ? (end - Date.parse(page.history[0].time)) / 1000 : 0;
  const length = Math.min(Math.max(age, 60), page.range); // in seconds
  const width = 300 / length; // of a second
  const known = n.rate ? page.history : [...page.history, { time: now, [n.field]: stats[n.field] }];
  const points = known
    .map((p) => [300 - (end - Date.parse(p.time)) / 1000 * width, p[n.field]])
    .filter(([x, v]) => v !== null && x >= -10 * width);
  const most = Math.max(0, ...points.map(([, v]) => v)), least = Math.min(Infinity, ...points.map(([, v]) => v));
  // The change of what is large and steady would not be seen from 0 on.
  const floor = n.rate || least <= most * 0.7 ? 0 : least - (most - least || 1) * 0.3;
  const y = (v) => (32 - (v - floor) / (most - floor || 1) * 29).toFixed(1);
  let line = "", area = "", start = null, before = -Infinity;
  const close = () => { if (start !== null) area += `L${before.toFixed(1)} 34L${start.toFixed(1)} 34Z`; start = null; };
  for (const [x, v] of points) {
    const gap = x - before > 20 * width; // the machine slept
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
  const from = new Date(end - length * 1000);
  write(n.axis.firstChild, timeOf(from)); // less than an hour ago; its title has the date
  n.axis.firstChild.title = stamp(from);
  write(n.axis.lastChild, timeOf(new Date(end)));
}

// ---- the lateness

const scale = [1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1, 10, 100];
const along = (s) => Math.min(Math.max(Math.log10(Math.max(s, 1e-9) / scale[0]) / Math.log10(scale[scale.length - 1] / scale[0]), 0), 1) * 100;

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
    l.now = make("small", "now");
    what.append(make("small", "", l.note), l.now);
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
    mark.style.left = along(s) + "%";
    marks.append(mark);
  }
  row(make("span", "corner"), marks);
  marks.parentElement.setAttribute("aria-hidden", "true");
}

// lateText says of how many runs the lateness is known, and of how many it is not yet.
function lateText() {
  const { lateness, stats } = page.state;
  if (!lateness) return "";
  return `of ${compact(lateness.runs)} ${lateness.runs === 1 ? "run" : "runs"} that ended in the last minute; ` +
    `${compact(stats.waiting)} ${stats.waiting === 1 ? "waits" : "wait"} now`;
}

function showLateness() {
  const l = page.state.lateness;
  $("late-none").hidden = Boolean(l);
  $("late").hidden = !l;
  write($("late-runs"), lateText());
  if (!l) return;
  const { stats, runs } = page.state;
  write(late[1].now, stats.waiting > 0 ? `now: up to ${span(stats.oldest_wait)}` : "now: none");
  write(late[2].now, runs.length > 0 ? `now: up to ${span(runs[0].for)}` : "now: none");
  for (const row of late) {
    const q = l[row.field], any = l.runs > 0;
    [q.p50, q.p99, q.max].forEach((s, i) => { write(row.figures[i], !any ? "–" : s < 1e-6 ? "< 1 µs" : span(s)); });
    row.span.setAttribute("x", along(q.p50));
    row.span.setAttribute("width", any ? Math.max(along(q.p99) - along(q.p50), 0.3) : 0);
    row.core.setAttribute("x", along(q.p50) - 0.4);
    row.core.setAttribute("width", any ? 0.8 : 0);
    row.most.setAttribute("x", along(q.max) - 0.3);
    row.most.setAttribute("width", any ? 0.6 : 0);
  }
}

// ---- the lists

// link returns a link to the task of a key, or the key if it has none.
function link(item, className) {
  const ref = refOf(item);
  if (item.key === "") return make("span", "timer " + className, "timer");
  const e = inscribe(make(ref ? "a" : "span", className), item.key);
  e.title = e.textContent;
  if (ref) e.href = page.scheduler === "" ? place(page.wheel, ref) : "#" + query({ scheduler: page.scheduler, ...ref });
  return e;
}

// cell returns a cell for a key, with a link to its task.
function cell(item) {
  const td = make("td", "k");
  td.append(link(item, ""));
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

// due writes how long it is until a task is due, or how long it has waited; in a wheel that does not run it may
// never be due.
function due(item) {
  if (item.paused) return "paused";
  if (!page.state.running) return "–";
  if (!item.waiting) return until((Date.parse(item.next) - now()) / 1000);
  return "waits " + span(Math.max(Date.parse(page.state.now) - Date.parse(item.next), 0) / 1000); // as the accounts say
}

function showNext() {
  const { stats, upcoming } = page.state;
  write($("next-all"), `${compact(stats.waiting)} ${stats.waiting === 1 ? "waits" : "wait"} for a worker`);
  fill($("next"), upcoming, [
    { text: due, kind: "in" },
    { text: (t) => t.waiting ? "–" : t.slot.toLocaleString("en"), kind: "wide" },
    { text: (t) => t.waiting ? "–" : compact(t.circle), kind: "wide" },
    { text: (t) => times(t.times) },
  ], stats.waiting > 0 ? "They change too fast to list." : stats.pending > 0 ? "None is due within one circle of the wheel." : "There are no tasks.");
}

function showRuns() {
  const { stats, runs } = page.state;
  write($("runs-all"), stats.workers > 0 ? `${compact(stats.running)} of ${compact(stats.workers)} workers busy` : `${compact(stats.running)} in progress`);
  fill($("runs"), runs, [
    { text: (r) => span(r.for) },
    { text: (r) => clock(new Date(r.due)), kind: "time" },
  ], stats.running > 0 ? "They end too fast to list." : "No job is running.");
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

// showPanics adds the new panics to a list, or replaces all if they are complete. An open one is being read, and
// stays.
function showPanics(list, { panics, whole }, none) {
  const known = new Map([...list.children].map((d) => [d.dataset.id, d]));
  const fresh = panics.map((p) => {
    const id = p.time + " " + p.key;
    if (known.has(id)) return known.get(id);
    const d = make("details"), s = make("summary");
    d.dataset.id = id;
    const who = p.key === "" ? make("span", "who timer", "timer") : inscribe(make("span", "who"), p.key);
    s.append(make("span", "when", stamp(new Date(p.time))), who, inscribe(make("span", "what"), p.value));
    if (refOf(p) && list.id === "panics") {
      const more = make("p", "more");
      more.append("Task ", link(p, "mono"));
      d.append(more);
    }
    const stack = make("pre", "", p.stack || "There were too many panics at once to send each stack. Reload the page to see the stored stacks.");
    stack.tabIndex = 0; // it scrolls, also by keyboard
    stack.setAttribute("role", "region");
    stack.setAttribute("aria-label", `Stack of ${who.textContent} at ${stamp(new Date(p.time))}`);
    d.prepend(s);
    d.append(stack);
    return d;
  });
  const room = whole ? 0 : keepPanics - fresh.length;
  const before = [...list.children].filter((d) => d.dataset.id && !fresh.includes(d));
  const all = [...fresh, ...before.filter((d, i) => i < room || d.open || d.contains(document.activeElement))];
  if (all.length === 0) all.push(make("p", "none", page.state?.lateness === null ? "Unknown: this wheel has no recorder." : none));
  // What is there already is not moved: it may have the focus, or be selected.
  for (const d of [...list.children]) if (!all.includes(d)) d.remove();
  all.forEach((d, i) => { if (list.children[i] !== d) list.insertBefore(d, list.children[i] || null); });
}

// ---- one task

// say writes a message, which may be that the server is gone.
function say(text, bad, message = $("task-message"), gone = false) {
  message.textContent = text;
  message.classList.toggle("bad", Boolean(bad));
  message.classList.toggle("gone", gone);
  message.classList.remove("done");
}

const sayError = (e, message) => say(e.message, true, message, e instanceof Gone);

// announce gives users of a screen reader the result of what they asked for, and no sooner.
function announce(text) {
  $("announced").textContent = text;
}

function forget() {
  page.question++;
  page.asking = false;
  page.ref = page.found = null;
  hideTask();
  for (const id of ["task-runs", "task-panics", "task-failed", "task-payload"]) $(id).replaceChildren();
  say("");
}

function hideTask() {
  if ($("task").contains(document.activeElement)) $("task-view").focus(); // or nothing would have the focus
  $("task").hidden = true;
  calm();
}

// find searches the tasks whose key begins with a text. A single one whose key it is is shown.
let search = 0;
async function find(text) {
  const number = ++search, wheel = page.wheel, message = $("look-message");
  say("Searching.", false, message);
  let answer;
  try {
    answer = await ask("api/search?" + query({ wheel, prefix: text }));
  } catch (e) {
    if (number === search) sayError(e, message);
    return;
  }
  if (number !== search || wheel !== page.wheel || page.view !== "wheel") return;
  const { tasks, matches, looked, whole } = answer;
  if (whole && matches === 1 && tasks[0].key === text && tasks[0].exact) {
    say("", false, message);
    $("results").hidden = true;
    location.hash = place(wheel, { key: text });
    return;
  }
  const some = matches === 0 ? "No live task has a key with this prefix" : `${compact(matches)} ${matches === 1 ? "task" : "tasks"}`;
  const cut = matches > tasks.length ? `, of which these are the first ${tasks.length} by key` : "";
  const stopped = whole ? "" : ` among ${compact(looked)} of ${compact(page.state.stats.pending)} tasks; the search stopped there because it took too long`;
  say(some + stopped + cut + ".", false, message);
  $("results").hidden = tasks.length === 0;
  $("found-tasks").replaceChildren(...tasks.map((t) => {
    const row = make("tr");
    row.append(cell(t), make("td", "n in", due(t)), make("td", "n", times(t.times)));
    return row;
  }));
}

// refresh asks again for the task of the view, if no answer is awaited.
async function refresh() {
  const ref = page.ref;
  if (ref === null || page.asking) return;
  const question = ++page.question;
  page.asking = true;
  if (page.scheduler !== "") {
    await refreshStored(ref, question);
    if (question === page.question) page.asking = false;
    return;
  }
  try {
    const { task, runs, panics } = await ask("api/task?" + query({ wheel: page.wheel, ...ref }));
    if (question !== page.question) return;
    const found = page.found;
    page.found = task;
    if (task) {
      if (!found || $("task-message").matches(".gone")) say("");
      showTask();
      if (!found && page.state) announce("Found. Next run " + nextText(task));
    } else {
      hideTask();
      if (found) {
        say("The task is gone: its last run has begun, or it was removed.");
        $("task-message").classList.add("done");
      } else if (!$("task-message").matches(".done")) say(runs.length > 0 ? "Its last run is in progress." : "No live task has this key.");
    }
    $("task-runs").replaceChildren(...(runs.length > 0 ? runs : [null]).map((r) => {
      const row = make("tr");
      row.append(make("td", r ? "" : "none", r ? span(r.for) : "No run of it is in progress."), make("td", "", r ? stamp(new Date(r.due)) : ""));
      return row;
    }));
    showPanics($("task-panics"), { panics, whole: true }, "None was recorded.");
  } catch (e) {
    if (question !== page.question) return;
    sayError(e);
  }
  page.asking = false;
}

function nextText(task) {
  const at = new Date(task.next), s = (at.getTime() - now()) / 1000;
  if (task.paused) return "none: it is paused";
  if (!page.state.running) return "none: the wheel does not run";
  if (task.waiting) return `was due ${span(Math.max(-s, 0))} ago, waits for a worker`;
  if (s > 3e9) return `in ${span(s)}`;
  return (s < 0.005 ? "now" : "in " + until(s)) + `, at ${stamp(at)}`;
}

const wheelFacts = ["key", "next run", "runs left", "interval", "slot", "circle"];
let facts = [];

// setFacts makes the list of facts one of these names.
function setFacts(names) {
  if ($("facts").dataset.names === names.join()) return;
  $("facts").dataset.names = names.join();
  $("facts").replaceChildren();
  facts = names.map((name) => {
    const dd = make("dd", ["key", "token", "trace"].includes(name) ? "mono" : "");
    $("facts").append(make("dt", "", name), dd);
    return dd;
  });
}

function showTask() {
  const task = page.found;
  if (!page.state || !task) return;
  inscribe(facts[0], page.ref.key ?? task.key);
  if (page.ref.key === undefined) inscribe($("task-title"), task.key);
  [
    nextText(task),
    times(task.times),
    task.interval > 0 ? span(task.interval) : "none",
    task.waiting || task.paused ? "none" : task.slot.toLocaleString("en"),
    task.waiting || task.paused ? "none" : task.circle === 0 ? "0, in this circle of the hand" : compact(task.circle),
  ].forEach((text, i) => write(facts[i + 1], text));
  showControls(task);
}

// showControls shows the task, with what may be done about it.
function showControls({ paused, parked, running }) {
  write($("pause"), paused ? "Resume" : "Pause");
  $("pause").hidden = parked; // it does not run by itself
  $("run").hidden = paused; // it would stay paused
  $("cancel").hidden = !running;
  $("task").hidden = false;
  $("controls").hidden = !page.control;
}

// act does something about the task that is shown.
async function act(verb, values, done) {
  const { ref, wheel, scheduler } = page, source = wheel !== "" ? { wheel } : { scheduler };
  if (page.found === null || page.acting) return;
  calm();
  page.acting = true;
  let failed = null;
  try {
    await ask("api/" + verb, { method: "POST", body: new URLSearchParams({ ...source, ...ref, ...values }) });
  } catch (e) {
    failed = e;
  }
  page.acting = false;
  if (ref !== page.ref || wheel !== page.wheel || scheduler !== page.scheduler) return; // another is shown by now
  if (failed) {
    sayError(failed);
    return;
  }
  page.asking = false; // what is under way may be from before
  page.question++;
  if (verb === "remove") {
    page.found = null;
    hideTask();
  } else {
    refresh();
  }
  say(done);
  $("task-message").classList.add("done"); // and what is gone then stays said
}

// calm takes back the first of two clicks.
function calm() {
  for (const button of document.querySelectorAll(".twice.sure")) {
    button.classList.remove("sure");
    button.textContent = button.dataset.text;
  }
}

// twice has a button act at the second click, or at the first if there is no question to ask.
function twice(button, question, act) {
  button.classList.add("twice");
  button.addEventListener("click", (e) => {
    if (e.detail > 1) return; // a double click is one
    if (button.matches(".sure") || !question()) {
      calm();
      act();
      return;
    }
    button.dataset.text = button.textContent;
    button.textContent = question();
    button.classList.add("sure");
    announce(`${question()} Press once more`);
  });
  button.addEventListener("keydown", (e) => { if (e.repeat) e.preventDefault(); }); // and a key held down, too
  button.addEventListener("blur", calm);
}

$("look").addEventListener("submit", (e) => {
  e.preventDefault();
  find($("key").value);
});
twice($("remove"), () => "Remove it?", () => act("remove", {}, "Removed."));
$("skip").addEventListener("click", () => document.querySelector("main:not([hidden])").focus());
$("run").addEventListener("click", () => act("run", {}, page.scheduler === "" ? "It runs at the next tick." : "It runs at once."));
$("pause").addEventListener("click", () => {
  if ($("pause").textContent === "Pause") act("pause", {}, "Paused.");
  else act("resume", {}, "Resumed.");
});
twice($("cancel"), () => "Cancel its run?", () => act("cancel", {}, "Its run is cancelled. If the handler fails because of that, the run is retried."));
$("move").addEventListener("submit", (e) => {
  e.preventDefault();
  act("reschedule", { delay: $("delay").value.trim() }, "Rescheduled.");
});
document.addEventListener("keydown", (e) => {
  if (e.key === "Escape") {
    calm();
    calmBulk();
  }
  const field = { wheel: "key", scheduler: "prefix", list: "list-prefix" }[page.view];
  if (e.key === "/" && field && !e.target.closest("input, select") && !e.ctrlKey && !e.metaKey && !e.altKey) {
    e.preventDefault();
    $(field).focus();
    $(field).select();
  }
});
document.addEventListener("visibilitychange", () => { if (page.sources) listen(); });
addEventListener("hashchange", () => { if (page.sources) go(); });

setInterval(() => {
  if (!page.sources || document.hidden) return;
  if (page.view === "overview" || page.sources.length > 1 && performance.now() - looked > 5000) look();
  if (page.scheduler !== "") {
    poll();
    refresh();
    return;
  }
  if (!page.live || page.wheel === "") return;
  if (performance.now() - page.came > 5000) { // the connection is there, and nothing comes
    listen();
    lostNews("no news, trying again");
    return;
  }
  refresh();
}, 1000);
requestAnimationFrame(frame);
addEventListener("DOMContentLoaded", begin); // when scheduler.js is there, too
