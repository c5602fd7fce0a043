'use strict';
// Times, keys, the link to the server, and what is copied by a click. Everything else is htmx.

const units = [[60, 's'], [60, 'min'], [24, 'h'], [Infinity, 'd']];

function ago(ms) {
  let n = Math.max(0, Math.round(ms / 1000));
  for (const [size, name] of units) {
    if (n < size) return `${n} ${name}`;
    n = Math.floor(n / size);
  }
}

function times(root) {
  for (const t of root.querySelectorAll('time[datetime]')) {
    const at = new Date(t.dateTime);
    t.title = at.toLocaleString();
    t.textContent = ago(Date.now() - at) + ('for' in t.dataset ? '' : ' ago');
  }
}

const link = document.getElementById('link');
function linked(yes) { if (link) link.hidden = yes; }

document.addEventListener('htmx:sse:after:connection', () => linked(true));
document.addEventListener('htmx:sse:error', () => linked(false));
document.addEventListener('htmx:sse:close', () => linked(false));
document.addEventListener('htmx:after:swap', () => times(document));
document.addEventListener('htmx:before:request', e => {
  if (e.detail.ctx && e.detail.ctx.request.method !== 'GET') document.getElementById('alert').textContent = '';
});

// Entries are walked with j and k; the one that has the focus is the current one.
function entries() { return [...document.querySelectorAll('.entry')].filter(e => e.offsetParent); }

function walk(by) {
  const all = entries();
  if (!all.length) return;
  const at = all.findIndex(e => e.contains(document.activeElement));
  const next = all[at < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(Math.max(at + by, 0), all.length - 1)];
  next.querySelector('a, button, summary')?.focus();
}

const goTo = { n: '/', b: '/board', j: '/jobs', s: '/sources', t: '/trust' };
let going = 0;

document.addEventListener('keydown', e => {
  if (e.ctrlKey || e.metaKey || e.altKey) return;
  const field = e.target.closest('input, textarea, select');
  if (e.key === 'Escape') {
    if (field) field.blur();
    const menu = document.activeElement.closest('details[open]');
    if (menu) { menu.open = false; menu.querySelector('summary').focus(); }
    return;
  }
  if (field || document.querySelector('dialog[open]')) return;
  if (Date.now() - going < 1500 && goTo[e.key]) {
    location.assign(goTo[e.key]);
  } else if (e.key === 'g') {
    going = Date.now();
    return;
  } else if (e.key === '/') {
    const filter = document.querySelector('[type=search]');
    if (!filter) return;
    e.preventDefault();
    filter.select();
  } else if (e.key === '?') {
    document.getElementById('keys').showModal();
  } else if (e.key === 'j' || e.key === 'k') {
    walk(e.key === 'j' ? 1 : -1);
  } else if (e.key === 'x') {
    const menu = document.activeElement.closest('.entry')?.querySelector('details.menu');
    if (menu) { menu.open = !menu.open; menu.querySelector('summary').focus(); }
  }
  going = 0;
});

document.addEventListener('click', e => {
  const code = e.target.closest('code.command');
  if (code && navigator.clipboard) navigator.clipboard.writeText(code.textContent);
});

times(document);
setInterval(() => times(document), 10000);
