
"use strict";
(() => {
  // Sorting: a press sorts upwards, the next downwards. Empty cells stay at the end.
  const cellKey = (row, index) => {
    const cell = row.cells[index];
    if (!cell) return "";
    if (cell.dataset.value !== undefined) return Number(cell.dataset.value);
    const text = cell.textContent.trim().toLowerCase();
    return text;
  };
  const order = (a, b) => {
    if (typeof a === "number" && typeof b === "number") return a - b;
    return String(a).localeCompare(String(b), "en", { numeric: true });
  };
  for (const table of document.querySelectorAll("table.sortable")) {
    const headings = [...table.tHead.rows[0].cells];
    headings.forEach((heading, index) => {
      heading.querySelector("button").addEventListener("click", () => {
        const up = heading.getAttribute("aria-sort") !== "ascending";
        for (const other of headings) other.setAttribute("aria-sort", "none");
        heading.setAttribute("aria-sort", up ? "ascending" : "descending");
        const body = table.tBodies[0];
        const rows = [...body.rows].map((row) => [cellKey(row, index), row]);
        const full = rows.filter(([key]) => key !== "");
        const empty = rows.filter(([key]) => key === "");
        full.sort(([a], [b]) => (up ? order(a, b) : order(b, a)));
        for (const [, row] of [...full, ...empty]) body.append(row);
      });
    });
  }

  const filter = document.getElementById("filter");
  const rows = [...document.querySelectorAll("#run-table tbody tr")];
  const texts = rows.map((row) => [...row.cells].slice(0, 5).map((cell) => cell.textContent).join(" ").toLowerCase());
  filter.addEventListener("input", () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    rows.forEach((row, index) => {
      row.hidden = !words.every((word) => texts[index].includes(word));
      count += row.hidden ? 0 : 1;
    });
    document.getElementById("filter-count").textContent = words.length ? `${count} of ${rows.length} runs` : "";
  });

  // Examples.
  const data = JSON.parse(document.getElementById("example-data").textContent);
  if (!data.runs.length) return;
  const at = (id) => document.getElementById(id);
  const runs = at("example-run"), kinds = at("example-kind"), strip = at("example-strip");
  let chosen = 0;

  const element = (name, text, properties) => {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    return Object.assign(made, properties);
  };
  const shape = (name, attributes, text) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const option = (value, text) => element("option", text, { value });
  const run = () => data.runs[Number(runs.value)];
  const examples = () => run().examples.filter((example) => example.kind === kinds.value);
  const className = (number) => (number === null || number === undefined ? "none" : run().classes[number] ?? String(number));
  const short = (value) => (typeof value === "number" ? String(Number(value.toPrecision(4))) : String(value));

  const picture = (key) => {
    const image = data.images[key];
    if (!image) return null;
    const [channels, height, width] = image.shape;
    const canvas = element("canvas", undefined, { width, height });
    const bytes = atob(image.pixels);
    const context = canvas.getContext("2d");
    const pixels = context.createImageData(width, height);
    for (let place = 0; place < width * height; place += 1) {
      for (let channel = 0; channel < 3; channel += 1) {
        const from = channels === 3 ? channel * width * height + place : place;
        pixels.data[4 * place + channel] = bytes.charCodeAt(from);
      }
      pixels.data[4 * place + 3] = 255;
    }
    context.putImageData(pixels, 0, 0);
    return canvas;
  };

  const inputOf = (example) => {
    const image = example.image && picture(example.image);
    if (image) {
      image.setAttribute("role", "img");
      image.setAttribute("aria-label", "The input");
      return image;
    }
    const table = element("table");
    (example.features || []).forEach((value, index) => {
      const row = table.insertRow();
      row.append(element("th", run().columns[index] ?? `input ${index + 1}`, { scope: "row" }), element("td", short(value)));
    });
    const scroll = element("div", undefined, { className: "scroll", tabIndex: 0 });
    scroll.append(table);
    return scroll;
  };

  const classChart = (example) => {
    // As wide as there is room, so that the letters keep their size.
    const height = 22, left = 90, width = Math.min(Math.max(at("example-chart").clientWidth - left - 60, 120), 480);
    const all = shape("svg", { viewBox: `0 0 ${left + width + 60} ${height * example.classes.length + 4}`, role: "img",
      "aria-label": "Probability of each class: the mean over draws, and each draw" });
    example.classes.forEach((number, index) => {
      const y = index * height;
      const name = className(number);
      const label = shape("text", { x: left - 8, y: y + 16, "text-anchor": "end", class: number === example.label ? "truth" : "" },
        (number === example.label ? "✓ " : "") + (name.length > 12 ? `${name.slice(0, 11)}…` : name));
      const mean = example.probabilities[index];
      all.append(label, shape("line", { x1: left, x2: left, y1: y, y2: y + height, class: "axis" }),
        shape("rect", { x: left, y: y + 3, width: Math.max(mean * width, 0.5), height: height - 6, class: "bar" }));
      example.samples.forEach((draw, which) => {
        const p = draw[index] / 1000;
        const jitter = ((which * 7) % 11) / 11;
        all.append(shape("circle", { cx: left + p * width, cy: y + 6 + jitter * (height - 12), r: 2, class: "dot" }));
      });
      all.append(shape("text", { x: left + width + 8, y: y + 16 }, mean.toFixed(3)));
    });
    return all;
  };

  const realChart = (example) => {
    const width = Math.min(Math.max(at("example-chart").clientWidth, 240), 600), height = 90;
    const values = [...example.samples, example.target, example.mean - 2 * example.std, example.mean + 2 * example.std];
    const low = Math.min(...values), high = Math.max(...values), range = high - low || 1;
    const x = (value) => 20 + ((value - low) / range) * (width - 40);
    const all = shape("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "Means of single draws, the whole prediction, and the target" });
    all.append(shape("rect", { x: x(example.mean - 2 * example.std), y: 22, width: Math.max(x(example.mean + 2 * example.std) - x(example.mean - 2 * example.std), 0.5), height: 32, class: "bar" }));
    example.samples.forEach((draw, which) => {
      all.append(shape("circle", { cx: x(draw), cy: 28 + (((which * 7) % 11) / 11) * 20, r: 2.5, class: "dot" }));
    });
    all.append(shape("line", { x1: x(example.target), x2: x(example.target), y1: 16, y2: 60, class: "goal" }),
      shape("line", { x1: 20, x2: width - 20, y1: 64, y2: 64, class: "axis" }),
      shape("text", { x: 20, y: 82 }, short(low)), shape("text", { x: width - 20, y: 82, "text-anchor": "end" }, short(high)),
      shape("text", { x: Math.min(Math.max(x(example.target), 60), width - 60), y: 12, "text-anchor": "middle" }, `target ${short(example.target)}`));
    return all;
  };

  const words = (example) => {
    const place = `Example ${example.number}`;
    if (run().kind === "real") {
      return `${place}: predicted ${short(example.mean)} ± ${short(example.std)} (std), target ${short(example.target)}; the band is 2 stds on either side.`;
    }
    const p = example.probabilities[example.classes.indexOf(example.predicted)];
    const truth = example.label === null || example.label === undefined ? "from outside the distribution" : `true class ${className(example.label)}`;
    return `${place}: predicted ${className(example.predicted)} with probability ${p === undefined ? "?" : p.toFixed(3)}, ${truth}; entropy ${short(example.entropy)} nats, of which ${short(example.mutual_information)} epistemic.`;
  };

  const show = () => {
    const found = examples();
    chosen = Math.min(Math.max(chosen, 0), found.length - 1);
    [...strip.children].forEach((button, index) => button.setAttribute("aria-pressed", String(index === chosen)));
    const example = found[chosen];
    at("example-input").replaceChildren(inputOf(example));
    at("example-text").textContent = words(example);
    at("example-chart").replaceChildren(run().kind === "real" ? realChart(example) : classChart(example));
  };
  const fill = () => {
    chosen = 0;
    strip.replaceChildren(...examples().map((example, index) => {
      const image = example.image && picture(example.image);
      const button = element("button", image ? undefined : String(example.number), { type: "button" });
      button.setAttribute("aria-label", `Example ${example.number}`);
      if (image) button.append(image);
      button.addEventListener("click", () => { chosen = index; show(); });
      return button;
    }));
    show();
  };
  const choose = () => {
    const wanted = kinds.value;
    const names = [...new Set(run().examples.map((example) => example.kind))];
    kinds.replaceChildren(...names.map((name) => option(name, name)));
    if (names.includes(wanted)) kinds.value = wanted;
    fill();
  };
  const several = new Set(data.runs.map((one) => one.data)).size > 1;
  runs.replaceChildren(...data.runs.map((one, index) => option(String(index), several ? `${one.label}, ${one.data}` : one.label)));
  runs.value = String(data.first);
  runs.addEventListener("change", choose);
  kinds.addEventListener("change", fill);
  const move = (by) => { const count = examples().length; chosen = (chosen + by + count) % count; show(); };
  at("example-back").addEventListener("click", () => move(-1));
  at("example-next").addEventListener("click", () => move(1));
  at("example").addEventListener("keydown", (event) => {
    if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
      event.preventDefault();
      move(event.key === "ArrowLeft" ? -1 : 1);
    }
  });
  at("browser").hidden = false;
  choose();
})();
