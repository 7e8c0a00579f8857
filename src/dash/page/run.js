/* SPDX-License-Identifier: Apache-2.0
 *
 * run.js - one run: figures, charts, workers, what happened, logs, checkpoints, configuration.
 */
'use strict';

const maxLines = 8; // ranks with a line of their own

function section(title, ...children) {
  return el('section', {'aria-label': title}, el('h2', null, title), ...children);
}

function tableOf(caption, titles, numeric = []) {
  const body = el('tbody');
  const head = titles.map((t, i) => el('th', {scope: 'col', class: numeric.includes(i) ? 'num' : ''}, t));
  return {body, root: el('div', {class: 'card scroll'}, el('table', null, el('caption', {class: 'hidden'}, caption), el('thead', null, el('tr', null, ...head)), body))};
}

class RunView {
  constructor(root, name) {
    this.run = new Run(name);
    this.root = root;
    this.byTime = false;
    this.log = false;
    this.ranks = 'mean';
    this.stop = follow(eventsOf([name]), (e) => this.take(e), (why) => showRefusal(root, why));
    this.timer = setInterval(() => this.run.facts && this.drawFacts(), 1000);
    root.replaceChildren(el('p', {class: 'soft', role: 'status'}, 'Reading the run …'));
  }

  destroy() {
    this.stop();
    clearInterval(this.timer);
    clearTimeout(this.later);
    if (this.grid) this.grid.destroy();
    if (this.usage) this.usage.destroy();
    if (this.logs) this.logs.destroy();
  }

  take(event) {
    this.run.take(event);
    if (this.built) this.draw();
    else this.drawFirst();
  }

  /* What is seen at once comes first: the browser shows it before the rest is drawn. */
  drawFirst() {
    this.build();
    this.drawFacts();
    this.drawCharts(1);
    this.later = setTimeout(() => this.draw());
  }

  build() {
    this.built = true;
    this.state = el('span');
    this.sub = el('p', {class: 'sub mono'});
    this.notice = el('div', {class: 'notice bad', role: 'alert', hidden: true});
    this.facts = new Facts();
    this.grid = new ChartGrid();
    this.usage = new ChartGrid();
    this.noMetrics = el('div', {class: 'card empty'}, el('strong', null, 'No metrics yet'), 'They appear with the first report.');
    this.legend = el('ul', {class: 'legend', 'aria-label': 'Marks in the charts'},
      ...[['--bad', 'worker lost'], ['--accent', 'attempt began'], ['--soft', 'checkpoint']].map(([c, t]) => {
        const swatch = el('span', {class: 'swatch', 'aria-hidden': 'true'});
        swatch.style.background = `var(${c})`;
        return el('li', null, swatch, t);
      }));
    this.axis = new TimeAxis();
    this.workers = new WorkersTable();
    this.logs = new LogTail(this.run.name);
    this.checkpoints = tableOf('Checkpoints', ['Iteration', 'Score', 'Size', 'Written'], [0, 1, 2]);
    this.config = tableOf('Configuration', ['Name', 'Value']);
    this.usageSection = section('Use of the hosts', this.usage.root);
    this.root.replaceChildren(
      el('div', {class: 'title'}, el('h1', null, this.run.name), this.state), this.sub, this.notice, this.facts.root,
      section('Metrics', this.tools(), this.noMetrics, this.grid.root, this.legend),
      section('Time line', this.axis.root),
      section('Workers', this.workers.root),
      this.usageSection,
      section('Output', this.logs.root),
      el('div', {class: 'two'}, section('Checkpoints', this.tall(this.checkpoints.root)), section('Configuration', this.tall(this.config.root))));
  }

  tall(e) {
    e.classList.add('tall');
    e.tabIndex = 0;
    return e;
  }

  tools() {
    return el('div', {class: 'bar'},
      choice('Horizontal axis', [['iteration', 'Iterations'], ['time', 'Time']], 'iteration', (v) => { this.byTime = v === 'time'; this.drawCharts(); }),
      choice('Vertical axis', [['linear', 'Linear'], ['log', 'Logarithmic']], 'linear', (v) => { this.log = v === 'log'; this.drawCharts(); }),
      choice('Ranks', [['mean', 'Mean of ranks'], ['each', 'Each rank']], 'mean', (v) => { this.ranks = v; this.drawCharts(); }));
  }

  draw() {
    this.drawFacts();
    this.drawCharts();
    this.axis.update(this.run);
    this.workers.update(this.run);
    this.logs.update(this.run);
    this.drawCheckpoints();
    this.drawConfig();
  }

  drawFacts() {
    const {run, run: {facts: f}} = this;
    if (this.state.dataset.word !== f.state) {
      this.state.dataset.word = f.state;
      this.state.replaceChildren(stateOf(f.state));
    }
    const head = run.head || {};
    setText(this.sub, `${(head.argv || []).join(' ')}${f.begin ? `  ·  began ${clock(f.begin)}` : ''}`);
    const why = f.message || f.error;
    this.notice.hidden = !why;
    if (why && this.notice.dataset.why !== why) {
      this.notice.dataset.why = why;
      this.notice.replaceChildren(el('strong', null, f.message ? 'The run failed' : 'The log cannot be read'), el('pre', null, why));
    }
    const newest = run.checkpoints[run.checkpoints.length - 1];
    const steps = run.workers.map((w) => w.step);
    const step = median(steps);
    const revived = Math.max(0, f.attempts - 1);
    this.facts.set([
      ['Iteration', whole(f.iteration), step > 0 ? `${number(1 / step, 3)} per second` : ''],
      [f.best ? `Best ${f.best.metric}` : 'Best', f.best ? number(f.best.value) : '–', f.best ? `at iteration ${whole(f.best.iteration)}` : ''],
      [run.isRunning() ? 'Running for' : 'Took', duration(run.elapsed()), run.isRunning() || !f.end ? '' : `ended ${ago(run.now() - f.end)}`],
      ['Workers', whole(f.world), f.lost ? `${f.lost} lost` : 'none lost'],
      ['Revivals', whole(revived), `${f.attempts} attempt${f.attempts === 1 ? '' : 's'}`],
      ['Checkpoints', whole(f.checkpoints_made), newest ? `newest ${ago(run.now() - newest.time)}` : 'none yet'],
      ['Size', bytes(f.bytes), `${whole(f.rows)} rows`],
    ]);
  }

  marksOf() {
    const {run} = this;
    const x = (m) => (this.byTime ? m.time - run.facts.begin : m.iteration);
    return [...run.marks.filter((m) => m.kind === 'lost' || (m.kind === 'attempt' && m !== run.marks[0])).map((m) => ({kind: m.kind, x: x(m)})),
      ...run.checkpoints.map((c) => ({kind: 'checkpoint', x: x(c)}))];
  }

  linesOf(list) {
    if (this.ranks === 'mean' || list.length === 1)
      return [{label: list.length > 1 ? 'mean' : `rank ${list[0].rank}`, colour: colour(0), points: pointsOfAll(list, this.byTime)}];
    return list.slice(0, maxLines).map((s, i) => ({label: `rank ${s.rank}`, colour: colour(i), points: pointsOf(s, this.byTime)}));
  }

  drawCharts(most = Infinity) {
    const names = this.run.metrics();
    const marks = this.marksOf();
    this.noMetrics.hidden = names.length > 0;
    this.legend.hidden = names.length === 0;
    for (const name of names.slice(0, most)) {
      const list = this.run.of(name);
      this.grid.card(name).update(this.linesOf(list), {byTime: this.byTime, log: this.log, marks, now: this.newest(list), figures: this.figures(list)});
    }
    if (most === Infinity) this.drawUsage();
  }

  newest(list) {
    const values = list.map((s) => s.last).filter(Number.isFinite);
    return values.length ? number(values.reduce((a, b) => a + b, 0) / values.length) : '–';
  }

  figures(list) {
    const low = Math.min(...list.map((s) => s.low ?? Infinity));
    const high = Math.max(...list.map((s) => s.high ?? -Infinity));
    const odd = list.reduce((n, s) => n + s.odd, 0);
    const out = [el('span', null, `least ${number(low)}`), el('span', null, `greatest ${number(high)}`),
      el('span', null, `${whole(list.reduce((n, s) => n + s.points, 0))} points`)];
    if (odd) out.push(el('span', {class: 'odd'}, `${whole(odd)} not finite`));
    if (this.ranks === 'each' && list.length > maxLines) out.push(el('span', null, `the first ${maxLines} of ${list.length} ranks`));
    return out;
  }

  drawUsage() {
    const kinds = [['_time_this_iter_s', 'Step time', interval, false], ['_cpu', 'CPUs in use', number, true],
      ['_rss', 'Resident memory', bytes, true], ['_gpu_memory', 'GPU memory', bytes, true]];
    let any = false;
    for (const [name, title, format, byTime] of kinds) {
      const list = this.run.of(name).filter((s) => s.points > 0);
      if (list.length === 0) continue;
      any = true;
      const lines = list.slice(0, maxLines).map((s, i) => ({label: `rank ${s.rank}`, colour: colour(i), points: pointsOf(s, byTime || this.byTime)}));
      const now = format(median(list.map((s) => s.last)));
      this.usage.card(name, format, title, true).update(lines, {byTime: byTime || this.byTime, log: false, marks: [], now, figures: [el('span', null, `greatest ${format(Math.max(...list.map((s) => s.high)))}`), el('span', null, `${list.length} rank${list.length === 1 ? '' : 's'}`)]});
    }
    this.usageSection.hidden = !any;
  }

  drawCheckpoints() {
    const list = [...this.run.checkpoints].reverse();
    const key = `${list.length} ${list[0] ? list[0].time : ''}`;
    if (this.checkpointsKey === key) return;
    this.checkpointsKey = key;
    this.checkpoints.body.replaceChildren(...(list.length ? list.map((c) => el('tr', null,
      el('td', {class: 'num', title: c.dir}, whole(c.iteration)), el('td', {class: 'num'}, number(c.score)), el('td', {class: 'num'}, bytes(c.bytes)), el('td', null, clock(c.time))))
      : [el('tr', null, el('td', {colspan: '4', class: 'soft'}, 'None yet'))]));
  }

  drawConfig() {
    if (this.configured || !this.run.head) return;
    this.configured = true;
    const head = this.run.head;
    const rows = [...flatten(head.config || {}), ...['function', 'exe', 'cwd', 'version'].filter((k) => head[k]).map((k) => [`(${k})`, head[k]])];
    this.config.body.replaceChildren(...rows.map(([name, value]) => el('tr', null, el('th', {scope: 'row', class: 'wrap'}, name), el('td', {class: 'wrap mono'}, plainValue(value)))));
  }
}
