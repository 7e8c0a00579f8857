/* SPDX-License-Identifier: Apache-2.0
 *
 * first.js - runs before the chart library is read: what the address asks for is asked for at once,
 * so that the answer comes meanwhile.
 */
'use strict';

const token = new URLSearchParams(location.search).get('token') || '';
const headers = {Authorization: `Bearer ${token}`};

/* The view that the address names, and what belongs to it: ['run', ['a name']]. */
function whereTo() {
  const [, kind, rest] = location.hash.match(/^#\/?([a-z]*)\/?(.*)$/) || [null, '', ''];
  const names = (kind === 'compare' ? rest.split(',') : [rest]).filter(Boolean);
  try {
    return [kind, names.map(decodeURIComponent)];
  } catch (e) { // not an address of ours
    return ['', []];
  }
}

function eventsOf(names) {
  return `/api/events${names.length ? '?' : ''}${names.map((n) => `run=${encodeURIComponent(n)}`).join('&')}`;
}

function canCompare(names) {
  return names.length >= 2 && names.length <= 8;
}

/* The first answer, for the view that asks for the same. */
const early = (() => {
  const [kind, names] = whereTo();
  const abort = new AbortController();
  const path = eventsOf(kind === 'run' || kind === 'experiment' || kind === 'compare' ? names : []);
  if (kind === 'compare' && !canCompare(names)) return {taken: true};
  const answer = fetch(path, {headers, cache: 'no-store', signal: abort.signal});
  answer.catch(() => {}); // seen by who takes it
  performance.mark('asked');
  return {path, answer, abort, taken: false};
})();
