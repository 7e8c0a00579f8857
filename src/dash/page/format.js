/* SPDX-License-Identifier: Apache-2.0
 *
 * format.js - numbers, times and elements as people read them.
 */
'use strict';

performance.mark('read'); // the library

/* An element: el('td', {class: 'num', onclick: f}, 'text', child). Text is always text. */
function el(tag, attributes, ...children) {
  const e = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith('on')) e.addEventListener(key.slice(2), value);
    else e.setAttribute(key, value === true ? '' : value);
  }
  e.append(...children.filter((c) => c !== null && c !== undefined));
  return e;
}

/* A name that a line may break behind its underscores. */
function breakable(name) {
  return name.split(/(?<=_)/).flatMap((part, i) => (i ? [document.createElement('wbr'), part] : [part]));
}

/* Changes the text only if it is another one: screen readers and selections stay where they are. */
function setText(e, text) {
  if (e.textContent !== text) e.textContent = text;
}

/* 1234567 as 1,234,567. Not by toLocaleString: the first call of that loads tables for 20 ms. */
function grouped(v) {
  return String(v).replace(/\B(?=(\d{3})+$)/g, ',');
}

function number(v, digits = 4) {
  if (v === null || v === undefined || !Number.isFinite(v)) return '–';
  const size = Math.abs(v);
  if (size !== 0 && (size < 1e-4 || size >= 1e7)) return Number(v.toPrecision(digits)).toExponential().replace('e+', 'e');
  const short = Number.isInteger(v) ? v : Number(v.toPrecision(digits));
  return Number.isInteger(short) ? grouped(short) : String(short);
}

function whole(v) {
  return Number.isFinite(v) ? grouped(Math.round(v)) : '–';
}

function bytes(n) {
  if (!Number.isFinite(n)) return '–';
  const units = ['B', 'kB', 'MB', 'GB', 'TB', 'PB'];
  let i = 0;
  while (n >= 999.5 && i < units.length - 1) {
    n /= 1000;
    i++;
  }
  return `${i === 0 || n >= 99.5 ? Math.round(n) : Number(n.toPrecision(2))} ${units[i]}`;
}

function duration(s) {
  if (!Number.isFinite(s)) return '–';
  if (s <= 0) return '0 s';
  if (s < 1) return `${Number(s.toPrecision(2))} s`;
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 60) return `${Math.floor(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${Math.floor(s % 60)} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${String(Math.floor(s / 60) % 60).padStart(2, '0')} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor(s / 3600) % 24} h`;
}

/* How long ago, in one unit. */
function ago(s) {
  if (!(s >= 0)) s = 0;
  const units = [[86400, 'd'], [3600, 'h'], [60, 'min'], [1, 's']];
  const [size, name] = units.find(([u]) => s >= u) || [1, 's'];
  return `${Math.floor(s / size)} ${name} ago`;
}

/* A step: from microseconds to minutes. */
function interval(s) {
  if (!Number.isFinite(s)) return '–';
  if (s === 0) return '0 s';
  if (s < 1e-3) return `${Number((s * 1e6).toPrecision(3))} µs`;
  if (s < 1) return `${Number((s * 1e3).toPrecision(3))} ms`;
  return s < 60 ? `${Number(s.toPrecision(3))} s` : duration(s);
}

function clock(seconds) {
  const d = new Date(seconds * 1000);
  const two = (n) => String(n).padStart(2, '0');
  return `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} ${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;
}

/* {"a": {"b": 1}} as [["a/b", 1]]; lists and empty maps as JSON. */
function flatten(value, name = '', out = []) {
  const isMap = value !== null && typeof value === 'object' && !Array.isArray(value);
  if (isMap && Object.keys(value).length > 0)
    for (const [key, inner] of Object.entries(value)) flatten(inner, name ? `${name}/${key}` : key, out);
  else if (name) out.push([name, value]);
  return out;
}

function plainValue(v) {
  if (typeof v === 'number') return number(v, 6);
  return typeof v === 'string' ? v : JSON.stringify(v);
}

/* What terminals take as colours and cursor movements. */
function withoutEscapes(text) {
  // eslint-disable-next-line no-control-regex
  return text.replace(/\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b[@-_]|[\x00-\x08\x0b-\x1f\x7f]/g, '');
}

function median(values) {
  const v = values.filter(Number.isFinite).sort((a, b) => a - b);
  return v.length ? v[v.length >> 1] : NaN;
}
