// What the pages do beyond being read: tables are sorted and filtered, figures drawn, titles searched.
// Everything that a page shows stands in it as JSON; nothing is fetched. Text is always set as text, never as HTML.
"use strict";

const SVG = "http://www.w3.org/2000/svg";
const NARROW = 560;
const FLOOR = 0.5; // what is not even this share as accurate as the best is named below the picture

function pageData(id) {
  const element = document.getElementById(id);
  return element ? JSON.parse(element.textContent) : null;
}

function fillIn(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== false) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

function html(tag, attributes = {}, ...children) {
  return fillIn(document.createElement(tag), attributes, children);
}

function svg(tag, attributes = {}, ...children) {
  return fillIn(document.createElementNS(SVG, tag), attributes, children);
}

function fillSelect(select, names, chosen) {
  select.replaceChildren(...names.map((name) => html("option", { value: name, selected: name === chosen && "" }, name)));
}

function plural(count, noun) {
  return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
}

// Sorting ------------------------------------------------------------------------------------------------------------

function cellValue(row, column) {
  const cell = row.cells[column];
  const text = cell.dataset.value ?? cell.textContent.trim();
  const number = Number(text);
  return { text, number, isNumber: text !== "" && !Number.isNaN(number) };
}

function compareCells(a, b, sign) {
  if ((a.text === "") !== (b.text === "")) return a.text === "" ? 1 : -1; // what has no figure stands last, always
  if (a.isNumber && b.isNumber) return sign * (a.number - b.number);
  return sign * a.text.localeCompare(b.text, "en", { numeric: true });
}

function sortBy(table, header) {
  const wasFirst = header.getAttribute("aria-sort") === header.dataset.first;
  const opposite = header.dataset.first === "ascending" ? "descending" : "ascending";
  const order = wasFirst ? opposite : header.dataset.first;
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", order);

  const sign = order === "ascending" ? 1 : -1;
  const rows = [...table.tBodies[0].rows].map((row) => [cellValue(row, header.cellIndex), row]);
  rows.sort(([a], [b]) => compareCells(a, b, sign));
  table.tBodies[0].append(...rows.map(([, row]) => row));
}

function makeSortable(table) {
  for (const header of table.tHead.rows[0].cells) {
    header.querySelector("button")?.addEventListener("click", () => sortBy(table, header));
  }
}

// Filtering ----------------------------------------------------------------------------------------------------------

function isWanted(name, kind, wanted) {
  const words = name.toLowerCase();
  return wanted.kinds.has(kind) && wanted.words.every((word) => words.includes(word));
}

function wantedRuns(form) {
  const kinds = new Set([...form.querySelectorAll("[name=kind]:checked")].map((box) => box.value));
  const words = form.elements.search.value.toLowerCase().split(/\s+/).filter(Boolean);
  return { kinds, words };
}

function filterRows(form, table) {
  const wanted = wantedRuns(form);
  let shown = 0;
  for (const row of table.tBodies[0].rows) {
    row.hidden = !isWanted(row.dataset.name, row.dataset.kind, wanted);
    if (!row.hidden) shown += 1;
  }
  document.getElementById("count").textContent = `${shown} of ${plural(table.tBodies[0].rows.length, "run")} shown`;
}

function chooseColumns(form, table) {
  for (const box of form.querySelectorAll("[name=column]")) {
    for (const cell of table.querySelectorAll(`[data-column="${CSS.escape(box.value)}"]`)) cell.hidden = !box.checked;
  }
}

function startLeaderboard() {
  const form = document.getElementById("filter");
  if (!form) return;
  const table = document.querySelector("table.board");
  const board = pageData("board-data");
  const drawCosts = startTradeoff(board, form);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", () => {
    filterRows(form, table);
    chooseColumns(form, table);
    drawCosts();
  });
  filterRows(form, table);
  chooseColumns(form, table);
  startBins(board);
}

// Axes ---------------------------------------------------------------------------------------------------------------

function linearTicks(low, high, count) {
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
  const ticks = [];
  for (let tick = Math.ceil(low / step) * step; tick <= high + step / 1e6; tick += step) ticks.push(tick);
  return ticks;
}

function logTicks(low, high) {
  const factors = high / low < 100 ? [1, 2, 5] : [1];
  const ticks = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) {
    for (const factor of factors) {
      const tick = Number(`${factor}e${power}`);
      if (tick >= low && tick <= high) ticks.push(tick);
    }
  }
  return ticks;
}

function shownTick(value) {
  return String(Number(value.toPrecision(3)));
}

function yAxis(frame, y, low, high) {
  return linearTicks(low, high, 6).flatMap((tick) => [
    svg("line", { class: "grid", x1: frame.left, x2: frame.right, y1: y(tick), y2: y(tick) }),
    svg("text", { x: frame.left - 8, y: y(tick) + 4, "text-anchor": "end" }, shownTick(tick)),
  ]);
}

function redrawWhenResized(box, draw) {
  let width = 0;
  new ResizeObserver(() => {
    const now = Math.round(box.clientWidth);
    if (now !== width) {
      width = now;
      draw();
    }
  }).observe(box);
}

// Accuracy against cost ----------------------------------------------------------------------------------------------

function onFront(points) {
  return points.filter((a) => !points.some((b) =>
    b.cost <= a.cost && b.gain[0] >= a.gain[0] && (b.cost < a.cost || b.gain[0] > a.gain[0])));
}

function describe(point, gain, price) {
  const [value, low, high] = point.gain;
  const lines = [
    `${gain.title} ${value.toFixed(gain.digits)} (${low.toFixed(gain.digits)} to ${high.toFixed(gain.digits)})`,
    `${price.title} ${point.cost.toFixed(price.digits)}`,
    plural(point.entry.seeds, "seed"),
  ];
  if (!point.isComparable) lines.push(`measured on ${point.entry.conditions.join("; ")}: not comparable`);
  if (point.entry.otherCode) lines.push("made by other code than this");
  return lines;
}

function pointsOf(board, form, gain, price) {
  const wanted = wantedRuns(form);
  const points = [];
  for (const entry of board.entries) {
    const accuracy = entry.figures[gain.name];
    const cost = entry.figures[price.name];
    if (!accuracy || !cost || !(cost[0] > 0) || !isWanted(entry.name, entry.kind, wanted)) continue;
    const isComparable = entry.timedAlike || price.name === "model_mb";
    points.push({ entry, gain: accuracy, cost: cost[0], isComparable });
  }
  return points;
}

function startTradeoff(board, form) {
  const box = document.getElementById("tradeoff");
  const gain = document.getElementById("gain");
  const price = document.getElementById("price");
  const named = new Map(board.columns.map((column) => [column.name, column]));
  fillSelect(gain, board.columns.filter((column) => column.isMetric).map((column) => column.name), "P@1");
  fillSelect(price, board.columns.filter((column) => !column.isMetric).map((column) => column.name), "train_s");
  const draw = () => drawTradeoff(box, board, form, named.get(gain.value), named.get(price.value));
  gain.addEventListener("change", draw);
  price.addEventListener("change", draw);
  redrawWhenResized(box, draw);
  return draw;
}

function drawTradeoff(box, board, form, gain, price) {
  const all = pointsOf(board, form, gain, price);
  const best = Math.max(...all.map((point) => point.gain[0]));
  const points = all.filter((point) => point.gain[0] >= FLOOR * best);
  writeTradeoffNotes(board, gain, all, points);
  if (!points.length) {
    box.replaceChildren(html("p", {}, "No run that is chosen has both figures."));
    return;
  }

  const width = box.clientWidth || 800;
  const height = Math.round(Math.min(460, Math.max(300, width * 0.5)));
  const frame = { left: 44, right: width - 12, top: 14, bottom: height - 44 };
  const costs = points.map((point) => point.cost);
  const lowest = Math.min(...points.map((point) => point.gain[1]));
  const highest = Math.max(...points.map((point) => point.gain[2]));
  const room = Math.max(1.4, (Math.max(...costs) / Math.min(...costs)) ** 0.06);
  const span = [Math.min(...costs) / room, Math.max(...costs) * room];
  const pad = 0.04 * (highest - lowest) || 1;
  const x = (cost) => frame.left + (frame.right - frame.left) * Math.log(cost / span[0]) / Math.log(span[1] / span[0]);
  const y = (value) => frame.bottom - (frame.bottom - frame.top) * (value - lowest + pad) / (highest - lowest + 2 * pad);

  const parts = yAxis(frame, y, lowest - pad, highest + pad);
  for (const tick of logTicks(...span)) {
    parts.push(svg("line", { class: "grid", x1: x(tick), x2: x(tick), y1: frame.top, y2: frame.bottom }));
    parts.push(svg("text", { x: x(tick), y: frame.bottom + 18, "text-anchor": "middle" }, shownTick(tick)));
  }
  const axis = `${price.title}, logarithmic`;
  parts.push(svg("text", { x: frame.right, y: height - 6, "text-anchor": "end" }, axis));
  parts.push(svg("text", { x: 2, y: 10 }, `${gain.title} (%)`));

  const front = onFront(points.filter((point) => point.isComparable)).sort((a, b) => a.cost - b.cost);
  parts.push(svg("path", { class: "front", d: stepPath(front, x, y) }));
  for (const point of points) {
    const { cost, gain: [, low, high] } = point;
    parts.push(svg("line", { class: "range", x1: x(cost), x2: x(cost), y1: y(low), y2: y(high) }));
  }
  const names = placeNames(front, points, x, y, frame);
  const tip = html("div", { class: "tip", hidden: "" });
  // The dearest first, so that Tab goes along the axis.
  const marks = [...points].sort((a, b) => a.cost - b.cost).map((point) => {
    const lines = describe(point, gain, price);
    const mark = pointMark(x(point.cost), y(point.gain[0]), point, front.includes(point));
    fillIn(mark, { tabindex: "0", role: "img", "aria-label": [point.entry.name, ...lines].join(", ") }, []);
    const show = () => showTip(tip, box, point.entry.name, lines, x(point.cost), y(point.gain[0]));
    for (const event of ["pointerenter", "focus", "click"]) mark.addEventListener(event, show);
    for (const event of ["pointerleave", "blur"]) mark.addEventListener(event, () => { tip.hidden = true; });
    return mark;
  });
  const title = `${gain.title} against ${price.title}`;
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": title }, ...parts, ...marks, ...names);
  box.replaceChildren(picture, tip);
}

function pointMark(x, y, point, isOnFront) {
  if (point.isComparable) return svg("circle", { class: `point${isOnFront ? " on-front" : ""}`, cx: x, cy: y, r: 5.5 });
  const corners = `${x},${y - 7} ${x + 6.5},${y + 5} ${x - 6.5},${y + 5}`;
  return svg("polygon", { class: "point other-machine", points: corners });
}

function stepPath(front, x, y) {
  return front.map((point, place) => {
    const across = place ? `H ${x(point.cost)} V` : `M ${x(point.cost)}`;
    return `${across} ${y(point.gain[0])}`;
  }).join(" ");
}

function placeNames(front, points, x, y, frame) {
  // Names of the front alone; the others say theirs when they are pointed at. A name that would hide a point waits, too.
  const taken = points.map((point) => ({ left: x(point.cost) - 6, right: x(point.cost) + 6, top: y(point.gain[0]) - 6, bottom: y(point.gain[0]) + 6 }));
  const names = [];
  for (const point of [...front].sort((a, b) => b.gain[0] - a.gain[0])) {
    const wide = 6.6 * point.entry.name.length;
    const px = x(point.cost);
    const py = y(point.gain[0]);
    const places = [
      { left: px + 10, right: px + 10 + wide, top: py - 16, bottom: py - 2, anchor: "start" },
      { left: px - 10 - wide, right: px - 10, top: py - 16, bottom: py - 2, anchor: "end" },
      { left: px - 10 - wide, right: px - 10, top: py + 4, bottom: py + 18, anchor: "end" },
      { left: px + 10, right: px + 10 + wide, top: py + 4, bottom: py + 18, anchor: "start" },
    ];
    const place = places.find((box) => box.left >= frame.left && box.right <= frame.right + 8 && !taken.some((other) =>
      box.left < other.right && other.left < box.right && box.top < other.bottom && other.top < box.bottom));
    if (!place) continue;
    taken.push(place);
    const anchor = place.anchor === "start" ? place.left : place.right;
    names.push(svg("text", { class: "name", x: anchor, y: place.bottom - 3, "text-anchor": place.anchor, "pointer-events": "none" }, point.entry.name));
  }
  return names;
}

function showTip(tip, box, name, lines, x, y) {
  tip.replaceChildren(html("b", {}, name), ...lines.map((line) => html("span", {}, line)));
  tip.hidden = false;
  const isRight = x > box.clientWidth / 2;
  tip.style.left = isRight ? "" : `${x + 12}px`;
  tip.style.right = isRight ? `${box.clientWidth - x + 12}px` : "";
  tip.style.top = `${Math.max(0, y - 20)}px`;
}

function writeTradeoffNotes(board, gain, all, shown) {
  const notes = ["Filled: on the front. Point at a run, tap it or go there with Tab for its figures."];
  if (shown.some((point) => !point.isComparable)) {
    notes.push(`Triangles were measured on another machine, with other threads or beside other work than most (${board.conditions}): their times cannot be compared, and they are not on the front.`);
  }
  const below = all.filter((point) => !shown.includes(point));
  if (below.length) {
    const names = below.map((point) => `${point.entry.name} (${point.gain[0].toFixed(gain.digits)})`);
    notes.push(`Far below, by ${gain.title}: ${names.join(", ")}.`);
  }
  document.getElementById("tradeoff-notes").replaceChildren(...notes.map((note) => html("p", {}, note)));
}

// Rare and popular labels --------------------------------------------------------------------------------------------

function startBins(board) {
  const bins = pageData("bins-data");
  const box = document.getElementById("bins-chart");
  const names = board.entries.map((entry) => entry.name).filter((name) => name in bins.figures);
  if (!names.length) {
    box.replaceChildren(html("p", {}, "No run keeps enough places for these metrics."));
    return;
  }
  const methods = board.entries.filter((entry) => entry.kind === "method" && names.includes(entry.name));
  const metric = document.getElementById("bins-metric");
  const first = document.getElementById("bins-first");
  const second = document.getElementById("bins-second");
  fillSelect(metric, bins.metrics, bins.metrics[0]);
  fillSelect(first, names, methods[0]?.name ?? names[0]);
  fillSelect(second, names, methods[1]?.name ?? names[1] ?? names[0]);
  const draw = () => drawBins(box, bins, metric.value, [first.value, second.value]);
  for (const select of [metric, first, second]) select.addEventListener("change", draw);
  redrawWhenResized(box, draw);
}

function drawBins(box, bins, metric, names) {
  const width = box.clientWidth || 800;
  const height = width < NARROW ? 280 : 320;
  const frame = { left: 44, right: width - 8, top: 18, bottom: height - 58 };
  const figures = names.map((name) => bins.figures[name][metric]);
  const highest = Math.max(1e-9, ...figures.flat().map(([, , high]) => high));
  const y = (value) => frame.bottom - (frame.bottom - frame.top) * value / (1.04 * highest);
  const slot = (frame.right - frame.left) / bins.names.length;
  const bar = Math.min(46, slot * 0.34);

  const parts = yAxis(frame, y, 0, highest);
  bins.names.forEach((name, bin) => {
    const middle = frame.left + slot * (bin + 0.5);
    figures.forEach((values, run) => {
      const [value, low, high] = values[bin];
      const left = middle + (run - 1) * (bar + 2) + 1;
      const box = { x: left, y: y(value), width: bar, height: Math.max(0, y(0) - y(value)) };
      parts.push(svg("rect", { class: `bar ${run ? "second" : "first"}`, ...box }));
      parts.push(svg("line", { class: "whisker", x1: left + bar / 2, x2: left + bar / 2, y1: y(low), y2: y(high) }));
    });
    const labels = bins.labels[bin].toLocaleString("en");
    parts.push(svg("text", { x: middle, y: frame.bottom + 17, "text-anchor": "middle", class: "name" }, name));
    parts.push(svg("text", { x: middle, y: frame.bottom + 33, "text-anchor": "middle" }, width < NARROW ? labels : `${labels} labels`));
  });
  const axis = width < NARROW ? "training points per label; labels" : "training points per label";
  parts.push(svg("text", { x: frame.right, y: height - 6, "text-anchor": "end" }, axis));
  parts.push(svg("text", { x: 2, y: 10 }, `contribution to ${metric} (points)`));
  const title = `What labels of each frequency add to ${metric}: ${names.join(" and ")}; the table below has the figures`;
  box.replaceChildren(svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title }, ...parts));
  writeBinsTable(bins, names, figures);
}

function shownInterval([value, low, high]) {
  return [html("span", { class: "value" }, value.toFixed(2)), " ", html("small", {}, `±${((high - low) / 2).toFixed(2)}`)];
}

function writeBinsTable(bins, names, figures) {
  const head = ["training points", "labels", ...names].map((name, column) =>
    html("th", { scope: "col", class: column ? "figure" : null }, name));
  const rows = bins.names.map((name, bin) => html("tr", {},
    html("th", { scope: "row" }, name),
    html("td", { class: "figure" }, bins.labels[bin].toLocaleString("en")),
    ...figures.map((values) => html("td", { class: "figure" }, ...shownInterval(values[bin])))));
  const sums = figures.map((values) => values.reduce((sum, [value]) => sum + value, 0).toFixed(2));
  rows.push(html("tr", {}, html("th", { scope: "row" }, "all"), html("td"),
    ...sums.map((sum) => html("td", { class: "figure best" }, html("span", { class: "value" }, sum)))));
  const table = html("table", {}, html("thead", {}, html("tr", {}, ...head)), html("tbody", {}, ...rows));
  document.getElementById("bins-table").replaceChildren(table);
}

// Predictions --------------------------------------------------------------------------------------------------------

const MOST_TITLES = 100;
const runs = new Map();

// Called by the file of a run, which is a script so that it can be read without a server.
function receiveRun(file, run) {
  runs.get(file).resolve(run);
}

function loadRun(file) {
  if (!runs.has(file)) {
    const entry = {};
    entry.promise = new Promise((resolve) => { entry.resolve = resolve; });
    runs.set(file, entry);
    document.head.append(html("script", { src: `../${encodeURI(file)}` }));
  }
  return runs.get(file).promise;
}

function startPredictions() {
  const data = pageData("points-data");
  if (!data) return;
  const page = {
    data,
    lower: data.titles.map((title) => title.toLowerCase()),
    search: document.getElementById("title-search"),
    which: document.getElementById("which"),
    selects: [document.getElementById("first"), document.getElementById("second")],
    shown: 0,
    chosen: [],
  };
  const names = data.runs.map((run) => run.name);
  const hash = new URLSearchParams(location.hash.slice(1));
  const whole = data.runs.filter((run) => run.hasPredictions).map((run) => run.name);
  const preferred = [...whole, ...names];
  const start = ["first", "second"].map((key, number) =>
    names.includes(hash.get(key)) ? hash.get(key) : preferred[number]);
  page.selects.forEach((select, number) => fillRunSelect(select, data.runs, start[number]));
  page.shown = Math.max(0, data.points.indexOf(Number(hash.get("point") ?? data.points[0])));

  document.getElementById("browse").addEventListener("submit", (event) => event.preventDefault());
  page.search.addEventListener("input", () => listTitles(page));
  page.which.addEventListener("change", () => listTitles(page));
  for (const select of page.selects) select.addEventListener("change", () => chooseRuns(page));
  chooseRuns(page);
}

function fillRunSelect(select, choices, chosen) {
  const groups = [
    ["with predictions", choices.filter((run) => run.hasPredictions)],
    ["only places of true labels", choices.filter((run) => !run.hasPredictions)],
  ];
  select.replaceChildren(...groups.filter(([, members]) => members.length).map(([label, members]) =>
    html("optgroup", { label }, ...members.map(({ name }) =>
      html("option", { value: name, selected: name === chosen && "" }, name)))));
}

async function chooseRuns(page) {
  const wanted = page.selects.map((select) => page.data.runs.find((run) => run.name === select.value));
  const loaded = await Promise.all(wanted.map((run) => loadRun(run.file)));
  const isStillWanted = wanted.every((run, number) => page.selects[number].value === run.name);
  if (!isStillWanted) return;
  page.chosen = wanted.map((run, number) => ({ name: run.name, ...loaded[number] }));
  listTitles(page);
  showPoint(page);
}

function isRightAtFirst(run, row) {
  return run.places[row].includes(1);
}

function isAskedFor(page, row, words) {
  if (!words.every((word) => page.lower[row].includes(word))) return false;
  if (page.which.value === "all") return true;
  const [first, second] = page.chosen.map((run) => isRightAtFirst(run, row));
  if (page.which.value === "first") return first && !second;
  if (page.which.value === "second") return second && !first;
  return !first && !second;
}

function listTitles(page) {
  const words = page.search.value.toLowerCase().split(/\s+/).filter(Boolean);
  const rows = page.data.titles.map((_, row) => row).filter((row) => isAskedFor(page, row, words));
  const buttons = rows.slice(0, MOST_TITLES).map((row) => {
    const button = html("button", { type: "button", "data-row": row, "aria-current": row === page.shown && "true" }, page.data.titles[row]);
    button.addEventListener("click", () => {
      page.shown = row;
      markShown(row);
      showPoint(page);
    });
    return html("li", {}, button);
  });
  document.getElementById("titles").replaceChildren(...buttons);
  const more = rows.length > MOST_TITLES ? `; the first ${MOST_TITLES} are listed` : "";
  document.getElementById("found").textContent = `${plural(rows.length, "title")}${more}`;
}

function markShown(row) {
  for (const button of document.querySelectorAll("#titles button")) {
    if (Number(button.dataset.row) === row) button.setAttribute("aria-current", "true");
    else button.removeAttribute("aria-current");
  }
}

function showPoint(page) {
  const { data, shown } = page;
  const [first, second] = page.chosen.map((run) => run.name);
  const hash = new URLSearchParams({ point: data.points[shown], first, second });
  history.replaceState(null, "", `#${hash}`);
  document.getElementById("point").replaceChildren(
    html("h2", {}, data.titles[shown]),
    html("p", { class: "quiet" }, `test point ${data.points[shown]}`),
    trueLabels(page),
    html("div", { class: "columns" }, ...page.chosen.map((run, number) => rankingOf(page, run, number))),
    html("p", { class: "legend" }, "✓: a true label. Behind a label: its training points. In italics: a pair that the metrics leave out."),
  );
}

function swatch(number) {
  const run = number ? "second" : "first";
  return html("span", { class: `swatch ${run}`, role: "img", "aria-label": `${run} run` });
}

function trueLabels(page) {
  const { data, shown } = page;
  const labels = data.trueLabels[shown];
  if (!labels.length) return html("p", {}, "No label is true for this point.");
  const head = [["true label"], ["training points"], ...page.chosen.map((run, number) => [swatch(number), " place"])];
  const rows = labels.map((label, number) => html("tr", {},
    html("th", { scope: "row", class: "words" }, data.labels[label]),
    html("td", { class: "figure" }, data.frequency[label].toLocaleString("en")),
    ...page.chosen.map((run) => html("td", { class: "figure" }, shownPlace(run, run.places[shown][number])))));
  const table = html("table", {},
    html("thead", {}, html("tr", {}, ...head.map((parts, column) => html("th", { scope: "col", class: column ? "figure" : null }, ...parts)))),
    html("tbody", {}, ...rows));
  return html("div", { class: "scroll", role: "region", "aria-label": "True labels", tabindex: "0" }, table);
}

function shownPlace(run, place) {
  return place ? String(place) : `> ${run.depth}`;
}

function rankingOf(page, run, number) {
  const heading = html("h3", {}, swatch(number), ` ${run.name}`);
  if (!run.predictions) {
    return html("section", {}, heading, html("p", { class: "quiet" }, "This run is stored without its predictions, only with the places of the true labels."));
  }
  const items = run.predictions[page.shown].map((label) => predictedLabel(page, label));
  return html("section", {}, heading, html("ol", { class: "ranking" }, ...items));
}

function predictedLabel(page, label) {
  const { data, shown } = page;
  const isTrue = data.trueLabels[shown].includes(label);
  const isLeftOut = data.filtered[shown].includes(label);
  const style = isTrue ? "right" : isLeftOut && "uncounted";
  const title = html("span", { class: style || null }, isTrue ? `✓ ${data.labels[label]}` : data.labels[label]);
  return html("li", {}, title, html("small", {}, data.frequency[label].toLocaleString("en")));
}

// --------------------------------------------------------------------------------------------------------------------

for (const table of document.querySelectorAll("table[data-sortable]")) makeSortable(table);
startLeaderboard();
startPredictions();
