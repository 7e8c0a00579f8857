/* SPDX-License-Identifier: Apache-2.0
 *
 * data.js - what comes from the server: events, and the runs that they describe.
 *
 * EventSource cannot send a header, so events are read with fetch: the token travels as a header,
 * and only the link that opened the page has it in its address.
 */
'use strict';

async function get(path) {
  const answer = await fetch(path, {headers, cache: 'no-store'});
  if (!answer.ok) throw new Error((await answer.text()).trim() || `status ${answer.status}`);
  return answer;
}

/* Shows in the corner whether what is seen is live. */
function setLink(state, text) {
  const e = document.getElementById('link');
  e.className = `link ${state}`;
  setText(e, text);
}

/* Calls take(object) for each event of `path`, again and again until stop() is called. */
function follow(path, take, refused) {
  const mine = path === early.path && !early.taken; // asked for already
  const abort = mine ? early.abort : new AbortController();
  let first = mine ? early.answer : null;
  let stopped = false;
  early.taken ||= mine;

  async function once() {
    const asked = first || fetch(path, {headers, cache: 'no-store', signal: abort.signal});
    first = null;
    const answer = await asked;
    if (answer.status === 404 || answer.status === 401) {
      stopped = true;
      setLink('lost', 'not available');
      refused((await answer.text()).trim());
      return;
    }
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    setLink('live', 'live');
    await readEvents(answer.body.getReader(), take);
  }

  (async () => {
    for (let wait = 500; !stopped; wait = Math.min(2 * wait, 8000)) {
      const before = performance.now();
      try {
        await once();
      } catch (e) {
        if (stopped) return;
      }
      if (stopped) return;
      if (performance.now() - before > 5000) wait = 500;
      setLink('lost', 'connection lost, trying again');
      await new Promise((done) => setTimeout(done, wait));
    }
  })();
  return () => {
    stopped = true;
    abort.abort();
  };
}

async function readEvents(reader, take) {
  const decoder = new TextDecoder();
  let pieces = [];
  for (;;) {
    const {done, value} = await reader.read();
    if (done) return;
    const text = decoder.decode(value, {stream: true});
    pieces.push(text);
    if (!text.includes('\n')) continue;
    const events = pieces.join('').split('\n\n');
    pieces = [events.pop()];
    for (const event of events)
      for (const line of event.split('\n'))
        if (line.startsWith('data: ') && !event.startsWith('event: failed')) take(JSON.parse(line.slice(6)));
  }
}

/* One run as this page knows it, put together from its events. */
class Run {
  constructor(name) {
    this.name = name;
    this.clear();
  }

  clear() {
    this.series = new Map(); // by id
    this.marks = [];
    this.checkpoints = [];
    this.workers = [];
    this.head = null;
    this.facts = null;
  }

  take(event) {
    if (event.anew) this.clear();
    this.received = performance.now();
    this.facts = event;
    if (event.head) this.head = event.head;
    this.marks.push(...event.marks);
    this.checkpoints.push(...event.checkpoints);
    this.marks = this.marks.slice(-512);
    this.checkpoints = this.checkpoints.slice(-256);
    this.workers = event.workers;
    for (const s of event.series) this.takeSeries(s);
  }

  takeSeries(s) {
    const old = this.series.get(s.id);
    const wide = s.w > 1;
    if (s.from > 0 && old)
      for (const column of wide ? ['mean', 't', 'min', 'max'] : ['mean', 't'])
        s[column] = old[column].slice(0, s.from).concat(s[column]);
    this.series.set(s.id, s);
  }

  /* Names of its metrics in the order in which they came. */
  metrics() {
    const names = new Set();
    for (const s of this.series.values()) if (!s.name.startsWith('_')) names.add(s.name);
    return [...names];
  }

  of(name) {
    return [...this.series.values()].filter((s) => s.name === name).sort((a, b) => a.rank - b.rank);
  }

  /* Seconds since 1970 on the server's clock. */
  now() {
    return this.facts.now + (performance.now() - this.received) / 1000;
  }

  isRunning() {
    return this.facts.state === 'running' || this.facts.state === 'starting';
  }

  elapsed() {
    return (this.isRunning() ? this.now() : this.facts.end) - this.facts.begin;
  }
}

/* Points of a series: x by iteration or by time; where a bucket holds nothing there is no point. */
function pointsOf(s, byTime) {
  const out = [];
  for (let i = 0; i < s.mean.length; i++) {
    if (s.t[i] === null) continue;
    const x = byTime ? s.t[i] : s.x0 + i * s.w + (s.w > 1 ? Math.min((s.w - 1) / 2, s.last_x - s.x0 - i * s.w) : 0);
    out.push({x, y: s.mean[i], low: s.min ? s.min[i] : s.mean[i], high: s.max ? s.max[i] : s.mean[i]});
  }
  return out;
}

/* The ranks of one metric as one line: the mean of their means, between the least and greatest. */
function pointsOfAll(list, byTime) {
  if (list.length === 1) return pointsOf(list[0], byTime);
  const width = Math.max(...list.map((s) => s.w));
  const start = Math.min(...list.map((s) => s.x0));
  const cells = new Map();
  for (const s of list)
    for (let i = 0; i < s.mean.length; i++) {
      if (s.mean[i] === null) continue;
      const key = Math.floor((s.x0 + i * s.w - start) / width);
      let c = cells.get(key);
      if (!c) cells.set(key, (c = {x: start + key * width, t: s.t[i], sum: 0, n: 0, low: Infinity, high: -Infinity}));
      c.sum += s.mean[i];
      c.n++;
      c.low = Math.min(c.low, s.min ? s.min[i] : s.mean[i]);
      c.high = Math.max(c.high, s.max ? s.max[i] : s.mean[i]);
    }
  return [...cells.values()].sort((a, b) => a.x - b.x)
    .map((c) => ({x: byTime ? c.t : c.x, y: c.sum / c.n, low: c.low, high: c.high}));
}
