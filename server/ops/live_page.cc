#include "server/ops/live_page.h"

namespace assay {

std::string live_page() {
  return R"html(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Assay</title>
<style>
  :root { --ink: #1d2a33; --faint: #6b7a85; --paper: #f6f4ef; --card: #ffffff; --line: #dcd7cc; --gold: #b8860b; --bad: #a8321f; }
  @media (prefers-color-scheme: dark) {
    :root { --ink: #e8e4da; --faint: #95a0a8; --paper: #14191d; --card: #1c2328; --line: #333c43; --gold: #d9a928; --bad: #e0705c; }
  }
  body { margin: 0; background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
  main { max-width: 60rem; margin: 0 auto; padding: 1.5rem 1rem 3rem; }
  header { display: flex; flex-wrap: wrap; align-items: baseline; gap: .75rem; border-bottom: 2px solid var(--gold); padding-bottom: .5rem; }
  h1 { font: 600 1.5rem/1 Georgia, serif; margin: 0; letter-spacing: .04em; }
  #state { margin-left: auto; font-weight: 600; }
  #state.bad { color: var(--bad); }
  .cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(13rem, 1fr)); gap: .75rem; margin: 1rem 0; }
  .card { background: var(--card); border: 1px solid var(--line); border-radius: 6px; padding: .6rem .8rem; }
  .card b { display: block; font: 600 1.5rem/1.3 ui-monospace, monospace; }
  .card span, .faint { color: var(--faint); font-size: .85rem; }
  svg { display: block; width: 100%; height: 2.2rem; }
  polyline { fill: none; stroke: var(--gold); stroke-width: 1.5; vector-effect: non-scaling-stroke; }
  table { border-collapse: collapse; width: 100%; background: var(--card); border: 1px solid var(--line); }
  td { padding: .25rem .6rem; border-top: 1px solid var(--line); font: 13px/1.4 ui-monospace, monospace; overflow-wrap: anywhere; }
  td:first-child { color: var(--faint); width: 16rem; }
</style>
</head>
<body>
<main>
  <header><h1>Assay</h1><span id="model" class="faint"></span><span id="state">...</span></header>
  <div class="cards" id="cards"></div>
  <h2 class="faint">Model and cache</h2>
  <table id="facts"></table>
  <p class="faint">Numbers come from <a href="metrics">/metrics</a>, once a second; see also <a href="server_info">/server_info</a>.</p>
</main>
<script>
const cards = [
  { name: "running", unit: "sequences", of: m => m.assay_num_requests_running },
  { name: "waiting", unit: "sequences", of: m => m.assay_num_requests_waiting },
  { name: "generated", unit: "tokens/s", rate: m => m.assay_generation_tokens_total },
  { name: "prompt", unit: "tokens/s", rate: m => m.assay_prompt_tokens_total },
  { name: "KV pages in use", unit: "%", of: m => 100 * m.assay_kv_cache_usage_ratio },
  { name: "prefix cache hits", unit: "% of tokens", of: m => 100 * m.assay_prefix_cache_hits_total / (m.assay_prefix_cache_queries_total || 1) },
  { name: "first token, mean", unit: "ms", of: m => 1000 * m.assay_time_to_first_token_seconds_sum / (m.assay_time_to_first_token_seconds_count || 1) },
  { name: "finished", unit: "sequences", of: m => m.assay_requests_total },
];
const history = cards.map(() => []);
let before = null;

function parse(text) {  // sums over label sets
  const values = {};
  for (const line of text.split("\n")) {
    const match = /^([a-z_]+)(?:\{.*\})? (\S+)$/.exec(line);
    if (match && match[1].startsWith("assay_")) values[match[1]] = (values[match[1]] || 0) + Number(match[2]);
  }
  return values;
}

function draw(points) {
  const top = Math.max(...points, 1e-9);
  return points.map((p, i) => `${i},${30 - 28 * p / top}`).join(" ");
}

function show(now, seconds) {
  document.getElementById("cards").replaceChildren(...cards.map((card, i) => {
    const value = card.of ? card.of(now) : before ? (card.rate(now) - card.rate(before)) / seconds : 0;
    history[i] = [...history[i], value || 0].slice(-120);
    const box = document.createElement("div");
    box.className = "card";
    const text = Number.isFinite(value) ? value.toLocaleString("en", { maximumFractionDigits: value < 100 ? 1 : 0 }) : "-";
    box.innerHTML = `<span>${card.name}</span><b>${text}</b><span>${card.unit}</span>` +
      `<svg viewBox="0 0 119 31" preserveAspectRatio="none"><polyline points="${draw(history[i])}"/></svg>`;
    return box;
  }));
}

function flatten(object, prefix, rows) {
  for (const [key, value] of Object.entries(object)) {
    if (value && typeof value === "object" && !Array.isArray(value)) flatten(value, prefix + key + ".", rows);
    else rows.push([prefix + key, Array.isArray(value) ? value.join(", ") : String(value)]);
  }
  return rows;
}

async function facts() {
  const info = await (await fetch("server_info")).json();
  document.getElementById("model").textContent = (info.models || []).join(", ") + "  ·  version " + info.version;
  const rows = flatten({ model: info.model || {}, cache: info.cache || {} }, "", []);
  document.getElementById("facts").replaceChildren(...rows.map(([key, value]) => {
    const row = document.createElement("tr");
    for (const text of [key, value]) row.insertCell().textContent = text;
    return row;
  }));
  return Boolean(info.model);
}

let last = 0, known = false;
async function tick() {
  const state = document.getElementById("state");
  try {
    const ready = await fetch("ready");
    state.textContent = ready.ok ? "ready" : (await ready.json()).error.message;
    state.className = ready.ok ? "" : "bad";
    if (!known) known = await facts();
    const now = parse(await (await fetch("metrics")).text());
    const time = performance.now();
    show(now, (time - last) / 1000);
    before = now;
    last = time;
  } catch (error) {
    state.textContent = "no answer";
    state.className = "bad";
  }
}
tick();
setInterval(tick, 1000);
</script>
</body>
</html>
)html";
}

}  // namespace assay
