'use strict';
// The board and the pages of tasks and attempts: dialogs, filters, moving cards, and what is copied by a button.

document.documentElement.classList.add('scripted');

function openDialog(dialog) {
  dialog.close(); // one that the server has opened is not modal
  dialog.showModal();
}
for (const dialog of document.querySelectorAll('dialog.sheet[open]')) openDialog(dialog);

const copiedFor = 1500;
document.addEventListener('click', e => {
  const opener = e.target.closest('[data-dialog]');
  const dialog = opener && document.getElementById(opener.dataset.dialog);
  if (dialog && !e.ctrlKey && !e.metaKey) {
    e.preventDefault();
    openDialog(dialog);
  }
  const copy = e.target.closest('[data-copy]');
  if (copy && navigator.clipboard) navigator.clipboard.writeText(copy.dataset.copy).then(() => {
    copy.classList.add('done');
    setTimeout(() => copy.classList.remove('done'), copiedFor);
  });
});

// The fields of the inputs of a workflow come with the page of the form that has it chosen. Those that were there
// before, with what was typed, come back with their workflow.
const fieldsOf = {};
document.addEventListener('change', async e => {
  const into = e.target.dataset.inputs && document.getElementById(e.target.dataset.inputs);
  if (!into) return;
  const of = into.querySelector('[name=inputs_of]')?.value, chosen = e.target.value;
  if (of) fieldsOf[of] = [...into.childNodes];
  if (fieldsOf[chosen]) return into.replaceChildren(...fieldsOf[chosen]);
  const reply = await fetch(`${base}board?${new URLSearchParams({ workflow: chosen })}`);
  const page = new DOMParser().parseFromString(await reply.text(), 'text/html').getElementById('workflow-inputs');
  if (page && e.target.value === chosen) into.replaceChildren(...page.childNodes);
});

// Filters are in the URL, for Back and for links.
let filtering = 0;
function filter(form) {
  const asked = new URLSearchParams([...new FormData(form)].filter(([, value]) => value.trim()));
  history.replaceState(null, '', asked.size ? '?' + asked : location.pathname);
  clearTimeout(filtering);
  filtering = setTimeout(() => htmx.trigger(document.body, 'news'), 150);
}
for (const kind of ['input', 'change']) window.addEventListener(kind, e => {
  const form = e.target.closest?.('form.filters');
  if (form) filter(form);
});
document.addEventListener('submit', e => {
  if (!e.target.matches('form.filters')) return;
  e.preventDefault();
  filter(e.target);
});

// Cards are dragged, or carried with the keys: Enter or Space takes one, arrows choose the column, Enter or Space drops
// it, Escape leaves it where it was.
const columns = () => [...document.querySelectorAll('.column')];
let carried = null, over = null, moved = null;

function say(text) { document.getElementById('moving').textContent = text; }

function aim(column) {
  over?.classList.remove('over');
  over = column;
  over?.classList.add('over');
}

function take(card) {
  carried = card;
  card.classList.add('carried');
  aim(card.closest('.column'));
}

function release() {
  carried?.classList.remove('carried');
  carried = null;
  aim(null);
}

function drop() {
  const card = carried, to = over;
  release();
  const button = to && to !== card.closest('.column') && card.querySelector(`.moves button[value="${to.dataset.status}"]`);
  if (!button) return;
  moved = {id: card.id, to: to.dataset.status};
  button.form.requestSubmit(button);
  say(`Moved to ${to.dataset.name}`);
}

function setDraggable() {
  for (const card of document.querySelectorAll('.card')) card.draggable = !!card.querySelector('.grip');
}
setDraggable();
document.addEventListener('htmx:after:swap', () => {
  setDraggable();
  if (!moved) return;
  const card = document.getElementById(moved.id);
  if (card?.closest('.column').dataset.status !== moved.to) return; // other news, before the reply
  moved = null;
  const fold = card.closest('details');
  if (fold) fold.open = true;
  card.querySelector('.grip')?.focus();
});

document.addEventListener('dragstart', e => {
  const card = e.target.closest?.('.card[draggable=true]');
  if (!card) return;
  e.dataTransfer.setData('text/plain', card.id);
  e.dataTransfer.effectAllowed = 'move';
  take(card);
});
document.addEventListener('dragover', e => {
  const column = carried && e.target.closest('.column');
  if (!column) return;
  e.preventDefault();
  if (column !== over) aim(column);
});
document.addEventListener('drop', e => {
  if (!carried) return;
  e.preventDefault();
  drop();
});
document.addEventListener('dragend', release);

document.addEventListener('keydown', e => {
  const grip = e.target.closest('.grip');
  if (!grip || e.ctrlKey || e.metaKey || e.altKey) return;
  const all = columns();
  if (e.key === 'Enter' || e.key === ' ') {
    e.preventDefault();
    if (carried) return drop();
    take(grip.closest('.card'));
    say(`Carrying, in ${over.dataset.name}. Choose a column with the arrow keys, drop with Enter.`);
  } else if (carried && e.key === 'Escape') {
    release();
    say('Left where it was');
  } else if (carried && (e.key === 'ArrowLeft' || e.key === 'ArrowRight')) {
    e.preventDefault();
    const next = all[all.indexOf(over) + (e.key === 'ArrowRight' ? 1 : -1)];
    if (next) aim(next);
    over.scrollIntoView({ block: 'nearest', inline: 'nearest' });
    say(over.dataset.name);
  }
});
document.addEventListener('focusout', e => {
  if (carried && e.target.closest('.grip') && !e.target.closest('.card').matches(':active')) release();
});
