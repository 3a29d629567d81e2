"use strict";

// The part of the page that shows a durable scheduler: its state, which is asked for each second, lists of tasks, which
// are asked for when they are opened, and what page.js needs for the page of one task.

const to = (values) => "#" + query({ scheduler: page.scheduler, ...values });
const toList = (values) => to({ list: "tasks", ...values });

// ---- the state

const tasksNumbers = [
  { name: "Pending", field: "pending", about: (s, state) => ageText("counted", state.read.counts, state.now) || "tasks" }, // of all nodes, as they were counted
  { name: "Overdue", field: "overdue", alarm: ["overloaded", "unhandled", "backlog"], mine: (s) => s.overdue > 0, about: overdueText },
  { name: "Running", field: "running", about: (s) => s.workers ? `of ${compact(s.workers)} workers` : "handlers" },
  { name: "Parked", field: "parked", alarm: "parked", about: (s) => s.parked ? "waiting for an operator" : "none" },
  { name: "Started", field: "started", rate: true },
  { name: "Failed", field: "failed", rate: true, alarm: "failing" },
];
addNumbers(tasksNumbers, $("tasks-numbers"), $("tasks-range"), "tasks-");

// ageText says how old what was read is, if it is too old to be shown as the present.
function ageText(verb, at, now) {
  const age = at ? (Date.parse(now) - Date.parse(at)) / 1000 : 0;
  return age > 15 ? `${verb} ${span(age)} ago` : "";
}

// overdueText says for how long the oldest due task of all nodes has waited, whatever for.
function overdueText(s, state) {
  if (s.overdue === 0) return s.waiting > 0 ? `${compact(s.waiting)} due now` : "none";
  return (s.overdue_more ? "at least; " : "") + (s.oldest ? `the oldest for ${ageOf(s.oldest, state.now)}` : "of all nodes");
}

// ageOf writes how long ago a time was.
const ageOf = (at, now) => span(Math.max(Math.round((Date.parse(now) - Date.parse(at)) / 1000), 0));

let polling = false;

// sayAge says how old what is shown is while an answer takes long.
function sayAge() {
  const age = (performance.now() - page.came) / 1000;
  if (!polling || !page.tasks || age < 3) return;
  setLive(false);
  setStatus("lost", `no answer yet; this is ${span(Math.round(age))} old`);
}

// poll asks for the state of the scheduler, with what is new of the history.
async function poll() {
  sayAge();
  if (polling || document.hidden || page.scheduler === "") return;
  const scheduler = page.scheduler, last = page.tasks && page.history.length > 0 ? String(page.history[page.history.length - 1].n) : "";
  polling = true;
  try {
    const state = await ask("api/scheduler?" + query({ scheduler, ...(last ? { after: last } : {}) }));
    if (scheduler === page.scheduler) showScheduler(state);
  } catch (e) {
    if (scheduler !== page.scheduler) return;
    setLive(false);
    lostNews((e instanceof Gone ? e.message : "Refused: " + e.message) + " Trying again");
    if (!(e instanceof Gone) && page.again === 0) beginLater(); // the sources may be others by now
  } finally {
    polling = false;
    if (scheduler !== page.scheduler) poll();
  }
}

// Where to look, for each kind of finding.
const whereTasks = () => ({
  failed: [["Waiting", toList({ state: "waiting" })]],
  away: [["Nodes", "nodes-title"]],
  counting: [["Kinds", "kinds-title"]],
  refused: [["Nodes", "nodes-title"]],
  lease: [["Nodes", "nodes-title"]],
  taken: [["Nodes", "nodes-title"]],
  overloaded: [["Running", toList({ state: "running" })], ["Waiting", toList({ state: "waiting" })]],
  unhandled: [["Kinds", "kinds-title"], ["Waiting", toList({ state: "waiting" })]],
  failing: [["Why tasks fail", "failures-title"], ["Failing", toList({ failing: "true" })]],
  parked: [["Those that repeat", toList({ state: "parked", repeating: "true" })], ["Parked", toList({ state: "parked" })], ["Why tasks fail", "failures-title"]],
  backlog: [["Waiting", toList({ state: "waiting" })]],
  drained: [["Nodes", "nodes-title"]],
  limited: [["Kinds", "kinds-title"], ["Waiting", toList({ state: "waiting" })]],
  paused: [["Kinds", "kinds-title"], ["Waiting", toList({ state: "waiting" })]],
});

// actsOn returns what can be done about a finding. What is not allowed is not offered.
function actsOn({ kind, about }) {
  if (!page.control) return [];
  const one = about ? "kind " + about : "";
  if (kind === "parked") return [["Unpark them", "", () => { // the list counts them and asks
    list.asks = "run";
    location.hash = toList({ state: "parked", ...(about ? { kind: about } : {}) });
  }]];
  if (kind === "failing" && about && !page.tasks.kinds.some((k) => k.kind === about && k.paused)) return [[`Pause ${one}`, `Pause ${one}?`, () => pauseKinds(false, about)]];
  if (kind === "drained") {
    const there = page.tasks.nodes.filter((n) => n.left === null || n.left > 0), drained = there.filter((n) => n.drained);
    return drained.length < there.length ? [] : [["Undrain all", "", () => drained.reduce((done, n) => done.then(() => drainNode(true, n.name)), Promise.resolve())]];
  }
  if (kind === "paused") return [[`Resume ${one || "all kinds"}`, "", () => pauseKinds(true, about || undefined)]];
  return [];
}

function showScheduler(state) {
  page.tasks = state;
  remember(state, 5500);
  showHealth($("tasks-health"), state.health, whereTasks(), actsOn);
  showNumbers(tasksNumbers, state);
  showStates(state);
  showKinds(state);
  showNodes(state);
  showTuning(state);
  if (page.view === "scheduler") {
    failuresChanged();
    if (performance.now() - hour.read > 30000) readHour();
  }
  if (page.view === "task") refresh();
}

function forgetScheduler() {
  for (const id of ["failures", "listed", "kinds", "nodes", "sets"]) $(id).replaceChildren();
  $("sets-card").hidden = $("hour-card").hidden = true;
  $("hour-node").value = "";
  for (const id of ["task", "list"]) forgetPast(id);
  for (const id of ["kinds", "nodes"]) say("", false, $(id + "-message"));
  $("tune").hidden = true;
  readings.read = -Infinity;
  readings.failing = -1;
}

// ---- tasks by state

const states = [
  { name: "All", list: {}, count: (s) => s.stats.pending },
  { name: "Scheduled", list: { state: "scheduled" }, count: scheduledOf, about: true },
  { name: "Failing", list: { failing: "true" }, count: (s) => s.counts.at ? s.counts.failing : null }, // parked ones too
  { name: "Waiting", list: { state: "waiting" }, count: (s) => s.read.catch_up ? s.stats.overdue : null }, // for a worker, a handler, a limit or the end of a pause
  { name: "Running", list: { state: "running" }, count: (s) => s.nodes.length > 1 ? null : s.stats.running },
  { name: "Parked", list: { state: "parked" }, count: (s) => s.stats.parked, alarm: "parked" },
  { name: "Paused", list: { state: "paused" }, count: (s) => s.counts.at ? s.counts.paused : null }, // not those of a paused kind
  { name: "Repeating", list: { repeating: "true" } },
];

// scheduledOf returns how many tasks wait for their time: all of them but those that are counted elsewhere. That is not
// exact, because the counts are of different times.
function scheduledOf({ counts, stats, nodes, read }) {
  if (!counts.at || !counts.whole || !read.catch_up || stats.overdue_more) return null;
  const running = nodes.reduce((all, n) => all + n.running, 0);
  return Math.max(counts.tasks - counts.failing - counts.paused - stats.overdue - running, 0);
}

for (const s of states) {
  const li = make("li");
  s.link = make("a");
  s.count ||= () => null;
  s.value = make("span", "many");
  s.link.append(make("span", "name", s.name), s.value);
  li.append(s.link);
  $("states").append(li);
}

function showStates(state) {
  for (const s of states) {
    const n = s.count(state);
    s.link.href = toList(s.list);
    write(s.value, n === null ? "›" : (s.about ? "≈ " : "") + compact(n));
    s.link.classList.toggle("alarm", state.health.findings.some((f) => f.kind === s.alarm));
  }
  const { at, whole } = state.counts;
  write($("counted"), !at ? "being counted" : [ageText("counted", at, state.now), whole ? "" : "still being counted"].filter(Boolean).join(", "));
}

// ---- kinds

function showKinds(state) {
  const ofOne = state.kinds.length > 0 && state.nodes.length > 1 ? "attempts are those of this node" : "";
  write($("kinds-all"), [ofOne, ageText("tasks counted", state.read.counts, state.now)].filter(Boolean).join(", "));
  $("pause-all").hidden = !page.control;
  label($("pause-all"), state.paused ? "Resume all kinds" : "Pause all kinds");
  const body = $("kinds");
  body.closest("table").classList.toggle("controlled", page.control);
  const names = state.kinds.map((k) => k.kind), known = JSON.stringify([page.scheduler, names]);
  if (body.dataset.known !== known) {
    body.dataset.known = known;
    body.replaceChildren(...state.kinds.map(() => {
      const row = make("tr");
      row.append(...["k", "n", "n due", "n", "n", "n", "n", "n two", "n two", "policy", "act"].map((c) => make("td", c)));
      [...row.children].forEach((td, i) => { if (i > 0 && kindColumns[i]) td.dataset.name = kindColumns[i]; });
      row.firstChild.append(make("a"), make("small"), foldButton(row));
      for (const i of [2, 3, 4]) row.children[i].append(make("a"));
      row.children[2].append(make("small"));
      row.children[9].append(make("span"), make("small"));
      addPause(row);
      const below = make("tr", "below"), td = make("td");
      td.colSpan = 11;
      td.append(make("a"), make("span"));
      below.append(td);
      return [row, below];
    }).flat());
    if (names.length === 0) {
      const row = make("tr"), td = make("td", "none", "There are no tasks, and no handler here.");
      td.colSpan = 11;
      row.append(td);
      body.append(row);
    }
    $("kind-names").replaceChildren(...names.map((name) => {
      const option = make("option");
      option.value = name;
      return option;
    }));
  }
  const common = commonPolicy(state.kinds);
  write($("kinds-policy"), common && `Retries, unless a kind has its own: ${common}.`);
  state.kinds.forEach((k, i) => {
    const [name, tasks, overdue, failing, parked, started, failed, run, late, policy, act] = body.children[2 * i].children;
    inscribe(name.firstChild, k.kind).href = toList({ kind: k.kind });
    const nobody = !k.here && k.nodes === 0;
    const where = nobody ? "no handler" + (state.nodes.length > 1 ? " on any node" : " here") : !k.here ? `on ${k.nodes} other ${k.nodes === 1 ? "node" : "nodes"}` : "";
    write(name.children[1], [k.paused ? "paused" : state.paused ? "paused with all kinds" : "", where, runsText(k.here), k.here?.given_up ? `${compact(k.here.given_up)} given up` : "", k.here?.interrupted ? `${compact(k.here.interrupted)} cut off` : ""].filter(Boolean).join("; "));
    name.children[1].classList.toggle("bad", nobody);
    name.lastChild.setAttribute("aria-label", `Details of kind ${k.kind}`);
    write(tasks, compact(k.tasks));
    write(overdue.lastChild, k.oldest ? `for ${ageOf(k.oldest, state.now)}` : "");
    const due = k.overdue_more ? `≥ ${compact(k.overdue)}` : compact(k.overdue);
    for (const [td, n, q, what] of [[overdue, due, { state: "waiting" }, "overdue"], [failing, compact(k.failing), { failing: "true" }, "failing"], [parked, compact(k.parked), { state: "parked" }, "parked"]]) {
      write(td.firstChild, n);
      td.firstChild.setAttribute("aria-label", `${n} ${what} tasks of kind ${k.kind}`);
      td.firstChild.href = toList({ kind: k.kind, ...q });
      td.classList.toggle("alarm", td === parked && k.parked > 0);
    }
    const h = k.here;
    write(started, h ? rateText(h.started_rate) || "–" : "–");
    write(failed, h ? rateText(h.failed_rate) || "–" : "–");
    failed.classList.toggle("alarm", Boolean(h && h.failed_rate > 0));
    failed.title = h && h.failure ? `The last error: ${h.failure}` : "";
    const short = (s) => s < 1e-6 ? "< 1 µs" : span(s);
    const pair = (q) => q && h.last.attempts > 0 ? `${short(q.p50)} · ${short(q.p99)}` : "–";
    write(run, pair(h?.last?.run));
    write(late, pair(h?.last?.late));
    write(policy.firstChild, policyText(h) === common ? "" : policyText(h));
    write(policy.lastChild, h ? limitsText(h) + (h.tuned ? setText(state, `kind ${k.kind}`) : "") : "");
    act.lastChild.hidden = !h || !h.limit && !h.cluster;
    act.lastChild.setAttribute("aria-label", `Limits of kind ${k.kind}`);
    label(act.firstChild, k.paused ? "Resume" : "Pause");
    act.firstChild.setAttribute("aria-label", `${k.paused ? "Resume" : "Pause"} kind ${k.kind}`);
    showLargest(body.children[2 * i + 1], k, state);
  });
}

// policyText says how often a kind is retried, and when.
function policyText(h) {
  return h ? `${h.attempts} ${h.attempts === 1 ? "attempt" : "attempts"}, after ${span(h.least)} to ${span(h.most)}${h.park_repeating ? "; parks repeating tasks" : ""}` : "–";
}

// commonPolicy returns the policy that most kinds share, which is shown once, or "".
function commonPolicy(kinds) {
  const many = new Map();
  for (const { here } of kinds) if (here) many.set(policyText(here), (many.get(policyText(here)) || 0) + 1);
  const [text, n] = [...many].sort((a, b) => b[1] - a[1])[0] || ["", 0];
  return n > 1 ? text : "";
}

// foldButton returns the button that shows the details of a kind on a narrow page, where a kind takes one line.
function foldButton(row) {
  const b = make("button", "fold", "…");
  b.type = "button";
  b.setAttribute("aria-expanded", "false");
  b.onclick = () => b.setAttribute("aria-expanded", String(row.classList.toggle("open")));
  return b;
}

// showLargest shows below a kind which group has most of what waits for its limit, once that waits for a second.
function showLargest(row, { kind, here }, { now, read }) {
  const g = here?.largest, [a, text] = row.firstChild.children, since = (at) => (Date.parse(now) - Date.parse(at)) / 1000;
  row.hidden = !g || since(g.oldest) < 1;
  if (row.hidden) return;
  if (g.group && g.exact) a.href = toList({ kind, group: g.group, state: "waiting" });
  else a.removeAttribute("href");
  inscribe(a, g.group ? `group ${g.group}` : "");
  const all = g.tasks === g.of && g.of > 1 && !g.cut, of = `${g.cut ? "the first " : ""}${compact(g.of)} due ${g.of === 1 ? "task" : "tasks"}`;
  const many = all ? `all ${of}` : `${compact(g.tasks)} of ${of}`;
  const others = g.others ? `; the others wait up to ${span(Math.max(since(g.others), 0))}` : "";
  const age = ageText("read", read.groups, now);
  write(text, `${g.group ? ` has ${many}` : `${many} have no group`}, the oldest for ${span(since(g.oldest))}${others}${age && ` (${age})`}`);
}

// runsText says how many runs of a kind are in progress, if the longest has taken a second or more.
function runsText(runs) {
  if (!runs || runs.longest < 1) return "";
  return runs.running === 1 ? `1 running for ${span(runs.longest)}` : `${compact(runs.running)} running, the longest for ${span(runs.longest)}`;
}

const kindColumns = ["kind", "tasks", "overdue", "failing", "parked", "started", "failed", "run p50 · p99", "late p50 · p99", "retry, limits"];

// limitsText says how the runs of a kind are bounded, and how many wait for that. More may wait in the store or the engine.
function limitsText({ limit, cluster, waiting }) {
  const text = (l) => [
    l.concurrency > 0 ? `${compact(l.concurrency)} at once` : "",
    l.rate > 0 ? `${compact(l.rate)} per ${span(l.per)}` + (l.burst > 1 ? ` in bursts of ${compact(l.burst)}` : "") : "",
  ].filter(Boolean).join(", ");
  const limits = [limit ? text(limit) : "", cluster ? `on all nodes ${text(cluster)}` : ""].filter(Boolean);
  if (limits.length === 0) return "";
  return `limit: ${limits.join("; ")}` + (waiting > 0 ? `; at least ${compact(waiting)} due ${waiting === 1 ? "run waits" : "runs wait"} for it` : "");
}

// ---- pausing kinds

// label writes on a button, unless it asks for a second click to do the same.
function label(button, text) {
  if (button.matches(".sure") && button.dataset.text === text) return;
  if (button.matches(".sure")) calm();
  write(button, text);
}

// addPause adds the button to the row of a kind.
function addPause(row) {
  const button = make("button"), kind = () => page.tasks.kinds[[...row.parentNode.children].indexOf(row) / 2];
  button.type = "button";
  twice(button, () => kind().paused ? "" : "Pause?", () => pauseKinds(kind().paused, kind().kind));
  const limits = make("button", "", "Limits");
  limits.type = "button";
  limits.onclick = () => openLimits(kind());
  row.lastChild.append(button, " ", limits);
}

twice($("pause-all"), () => page.tasks.paused ? "" : "Pause all of them?", () => pauseKinds(page.tasks.paused));

// pauseKinds pauses or resumes a kind, or all kinds.
function pauseKinds(resume, kind) {
  const all = kind === undefined;
  return operate(`${resume ? "resume" : "pause"}-${all ? "all" : "kind"}`, all ? {} : { kind }, $("kinds-message"),
    `${resume ? "Resumed" : "Paused"} ${all ? "all kinds" : "kind " + kind}.`);
}

// operate asks for an action on a kind or a node, and says so when it is done.
async function operate(action, form, message, done) {
  const { scheduler } = page;
  try {
    await ask(`api/${action}`, { method: "POST", body: new URLSearchParams({ scheduler, ...form }) });
  } catch (e) {
    if (scheduler === page.scheduler) sayError(e, message);
    return;
  }
  if (scheduler !== page.scheduler) return;
  say(done, false, message);
  poll();
}

// ---- numbers that operators set in place of the code

// setText says who has set something, and why.
function setText({ tuning, now }, key) {
  const by = tuning.by[key];
  return by ? ` (set ${ageOf(by.at, now)} ago${by.who ? ` by ${by.who}` : ""}${by.why ? `: ${by.why}` : ""})` : "";
}

// openLimits shows the form for the limits that the code of a kind has.
function openLimits({ kind, here }) {
  const form = $("tune"), { limit, cluster } = here;
  form.dataset.kind = kind;
  inscribe($("tune-kind"), kind);
  for (const [name, of, field] of [["concurrency", limit, "concurrency"], ["rate", limit, "rate"], ["cluster_concurrency", cluster, "concurrency"], ["cluster_rate", cluster, "rate"]]) {
    const input = form.elements[name], n = of ? of[field] : 0, label = input.closest("label");
    label.hidden = !n;
    input.value = n || "";
    if (field === "rate" && of) write(label.querySelector("span"), `per ${span(of.per)}`);
  }
  form.elements.why.value = "";
  form.hidden = false;
  form.querySelector("label:not([hidden]) input").focus();
}

const tuneLimits = (values, done) => {
  const { kind } = $("tune").dataset;
  $("tune").hidden = true;
  return operate("tune-limits", { kind, ...values }, $("kinds-message"), `${done} of kind ${kind}.`);
};
$("tune").addEventListener("submit", (e) => {
  e.preventDefault();
  tuneLimits(Object.fromEntries(new FormData($("tune"))), "Set the limits");
});
$("tune-reset").addEventListener("click", () => tuneLimits({}, "Reset the limits"));
$("tune-cancel").addEventListener("click", () => { $("tune").hidden = true; });

for (const [id, action, what] of [["tune-pool", "tune-pool", "the number of workers"], ["tune-catchup", "tune-catchup", "the catch-up rate"]]) {
  const form = $(id);
  form.addEventListener("submit", (e) => {
    e.preventDefault();
    if (form.elements.n.value) operate(action, { n: form.elements.n.value }, $("nodes-message"), `Set ${what}.`);
  });
  form.querySelector(".reset").addEventListener("click", () => operate(action, {}, $("nodes-message"), `Reset ${what}.`));
}

// showTuning shows the workers and the catch-up rate that are set, and the forms to set them.
function showTuning(state) {
  const { tuning } = state;
  for (const [id, n, key] of [["tune-pool", tuning.pool_size, "pool size"], ["tune-catchup", tuning.catch_up, "catch-up"]]) {
    const form = $(id);
    form.hidden = !page.control && !n;
    for (const e of form.querySelectorAll("button, input")) e.hidden = !page.control;
    form.querySelector(".reset").hidden = !page.control || !n;
    write(form.querySelector("span"), n ? `${compact(n)}${setText(state, key)}` : "as in the code");
  }
}

// ---- nodes

function showNodes(state) {
  const list = $("nodes"), { nodes } = state;
  write($("nodes-all"), [nodes.length > 1 ? `${nodes.length} share the engine` : "", ageText("read", state.read.nodes, state.now)].filter(Boolean).join(", "));
  write($("survival"), state.survival);
  write($("unheard"), state.unheard && `This node hears no signals of the engine, and looks for tasks ten times a second: ${state.unheard}.`);
  while (list.children.length > nodes.length) list.lastChild.remove();
  nodes.forEach((n, i) => {
    let li = list.children[i];
    if (!li) {
      li = make("li", "node");
      const lease = make("p", "lease"), bar = draw("svg", { viewBox: "0 0 100 4", preserveAspectRatio: "none", "aria-hidden": "true" });
      bar.append(draw("rect", { class: "track", width: 100, height: 4 }), draw("rect", { class: "left", height: 4 }));
      lease.append(make("span"), bar);
      li.append(make("h3"), lease, make("p"), make("p"), make("p"));
      li.firstChild.append(make("span"), " ", make("small"));
      addDrain(li, () => page.tasks.nodes[i]);
      list.append(li);
    }
    const [h, lease, work, kinds, version, button] = li.children;
    button.hidden = !page.control || n.lease === 0 || n.name === "";
    label(button, n.drained ? "Undrain" : "Drain");
    inscribe(h.firstChild, n.name || "this process");
    write(h.lastChild, n.self && n.name ? "this one" : "");
    lease.hidden = n.lease === 0;
    li.classList.toggle("wrong", n.late || n.oldest_wait >= 1);
    li.classList.toggle("late", n.late);
    write(lease.firstChild, n.left === null ? `lease: ${span(n.lease)}; the time left is unknown` : n.left <= 0 ? `${n.late ? "! " : ""}its lease expired ${span(-n.left)} ago` : `${n.late ? "! " : ""}lease: ${span(n.left)} of ${span(n.lease)} left`);
    lease.lastChild.lastChild.setAttribute("width", Math.max(Math.min(n.left / n.lease, 1), 0) * 100 || 0);
    inscribe(work, [n.drained ? "drained" : "", n.away ? "cannot run tasks" : "", n.leaving ? `leaving, ${compact(n.running)} ${n.running === 1 ? "run" : "runs"} left` : "", n.lease > 0 ? `holds ${compact(n.held)} ${n.held === 1 ? "task" : "tasks"}` : "", n.workers > 0 ? `${compact(n.running)} of ${compact(n.workers)} workers busy` : "", n.waiting > 0 ? `${compact(n.waiting)} wait` : "", n.oldest_wait >= 1 && n.since_start >= 1 ? `none has started for ${span(n.since_start)}` : "", n.busiest && runsText(n.busiest) ? `kind ${n.busiest.kind}: ${runsText(n.busiest)}` : ""].filter(Boolean).join(", "));
    inscribe(kinds, n.kinds.length > 0 ? "handles " + n.kinds.join(", ") : "");
    kinds.hidden = n.kinds.length === 0;
    write(version, [n.version, n.started ? "since " + stamp(new Date(n.started)) : ""].filter(Boolean).join(", "));
    version.hidden = version.textContent === "";
  });
}

// addDrain adds the button to a node.
function addDrain(li, node) {
  const button = make("button");
  button.type = "button";
  twice(button, () => node().drained ? "" : "Drain?", () => drainNode(node().drained, node().name));
  li.append(button);
}

// drainNode keeps a node from starting further runs, or lets it start them again.
function drainNode(undrain, node) {
  return operate(undrain ? "undrain-node" : "drain-node", { node }, $("nodes-message"), `${undrain ? "Undrained" : "Drained"} node ${node}.`);
}

// ---- why tasks fail

const readings = { read: -Infinity, took: 0, failing: -1, reading: false };

// failuresChanged reads the failures again if other tasks fail now, but not often: it is a look at all of them, which
// takes up to 150 ms. The answer is used for 300 times as long as it took, and 15 s at least.
function failuresChanged() {
  const { failing } = page.tasks.counts, old = performance.now() - readings.read;
  if (failing !== readings.failing && old > Math.max(15000, 300 * readings.took)) readFailures();
}

async function readFailures() {
  if (readings.reading || page.scheduler === "") return;
  const scheduler = page.scheduler;
  readings.reading = true;
  readings.read = performance.now();
  readings.failing = page.tasks ? page.tasks.counts.failing : -1;
  try {
    const answer = await ask("api/failures?" + query({ scheduler }));
    if (scheduler === page.scheduler) showFailures(answer);
  } catch (e) {
    if (scheduler === page.scheduler) sayError(e, $("failures-message"));
  } finally {
    readings.reading = false;
    readings.took = Math.min(performance.now() - readings.read, 300); // and the rest was not the server's
  }
}

function showFailures({ now, groups, more, looked, cut }) {
  say(cut ? `There are more: the search looked at ${compact(looked)} failing tasks, and stopped there because it took too long.` :
    more > 0 ? `${compact(more)} smaller groups are not listed.` : "", false, $("failures-message"));
  write($("failures-read"), `read at ${clock(new Date(now))}`);
  $("failures").replaceChildren(...groups.map((g) => {
    const li = make("li"), a = make("a", "many", `${compact(g.tasks)} ×`), rest = make("span", "rest");
    a.href = toList({ kind: g.kind, failure: g.text });
    a.setAttribute("aria-label", `${g.tasks} ${g.tasks === 1 ? "task" : "tasks"} of kind ${g.kind}: ${g.text}`);
    const some = (n, what) => n === 0 ? "" : n === g.tasks ? `, ${what}` : `, ${compact(n)} ${what}`;
    const parked = some(g.parked, "parked") + some(g.given_up, "given up");
    rest.append("kind ", inscribe(make("span"), g.kind), `${parked}${g.last ? ", last " + stamp(new Date(g.last)) : ""}, as `, link(g.example, "mono"));
    li.append(a, inscribe(make("span", "why"), g.text), rest);
    return li;
  }));
  if (groups.length === 0) $("failures").append(make("li", "none", "No current task has failed attempts."));
}

// ---- declared schedules

// readSets shows the declared schedules. They are read when the page of the scheduler is opened.
async function readSets() {
  const { scheduler } = page;
  if (scheduler === "") return;
  let answer;
  try {
    answer = await ask("api/sets?" + query({ scheduler }));
  } catch {
    return; // the health says that the engine does not answer
  }
  if (scheduler !== page.scheduler) return;
  const { sets, now } = answer;
  $("sets-card").hidden = sets.length === 0;
  write($("sets-read"), now ? `read at ${clock(new Date(now))}` : "");
  $("sets").replaceChildren(...sets.map((s) => {
    const li = make("li"), a = inscribe(make("a", "many"), s.prefix), mixed = s.unfinished >= 0;
    a.href = toList({ prefix: s.prefix, repeating: "true" });
    const done = s.version >= 0 ? `version ${compact(s.version)}` : "no version is applied in full";
    const by = s.at ? `, declared ${stamp(new Date(s.at))}${s.by ? " by " : ""}` : "";
    const rest = make("span", "rest");
    rest.append(done + by, inscribe(make("span"), s.at ? s.by : ""), s.tasks < 0 ? "" : ` · ${s.tasks} ${s.tasks === 1 ? "task" : "tasks"}`);
    for (const [n, what, q] of [[s.failing, "failing", { failing: "true" }], [s.parked, "parked", { state: "parked" }]]) {
      if (n === 0) continue;
      const some = make("a", "many", `${n} ${what}`);
      some.href = toList({ prefix: s.prefix, repeating: "true", ...q });
      rest.append(", ", some);
    }
    const left = until((Date.parse(s.due) - Date.parse(now)) / 1000);
    if (s.due) rest.append(` · ${left === "now" ? "due now" : "next in " + left}: `, link(s.next, ""));
    li.append(a, make("span", mixed ? "why" : "", mixed ? `Version ${compact(s.unfinished)} is not applied in full: the tasks are a mixture until Schedule is called again.` : ""), rest);
    return li;
  }));
}

// ---- the last hour, which a restart does not end

const hour = { read: -Infinity, question: 0 };

// readHour shows the last hour of all nodes, or of the node that is chosen. It is read when the page of the scheduler is
// opened, and every 30 s.
async function readHour() {
  const { scheduler } = page, question = ++hour.question;
  if (scheduler === "") return;
  hour.read = performance.now();
  let answer;
  try {
    answer = await ask("api/hour?" + query({ scheduler, node: $("hour-node").value }));
  } catch {
    return; // the health says that the engine does not answer, and the title when it did
  }
  if (scheduler === page.scheduler && question === hour.question) showHour(answer);
}
$("hour-node").addEventListener("change", readHour);

function showHour({ now, first, nodes, marks, kinds }) {
  const begin = Date.parse(first), at = (i) => timeOf(new Date(begin + i * 60000)).slice(0, 5), node = $("hour-node");
  $("hour-card").hidden = nodes.length === 0;
  write($("hour-read"), `until ${at(60)}, read at ${clock(new Date(now))}`);
  const names = ["", ...nodes, ...(nodes.includes(node.value) ? [] : [node.value])].filter((name, i) => i === 0 || name !== "");
  if (node.dataset.known !== JSON.stringify(names)) {
    const chosen = node.value;
    node.dataset.known = JSON.stringify(names);
    node.replaceChildren(...names.map((name) => {
      const option = make("option", "", name || "all nodes");
      option.value = name;
      return option;
    }));
    node.value = chosen;
  }
  say(kinds.length === 0 ? "No attempt of the last hour is stored." : "", false, $("hour-message"));
  $("hour-kinds").replaceChildren(...kinds.map((k) => hourChart(k, begin, at, marks)));
  const texts = (ended) => marks.filter((m) => m.ended === ended).slice(-10).map((m) => `${m.node} at ${timeOf(new Date(m.at))}`).join(", ");
  const of = [["Started", texts(false)], ["Ended", texts(true)]].filter(([, text]) => text);
  inscribe($("hour-marks"), of.map(([what, text]) => `${what}: ${text}.`).join(" "));
}

// hourChart draws the attempts of a kind by minute, the failed ones above the others, and its overdue tasks as a line.
function hourChart({ kind, succeeded, failed, overdue }, begin, at, marks) {
  const li = make("li"), title = make("h3"), ended = succeeded.map((n, i) => n + failed[i]), most = Math.max(...ended, 1), due = Math.max(...overdue, 0);
  const all = (counts) => counts.reduce((sum, n) => sum + n, 0), last = failed.findLastIndex((n) => n > 0);
  const figures = [
    `${compact(all(ended))} ${all(ended) === 1 ? "attempt" : "attempts"}, at most ${compact(Math.max(...ended))} a minute`,
    all(failed) > 0 ? `${compact(all(failed))} failed, the last at ${at(last)}` : "none failed",
    due > 0 ? `at most ${compact(due)} overdue at ${at(overdue.indexOf(due) + 1)}` : overdue.some((n) => n >= 0) ? "none overdue" : "overdue tasks are not known",
  ].join("; ");
  inscribe(title, kind || "all other kinds");
  const svg = draw("svg", { viewBox: "0 0 300 56", preserveAspectRatio: "none", role: "img" });
  svg.setAttribute("aria-label", `${kind ? `Kind ${kind}` : "All other kinds"}, by minute from ${at(0)} to ${at(60)}: ${figures}`);
  const y = (n, top) => 55 - n / top * 53, bar = (i, from, n) => n > 0 ? `M${i * 5 + 0.4} ${y(from, most).toFixed(1)}H${i * 5 + 4.6}V${Math.min(y(from + n, most), y(from, most) - 1).toFixed(1)}H${i * 5 + 0.4}Z` : "";
  svg.append(draw("path", { class: "ran", d: succeeded.map((n, i) => bar(i, 0, n)).join("") }),
    draw("path", { class: "failed", d: failed.map((n, i) => bar(i, succeeded[i], n)).join("") }));
  if (due > 0) svg.append(draw("path", { class: "due", d: "M" + overdue.map((n, i) => `${i * 5 + 5} ${y(Math.max(n, 0), due).toFixed(1)}`).join("L") }));
  for (const m of marks) {
    const x = (Date.parse(m.at) - begin) / 12000, line = draw("line", { class: m.ended ? "mark ended" : "mark", x1: x, x2: x, y1: 0, y2: 56 }), name = draw("title", {});
    name.textContent = `${m.node} ${m.ended ? "ended" : "started"} at ${timeOf(new Date(m.at))}`;
    line.append(name);
    svg.append(line);
  }
  const axis = make("div", "axis");
  axis.append(make("span", "", at(0)), make("span", "", at(60)));
  li.append(title, make("p", "", figures), svg, axis);
  return li;
}

// ---- lists

const list = { query: null, question: 0, server: 0, asks: "" }; // asks is what is to be done to the next list, when that is confirmed

// showList shows the list of a query, which is what the address has.
async function showList(q) {
  const question = ++list.question, form = $("search"), message = $("list-message"), scheduler = page.scheduler;
  const { asks } = list;
  list.asks = "";
  list.query = q;
  for (const name of ["prefix", "kind", "group", "state", "failure"]) form.elements[name].value = q[name] || "";
  for (const name of ["repeating", "failing"]) form.elements[name].checked = q[name] === "true";
  write($("list-title"), titleOf(q));
  calmBulk();
  if (q.kind !== histories.list.query.kind) forgetPast("list");
  if (q.kind && !q.after) readPast("list", { kind: q.kind });
  say("Searching.", false, message);
  let answer;
  try {
    answer = await ask("api/tasks?" + query({ scheduler, ...q }));
  } catch (e) {
    if (question !== list.question) return;
    sayError(e, message);
    $("list").hidden = $("pager").hidden = $("bulk").hidden = true;
    return;
  }
  if (question !== list.question || page.view !== "list") return;
  const { tasks, looked, next, cut, now } = answer;
  list.server = Date.parse(now);
  const some = tasks.length === 0 ? "No task is found" : `${compact(tasks.length)} ${tasks.length === 1 ? "task" : "tasks"}${q.after ? " on this page" : ""}`;
  say(`${some}${cut ? ` among the ${compact(looked)} tasks read. The search stopped there because it took too long; the next page continues` : next ? ", and there are more" : ""}. Read at ${clock(new Date(now))}.`, false, message);
  $("list").hidden = tasks.length === 0;
  $("listed").replaceChildren(...tasks.map((t) => {
    const row = make("tr"), why = inscribe(make("td", "why"), t.failure);
    row.append(cell(t), inscribe(make("td", "kind"), t.kind), inscribe(make("td"), stateText(t)), make("td", "", whenText(t, list.server)), why);
    return row;
  }));
  $("pager").hidden = !next && !q.after;
  $("list-first").hidden = !q.after;
  $("list-next").hidden = !next;
  const { after, ...rest } = q;
  $("list-first").href = toList(rest);
  $("list-next").href = toList({ ...rest, after: next });
  write($("list-next"), cut ? "Go on" : "Next page");
  $("bulk").hidden = !page.control || tasks.length === 0 && !next;
  $("bulk-run").hidden = !["scheduled", "retrying", "parked"].includes(q.state);
  write($("bulk-run"), q.state === "parked" ? "Unpark" : "Run now");
  $("bulk-pause").hidden = ["parked", "paused"].includes(q.state); // a parked task does not run by itself
  $("bulk-resume").hidden = q.state !== "paused";
  $("bulk-cancel").hidden = !["", "running"].includes(q.state ?? "");
  if (asks && !$("bulk").hidden) countBulk(asks);
}

function titleOf(q) {
  const what = q.state ? q.state[0].toUpperCase() + q.state.slice(1) + " tasks" : q.failure || q.failing === "true" ? "Failing tasks" : "Tasks";
  return what + (q.repeating === "true" ? " that repeat" : "") + (q.kind ? " of kind " + q.kind : "") + (q.group ? ` of group ${q.group}` : "");
}

function stateText(t) {
  if (t.state === "running" && t.node && page.tasks?.nodes.length > 1) return `running on ${t.node}`;
  if (t.state === "retrying") return `retrying, ${t.attempts} failed`;
  if (t.state === "parked") return `parked after ${t.attempts}`;
  if (t.given_up > 0) return `${t.state}, the run before was given up`;
  return t.times !== 1 ? `${t.state}, repeats` : t.state;
}

// whenText says when a task is next due, by the server's time in ms.
function whenText(t, server) {
  if (t.state === "paused") return "when it is resumed";
  if (t.next === null) return t.failed_at ? `since ${stamp(new Date(t.failed_at))}` : "not by itself";
  const s = (Date.parse(t.next) - server) / 1000;
  if (t.started) return `started ${span(Math.max((server - Date.parse(t.started)) / 1000, 0))} ago`;
  return s >= 0 ? "in " + until(s) : t.state === "running" ? `was due ${span(-s)} ago` : `waits ${span(-s)}`;
}

for (const [id, name] of [["seek", "prefix"], ["search", ""]]) {
  $(id).addEventListener("submit", (e) => {
    e.preventDefault();
    const values = Object.fromEntries([...new FormData($(id))].filter(([, v]) => v !== ""));
    const href = toList(values);
    if (location.hash === href) showList(values);
    else location.hash = href;
  });
}
$("failures-again").addEventListener("click", readFailures);

// ---- bulk: a count, a question, and then the deed

const bulk = { doing: "", number: 0, count: 0 };
const verbOf = (action) => action === "run" && list.query.state === "parked" ? "unpark" : action;
const cancelText = (n, more) => `cancel the runs of ${tasksText(n, more)}`;
const tasksText = (n, more) => `${more ? "at least " : ""}${n.toLocaleString("en")} ${n === 1 ? "task" : "tasks"}`;

async function postBulk(action, scheduler, q, after = "") { // q.after is that of the page
  return ask("api/bulk", { method: "POST", body: new URLSearchParams({ scheduler, ...q, after, do: action }) });
}

// calmBulk takes back what was asked for and not confirmed, or stops it.
function calmBulk() {
  bulk.number++;
  bulk.doing = "";
  $("bulk-sure").hidden = $("bulk-stop").hidden = true;
  if ($("bulk-message").textContent.endsWith("?")) say("", false, $("bulk-message"));
}

async function countBulk(action) {
  calmBulk();
  const number = bulk.number, message = $("bulk-message");
  const q = action === "cancel" ? { ...list.query, state: "running" } : list.query;
  say("Counting.", false, message);
  let answer;
  try {
    let after;
    do {
      after = answer?.next ?? "";
      answer = await postBulk("count", page.scheduler, q, after);
    } while (answer.more && answer.tasks === 0 && answer.next !== after && number === bulk.number);
    if (action === "pause" && !list.query.state) { // those that are paused already are left alone
      answer.tasks -= (await postBulk("count", page.scheduler, { ...list.query, state: "paused" })).tasks;
    }
  } catch (e) {
    if (number === bulk.number) sayError(e, message);
    return;
  }
  if (number !== bulk.number) return;
  if (answer.tasks === 0) {
    say(answer.more ? "The search took too long." : action === "cancel" ? "No run is in progress." : "No task is found now.", answer.more, message);
    return;
  }
  bulk.doing = action;
  bulk.count = answer.tasks;
  bulk.more = answer.more;
  const deed = action === "cancel" ? cancelText(answer.tasks, answer.more) : `${verbOf(action)} ${tasksText(answer.tasks, answer.more)}`;
  const first = action === "cancel" ? "They are retried, unless their kind is paused first. " : "";
  say(`${first}${deed[0].toUpperCase()}${deed.slice(1)}?`, false, message);
  write($("bulk-sure"), `Yes, ${deed}`);
  $("bulk-sure").hidden = $("bulk-stop").hidden = false;
  write($("bulk-stop"), action === "cancel" ? "Let them run" : "Cancel");
  $("bulk-stop").focus(); // Enter must not do it
}

async function doBulk() {
  const action = bulk.doing, q = list.query, number = bulk.number, { scheduler } = page, message = $("bulk-message");
  if (!action) return;
  const verb = verbOf(action), done = { run: "Run now", unpark: "Unparked", remove: "Removed", pause: "Paused", resume: "Resumed", cancel: "Cancelled the runs" }[verb];
  bulk.doing = "";
  $("bulk-sure").hidden = true;
  write($("bulk-stop"), "Stop");
  $("bulk-stop").focus();
  let n = 0, after = "";
  try {
    for (let more = true; more && (bulk.more || n < bulk.count);) {
      say(`${done}: ${n.toLocaleString("en")} of ${tasksText(bulk.count, bulk.more)}.`, false, message);
      const answer = await postBulk(action, scheduler, q, after);
      n += answer.tasks;
      more = answer.more;
      if (more && answer.tasks === 0 && answer.next === after) throw new Error("the search for the rest took too long.");
      after = answer.next;
      if (number !== bulk.number) break;
    }
    const stopped = number !== bulk.number;
    say(`${done}: ${tasksText(n)}${stopped ? ", then stopped" : ""}.`, false, message);
    announce(message.textContent);
  } catch (e) {
    say(`${done}: ${tasksText(n)}. Then: ${e.message}`, true, message);
  }
  $("bulk-stop").hidden = true;
  if (document.activeElement === document.body || document.activeElement === $("bulk-stop")) $("list-view").focus({ preventScroll: true });
  if (page.view === "list" && list.query === q) showList(q);
}

for (const action of ["run", "pause", "resume", "cancel", "remove"]) $("bulk-" + action).addEventListener("click", () => countBulk(action));
$("bulk-sure").addEventListener("click", (e) => { if (e.detail < 2) doBulk(); });
$("bulk-stop").addEventListener("click", calmBulk);

// ---- the history: attempts that have ended

const nothingRead = { query: {}, next: "", pages: 1, shown: "", task: "", kind: "", again: 0 };
const histories = { task: { number: 0, ...nothingRead }, list: { number: 0, ...nothingRead } };

// readPast shows the first page of attempts that match the query, or the page that begins after the given place.
async function readPast(id, q, after) {
  const own = histories[id], number = ++own.number, rows = $(id + "-past-rows"), note = $(id + "-past-note");
  own.query = q;
  let answer;
  try {
    answer = await ask("api/history?" + query({ scheduler: page.scheduler, ...q, ...(after ? { after } : {}) }));
  } catch (e) {
    if (number !== own.number) return;
    $(id + "-past").closest("section").hidden = false;
    sayError(e, note);
    return;
  }
  if (number !== own.number) return;
  own.pages = after ? own.pages + 1 : 1;
  const { past, next, now } = answer, earlier = past.map((p) => pastRow(p, id === "list"));
  if (after) rows.append(...earlier);
  else rows.replaceChildren(...earlier);
  own.next = next;
  $(id + "-past").hidden = rows.children.length === 0;
  $(id + "-past-more").hidden = !next;
  if (id === "list") $("list-history").hidden = rows.children.length === 0;
  say(rows.children.length > 0 ? `the last attempts, read at ${clock(new Date(now))}` : "none", false, note);
}

function pastRow(p, withKey) {
  const row = make("tr"), bad = ["failed", "parked", "given up", "cancelled", "expired"].includes(p.outcome);
  const late = make("td", "n", p.late > 0 ? span(p.late) : "0"), took = make("td", "n", p.outcome === "expired" ? "–" : span(Math.max(p.took, 0)));
  late.dataset.name = "late";
  took.dataset.name = "took";
  row.title = `token ${p.token}`;
  row.append(make("td", "when", stamp(new Date(p.ended))), ...(withKey ? [cell(p)] : []),
    make("td", bad ? "bad" : "", p.attempt > 1 ? `${p.outcome}, attempt ${p.attempt}` : p.outcome), late, took,
    inscribe(make("td", "where"), p.node), inscribe(make("td", bad ? "why" : "note"), p.text));
  return row;
}

function forgetPast(id) {
  clearTimeout(histories[id].again);
  Object.assign(histories[id], nothingRead, { number: histories[id].number + 1 });
  $(id + "-past-rows").replaceChildren();
  $(id + "-past").hidden = $(id + "-past-more").hidden = true;
  if (id === "list") $("list-history").hidden = true;
  say("", false, $(id + "-past-note"));
}

for (const id of ["task", "list"]) {
  $(id + "-past-more").firstChild.addEventListener("click", () => readPast(id, histories[id].query, histories[id].next));
}

// pastChanged reads the history of the shown task when the task is opened. It reads it again 8 s after that and after each
// attempt that has ended, since a node writes it within that time. While attempts keep ending, it reads it every 8 s. It
// leaves further pages alone. With the kind it reads no other history.
function pastChanged(ref, task) {
  const own = histories.task, of = JSON.stringify([page.scheduler, ref]);
  const now = task ? JSON.stringify([task.generation, task.seq, task.attempts, task.state]) : "";
  const opened = own.shown !== of;
  if (task) own.kind = task.kind;
  else if (opened) own.kind = "";
  if (!opened && now === own.task) return;
  own.shown = of;
  own.task = now;
  const q = { ...ref, ...(own.kind ? { kind: own.kind } : {}) };
  if (opened) {
    clearTimeout(own.again);
    own.again = 0;
    own.more = false;
    readPast("task", q);
  }
  if (own.again) {
    own.more = true; // the pending read may be too soon
    return;
  }
  const later = () => {
    own.again = 0;
    if (page.view !== "task" || own.shown !== of || own.pages !== 1) return;
    readPast("task", q);
    if (own.more) own.again = setTimeout(later, 8000);
    own.more = false;
  };
  own.again = setTimeout(later, 8000);
}

// ---- one task

const storedFacts = ["key", "kind", "state", "next run", "runs left", "interval", "node", "failed attempts", "missed periods", "token", "trace", "group", "later by", "at the latest", "until", "expires", "postponed", "last note", "meta"];

async function refreshStored(ref, question) {
  let answer;
  try {
    answer = await ask("api/task?" + query({ scheduler: page.scheduler, ...ref }));
  } catch (e) {
    if (question === page.question) sayError(e);
    return;
  }
  if (question !== page.question) return;
  const { task, now, attempts, token, trace, group, shift, deadline, until, expires, snoozes, note, meta, failed, payload } = answer, found = page.found;
  page.found = task;
  pastChanged(ref, task);
  if (!task) {
    hideTask();
    $("task-failed").replaceChildren();
    $("task-payload").replaceChildren();
    write($("task-payload-size"), "");
    if (found) {
      say("The task is gone: its last run was acknowledged, or it was removed.");
      $("task-message").classList.add("done");
    } else if (!$("task-message").matches(".done")) say("No task has this key.");
    return;
  }
  if (!found || $("task-message").matches(".gone")) say("");
  inscribe(facts[0], page.ref.key ?? task.key);
  if (page.ref.key === undefined) inscribe($("task-title"), task.key);
  inscribe(facts[1], task.kind);
  const parked = task.state === "parked", when = whenText(task, Date.parse(now));
  const paused = task.state === "paused";
  const next = paused ? "none: it is paused" : parked ? "none: it is parked" + (task.failed_at ? " " + when : "") : task.started ? `${when}, at ${stamp(new Date(task.started))}` : `${when}, at ${stamp(new Date(task.next))}`;
  const kindPaused = page.tasks && (page.tasks.paused || page.tasks.kinds.some((k) => k.kind === task.kind && k.paused));
  [
    kindPaused && task.state !== "running" ? `${task.state}; its kind is paused` : task.state,
    next,
    times(task.times),
    task.interval > 0 ? span(task.interval) : task.cron || "none",
    task.node || "none",
    (attempts > 0 ? `${task.attempts} of ${attempts}` : `${task.attempts}; the kind has no handler here`) +
      (task.given_up > 0 ? `; runs given up in a row: ${compact(task.given_up)}` : ""),
    compact(task.missed),
  ].forEach((text, i) => write(facts[i + 2], text));
  inscribe(facts[9], token);
  [trace, group, shift ? `${span(shift)}, of its jitter` : "", deadline ? stamp(new Date(deadline)) : "", until ? stamp(new Date(until)) : "", expires ? `${span(expires)} after it is due` : "", snoozes ? `${compact(snoozes)} ${snoozes === 1 ? "time" : "times"}` : "", note, meta].forEach((text, i) => {
    const fact = inscribe(facts[i + 10], text || "");
    fact.hidden = fact.previousSibling.hidden = !text;
  });
  write($("run"), parked ? "Unpark" : "Run now");
  showControls({ paused, parked, running: task.state === "running" });
  if (!found) announce(`Found. It is ${task.state}`);
  showFailed(failed || [], task);
  showPayload(payload);
}

function showFailed(failed, task) {
  const text = JSON.stringify(failed);
  if ($("task-failed").dataset.shown === text && $("task-failed").firstChild) return;
  $("task-failed").dataset.shown = text;
  $("task-failed").replaceChildren(...failed.map((f) => {
    const li = make("li");
    li.append(make("span", "when", f.at ? stamp(new Date(f.at)) : "at an unknown time"), inscribe(make("span", "why"), f.text));
    return li;
  }));
  if (failed.length === 0) $("task-failed").append(make("li", "none", task.attempts > 0 ? "The reason is unknown." : "None."));
}

function showPayload(p) {
  const box = $("task-payload"), text = JSON.stringify(p);
  write($("task-payload-size"), `${p.size.toLocaleString("en")} ${p.size === 1 ? "byte" : "bytes"}${p.form && p.size > 0 ? ", " + { json: "JSON", text: "text", hex: "hexadecimal" }[p.form] : ""}${p.cut ? ", cut" : ""}${p.version > 1 ? `, version ${p.version}` : ""}`);
  if (box.dataset.shown === text && box.firstChild) return;
  box.dataset.shown = text;
  if (p.size === 0 || p.hidden) {
    box.replaceChildren(make("p", "message", p.size === 0 ? "It has none." : `Hidden: ${p.hidden}.`));
    return;
  }
  const pre = make("pre");
  pre.tabIndex = 0; // it scrolls, also by keyboard
  pre.setAttribute("role", "region");
  pre.setAttribute("aria-label", "Payload");
  for (const line of p.text.split("\n")) {
    const [, indent, rest] = line.match(/^( *)(.*)$/s);
    pre.append(pre.firstChild ? "\n" : "", indent, inscribe(make("span"), rest));
  }
  box.replaceChildren(pre);
}
