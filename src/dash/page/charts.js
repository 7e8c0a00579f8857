/* SPDX-License-Identifier: Apache-2.0
 *
 * charts.js - one chart: lines with the range that their points have, and what happened on the way.
 *
 * A card holds the name, the newest value, the drawing and a line of figures. The drawing can be
 * reached by keyboard: arrow keys go from point to point, which is said aloud.
 */
'use strict';

const palette = {
  light: ['#12697c', '#c2571a', '#5b4bb5', '#2e7d32', '#a8275a', '#6d5a00', '#1d6fd1', '#7a4a2b'],
  dark: ['#5cc2d6', '#f0975c', '#a99bf5', '#7fcf86', '#f285b2', '#d8c14a', '#7db4ff', '#c9a083'],
};

function isDark() {
  return document.documentElement.dataset.theme === 'dark';
}

function colour(i) {
  const colours = isDark() ? palette.dark : palette.light;
  return colours[i % colours.length];
}

function shade(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/* Deaths, new attempts and checkpoints, where they lie on the x axis. */
const happenings = {
  id: 'happenings',
  beforeDatasetsDraw(chart) {
    const {ctx, chartArea: area, scales: {x}} = chart;
    ctx.save();
    for (const m of chart.config.options.marks || []) {
      if (m.x < x.min || m.x > x.max) continue;
      const at = Math.round(x.getPixelForValue(m.x)) + 0.5;
      ctx.beginPath();
      ctx.strokeStyle = shade(m.kind === 'lost' ? '--bad' : m.kind === 'attempt' ? '--accent' : '--soft');
      ctx.setLineDash(m.kind === 'attempt' ? [4, 3] : []);
      ctx.moveTo(at, m.kind === 'checkpoint' ? area.bottom - 7 : area.top);
      ctx.lineTo(at, area.bottom);
      ctx.stroke();
    }
    ctx.restore();
  },
};

/* counts: its values are whole; shown: there are some. */
function axisOf(kind, log, format, {fromZero, counts, shown}) {
  return {
    display: shown,
    type: log ? 'logarithmic' : 'linear', bounds: kind === 'y' ? 'ticks' : 'data', beginAtZero: fromZero,
    // From 0, unless most of the axis would be empty.
    afterDataLimits: (axis) => { if (kind === 'x' && axis.min > 0 && axis.min < axis.max / 5) axis.min = 0; },
    // The end of the data is no round number: it has a tick only where there is room.
    afterBuildTicks: (axis) => {
      const t = axis.ticks;
      if (kind === 'x' && t.length > 2 && t[t.length - 1].value - t[t.length - 2].value < 0.9 * (t[1].value - t[0].value)) t.pop();
    },
    grid: {color: shade('--line'), drawBorder: false, tickLength: 0},
    ticks: {
      color: shade('--soft'), maxRotation: 0, autoSkipPadding: 24, padding: 6, font: {size: 11},
      maxTicksLimit: kind === 'y' ? 6 : 7, ...(counts ? {precision: 0} : {}),
      callback: (v) => format(v, 3),
    },
  };
}

class ChartCard {
  /* format: of its values; fromZero: the axis begins there. */
  constructor(name, format = number, fromZero = false) {
    this.name = name;
    this.format = format;
    this.fromZero = fromZero;
    this.now = el('span', {class: 'now'});
    this.canvas = el('canvas', {role: 'img', tabindex: '0'});
    this.below = el('footer');
    this.root = el('section', {class: 'card chart', 'aria-label': name},
      el('header', null, el('h3', null, name), this.now), el('div', {class: 'draw'}, this.canvas), this.below);
    this.canvas.addEventListener('keydown', (e) => this.onKey(e));
    this.canvas.addEventListener('blur', () => this.point(-1));
    this.at = -1;
  }

  /* lines: [{label, colour, points: [{x, y, low, high}]}] */
  update(lines, {byTime, log, marks, now, figures}) {
    this.lines = lines;
    this.byTime = byTime;
    setText(this.now, now);
    this.below.replaceChildren(...figures);
    this.canvas.setAttribute('aria-label', this.describe());
    const datasets = lines.flatMap((line, i) => this.datasetsOf(line, lines.length));
    const wanted = JSON.stringify([byTime, log, isDark(), datasets.length, this.isEmpty()]);
    if (this.chart && this.shape === wanted) {
      datasets.forEach((d, i) => Object.assign(this.chart.data.datasets[i], d));
      this.chart.options.marks = marks;
      this.chart.update('none');
      return;
    }
    this.destroy();
    this.shape = wanted;
    this.chart = new Chart(this.canvas, {
      type: 'line', data: {datasets}, plugins: [happenings], options: this.options(byTime, log, marks),
    });
    if (!performance.getEntriesByName('first-chart').length) performance.mark('first-chart'); // bench/dash.py
  }

  options(byTime, log, marks) {
    return {
      marks, animation: false, parsing: false, normalized: true, maintainAspectRatio: false,
      interaction: {mode: 'nearest', axis: 'x', intersect: false},
      elements: {point: {radius: 0, hitRadius: 8, hoverRadius: 3}, line: {borderWidth: 1.6, tension: 0}},
      scales: {
        x: axisOf('x', false, byTime ? duration : whole, {counts: !byTime, shown: !this.isEmpty()}),
        y: axisOf('y', log, this.format, {fromZero: this.fromZero, shown: !this.isEmpty()}),
      },
      plugins: {
        legend: {display: false},
        tooltip: {
          filter: (item) => item.dataset.label !== undefined, displayColors: this.lines.length > 1,
          callbacks: {title: (items) => (items.length ? this.where(items[0].parsed.x) : ''), label: (item) => this.value(item)},
        },
      },
    };
  }

  /* Nothing that could be drawn: there are no points, or none is finite. */
  isEmpty() {
    return !this.lines.some((line) => line.points.some((p) => Number.isFinite(p.y)));
  }

  datasetsOf(line, count) {
    const main = {label: line.label, data: line.points, borderColor: line.colour, backgroundColor: line.colour, fill: false};
    if (line.stepped) main.stepped = true;
    if (line.width) main.borderWidth = line.width;
    main.pointRadius = line.points.length === 1 ? 3 : 0;
    const wide = line.points.some((p) => p.low !== p.high);
    if (!wide || count > 4) return [main];
    const edge = {borderWidth: 0, pointRadius: 0, pointHoverRadius: 0, backgroundColor: `${line.colour}2e`};
    return [
      {...edge, data: line.points.map((p) => ({x: p.x, y: p.low})), fill: false},
      {...edge, data: line.points.map((p) => ({x: p.x, y: p.high})), fill: '-1'},
      main,
    ];
  }

  where(x) {
    return this.byTime ? `after ${duration(x)}` : `iteration ${whole(x)}`;
  }

  value(item) {
    const p = item.raw;
    const range = p.low !== p.high ? ` (${this.format(p.low)} to ${this.format(p.high)})` : '';
    return `${item.dataset.label}: ${this.format(p.y)}${range}`;
  }

  describe() {
    const said = this.lines.slice(0, 4).map((line) => {
      const last = line.points[line.points.length - 1];
      return last ? `${line.label} ${this.format(last.y)} at ${this.where(last.x)}` : `${line.label} empty`;
    });
    return `Line chart of ${this.name}, ${this.lines.length} line${this.lines.length === 1 ? '' : 's'}. ${said.join('; ')}. Arrow keys read points.`;
  }

  onKey(e) {
    const points = this.lines && this.lines[0] ? this.lines[0].points : [];
    const step = {ArrowRight: 1, ArrowLeft: -1, PageDown: 20, PageUp: -20, Home: -Infinity, End: Infinity}[e.key];
    if (step === undefined || points.length === 0) return;
    e.preventDefault();
    const from = this.at < 0 ? points.length - 1 - step : this.at;
    this.point(Math.max(0, Math.min(points.length - 1, from + step)));
  }

  /* Shows point i of the first line as if the mouse were there; -1: none. */
  point(i) {
    this.at = i;
    const line = this.lines && this.lines[0];
    if (!this.chart || !line) return;
    const dataset = this.chart.data.datasets.findIndex((d) => d.label === line.label);
    const active = i < 0 ? [] : [{datasetIndex: dataset, index: i}];
    this.chart.setActiveElements(active);
    this.chart.tooltip.setActiveElements(active, {x: 0, y: 0});
    this.chart.update('none');
    if (i >= 0) setText(document.getElementById('said'), `${this.where(line.points[i].x)}: ${this.format(line.points[i].y)}`);
  }

  destroy() {
    if (this.chart) this.chart.destroy();
    this.chart = null;
  }
}

/* Cards by name, made when first needed, in a grid. */
class ChartGrid {
  constructor() {
    this.root = el('div', {class: 'charts'});
    this.cards = new Map();
  }

  card(name, format, title = name, fromZero = false) {
    let card = this.cards.get(name);
    if (!card) {
      card = new ChartCard(title, format, fromZero);
      this.cards.set(name, card);
      this.root.append(card.root);
    }
    return card;
  }

  destroy() {
    for (const card of this.cards.values()) card.destroy();
  }
}

/* A group of buttons of which one is pressed. */
function choice(label, options, chosen, onchange) {
  const group = el('span', {class: 'group', role: 'group', 'aria-label': label});
  for (const [value, text] of options)
    group.append(el('button', {
      type: 'button', 'data-value': value, 'aria-pressed': String(value === chosen),
      onclick: (e) => {
        for (const b of group.children) b.setAttribute('aria-pressed', String(b === e.currentTarget));
        onchange(value);
      },
    }, text));
  return group;
}
