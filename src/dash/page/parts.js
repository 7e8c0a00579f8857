/* SPDX-License-Identifier: Apache-2.0
 *
 * parts.js - parts of the view of a run: its time line, its workers, what they print.
 */
'use strict';

function svg(tag, attributes, ...children) {
  const e = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value);
  e.append(...children);
  return e;
}

/* The figures at the top: [[name, value, more]]. */
class Facts {
  constructor() {
    this.root = el('dl', {class: 'facts'});
  }

  set(list) {
    if (this.root.children.length !== list.length)
      this.root.replaceChildren(...list.map(() => el('div', {class: 'card fact'}, el('dt'), el('dd', null, el('span'), el('small')))));
    list.forEach(([name, value, more], i) => {
      const [dt, dd] = this.root.children[i].children;
      setText(dt, name);
      setText(dd.children[0], value);
      setText(dd.children[1], more);
    });
  }
}

/* Attempts, deaths and checkpoints along the clock, and the same as a list. */
class TimeAxis {
  constructor() {
    this.draw = svg('svg', {role: 'img', preserveAspectRatio: 'none'});
    this.body = el('tbody');
    this.root = el('div', null,
      el('div', {class: 'card axis'}, this.draw),
      el('div', {class: 'card marks scroll', tabindex: '0', role: 'region', 'aria-label': 'Events of the run'}, el('table', null, el('caption', {class: 'hidden'}, 'Events'), el('thead', null, el('tr', null, el('th', {scope: 'col'}, 'Time'), el('th', {scope: 'col', class: 'num'}, 'Iteration'), el('th', {scope: 'col'}, 'Event'))), this.body)));
    this.root.lastChild.style.marginTop = '10px';
  }

  update(run) {
    const f = run.facts;
    const end = run.isRunning() ? run.now() : f.end;
    const span = Math.max(end - f.begin, 1e-3);
    const at = (time) => `${(100 * Math.min(Math.max(time - f.begin, 0), span)) / span}%`;
    const attempts = run.marks.filter((m) => m.kind === 'attempt');
    const deaths = run.marks.filter((m) => m.kind === 'lost');
    this.draw.setAttribute('aria-label', `${duration(span)}: ${attempts.length} attempts, ${deaths.length} workers lost, ${run.checkpoints.length} checkpoints`);
    const parts = [svg('line', {class: 'base', x1: '0', x2: '100%', y1: '36', y2: '36'})];
    attempts.forEach((m, i) => {
      const until = deaths.find((d) => d.time >= m.time && (!attempts[i + 1] || d.time <= attempts[i + 1].time));
      const to = until ? until.time : attempts[i + 1] ? attempts[i + 1].time : end;
      parts.push(svg('rect', {class: 'span', x: at(m.time), width: `${(100 * Math.max(to - m.time, 0)) / span}%`, y: '14', height: '22', rx: '2'}, svg('title', {}, m.text)));
    });
    for (const c of run.checkpoints) parts.push(svg('line', {class: 'ckpt', x1: at(c.time), x2: at(c.time), y1: '30', y2: '36'}));
    for (const d of deaths) parts.push(svg('circle', {class: 'died', cx: at(d.time), cy: '25', r: '4.5'}, svg('title', {}, d.text)));
    for (const k of [0, 0.25, 0.5, 0.75, 1]) {
      const t = svg('text', {x: `${100 * k}%`, y: '51', 'text-anchor': k === 0 ? 'start' : k === 1 ? 'end' : 'middle'});
      t.textContent = duration(k * span);
      parts.push(t);
    }
    this.draw.replaceChildren(...parts);
    this.list(run);
  }

  list(run) {
    const key = `${run.marks.length} ${run.marks.length ? run.marks[run.marks.length - 1].time : ''}`;
    if (this.key === key) return;
    this.key = key;
    const words = {attempt: 'began', lost: 'lost', note: 'note', finish: 'ended'};
    this.body.replaceChildren(...[...run.marks].reverse().map((m) => el('tr', null,
      el('td', null, clock(m.time)), el('td', {class: 'num'}, whole(m.iteration)), el('td', {class: 'wrap'}, el('span', {class: `mark ${m.kind}`}, words[m.kind]), m.text.split('\n')[0]))));
  }
}

class WorkersTable {
  constructor() {
    this.table = tableOf('Workers', ['Rank', 'Host', 'Pid', 'State', 'Iteration', 'Step', 'CPUs', 'Memory', 'GPU memory', 'GPU use'], [0, 2, 4, 5, 6, 7, 8, 9]);
    this.root = this.table.root;
    this.root.classList.add('tall');
    this.rows = [];
  }

  update(run) {
    const workers = run.workers.filter((w) => w.state !== 'gone');
    const slowest = Math.max(...workers.map((w) => w.step || 0), 1e-12);
    if (this.rows.length !== Math.max(workers.length, 1)) {
      this.rows = (workers.length ? workers : [null]).map((w) => (w ? this.row() : [el('td', {colspan: '10', class: 'soft'}, 'No worker has begun')]));
      this.table.body.replaceChildren(...this.rows.map((cells) => el('tr', null, ...cells)));
    }
    workers.forEach((w, i) => this.fill(this.rows[i], w, slowest));
  }

  row() {
    const numeric = [0, 2, 4, 5, 6, 7, 8, 9];
    return Array.from({length: 10}, (_, i) => el(i === 0 ? 'th' : 'td', {class: numeric.includes(i) ? 'num' : '', scope: i === 0 ? 'row' : null}));
  }

  fill(cells, w, slowest) {
    const gpu = Number.isFinite(w.gpu_memory);
    const texts = [String(w.rank), w.host || '–', w.pid ? String(w.pid) : '–', null, whole(w.iteration), null, number(w.cpu, 3), w.rss ? bytes(w.rss) : '–', gpu ? bytes(w.gpu_memory) : '–', Number.isFinite(w.gpu_use) ? `${Math.round(100 * w.gpu_use)} %` : '–'];
    texts.forEach((t, i) => t !== null && setText(cells[i], t));
    const key = `${w.state} ${w.slow}`;
    if (cells[3].dataset.key !== key) {
      cells[3].dataset.key = key;
      cells[3].replaceChildren(stateOf(w.state), ...(w.slow ? [el('span', {class: 'tag'}, 'straggler')] : []));
      cells[3].parentElement.classList.toggle('slow', w.slow);
    }
    if (!cells[5].firstChild) cells[5].append(el('span'), el('span', {class: 'meter', 'aria-hidden': 'true'}, el('i')));
    setText(cells[5].children[0], interval(w.step));
    cells[5].children[1].firstChild.style.width = `${Math.round((100 * (w.step || 0)) / slowest)}%`;
  }
}

/* The end of what a rank printed, looked at every two seconds while the run goes on. */
class LogTail {
  constructor(name) {
    this.name = name;
    this.rank = 0;
    this.select = el('select', {'aria-label': 'Rank', onchange: (e) => { this.rank = Number(e.target.value); this.load(); }});
    this.text = el('pre', {class: 'log', tabindex: '0', role: 'log', 'aria-label': 'Output of the rank'});
    this.root = el('div', null, el('div', {class: 'bar'}, this.select), el('div', {class: 'card'}, this.text));
    this.timer = setInterval(() => this.running && this.load(), 2000);
  }

  update(run) {
    const before = this.running;
    this.running = run.isRunning();
    const ranks = Math.max(run.workers.length, 1);
    if (this.select.children.length !== ranks) {
      this.select.replaceChildren(...Array.from({length: ranks}, (_, i) => el('option', {value: String(i)}, `rank ${i}`)));
      this.select.value = String(Math.min(this.rank, ranks - 1));
    }
    if (before === undefined || (before && !this.running)) this.load();
  }

  async load() {
    let text;
    try {
      text = withoutEscapes(await (await get(`/api/log?run=${encodeURIComponent(this.name)}&rank=${this.rank}`)).text());
    } catch (e) {
      text = e.message;
    }
    text = text || 'Nothing printed.';
    const low = this.text.scrollHeight - this.text.scrollTop - this.text.clientHeight < 40;
    if (this.text.textContent === text) return;
    this.text.textContent = text;
    if (low) this.text.scrollTop = this.text.scrollHeight;
  }

  destroy() {
    clearInterval(this.timer);
  }
}
