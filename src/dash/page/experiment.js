/* SPDX-License-Identifier: Apache-2.0
 *
 * experiment.js - a tuning experiment: the best value so far, parallel coordinates, its trials.
 */
'use strict';

const maxCurves = 40; // trials with a line in the chart
const maxRows = 500; // … and in the table

class Experiment {
  constructor(name) {
    this.name = name;
    this.trials = new Map();
  }

  take(event) {
    if (event.anew) this.trials.clear();
    this.received = performance.now();
    this.facts = event;
    if (event.head) this.head = event.head;
    for (const t of event.trials) this.trials.set(t.trial, {...t, flat: new Map(flatten(t.config || {}))});
  }

  now() {
    return this.facts.now + (performance.now() - this.received) / 1000;
  }

  elapsed() {
    return (this.facts.state === 'running' ? this.now() : this.facts.end) - this.facts.begin;
  }

  list() {
    return [...this.trials.values()].sort((a, b) => a.trial - b.trial);
  }

  /* Names in configs whose values are not all the same. */
  varying() {
    const seen = new Map();
    for (const t of this.trials.values())
      for (const [key, value] of t.flat) {
        if (!seen.has(key)) seen.set(key, new Set());
        seen.get(key).add(JSON.stringify(value));
      }
    return [...seen].filter(([, values]) => values.size > 1).map(([key]) => key);
  }

  /* The best first; those without a value last. */
  ranked() {
    const sign = this.head && this.head.maximize ? -1 : 1;
    return this.list().filter((t) => t.best !== null).sort((a, b) => sign * (a.best - b.best));
  }
}

/* One axis of the parallel coordinates: where a value lies on it, from 0 to 1. */
function axisFor(values) {
  const numbers = values.filter((v) => typeof v === 'number');
  if (numbers.length === values.length) {
    const low = Math.min(...numbers), high = Math.max(...numbers);
    const log = low > 0 && high / low > 50;
    const scale = log ? Math.log : (x) => x;
    const span = scale(high) - scale(low) || 1;
    return {at: (v) => (scale(v) - scale(low)) / span, ends: [number(low, 3), number(high, 3)]};
  }
  const words = [...new Set(values.map((v) => plainValue(v)))].sort();
  return {at: (v) => (words.length > 1 ? words.indexOf(plainValue(v)) / (words.length - 1) : 0.5), words};
}

class ParallelCoordinates {
  constructor() {
    this.draw = svg('svg', {role: 'img', class: 'parallel', viewBox: '0 0 1000 320'});
    this.root = el('div', {class: 'card axis'}, this.draw);
  }

  update(e) {
    const metric = e.head ? e.head.metric : '';
    const trials = e.ranked();
    const keys = e.varying();
    this.root.hidden = trials.length < 2 || keys.length === 0;
    if (this.root.hidden) return;
    const columns = [...keys.map((key) => ({key, of: (t) => t.flat.get(key)})), {key: metric, of: (t) => t.best}];
    const x = (i) => 60 + (880 * i) / (columns.length - 1);
    const y = (part) => 270 - 220 * part;
    const axes = columns.map((c) => axisFor(trials.map(c.of).filter((v) => v !== undefined && v !== null)));
    const lines = [...trials].reverse().map((t, i) => this.line(t, i / Math.max(1, trials.length - 1), columns, axes, x, y));
    const fits = Math.max(4, Math.floor(880 / (columns.length - 1) / 9)); // characters between two axes
    this.draw.replaceChildren(...lines, ...columns.flatMap((c, i) => this.axis(c.key, axes[i], x(i), y, fits)));
    this.draw.setAttribute('aria-label', `Parallel coordinates of ${trials.length} trials over ${keys.join(', ')}. The best is trial ${trials[0].trial} with ${metric} ${number(trials[0].best)}. The table has all values.`);
  }

  line(t, rank, columns, axes, x, y) {
    const points = [];
    columns.forEach((c, i) => {
      const v = c.of(t);
      if (v !== undefined && v !== null) points.push(`${x(i).toFixed(1)},${y(axes[i].at(v)).toFixed(1)}`);
    });
    const line = svg('polyline', {points: points.join(' '), class: rank === 1 ? 'trial best' : 'trial'}, svg('title', {}, ''));
    line.style.opacity = String(0.12 + 0.6 * rank * rank);
    line.firstChild.textContent = `trial ${t.trial}: ${number(t.best)}`;
    return line;
  }

  axis(name, axis, x, y, fits) {
    const text = (label, at, cls) => {
      const whole = svg('title', {});
      const t = svg('text', {x, y: at, 'text-anchor': 'middle', class: cls || ''}, label.length > fits ? `${label.slice(0, fits - 1)}…` : label, whole);
      whole.textContent = label;
      return t;
    };
    const labels = axis.words
      ? axis.words.slice(0, 8).map((w) => text(w, y(axis.at(w)) - 5))
      : [text(axis.ends[0], y(0) + 18), text(axis.ends[1], y(1) - 8)];
    return [svg('line', {class: 'stem', x1: x, x2: x, y1: y(0), y2: y(1)}), text(name, 312, 'name'), ...labels];
  }
}

class ExperimentView {
  constructor(root, name) {
    this.root = root;
    this.data = new Experiment(name);
    this.sort = {key: 'trial', up: true};
    this.stop = follow(eventsOf([name]), (e) => this.take(e), (why) => showRefusal(root, why));
    this.timer = setInterval(() => this.data.facts && this.drawFacts(), 1000);
    root.replaceChildren(el('p', {class: 'soft', role: 'status'}, 'Reading the experiment …'));
  }

  destroy() {
    this.stop();
    clearInterval(this.timer);
    if (this.grid) this.grid.destroy();
  }

  take(event) {
    this.data.take(event);
    if (!this.grid) this.build();
    this.draw();
  }

  build() {
    this.state = el('span');
    this.sub = el('p', {class: 'sub mono'});
    this.notice = el('div', {class: 'notice bad', hidden: true});
    this.facts = new Facts();
    this.grid = new ChartGrid();
    this.coordinates = new ParallelCoordinates();
    this.head = el('tr');
    this.body = el('tbody');
    this.more = el('p', {class: 'soft'});
    this.none = el('div', {class: 'card empty'}, el('strong', null, 'No results yet'), 'They appear when the first trial reports.');
    this.root.replaceChildren(
      el('div', {class: 'title'}, el('h1', null, this.data.name), this.state), this.sub, this.facts.root, this.notice,
      section('Progress', this.none, this.grid.root),
      section('Parameters', this.coordinates.root),
      section('Trials', el('div', {class: 'card scroll tall', tabindex: '0', role: 'region', 'aria-label': 'Trials'}, el('table', null, el('caption', {class: 'hidden'}, 'Trials'), el('thead', null, this.head), this.body)), this.more));
  }

  draw() {
    this.drawFacts();
    this.drawFailures();
    this.drawCharts();
    this.coordinates.update(this.data);
    this.drawTable();
  }

  /* What failed trials say, those that say the same together. */
  drawFailures() {
    const by = new Map();
    for (const t of this.data.list()) {
      if (t.state !== 'failed' || !t.message) continue;
      by.set(t.message, [...(by.get(t.message) || []), t.trial]);
    }
    this.notice.hidden = by.size === 0;
    this.notice.replaceChildren(...[...by].slice(0, 3).flatMap(([message, trials]) => [
      el('strong', null, trials.length === 1 ? `Trial ${trials[0]} failed` : `${trials.length} trials failed: ${trials.slice(0, 5).join(', ')}${trials.length > 5 ? ', …' : ''}`),
      el('pre', null, message)]), by.size > 3 ? el('p', {class: 'soft'}, `… and ${by.size - 3} other errors; the rows of the table have them.`) : '');
  }

  drawFacts() {
    const {data: e, data: {facts: f}} = this;
    if (this.state.dataset.word !== f.state) {
      this.state.dataset.word = f.state;
      this.state.replaceChildren(stateOf(f.state));
    }
    const head = e.head || {};
    setText(this.sub, `${(head.argv || []).join(' ')}  ·  began ${clock(f.begin)}`);
    const s = f.trial_states;
    const done = s.finished + s.stopped + s.failed;
    this.facts.set([
      ['Trials done', whole(done), f.total > 0 ? `of ${whole(f.total)}` : `${whole(e.trials.size)} begun`],
      [f.best ? `Best ${f.best.metric}` : 'Best', f.best ? number(f.best.value) : '–', f.best ? `trial ${f.best.trial}` : ''],
      ['Running', whole(s.running), `${s.pending} waiting, ${s.paused} paused`],
      ['Stopped early', whole(s.stopped), ''],
      ['Failed', whole(s.failed), ''],
      [f.state === 'running' ? 'Running for' : 'Took', duration(e.elapsed()), ''],
      ['Searcher', head.searcher || '–', `scheduler ${head.scheduler || '–'}`],
    ]);
  }

  drawCharts() {
    const {data: e, data: {facts: f}} = this;
    this.none.hidden = f.steps.length > 0;
    if (f.steps.length === 0) return;
    const metric = e.head ? e.head.metric : '';
    const best = f.steps.map((s) => ({x: s.t, y: s.value, low: s.value, high: s.value}));
    const last = best[best.length - 1];
    best.push({...last, x: Math.max(last.x, e.elapsed())});
    const steps = [{label: 'best', colour: colour(0), points: best, stepped: true}];
    this.grid.card('best', number, `Best ${metric} so far`).update(steps,
      {byTime: true, log: this.isWide(steps), marks: [], now: number(last.y), figures: [el('span', null, `${f.steps.length} improvements, the last by trial ${f.steps[f.steps.length - 1].trial}`)]});
    const trials = e.ranked().slice(0, maxCurves);
    const lines = trials.map((t, i) => ({
      label: `trial ${t.trial}`, colour: i === 0 ? colour(0) : shade('--soft'), width: i === 0 ? 2.2 : 0.7,
      points: t.mean.map((y, k) => ({x: t.x0 + k * t.w, y, low: y, high: y})).filter((p) => p.y !== null),
    }));
    this.grid.card('curves', number, `${metric} by trial`).update(lines,
      {byTime: false, log: this.isWide(lines), marks: [], now: '', figures: [el('span', null, `the best ${lines.length} of ${e.trials.size} trials, the first of them in colour`)]});
  }

  /* Values of several orders of magnitude have a logarithmic axis. */
  isWide(lines) {
    const values = lines.flatMap((l) => l.points.map((p) => p.y));
    const low = Math.min(...values);
    return low > 0 && Math.max(...values) / low > 1000;
  }

  columns() {
    return [['trial', 'Trial', (t) => t.trial], ['state', 'State', (t) => t.state], ['best', 'Best', (t) => t.best],
      ['last', 'Last', (t) => t.last], ['iteration', 'Iteration', (t) => t.iteration],
      ['time', 'Time', (t) => (t.began ? (t.ended || this.data.now()) - t.began : null)],
      ...this.data.varying().map((key) => [`config/${key}`, key, (t) => t.flat.get(key)])];
  }

  sortBy(key) {
    this.sort = {key, up: this.sort.key === key ? !this.sort.up : true};
    this.drawTable();
  }

  drawTable() {
    const columns = this.columns();
    const names = columns.map(([key]) => key).join();
    if (this.names !== names) {
      this.names = names;
      this.head.replaceChildren(...columns.map(([key, title]) => el('th', {scope: 'col', 'data-key': key}, el('button', {type: 'button', onclick: () => this.sortBy(key)}, title))));
    }
    for (const th of this.head.children)
      th.setAttribute('aria-sort', th.dataset.key !== this.sort.key ? 'none' : this.sort.up ? 'ascending' : 'descending');
    const of = (columns.find(([key]) => key === this.sort.key) || columns[0])[2];
    const sign = this.sort.up ? 1 : -1;
    const empty = (v) => v === null || v === undefined;
    const rows = this.data.list().sort((a, b) => {
      const x = of(a), y = of(b);
      if (empty(x) || empty(y)) return empty(x) - empty(y);
      return (x < y ? -sign : x > y ? sign : 0) || a.trial - b.trial;
    });
    const champion = this.data.ranked()[0];
    this.body.replaceChildren(...rows.slice(0, maxRows).map((t) => this.row(t, columns, t === champion)));
    setText(this.more, rows.length > maxRows ? `The first ${maxRows} of ${rows.length} trials; sort to see others.` : '');
  }

  row(t, columns, champion) {
    return el('tr', {title: t.message || null}, ...columns.map(([key, , of]) => {
      const v = of(t);
      if (key === 'trial') return el('th', {scope: 'row'}, String(t.trial), champion ? el('span', {class: 'tag good'}, 'best') : null);
      if (key === 'state') return el('td', null, stateOf(t.state));
      if (key === 'time') return el('td', null, v === null ? '–' : duration(v));
      return el('td', {class: 'wrap'}, v === null || v === undefined ? '–' : plainValue(v));
    }));
  }
}
