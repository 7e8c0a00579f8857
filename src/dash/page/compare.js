/* SPDX-License-Identifier: Apache-2.0
 *
 * compare.js - several runs next to each other: a line each, what differs in their configurations.
 */
'use strict';

class CompareView {
  constructor(root, names) {
    this.root = root;
    this.runs = names.map((name) => new Run(name));
    this.byTime = false;
    this.log = false;
    root.replaceChildren(el('h1', null, 'Compare runs'));
    this.stop = () => {};
    if (!canCompare(names)) {
      root.append(el('div', {class: 'card empty'}, el('strong', null, 'Choose two to eight runs'), 'in the ', el('a', {href: '#/'}, 'list of runs'), '.'));
      return;
    }
    this.build();
    this.stop = follow(eventsOf(names), (e) => this.take(e), (why) => showRefusal(root, why));
  }

  build() {
    this.grid = new ChartGrid();
    this.legend = el('ul', {class: 'legend', 'aria-label': 'Runs'});
    this.head = el('tr');
    this.body = el('tbody');
    this.root.append(
      el('div', {class: 'bar'},
        choice('Horizontal axis', [['iteration', 'Iterations'], ['time', 'Time']], 'iteration', (v) => { this.byTime = v === 'time'; this.draw(); }),
        choice('Vertical axis', [['linear', 'Linear'], ['log', 'Logarithmic']], 'linear', (v) => { this.log = v === 'log'; this.draw(); })),
      this.legend, el('div', {class: 'bar'}), this.grid.root,
      section('Side by side', el('div', {class: 'card scroll'}, el('table', null, el('caption', {class: 'hidden'}, 'Results and configurations'), el('thead', null, this.head), this.body))));
  }

  destroy() {
    this.stop();
    if (this.grid) this.grid.destroy();
  }

  take(event) {
    this.runs.find((r) => r.name === event.run).take(event);
    this.draw();
  }

  draw() {
    const runs = this.runs.filter((r) => r.facts);
    const label = (r) => r.name;
    this.legend.replaceChildren(...this.runs.map((r, i) => {
      const swatch = el('span', {class: 'swatch', 'aria-hidden': 'true'});
      swatch.style.background = colour(i);
      return el('li', null, swatch, el('a', {href: `#/run/${encodeURIComponent(r.name)}`}, r.name));
    }));
    const names = new Set(runs.flatMap((r) => r.metrics()));
    for (const name of names) {
      const having = this.runs.map((r, i) => ({r, i, list: r.facts ? r.of(name) : []})).filter((h) => h.list.length);
      const lines = having.map(({r, i, list}) => ({label: label(r), colour: colour(i), points: pointsOfAll(list, this.byTime)}));
      const figures = [el('span', null, `${lines.length} of ${this.runs.length} runs`)];
      this.grid.card(name).update(lines, {byTime: this.byTime, log: this.log, marks: [], now: '', figures});
    }
    this.drawTable([...names]);
  }

  drawTable(metrics) {
    const {runs} = this;
    const rows = [];
    const add = (name, of) => rows.push([name, runs.map((r) => (r.facts ? of(r) : undefined)), false]);
    add('State', (r) => r.facts.state);
    add('Iteration', (r) => whole(r.facts.iteration));
    add('Time', (r) => duration(r.elapsed()));
    add('Best', (r) => bestText(r.facts.best));
    for (const m of metrics) add(`Last ${m}`, (r) => (r.of(m).length ? number(r.of(m)[0].last) : undefined));
    const configs = runs.map((r) => new Map(flatten((r.head && r.head.config) || {})));
    for (const key of new Set(configs.flatMap((c) => [...c.keys()])))
      rows.push([key, configs.map((c) => (c.has(key) ? plainValue(c.get(key)) : undefined)), true]);
    this.head.replaceChildren(el('th', {scope: 'col'}, ''), ...runs.map((r) => el('th', {scope: 'col', class: 'wrap'}, r.name)));
    this.body.replaceChildren(...rows.map(([name, cells, mark]) => {
      const differs = mark && new Set(cells).size > 1;
      return el('tr', null, el('th', {scope: 'row', class: 'wrap'}, name), ...cells.map((c) => el('td', {class: `wrap ${differs ? 'differs' : ''}`}, c === undefined ? '–' : c)));
    }));
  }
}
