'use strict';
// Times, keys, the link to the server, and what is copied by a click. Everything else is htmx.

// Where the pages are: behind a proxy, it may be below another path.
const base = document.documentElement.dataset.base;

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
    if ('at' in t.dataset) {
      t.textContent = at.toLocaleTimeString([], { hour: '2-digit', minute: '2-digit' }) + (at - Date.now() > 0 ? `, in ${ago(at - Date.now())}` : '');
      continue;
    }
    t.textContent = ago(Date.now() - at) + ('for' in t.dataset ? '' : ' ago');
  }
}

// A page stays, with what was typed, whatever becomes of its server and of the login. It says so, also in dialogs, which
// cover its header.
const badges = { gone: document.getElementById('link'), out: document.getElementById('out') };
const troubles = {
  gone: 'Not connected: the server does not answer. What you type stays here; send it once the server is back.',
  out: 'You are logged out. What you type stays here; log in in another tab, then send it.',
};
let trouble = '';
function connected(now = '') {
  if (now === trouble) return;
  trouble = now;
  for (const [name, badge] of Object.entries(badges)) if (badge) badge.hidden = name !== now;
  for (const form of document.querySelectorAll('dialog form[method=post]')) {
    form.querySelector('.trouble')?.remove();
    if (now) form.prepend(alertOf(troubles[now], 'trouble'));
  }
}
const alertOf = (text, name) => Object.assign(document.createElement('p'), { className: 'alert ' + name, role: 'alert', textContent: text });
const lost = status => connected(status === 401 ? 'out' : 'gone');

document.addEventListener('htmx:sse:after:connection', () => connected());
document.addEventListener('htmx:sse:error', e => lost(e.detail.status));
document.addEventListener('htmx:sse:close', () => lost());

// The extension reconnects a stream, not one whose first request fails. News whose page could not be
// fetched is news still.
const again = 2000;
for (const failed of ['htmx:error', 'htmx:response:error']) document.addEventListener(failed, e => {
  const from = e.detail.ctx?.sourceElement, status = e.detail.ctx?.response?.status;
  if (from === document.body || status === 401) lost(status);
  if (from === document.body) {
    setTimeout(() => htmx.trigger(document.body, 'follow'), again);
  } else if (from?.id === 'main') {
    if (!(status < 500) || status === 401 || status === 429) setTimeout(() => htmx.trigger(document.body, 'news'), again);
  } else if (from?.matches?.('form[method=post]') && !status) notSent(from, 'The server does not answer: this was not sent, or the reply was lost. Once it is back, see whether it was done, or send it again.');
});
document.addEventListener('htmx:after:request', e => {
  if (e.detail.ctx.response.status !== 401 && trouble === 'out') connected();
});

// A form that was not taken keeps what was typed.
function notSent(form, why) {
  const note = alertOf(why, 'unsent');
  if (form.closest('dialog[open]')) form.prepend(note);
  else document.getElementById('alert').replaceChildren(note);
}

// A reply that is no page, as that of a server that stops, takes no page's place. News takes nothing that was typed
// either: a field is not changed, and a page whose news has no place for it is kept.
const typed = field => field.value !== field.defaultValue && !['hidden', 'checkbox', 'radio', 'search'].includes(field.type);
document.addEventListener('htmx:before:swap', e => {
  const { ctx, tasks } = e.detail, main = tasks.find(t => t.type === 'main' && ctx.select === '#main');
  if (!main) return;
  const fragment = main.fragment, mine = ctx.sourceElement, fields = [...document.querySelectorAll('#main :is(textarea, input)')];
  for (const f of fields) f.toggleAttribute('hx-morph-skip', typed(f));
  if (!fragment.childElementCount) {
    e.preventDefault();
    if (mine.matches('form')) notSent(mine, ctx.text);
  } else if (mine.id === 'main' && fields.some(f => f.id && typed(f) && !fragment.querySelector('#' + CSS.escape(f.id)))) {
    e.preventDefault();
    document.getElementById('alert').replaceChildren(alertOf('This page has changed, and has no field any more for what you typed. It is kept as it was: copy your text, then reload the page.', 'kept'));
  }
});
document.addEventListener('htmx:after:swap', () => times(document));
document.addEventListener('htmx:before:request', e => {
  if (!e.detail.ctx || e.detail.ctx.request.method === 'GET') return;
  document.getElementById('alert').textContent = document.getElementById('notice').textContent = '';
  document.querySelector('.unsent')?.remove();
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

const goTo = { n: '', b: 'board', c: 'schedules', h: 'history', j: 'jobs', s: 'sources', t: 'trust' };
let going = 0;

document.addEventListener('keydown', e => {
  if (e.ctrlKey || e.metaKey || e.altKey) return;
  const field = e.target.closest('input, textarea, select');
  if (e.key === 'Escape') {
    if (field?.type === 'search') e.preventDefault(); // browsers would empty it
    if (field) field.blur();
    const menu = document.activeElement.closest('details[open]');
    if (menu) { menu.open = false; menu.querySelector('summary').focus(); }
    return;
  }
  if (field || document.querySelector('dialog[open]')) return;
  if (Date.now() - going < 1500 && e.key in goTo) {
    location.assign(base + goTo[e.key]);
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

// The newest message is in view, unless the reader has scrolled up.
let following = true;
function follow() {
  const box = document.querySelector('.messages');
  if (box && following && 'newest' in box.dataset) box.scrollTop = box.scrollHeight;
}
document.addEventListener('scroll', e => {
  const box = e.target;
  if (box.classList?.contains('messages')) following = box.scrollTop + box.clientHeight > box.scrollHeight - 30;
}, true);
document.addEventListener('htmx:after:swap', follow);

// A comment on a line that a person judges begins a line of their feedback.
function commentInto(field, row) {
  const [before, now] = [...row.cells].map(c => c.textContent), file = row.closest('.diff').dataset.file;
  if (!before && !now) return;
  field.value = `${field.value.trimEnd()}${field.value.trim() ? '\n' : ''}${file}:${now || `${before} (before)`}: `;
  field.focus();
  field.setSelectionRange(field.value.length, field.value.length);
}

// A comment on a line of a diff: by a click on the line's number, or with Enter on the line that has the
// focus. The arrow keys walk the lines.
function commentOn(row, cell) {
  const answer = row.closest('form.answer');
  if (answer) { commentInto(answer.querySelector('textarea'), row); return; }
  const dialog = document.getElementById('comment'), table = row.closest('.diff');
  if (!dialog || !table) return;
  const cells = [...row.cells], split = table.classList.contains('split');
  let left = row.classList.contains('del');
  if (split) left = cell ? cells.indexOf(cell) < 2 : !cells[2]?.textContent;
  const number = cells[left ? 0 : split ? 2 : 1]?.textContent;
  if (!number || row.classList.contains('remark')) return;
  const form = dialog.querySelector('form').elements, set = (name, value) => { form[name].value = value; };
  set('repo', table.dataset.repo);
  set('file', table.dataset.file);
  set('line', number);
  set('side', left ? 'old' : 'new');
  dialog.querySelector('[data-where]').textContent = `${table.dataset.file}:${number}`;
  const line = cells[split ? (left ? 1 : 3) : 2].textContent;
  dialog.querySelector('[data-quote]').textContent = split ? line : line.slice(1);
  dialog.showModal();
}

document.addEventListener('keydown', e => {
  const area = e.target.closest('.scroll, .diff tr');
  if (!area || e.ctrlKey || e.metaKey || e.altKey) return;
  const row = area.closest('tr');
  if (e.key === 'Enter' && row) {
    e.preventDefault();
    commentOn(row);
  } else if (e.key === 'ArrowDown' || e.key === 'ArrowUp') {
    const rows = [...area.closest('.scroll').querySelectorAll('tr')];
    const next = rows[row ? rows.indexOf(row) + (e.key === 'ArrowDown' ? 1 : -1) : 0];
    if (!next) return;
    e.preventDefault();
    next.focus();
  }
});

document.addEventListener('htmx:after:request', e => {
  const form = e.target.closest?.('form[method=post]');
  if (!form) return;
  const menu = form.closest('details.menu[open]');
  if (e.detail.ctx.response.raw.ok) form.reset(); // what was sent
  if (e.detail.ctx.response.raw.ok && menu) { menu.open = false; menu.querySelector('summary').focus(); }
});

document.addEventListener('click', e => {
  const number = e.target.closest('.diff .no');
  if (number) commentOn(number.closest('tr'), number);
  if (e.target.closest('[data-close]')) e.target.closest('dialog').close();
  const code = e.target.closest('code.command');
  if (code && navigator.clipboard) navigator.clipboard.writeText(code.textContent).then(() => {
    code.dataset.copied = '';
    setTimeout(() => delete code.dataset.copied, 1500);
  });
});

// Filters are in the URL, for Back and for links.
document.addEventListener('input', e => {
  const form = e.target.closest('form.filter');
  if (!form) return;
  const query = new URLSearchParams([...new FormData(form)].filter(([, value]) => value));
  history.replaceState(null, '', query.size ? '?' + query : location.pathname);
});

// An error names the field that it is about: it gets the focus, and the message beside it, until it is changed.
let wrong;
function right(field) {
  field.removeAttribute('aria-invalid');
  field.removeAttribute('aria-describedby');
  document.getElementById('wrong')?.remove();
}
document.addEventListener('htmx:after:request', e => {
  const form = e.target.closest?.('form[method=post]'), response = e.detail.ctx.response?.raw;
  const name = form && response && !response.ok && response.headers.get('X-Field');
  wrong = name && [...form.elements].find(f => f.name === name && f.type !== 'hidden');
  if (form) [...form.elements].filter(f => f.hasAttribute('aria-invalid')).forEach(right);
  if (!wrong) form?.closest('dialog[open]')?.close();
});
document.addEventListener('htmx:after:swap', () => {
  const message = document.getElementById('alert').textContent;
  if (!wrong || !message) return;
  const note = Object.assign(document.createElement('p'), { id: 'wrong', textContent: message });
  wrong.after(note);
  for (let menu = wrong.closest('details'); menu; menu = menu.parentElement.closest('details')) menu.open = true;
  wrong.setAttribute('aria-invalid', 'true');
  wrong.setAttribute('aria-describedby', 'wrong');
  wrong.focus();
  wrong = null;
});
document.addEventListener('input', e => { if (e.target.hasAttribute('aria-invalid')) right(e.target); });

// What is fetched after news is the page of the URL, whatever it was when it was loaded, and only if it is
// not what the last news brought.
let etag = '';
document.addEventListener('htmx:before:response', e => {
  const { ctx } = e.detail;
  etag = ctx.sourceElement.id === 'main' && ctx.response.headers.get('ETag') || '';
});
document.addEventListener('htmx:config:request', e => {
  const { ctx } = e.detail;
  if (ctx.sourceElement.id !== 'main') return;
  ctx.request.action = location.pathname + location.search;
  if (etag) ctx.request.headers['If-None-Match'] = etag;
});

times(document);
setInterval(() => times(document), 10000);
follow();

// A person judges or overrides what they were shown: if the agent hands in something else meanwhile, the form keeps the
// digest of what was shown, which does not count for that, and says so. In a closed menu nothing is shown.
const shown = new Map();
const question = form => form.action + ' ' + form.elements.step.value;
function keepShown() {
  for (const form of document.querySelectorAll('form.answer, form.override')) {
    if (form.closest('details:not([open])')) { shown.delete(question(form)); continue; }
    const digest = form.elements.digest ?? form.elements.given, first = shown.get(question(form)) || digest.value;
    shown.set(question(form), first);
    if (digest.value === first) continue;
    digest.value = first;
    const note = Object.assign(document.createElement('p'), { className: 'alert changed', textContent: 'The agent has handed in something else since. ' });
    note.append(Object.assign(document.createElement('a'), { href: location.href, textContent: 'Show it' }));
    form.querySelector('.changed')?.remove();
    form.prepend(note);
  }
}
document.addEventListener('submit', e => { if (e.target.matches('form.answer, form.override')) shown.delete(question(e.target)); });
document.addEventListener('htmx:after:swap', keepShown);
document.addEventListener('toggle', keepShown, true);
keepShown();
