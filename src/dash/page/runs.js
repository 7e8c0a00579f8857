/* SPDX-License-Identifier: Apache-2.0
 *
 * runs.js - the list of runs.
 */
'use strict';

const chosen = new Set(JSON.parse(sessionStorage.getItem('chosen') || '[]')); // to be compared

function rememberChosen() {
  sessionStorage.setItem('chosen', JSON.stringify([...chosen]));
  document.getElementById('nav-compare').href = `#/compare/${[...chosen].map(encodeURIComponent).join(',')}`;
}

function stateOf(word) {
  return el('span', {class: `state ${word}`}, word);
}

function bestText(best) {
  return best ? `${best.metric} ${number(best.value)}` : '–';
}

/* Of an experiment. */
function trialsText(r) {
  const s = r.trial_states;
  const done = s.finished + s.stopped + s.failed;
  return `${done}${r.total > 0 ? ` of ${whole(r.total)}` : ''} trials`;
}

/* NaN: its log has no record. */
function ageOf(r, now) {
  return r.end > 0 ? now - (r.state === 'running' ? r.begin : r.end) : NaN;
}

const columns = [
  {key: 'name', title: 'Run', of: (r) => r.name},
  {key: 'state', title: 'State', of: (r) => r.state},
  {key: 'iteration', title: 'Iteration', num: true, of: (r) => r.iteration ?? NaN},
  {key: 'best', title: 'Best', of: (r) => (r.best ? r.best.value : NaN)},
  {key: 'workers', title: 'Workers', num: true, wide: true, of: (r) => r.world ?? NaN},
  {key: 'lost', title: 'Lost', num: true, wide: true, of: (r) => r.lost ?? NaN},
  {key: 'age', title: 'Age', num: true, of: ageOf},
  {key: 'bytes', title: 'Size', num: true, wide: true, of: (r) => r.bytes},
];

class RunsView {
  constructor(root) {
    this.sort = {key: 'age', up: true};
    this.rows = new Map();
    this.filter = el('input', {type: 'search', placeholder: 'Filter by name or state', 'aria-label': 'Filter runs', oninput: () => this.draw()});
    this.compare = el('button', {type: 'button', onclick: () => { location.hash = document.getElementById('nav-compare').hash; }}, 'Compare');
    this.count = el('span', {class: 'soft', role: 'status'});
    this.head = el('tr');
    this.body = el('tbody');
    this.table = el('div', {class: 'card scroll'}, el('table', null, el('caption', {class: 'hidden'}, 'Runs'), el('thead', null, this.head), this.body));
    this.empty = el('div', {class: 'card empty'});
    this.where = el('p', {class: 'sub mono'});
    root.append(el('h1', null, 'Runs'), this.where, el('div', {class: 'bar'}, this.filter, this.compare, this.count), this.table, this.empty);
    this.buildHead();
    this.stop = follow(eventsOf([]), (e) => this.take(e), (why) => showRefusal(root, why));
    this.timer = setInterval(() => this.data && this.draw(), 5000);
  }

  destroy() {
    this.stop();
    clearInterval(this.timer);
  }

  take(event) {
    this.data = event;
    this.received = performance.now();
    setText(this.where, event.dir);
    this.draw();
  }

  buildHead() {
    this.titles = columns.map((c) => el('th', {scope: 'col', class: `${c.num ? 'num' : ''} ${c.wide ? 'wide' : ''}`},
      el('button', {type: 'button', onclick: () => this.sortBy(c.key)}, c.title)));
    this.head.append(el('th', {class: 'pick'}, el('span', {class: 'hidden'}, 'Choose')), ...this.titles);
    this.markSorted();
  }

  markSorted() {
    const {key, up} = this.sort;
    columns.forEach((c, i) => this.titles[i].setAttribute('aria-sort', c.key !== key ? 'none' : up ? 'ascending' : 'descending'));
  }

  sortBy(key) {
    this.sort = {key, up: this.sort.key === key ? !this.sort.up : true};
    this.markSorted();
    this.draw();
  }

  shown(now) {
    const words = this.filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const of = columns.find((c) => c.key === this.sort.key).of;
    const sign = this.sort.up ? 1 : -1;
    return this.data.runs
      .filter((r) => words.every((w) => `${r.name} ${r.state}`.toLowerCase().includes(w)))
      .map((r) => [of(r, now), r])
      .sort(([a, x], [b, y]) => {
        if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b);
        return (a < b ? -sign : a > b ? sign : 0) || x.name.localeCompare(y.name);
      })
      .map(([, r]) => r);
  }

  draw() {
    const now = this.data.now + (performance.now() - this.received) / 1000;
    const runs = this.shown(now);
    const all = this.data.runs.length;
    this.table.hidden = runs.length === 0;
    this.empty.hidden = runs.length > 0;
    if (runs.length === 0) this.drawEmpty(all);
    setText(this.count, all === runs.length ? `${all} run${all === 1 ? '' : 's'}${this.data.full ? ', the others are left out' : ''}` : `${runs.length} of ${all} runs`);
    const seen = new Set(runs.map((r) => r.name));
    for (const [name, row] of this.rows) if (!seen.has(name)) { row.root.remove(); this.rows.delete(name); }
    let at = this.body.firstChild;
    for (const r of runs) {
      const row = this.row(r);
      this.fill(row, r, now);
      if (row.root === at) at = at.nextSibling;
      else this.body.insertBefore(row.root, at);
    }
    this.drawCompare();
  }

  drawEmpty(all) {
    if (all > 0) this.empty.replaceChildren(el('strong', null, 'No run matches'), 'The filter looks at names and states.');
    else this.empty.replaceChildren(el('strong', null, 'No runs yet'), 'They appear here as soon as one begins, for example with ', el('code', null, 'manta run -n 2 PROGRAM'), '.');
  }

  drawCompare() {
    const n = chosen.size;
    this.compare.disabled = n < 2 || n > 8;
    setText(this.compare, n === 0 ? 'Compare' : `Compare ${n}${n > 8 ? ' (8 at most)' : ''}`);
  }

  row(r) {
    let row = this.rows.get(r.name);
    if (row) return row;
    const box = el('input', {type: 'checkbox', 'aria-label': `Choose ${r.name}`, onchange: (e) => this.choose(r.name, e.target.checked)});
    box.checked = chosen.has(r.name);
    box.hidden = Boolean(r.experiment); // runs are compared, trials have a page of their own
    row = {cells: columns.map((c) => el(c.key === 'name' ? 'th' : 'td', {class: `${c.num ? 'num' : ''} ${c.wide ? 'wide' : ''} ${c.key === 'name' ? 'wrap' : ''}`, scope: c.key === 'name' ? 'row' : null}))};
    row.cells[0].append(el('a', {href: `#/${r.experiment ? 'experiment' : 'run'}/${encodeURIComponent(r.name)}`}, ...breakable(r.name)), r.experiment ? el('span', {class: 'tag plain'}, 'experiment') : '');
    row.root = el('tr', null, el('td', {class: 'pick'}, box), ...row.cells);
    this.rows.set(r.name, row);
    return row;
  }

  fill(row, r, now) {
    const [, state, iteration, best, workers, lost, age, size] = row.cells;
    if (state.dataset.word !== r.state) {
      state.dataset.word = r.state;
      state.replaceChildren(stateOf(r.state));
    }
    setText(iteration, r.experiment ? trialsText(r) : whole(r.iteration));
    setText(best, bestText(r.best));
    setText(workers, r.experiment ? '' : whole(r.world));
    setText(lost, r.lost ? whole(r.lost) : '');
    setText(age, duration(ageOf(r, now)));
    setText(size, bytes(r.bytes));
    row.root.title = r.error || '';
  }

  choose(name, on) {
    if (on) chosen.add(name);
    else chosen.delete(name);
    rememberChosen();
    this.drawCompare();
  }
}

function showRefusal(root, why) {
  root.replaceChildren(el('div', {class: 'card empty', role: 'alert'}, el('strong', null, 'This cannot be shown'), why, el('p', null, el('a', {href: '#/'}, 'All runs'))));
}
