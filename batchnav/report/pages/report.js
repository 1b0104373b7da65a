const data = JSON.parse(document.getElementById("data").textContent);
const SUBPIXELS = 16;
const get = id => document.getElementById(id);
const body = get("list").tBodies[0], slider = get("step");
let shown = null, paths = [], bodies = [], timer = null;

// Text as HTML: names of agents and sensors hold anything.
function escaped(text) {
  const element = document.createElement("span");
  element.textContent = text;
  return element.innerHTML;
}

// A path is base64 of int16 [steps, 3]: column and row in 1/SUBPIXELS pixel, heading in degrees.
function unpack(text) {
  const bytes = Uint8Array.from(atob(text), c => c.charCodeAt(0)), view = new DataView(bytes.buffer);
  return Array.from({length: bytes.length / 6}, (_, k) =>
    [view.getInt16(6 * k, true) / SUBPIXELS, view.getInt16(6 * k + 2, true) / SUBPIXELS, view.getInt16(6 * k + 4, true)]);
}

// Places on the floor plan: base64 of int16 [places, 2], column and row in pixels.
function unpackPlaces(text) {
  const bytes = Uint8Array.from(atob(text), c => c.charCodeAt(0)), view = new DataView(bytes.buffer);
  return Array.from({length: bytes.length / 4}, (_, k) => [view.getInt16(4 * k, true), view.getInt16(4 * k + 2, true)]);
}

// The first agent's path with a colour for each subtask, whose end has its number; wrong ends are hollow.
const tourColours = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"];
function tourOf(path, ends) {
  return ends.map(([end, right], k) => {
    const colour = tourColours[k % tourColours.length], part = path.slice(k ? ends[k - 1][0] - 1 : 0, end);
    const [x, y] = path[Math.min(end, path.length) - 1];
    return `<polyline class="path tour" stroke="${colour}" opacity=".8" points="${part.map(p => p[0] + "," + p[1]).join(" ")}"/>` +
      `<circle class="stop" cx="${x}" cy="${y}" r="7" stroke="${colour}" fill="${right ? colour : "#fff"}"/>` +
      `<text class="stop" x="${x}" y="${y + 3.5}" font-size="10" text-anchor="middle" fill="${right ? "#fff" : colour}">${k + 1}</text>`;
  }).join("");
}

function show(row) {
  if (shown) shown.classList.remove("shown");
  shown = row;
  row.classList.add("shown");
  const episode = data.episodes[row.dataset.row], plan = data.plans[episode.plan];
  paths = episode.paths.map(unpack);
  bodies = episode.bodies.map(b => ({radius: b.radius, path: unpack(b.path)}));
  const points = list => list.map(p => p[0] + "," + p[1]).join(" ");
  const goal = episode.goal && `<g transform="translate(${episode.goal[0]} ${episode.goal[1]})"><circle class="ring" r="${episode.goal[2]}"/>
    <path class="goal" d="${star}"/></g>`, [x0, y0] = paths[0][0];
  const goals = Object.hasOwn(plan.goals, episode.category) ? plan.goals[episode.category] : null, places = goals ? unpackPlaces(goals.view_points) : [];
  const seen = goals ? `<path class="points" d="${places.map(([x, y]) => `M${x - 1} ${y - 1}h2v2h-2z`).join("")}"/>` +
    goals.objects.map(([x, y]) => `<rect class="object" x="${x - 6}" y="${y - 6}" width="12" height="12"/>`).join("") : "";
  const own = episode.map ? `<image class="own" href="${episode.map.source}" x="${episode.map.x}" y="${episode.map.y}"
    width="${episode.map.side}" height="${episode.map.side}" preserveAspectRatio="none"/>` : "";
  get("map").setAttribute("viewBox", `0 0 ${plan.size[0]} ${plan.size[1]}`);
  get("map").innerHTML = `<image href="${plan.source}" width="${plan.size[0]}" height="${plan.size[1]}"/>` + own + seen +
    `<polyline points="${points(episode.shortest)}" class="shortest"/>` +
    bodies.map(b => `<polyline class="path body" stroke="#CC79A7" opacity=".6"/><circle class="body" r="${b.radius}" fill="#CC79A7"/>`).join("") +
    paths.map((path, a) => `<polyline class="path" stroke="${colours[a]}" opacity=".25" points="${points(path)}"/>`).reverse().join("") +
    tourOf(paths[0], episode.tour) +
    `<circle class="start" cx="${x0}" cy="${y0}" r="6"/>` + (goal || "") +
    paths.map((_, a) => `<polyline class="path agent" stroke="${colours[a]}" opacity="${a ? .7 : 1}"/>`).reverse().join("") +
    paths.map((_, a) => `<path class="arrow" d="M0 -10 L7 7 L0 3.5 L-7 7 Z" fill="${colours[a]}" stroke="#fff"/>`).reverse().join("");
  get("views").innerHTML = Object.entries(episode.films).map(([a, film]) => film.strips.map(s =>
    `<figure class="view"><svg viewBox="0 0 ${s.width} ${s.height}"><image href="${s.source}" data-agent="${a}" data-every="${film.every}"
      data-width="${s.width}" data-height="${s.height}" data-columns="${s.columns}" data-count="${s.count}"/></svg>` +
    (s.range ? `<div class="scale"><span>${s.range[0]} m</span><i></i><span>${s.range[1]} m</span></div>` : "") +
    `<figcaption><small><span class="key" style="--colour: ${colours[a]}"></span>${escaped(s.sensor)}, ${s.shape}${s.range ? "; dark: no surface" : ""}</small></figcaption></figure>`
  ).join("")).join("");
  slider.max = Math.max(...paths.map(w => w.length)) - 1;
  slider.value = 0;
  draw();
}

function draw() {
  const step = +slider.value, n = names.length, cell = part => shown.querySelector("." + part), scores = shown.querySelectorAll(".score");
  paths.forEach((path, a) => {
    const k = Math.min(step, path.length - 1), [x, y, heading] = path[k];
    get("map").querySelectorAll(".agent")[n - 1 - a].setAttribute("points", path.slice(0, k + 1).map(p => p[0] + "," + p[1]).join(" "));
    get("map").querySelectorAll(".arrow")[n - 1 - a].setAttribute("transform", `translate(${x} ${y}) rotate(${-heading})`);
  });
  bodies.forEach((body, b) => {
    const k = Math.min(step, body.path.length - 1), [line, disc] = [0, 1].map(n => get("map").querySelectorAll(".body")[2 * b + n]);
    line.setAttribute("points", body.path.slice(0, k + 1).map(p => p[0] + "," + p[1]).join(" "));
    disc.setAttribute("transform", `translate(${body.path[k][0]} ${body.path[k][1]})`);
  });
  get("views").querySelectorAll("image").forEach(image => {
    const d = image.dataset, k = Math.min(Math.floor(Math.min(step, paths[d.agent].length - 1) / d.every), d.count - 1);
    image.setAttribute("x", -(k % d.columns) * d.width);
    image.setAttribute("y", -Math.floor(k / d.columns) * d.height);
  });
  get("caption").innerHTML = `<b>${cell("name").innerHTML}</b> in ${cell("scene").innerHTML}, ` +
    (cell("category") ? `goal: <b>${cell("category").innerHTML}</b>, ` : "") + `step ${step + 1} of ${+slider.max + 1}` +
    names.map((name, a) => `<span class="key" style="--colour: ${colours[a]}">${escaped(name)}, ${escaped(compared)}: ${scores[a].innerHTML} in ${paths[a].length} steps</span>`).join("");
}

function move(by) { slider.value = +slider.value + by; draw(); }

function play(on) {
  clearInterval(timer);
  timer = null;
  get("play").textContent = on ? "Pause" : "Play";
  if (!on) return;
  if (slider.value === slider.max) slider.value = 0;
  timer = setInterval(() => { move(1); if (slider.value === slider.max) play(false); }, 1000 / get("speed").value);
}

function sort(column, up) {
  const value = row => { const cell = row.cells[column], v = cell.dataset.value ?? cell.textContent; return v === "" || isNaN(v) ? v : +v; };
  const rows = [...body.rows].map(row => [value(row), row]);
  rows.sort(([a], [b]) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), undefined, {numeric: true})) * (up ? 1 : -1));
  body.append(...rows.map(([, row]) => row));
}

const own = get("own");
if (own) own.onchange = () => get("map").classList.toggle("without", !own.checked);
slider.oninput = () => { play(false); draw(); };
get("play").onclick = () => play(timer === null);
get("back").onclick = () => { play(false); move(-1); };
get("forth").onclick = () => { play(false); move(1); };
get("speed").onchange = () => { if (timer) play(true); };
body.onclick = event => { const row = event.target.closest("tr"); if (row) { play(false); show(row); } };
get("list").tHead.onclick = event => {
  const head = event.target.closest("th");
  if (!head) return;
  head.dataset.up = head.dataset.up === "1" ? "0" : "1";
  sort(head.cellIndex, head.dataset.up === "1");
};
const next = get("next");
if (next) next.onclick = () => {
  const failed = [...body.rows].filter(row => row.classList.contains("failed"));
  if (failed.length) { play(false); show(failed[(failed.indexOf(shown) + 1) % failed.length]); }
};
if (body.rows.length) show(body.rows[0]);
