// What a development server is doing: its metrics, once a second, and commands with its address.
'use strict';

const INTERVAL_MS = 1000;
// Values that a curve shows: two minutes.
const CURVE_LENGTH = 120;

// Gauges are shown as they are, counters as their growth per second.
const FIGURES = [
  { title: 'connections', metric: 'myriad_connections' },
  { title: 'channels', metric: 'myriad_channels' },
  { title: 'commands of clients', metric: 'myriad_commands_total', perSecond: true },
  { title: 'publications', metric: 'myriad_publications_total', perSecond: true },
  { title: 'deliveries', metric: 'myriad_deliveries_total', perSecond: true },
  { title: 'sent', metric: 'myriad_sent_bytes_total', perSecond: true, isBytes: true },
];

const state = document.getElementById('state');
const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });

for (const code of document.querySelectorAll('[data-command]')) {
  code.textContent = code.textContent.replaceAll('HOST', location.host);
}

for (const figure of FIGURES) {
  const tile = document.createElement('div');
  const title = document.createElement('dt');
  title.textContent = figure.title;
  figure.value = document.createElement('dd');
  figure.value.dataset.metric = figure.metric;
  const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
  svg.setAttribute('viewBox', `0 0 ${CURVE_LENGTH - 1} 30`);
  svg.setAttribute('preserveAspectRatio', 'none');
  svg.setAttribute('aria-hidden', 'true');
  figure.curve = document.createElementNS('http://www.w3.org/2000/svg', 'polyline');
  svg.append(figure.curve);
  tile.append(title, figure.value, svg);
  document.getElementById('figures').append(tile);
  figure.values = [];
}

// Samples without labels of the Prometheus text format, by name.
function parseMetrics(text) {
  const samples = new Map();
  for (const [, name, value] of text.matchAll(/^([a-z_]+) (\S+)$/gm)) samples.set(name, Number(value));
  return samples;
}

function bytes(value) {
  const units = ['B', 'KiB', 'MiB', 'GiB'];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${value.toFixed(unit ? 1 : 0)} ${units[unit]}`;
}

function show(figure, value) {
  figure.value.textContent = (figure.isBytes ? bytes(value) : whole.format(value)) + (figure.perSecond ? '/s' : '');
  figure.values.push(value);
  if (figure.values.length > CURVE_LENGTH) figure.values.shift();
  const highest = Math.max(...figure.values, 1);
  const first = CURVE_LENGTH - figure.values.length;
  const points = figure.values.map((value, index) => `${first + index},${29 - (28 * value) / highest}`);
  figure.curve.setAttribute('points', points.join(' '));
}

let before = null;

async function look() {
  try {
    const answer = await fetch('metrics', { cache: 'no-store', signal: AbortSignal.timeout(5000) });
    if (!answer.ok) throw new Error(`GET /metrics: status ${answer.status}`);
    const now = { samples: parseMetrics(await answer.text()), at: performance.now() };
    for (const figure of FIGURES) {
      const value = now.samples.get(figure.metric);
      if (value === undefined) continue;
      if (!figure.perSecond) show(figure, value);
      // A server that has started again counts from zero.
      else if (before) show(figure, Math.max(0, value - before.samples.get(figure.metric)) / ((now.at - before.at) / 1000));
    }
    before = now;
    state.dataset.state = 'live';
    state.textContent = '';
  } catch (error) {
    before = null;
    state.dataset.state = 'lost';
    state.textContent = `does not answer: ${error.message}`;
  }
  setTimeout(look, INTERVAL_MS);
}

look();
