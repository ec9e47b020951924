// Draws every figure of the page with Chart.js, and again when the reader changes between light and dark.
"use strict";
(() => {
  const DASHES = [[], [8, 4], [2, 3]];
  const FONT = { family: "system-ui, sans-serif", size: 12 };
  const variable = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const colourOf = (mark) => variable(`--mark-${mark.colour}`);

  // The filling of a bar: its colour, or a pattern of it, as its curve is solid, dashed or dotted.
  const fillOf = (mark) => {
    const colour = colourOf(mark);
    if (mark.pattern === 0) return colour;
    const tile = document.createElement("canvas");
    tile.width = tile.height = 8;
    const paint = tile.getContext("2d");
    paint.fillStyle = paint.strokeStyle = colour;
    if (mark.pattern === 1) {
      paint.lineWidth = 3;
      for (const shift of [-8, 0, 8]) {
        paint.beginPath();
        paint.moveTo(shift - 1, 9);
        paint.lineTo(shift + 9, -1);
        paint.stroke();
      }
    } else {
      for (const [x, y] of [[2, 2], [6, 6]]) {
        paint.beginPath();
        paint.arc(x, y, 1.8, 0, 2 * Math.PI);
        paint.fill();
      }
    }
    return paint.createPattern(tile, "repeat");
  };

  const axisOf = (drawn, extra) => ({
    type: drawn.logarithmic ? "logarithmic" : "linear",
    min: drawn.min,
    max: drawn.max,
    title: { display: true, text: drawn.title, color: variable("--dim"), font: FONT },
    grid: { color: variable("--line") },
    border: { color: variable("--line") },
    ticks: {
      color: variable("--dim"),
      font: FONT,
      maxRotation: 0,
      autoSkipPadding: 8,
      callback: (value) => drawn.ticks.find((tick) => tick.value === value)?.label ?? "",
    },
    afterBuildTicks: (axis) => { axis.ticks = drawn.ticks.map(({ value }) => ({ value })); },
    ...extra,
  });

  const tooltipOf = (label) => ({
    backgroundColor: variable("--background"),
    borderColor: variable("--dim"),
    borderWidth: 1,
    bodyColor: variable("--text"),
    titleColor: variable("--text"),
    displayColors: false,
    callbacks: { title: () => "", label },
  });

  // Each bar's figure behind it; for what was not measured, why.
  const figures = (bars) => ({
    id: "figures",
    afterDatasetsDraw: (chart) => {
      const paint = chart.ctx;
      paint.save();
      paint.font = `${FONT.size}px ${FONT.family}`;
      paint.textBaseline = "middle";
      chart.getDatasetMeta(0).data.forEach((element, index) => {
        const bar = bars[index];
        const measured = bar.value !== null;
        paint.fillStyle = variable(measured ? "--text" : "--dim");
        const x = measured ? Math.max(element.x, chart.chartArea.left) : chart.chartArea.left;
        paint.fillText(bar.text, x + 6, chart.scales.y.getPixelForValue(index));
      });
      paint.restore();
    },
  });

  const widest = (canvas, texts) => {
    const paint = canvas.getContext("2d");
    paint.font = `${FONT.size}px ${FONT.family}`;
    return Math.max(0, ...texts.map((text) => paint.measureText(text).width));
  };

  const barsOf = (canvas, data) => {
    const room = widest(canvas, data.bars.filter((bar) => bar.value !== null).map((bar) => bar.text));
    return {
      type: "bar",
      data: {
        labels: data.bars.map((bar) => bar.label),
        datasets: [{
          data: data.bars.map((bar) => bar.value),
          backgroundColor: data.bars.map((bar) => fillOf(bar.mark)),
          borderColor: data.bars.map((bar) => colourOf(bar.mark)),
          borderWidth: 1,
          minBarLength: 2,
          barThickness: 12,
        }],
      },
      options: {
        indexAxis: "y",
        layout: { padding: { right: room + 10 } },
        scales: {
          x: axisOf(data.axis),
          y: {
            grid: { display: false },
            border: { color: variable("--line") },
            ticks: { color: variable("--text"), font: FONT, autoSkip: false, crossAlign: "far" },
          },
        },
        plugins: { tooltip: tooltipOf((item) => `${item.label}: ${data.bars[item.dataIndex].text}`) },
      },
      plugins: [figures(data.bars)],
    };
  };

  const curvesOf = (data) => ({
    type: "line",
    data: {
      datasets: data.curves.map((curve) => ({
        label: curve.label,
        data: curve.points.map(([x, y]) => ({ x, y })),
        borderColor: colourOf(curve.mark),
        backgroundColor: colourOf(curve.mark),
        borderDash: DASHES[curve.mark.pattern],
        borderWidth: 2,
        pointRadius: 0,
        pointHitRadius: 6,
      })),
    },
    options: {
      interaction: { mode: "nearest", intersect: false },
      scales: { x: axisOf(data.x), y: axisOf(data.y) },
      plugins: {
        tooltip: tooltipOf((item) => `${item.dataset.label}: ${data.curves[item.datasetIndex].texts[item.dataIndex]}`),
      },
    },
  });

  const draw = (figure) => {
    const canvas = figure.querySelector("canvas");
    const data = JSON.parse(figure.querySelector("script").textContent);
    const config = data.kind === "bars" ? barsOf(canvas, data) : curvesOf(data);
    Object.assign(config.options, { animation: false, responsive: true, maintainAspectRatio: false });
    config.options.plugins.legend = { display: false };
    const chart = new Chart(canvas, config);
    figure.querySelector("details").open = false;
    return chart;
  };

  document.documentElement.classList.add("drawn");
  const elements = [...document.querySelectorAll("figure.chart")];
  let charts = elements.map(draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    charts.forEach((chart) => chart.destroy());
    charts = elements.map(draw);
  });
  addEventListener("beforeprint", () => charts.forEach((chart) => chart.resize()));
})();
