// Draws the charts that the page describes as data, and lets tables be sorted.
(() => {
  "use strict";

  const root = document.documentElement;
  const numColors = 8;
  const dashes = [[], [7, 3], [2, 3], [9, 3, 2, 3], [14, 4], [4, 2], [1, 2]];

  const css = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const color = (index) => css(`--c${index % numColors}`);
  const dash = (index) => dashes[Math.floor(index / numColors) % dashes.length];
  const faint = (hex) => `${hex}38`;

  // How a value reads; the same rules as report/quantity.cpp.
  const digits = (value) => {
    const size = Math.abs(value);
    return value.toFixed(size < 9.995 ? 2 : size < 99.95 ? 1 : 0);
  };
  const plain = (value) => {
    const size = Math.abs(value);
    return size !== 0 && (size < 1e-3 || size >= 1e6)
      ? value.toExponential(2)
      : String(Number(value.toPrecision(5)));
  };
  const texts = {
    number: plain,
    percent: (value) => `${Number(value.toPrecision(3))} %`,
    seconds: (value) => {
      const size = Math.abs(value);
      if (size === 0) return "0 s";
      if (size < 0.9995e-3) return `${digits(value * 1e6)} us`;
      return size < 0.9995 ? `${digits(value * 1e3)} ms` : `${digits(value)} s`;
    },
    bytes: (value) => {
      const units = ["B", "kB", "MB", "GB", "TB", "PB"];
      let unit = 0;
      while (Math.abs(value) >= 999.5 && unit + 1 < units.length) {
        value /= 1000;
        ++unit;
      }
      return `${unit === 0 ? Math.round(value) : digits(value)} ${units[unit]}`;
    },
    scale: (value) => {
      const power = Math.log2(value);
      if (Number.isInteger(power)) return power === 0 ? "1" : `2^${power}`;
      return plain(value);
    },
  };

  const element = (name, properties = {}, ...children) => {
    const made = Object.assign(document.createElement(name), properties);
    made.append(...children);
    return made;
  };

  // A canvas with as many dots as the screen has.
  const sharp = (canvas, width, height) => {
    const ratio = Math.max(window.devicePixelRatio || 1, 1);
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    const context = canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    return context;
  };

  const axis = (title, options = {}) => ({
    title: { display: title !== "", text: title, color: css("--quiet") },
    grid: { color: css("--rule"), borderColor: css("--quiet") },
    ...options,
    ticks: { color: css("--quiet"), maxRotation: 0, autoSkipPadding: 12, ...options.ticks },
  });

  const baseOptions = () => ({
    animation: false,
    responsive: true,
    maintainAspectRatio: false,
    normalized: true,
    plugins: { legend: { display: false } },
  });

  // Lines ------------------------------------------------------------------------------------------

  const isPowers = (spec) => spec.scale === "powers_of_two";
  const placed = (spec, value) => {
    if (value === null) return null;
    if (isPowers(spec)) return value > 0 ? Math.log2(value) : null;
    return spec.scale === "logarithmic" && value <= 0 ? null : value;
  };

  const pointsOf = (spec, line, key) =>
    line.x.map((x, i) => ({ x, y: placed(spec, line[key][i]) }));

  const lastOf = (spec) => Math.max(...spec.lines.map((line) => line.x[line.x.length - 1]));

  const lineDatasets = (spec) => {
    const datasets = [];
    spec.lines.forEach((line, index) => {
      const stroke = color(line.color);
      if (line.low) {
        const edge = { pointRadius: 0, borderWidth: 0, index, isEdge: true };
        datasets.push({ ...edge, data: pointsOf(spec, line, "low") });
        datasets.push({
          ...edge,
          data: pointsOf(spec, line, "high"),
          fill: "-1",
          backgroundColor: faint(stroke),
        });
      }
      const isCrosses = line.style === "crosses";
      datasets.push({
        index,
        label: line.name,
        data: pointsOf(spec, line, "y"),
        borderColor: isCrosses ? css("--c4") : stroke,
        backgroundColor: stroke,
        // Of equal lines each that is covered shows beside the one above it.
        borderWidth: spec.lines.length <= 4 && line.style === "line" ? 1.5 + index : 1.5,
        borderDash: line.style === "dashes" ? [5, 4] : dash(line.color),
        stepped: line.style === "stairs" ? "before" : false,
        showLine: !isCrosses,
        pointStyle: isCrosses ? "crossRot" : "circle",
        pointRadius: isCrosses ? 5 : line.x.length === 1 ? 3 : 0,
        pointHitRadius: 6,
      });
    });
    return datasets;
  };

  // `10 ms` in the place of `10.0 ms`.
  const short = (text) => text.replace(/(\.\d*?)0+(?=\D|$)/, "$1").replace(/\.(?=\D|$)/, "");

  const tickText = (spec) => {
    const text = texts[spec.quantity];
    if (isPowers(spec)) return (value) => (Number.isInteger(value) ? text(2 ** value) : "");
    return (value) => short(text(value));
  };

  const isFlat = (datasets) => {
    const values = datasets.flatMap(({ data }) => data.map(({ y }) => y)).filter((y) => y !== null);
    return values.every((y) => y === values[0]);
  };

  const numTicks = 8;

  // 1, 2 and 5 times powers of ten; fewer where the axis is long, more where it is short.
  const logarithmicAxis = (spec, datasets) => {
    let [low, high] = [Infinity, 0];
    for (const { data } of datasets) {
      for (const { y } of data) {
        if (y !== null && y > 0) [low, high] = [Math.min(low, y), Math.max(high, y)];
      }
    }
    if (high === 0) [low, high] = [1, 10];
    [low, high] = [low / 1.1, high * 1.1];
    const decades = Math.log10(high / low);
    const firsts =
      decades > numTicks / 2 ? [1] : decades > 1 ? [1, 2, 5] : [1, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9];
    const every = Math.max(1, Math.ceil(decades / numTicks));
    const values = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); ++power) {
      if (power % every === 0) values.push(...firsts.map((first) => first * 10 ** power));
    }
    return {
      type: "logarithmic",
      min: low,
      max: high,
      afterBuildTicks: (scale) => {
        scale.ticks = values.filter((y) => y >= low && y <= high).map((value) => ({ value }));
      },
      ticks: { callback: tickText(spec), autoSkip: true },
    };
  };

  // Parts of the axis x as bars above the lines, one below the other.
  const spanRow = 15;
  const spanPlugin = (spec) => ({
    id: "spans",
    afterDatasetsDraw: ({ ctx, chartArea, scales }) => {
      const within = (x) =>
        Math.min(Math.max(scales.x.getPixelForValue(x), chartArea.left), chartArea.right);
      ctx.save();
      ctx.font = "11px sans-serif";
      ctx.textBaseline = "middle";
      spec.spans.forEach((span, row) => {
        const y = chartArea.top + 4 + row * spanRow;
        const [low, full, high] = [span.low, span.full, span.high].map(within);
        ctx.fillStyle = color(row);
        ctx.globalAlpha = 0.25;
        ctx.fillRect(low, y, full - low, spanRow - 4);
        ctx.globalAlpha = 0.6;
        ctx.fillRect(full, y, high - full, spanRow - 4);
        ctx.globalAlpha = 1;
        ctx.fillStyle = css("--text");
        ctx.fillText(span.name, Math.min(full + 4, chartArea.right - 60), y + (spanRow - 4) / 2);
      });
      ctx.restore();
    },
  });

  // Of the lines, and of all that may be seen of spans but those of wide formats.
  const spanLimits = (spec) => {
    const ends = spec.lines.flatMap(({ x }) => [x[0], x[x.length - 1]]);
    const near = spec.spans.flatMap(({ low, high }) => [low, high]).filter((x) => Math.abs(x) < 64);
    const [low, high] = [Math.min(...ends, ...near), Math.max(...ends, ...near)];
    return { min: Math.floor(low) - 1, max: Math.ceil(high) + 1 };
  };

  // Bars get the upper part of the chart for themselves.
  const spanTop = (spec) => {
    const top = 1.7 * Math.max(...spec.lines.flatMap(({ y }) => y));
    const unit = 10 ** Math.floor(Math.log10(top));
    return Math.ceil(top / unit) * unit;
  };

  const lineConfig = (spec) => {
    const options = baseOptions();
    const datasets = lineDatasets(spec);
    const plugins = spec.spans ? [spanPlugin(spec)] : [];
    options.parsing = false;
    options.interaction = { mode: "nearest", intersect: false };
    options.scales = {
      x: axis(spec.x, {
        type: "linear",
        ...(spec.spans ? spanLimits(spec) : { max: lastOf(spec) }),
        ticks: { precision: 0 },
      }),
      y: axis(spec.y, {
        ...(spec.scale === "logarithmic"
          ? logarithmicAxis(spec, datasets)
          : {
              type: "linear",
              ...(isFlat(datasets) ? { beginAtZero: true } : { grace: "4%" }),
              ...(spec.spans ? { min: 0, max: spanTop(spec) } : {}),
              ticks: { callback: tickText(spec), ...(isPowers(spec) ? { precision: 0 } : {}) },
            }),
      }),
    };
    options.plugins.tooltip = {
      filter: (item) => !item.dataset.isEdge,
      callbacks: {
        title: (items) => (items.length > 0 ? `${spec.x} ${items[0].parsed.x}` : ""),
        label: (item) => {
          const line = spec.lines[item.dataset.index];
          const text = texts[spec.quantity];
          const band = line.low
            ? ` (${text(line.low[item.dataIndex])} to ${text(line.high[item.dataIndex])})`
            : "";
          return `${line.name}: ${text(line.y[item.dataIndex])}${band}`;
        },
      },
    };
    return { type: "line", data: { datasets }, options, plugins };
  };

  // Bars -------------------------------------------------------------------------------------------

  const barConfig = (spec) => {
    const text = texts[spec.quantity];
    const options = baseOptions();
    options.indexAxis = "y";
    options.interaction = { mode: "index", axis: "y", intersect: false };
    options.scales = {
      x: axis(spec.x, { stacked: true, ticks: { callback: (value) => short(text(value)) } }),
      y: axis("", {
        stacked: true,
        grid: { display: false },
        ticks: { autoSkip: false, font: { size: spec.bars.length > 20 ? 10 : 12 } },
      }),
    };
    options.plugins.tooltip = {
      callbacks: { label: (item) => `${item.dataset.label}: ${text(item.raw)}` },
    };
    const datasets = spec.parts.map((part, index) => ({
      index,
      label: part.name,
      data: part.values,
      backgroundColor: color(index),
      borderColor: css("--page"),
      borderWidth: { right: 1 },
      maxBarThickness: 22,
    }));
    return { type: "bar", data: { labels: spec.bars, datasets }, options };
  };

  // Legend: a button for each line or part, which hides and shows it -------------------------------

  const swatch = (entry, isBar) => {
    const canvas = element("canvas");
    canvas.setAttribute("aria-hidden", "true");
    const context = sharp(canvas, 22, 12);
    if (isBar) {
      context.fillStyle = color(entry.color);
      context.fillRect(0, 1, 22, 10);
      return canvas;
    }
    context.lineWidth = 2;
    context.strokeStyle = color(entry.color);
    context.beginPath();
    if (entry.style === "crosses") {
      context.strokeStyle = css("--c4");
      context.moveTo(7, 2);
      context.lineTo(15, 10);
      context.moveTo(7, 10);
      context.lineTo(15, 2);
    } else {
      context.setLineDash(entry.style === "dashes" ? [5, 4] : dash(entry.color));
      context.moveTo(0, 6);
      context.lineTo(22, 6);
    }
    context.stroke();
    return canvas;
  };

  const drawLegend = (figure, entries, hidden, isBar, redraw) => {
    const legend = figure.querySelector(".legend");
    const focused = [...legend.children].indexOf(document.activeElement);
    legend.replaceChildren(
      ...entries.map((entry, index) => {
        const button = element("button", { type: "button" }, swatch(entry, isBar), entry.name);
        button.setAttribute("aria-pressed", String(!hidden.has(index)));
        button.addEventListener("click", () => {
          if (!hidden.delete(index)) hidden.add(index);
          redraw();
        });
        return button;
      }),
    );
    if (focused >= 0) legend.children[focused].focus();
  };

  // Returns a function that draws, again after a change of colours.
  const chartPainter = (figure, spec) => {
    const canvas = figure.querySelector("canvas");
    const isBar = spec.kind === "bars";
    const entries = isBar
      ? spec.parts.map((part, index) => ({ name: part.name, color: index }))
      : spec.lines;
    const hidden = new Set();
    if (isBar) {
      const room = spec.bars.length > 20 ? 15 : 26;
      figure.querySelector(".plot").style.height = `${90 + room * spec.bars.length}px`;
    }
    let chart = null;
    const draw = () => {
      const config = isBar ? barConfig(spec) : lineConfig(spec);
      for (const dataset of config.data.datasets) dataset.hidden = hidden.has(dataset.index);
      if (chart) chart.destroy();
      chart = new Chart(canvas, config);
      drawLegend(figure, entries, hidden, isBar, draw);
    };
    return draw;
  };

  // Heat map ---------------------------------------------------------------------------------------

  const channels = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  const mixed = (from, to, share) =>
    `rgb(${channels(from).map((c, i) => Math.round(c + share * (channels(to)[i] - c)))})`;
  const heatColor = (goodness) => {
    const at = Math.min(Math.max(goodness, 0), 1);
    return at < 0.5
      ? mixed(css("--worst"), css("--middle"), 2 * at)
      : mixed(css("--middle"), css("--best"), 2 * at - 1);
  };
  // Colours are looked up often: so many are enough.
  const heatPalette = () => Array.from({ length: 65 }, (unused, i) => heatColor(i / 64));

  const shortened = (context, text, width) => {
    if (context.measureText(text).width <= width) return text;
    let kept = text.length;
    while (kept > 1 && context.measureText(`\u2026${text.slice(-kept)}`).width > width) --kept;
    return `\u2026${text.slice(-kept)}`;
  };

  const select = (label, names, chosen, changed) => {
    const choice = element("select");
    names.forEach((name, index) => choice.append(element("option", { value: index }, name)));
    choice.value = chosen;
    choice.addEventListener("change", () => changed(Number(choice.value)));
    return element("label", {}, label, choice);
  };

  const heatPainter = (figure, spec) => {
    const plot = figure.querySelector(".plot");
    const canvas = figure.querySelector("canvas");
    const readout = element("p", { className: "readout" });
    readout.setAttribute("aria-live", "polite");
    const choices = element("div", { className: "choices" });
    plot.before(choices);
    plot.after(readout);
    let grid = spec.first;
    let measure = 0;
    let cursor = null;
    let frame = null; // where the cells are

    const current = () => spec.grids[grid].measures[measure];

    const say = () => {
      const { rows, columns } = spec.grids[grid];
      if (!cursor) {
        readout.textContent =
          "Point at a cell, or press the arrow keys here, to read its value. Red is worse.";
        return;
      }
      const value = current().values[cursor.row][cursor.column];
      const text = value === null ? "no value" : `${value} ${current().unit}`;
      readout.textContent = `${rows[cursor.row]}, ${spec.x} ${columns[cursor.column]}: ${text}`;
    };

    const draw = () => {
      const { rows, columns } = spec.grids[grid];
      const { values, worst, best, unit } = current();
      const width = Math.max(plot.clientWidth, 200);
      const rowHeight = rows.length > 40 ? 12 : 16;
      const legendHeight = 34;
      const bottom = 38;
      const height = legendHeight + rows.length * rowHeight + bottom;
      plot.style.height = `${height}px`;
      const context = sharp(canvas, width, height);
      context.font = `${rowHeight - 4 < 11 ? 10 : 12}px sans-serif`;
      const widest = Math.max(...rows.map((row) => context.measureText(row).width));
      const left = Math.min(widest + 8, width * 0.4);
      const cellWidth = (width - left - 2) / columns.length;
      frame = { left, top: legendHeight, cellWidth, rowHeight, rows, columns };

      const palette = heatPalette();
      const paletteAt = (value) =>
        palette[Math.round(64 * Math.min(Math.max((value - worst) / (best - worst), 0), 1))];
      const text = css("--text");
      context.textBaseline = "middle";

      // The colours and what they stand for.
      const legendWidth = Math.min(260, width - 140);
      palette.forEach((fill, i) => {
        context.fillStyle = fill;
        context.fillRect(60 + (legendWidth * i) / 65, 4, legendWidth / 65 + 1, 12);
      });
      context.fillStyle = text;
      context.textAlign = "right";
      context.fillText(`${worst} ${unit}`, 54, 10);
      context.textAlign = "left";
      context.fillText(`${best} ${unit}`, 66 + legendWidth, 10);

      rows.forEach((row, r) => {
        const y = legendHeight + r * rowHeight;
        context.fillStyle = text;
        context.textAlign = "right";
        context.fillText(shortened(context, row, left - 8), left - 6, y + rowHeight / 2);
        columns.forEach((unused, c) => {
          const value = values[r][c];
          const x = left + c * cellWidth;
          const gap = cellWidth > 4 ? 1 : 0;
          if (value === null) {
            context.strokeStyle = css("--rule");
            context.lineWidth = 1;
            context.strokeRect(x + 0.5, y + 0.5, cellWidth - gap - 1, rowHeight - 2);
          } else {
            context.fillStyle = paletteAt(value);
            context.fillRect(x, y, cellWidth - gap + (gap ? 0 : 0.5), rowHeight - 1);
          }
        });
      });

      // As many labels as there is room for.
      context.fillStyle = css("--quiet");
      context.textAlign = "center";
      const labelWidth = Math.max(...columns.map((name) => context.measureText(name).width)) + 14;
      const every = Math.max(1, Math.ceil(labelWidth / cellWidth));
      const under = legendHeight + rows.length * rowHeight;
      columns.forEach((name, c) => {
        if (c % every === 0) {
          const half = context.measureText(name).width / 2;
          const x = Math.min(left + (c + 0.5) * cellWidth, width - half);
          context.fillText(name, Math.max(x, half), under + 10);
        }
      });
      context.fillText(spec.x, left + (width - left) / 2, under + 27);

      if (cursor) {
        context.strokeStyle = text;
        context.lineWidth = 2;
        context.strokeRect(
          left + cursor.column * cellWidth,
          legendHeight + cursor.row * rowHeight,
          Math.max(cellWidth, 3),
          rowHeight,
        );
      }
      say();
    };

    const move = (row, column) => {
      const clamp = (value, count) => Math.min(Math.max(value, 0), count - 1);
      cursor = { row: clamp(row, frame.rows.length), column: clamp(column, frame.columns.length) };
      draw();
    };
    canvas.tabIndex = 0;
    canvas.addEventListener("mousemove", (event) => {
      const column = Math.floor((event.offsetX - frame.left) / frame.cellWidth);
      const row = Math.floor((event.offsetY - frame.top) / frame.rowHeight);
      const isInside =
        row >= 0 && row < frame.rows.length && column >= 0 && column < frame.columns.length;
      if (isInside && !(cursor && cursor.row === row && cursor.column === column)) {
        move(row, column);
      }
    });
    canvas.addEventListener("keydown", (event) => {
      const steps = {
        ArrowLeft: [0, -1],
        ArrowRight: [0, 1],
        ArrowUp: [-1, 0],
        ArrowDown: [1, 0],
      };
      const step = steps[event.key];
      if (step) {
        event.preventDefault();
        move(cursor ? cursor.row + step[0] : 0, cursor ? cursor.column + step[1] : 0);
      }
    });

    const measureChoice = () =>
      select(
        "Measure",
        spec.grids[grid].measures.map((one) => one.name),
        0,
        (index) => {
          measure = index;
          draw();
        },
      );
    let measures = measureChoice();
    if (spec.grids.length > 1) {
      choices.append(
        select(
          "Run",
          spec.grids.map((one) => one.name),
          grid,
          (index) => {
            grid = index;
            measure = 0;
            cursor = null;
            const fresh = measureChoice();
            measures.replaceWith(fresh);
            measures = fresh;
            draw();
          },
        ),
      );
    }
    choices.append(measures);
    let drawnWidth = 0;
    new ResizeObserver(() => {
      if (plot.clientWidth !== drawnWidth) {
        drawnWidth = plot.clientWidth;
        draw();
      }
    }).observe(plot);
    return draw;
  };

  // Tables -----------------------------------------------------------------------------------------

  const sortValue = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.number === undefined ? null : Number(cell.dataset.number);
  };

  const compareRows = (column, isNumber) => (a, b) => {
    if (!isNumber) {
      return a.cells[column].textContent.localeCompare(b.cells[column].textContent, "en", {
        numeric: true,
      });
    }
    const [x, y] = [sortValue(a, column), sortValue(b, column)];
    return x - y;
  };

  // Equal rows keep their order; what is not known stays at the end.
  const sortTable = (table, column) => {
    const head = table.tHead.rows[0].cells[column];
    const isNumber = head.classList.contains("number");
    const isAscending = head.getAttribute("aria-sort") !== "ascending";
    const rows = [...table.tBodies[0].rows];
    const isUnknown = (row) => isNumber && sortValue(row, column) === null;
    const known = rows.filter((row) => !isUnknown(row));
    const compare = compareRows(column, isNumber);
    known.sort(isAscending ? compare : (a, b) => compare(b, a));
    table.tBodies[0].append(...known, ...rows.filter(isUnknown));
    for (const cell of table.tHead.rows[0].cells) cell.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", isAscending ? "ascending" : "descending");
  };

  const makeSortable = (table) => {
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      const button = element("button", { type: "button" }, ...head.childNodes);
      button.addEventListener("click", () => sortTable(table, column));
      head.append(button);
    });
  };

  // ------------------------------------------------------------------------------------------------

  const fail = (error) => {
    const note = element(
      "p",
      { className: "failure" },
      `The charts could not be drawn: ${error}. All their figures are in the tables.`,
    );
    note.setAttribute("role", "alert");
    document.querySelector("main").prepend(note);
    root.dataset.state = "failed";
  };

  const start = () => {
    const specs = JSON.parse(document.getElementById("charts").textContent);
    const painters = specs.map((spec) => {
      const figure = document.getElementById(`chart-${spec.id}`);
      return spec.kind === "heat" ? heatPainter(figure, spec) : chartPainter(figure, spec);
    });
    const drawAll = () => painters.forEach((draw) => draw());
    Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
    document.querySelectorAll("table").forEach(makeSortable);
    drawAll();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
    window.addEventListener("beforeprint", () => {
      root.classList.add("printing");
      drawAll();
    });
    window.addEventListener("afterprint", () => {
      root.classList.remove("printing");
      drawAll();
    });
    root.dataset.state = "drawn";
  };

  try {
    start();
  } catch (error) {
    fail(error.message);
  }
})();
