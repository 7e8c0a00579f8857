/* SPDX-License-Identifier: Apache-2.0
 *
 * app.js - which view the address asks for, and the theme.
 */
'use strict';

let view = null;

function show() {
  const [kind, names] = whereTo();
  const main = document.getElementById('main');
  if (view) view.destroy();
  main.replaceChildren();
  for (const [id, on] of [['nav-runs', kind !== 'compare'], ['nav-compare', kind === 'compare']])
    if (on) document.getElementById(id).setAttribute('aria-current', 'page');
    else document.getElementById(id).removeAttribute('aria-current');
  if (kind === 'run') view = new RunView(main, names[0] || '');
  else if (kind === 'experiment') view = new ExperimentView(main, names[0] || '');
  else if (kind === 'compare') view = new CompareView(main, names);
  else view = new RunsView(main);
  document.title = kind === 'run' || kind === 'experiment' ? `${names[0] || ''} · manta` : 'manta';
}

const themes = ['auto', 'light', 'dark'];
let theme = localStorage.getItem('manta-theme') || 'auto';
const system = matchMedia('(prefers-color-scheme: dark)');

function applyTheme() {
  const dark = theme === 'dark' || (theme === 'auto' && system.matches);
  document.documentElement.dataset.theme = dark ? 'dark' : 'light';
  const button = document.getElementById('theme');
  setText(button, theme[0].toUpperCase() + theme.slice(1));
  button.setAttribute('aria-label', `Theme: ${theme === 'auto' ? 'as the system' : theme}`);
}

document.getElementById('theme').addEventListener('click', () => {
  theme = themes[(themes.indexOf(theme) + 1) % themes.length];
  localStorage.setItem('manta-theme', theme);
  applyTheme();
  show();
});
system.addEventListener('change', () => {
  applyTheme();
  show();
});
document.querySelector('.skip').addEventListener('click', (e) => { // the address is the view's
  e.preventDefault();
  document.getElementById('main').focus();
});
window.addEventListener('hashchange', () => {
  show();
  document.getElementById('main').focus();
});

Chart.defaults.font.family = 'system-ui, sans-serif';
applyTheme();
rememberChosen();
show();
if (!early.taken) early.abort.abort(); // nobody's: no such view
