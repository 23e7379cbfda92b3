// Dialogs: the browser's own, which keeps the focus inside and gives it back.
import {copyText, h, iconButton} from '../base/dom.js';

// Shows a dialog until it is closed. `body` are its children. Resolves to its return value.
export function openDialog(title, body, {className = '', onclose = () => {}} = {}) {
  const heading = h('h2', {id: `dialog-${Math.random().toString(36).slice(2)}`}, title);
  const dialog = h('dialog', {class: `dialog ${className}`, 'aria-labelledby': heading.id},
    h('header', {class: 'dialog-head'}, heading, iconButton('close', 'Close', () => dialog.close(''))), body);
  dialog.addEventListener('click', (event) => {
    if (event.target === dialog) dialog.close('');  // beside it
  });
  document.body.append(dialog);
  dialog.showModal();
  return {
    dialog,
    closed: new Promise((resolve) => dialog.addEventListener('close', () => {
      dialog.remove();
      onclose();
      resolve(dialog.returnValue);
    })),
  };
}

export async function confirmDialog(title, text, action) {
  const form = h('form', {method: 'dialog', class: 'dialog-body'}, h('p', {}, text),
    h('div', {class: 'dialog-buttons'}, h('button', {class: 'quiet', value: ''}, 'Cancel'), h('button', {class: 'primary danger', value: 'yes'}, action)));
  return (await openDialog(title, form, {className: 'narrow'}).closed) === 'yes';
}

// Asks for a line of text; null where the user gave up.
export async function askText(title, label, value = '', {type = 'text', hint = '', action = 'Save'} = {}) {
  const input = h('input', {type, value, 'aria-label': label, autocomplete: 'off', required: true});
  const form = h('form', {method: 'dialog', class: 'dialog-body'}, hint ? h('p', {}, hint) : null, h('label', {class: 'field'}, h('span', {}, label), input),
    h('div', {class: 'dialog-buttons'}, h('button', {type: 'button', class: 'quiet', onclick: () => form.closest('dialog').close('')}, 'Cancel'), h('button', {class: 'primary', value: 'yes'}, action)));
  const {closed} = openDialog(title, form, {className: 'narrow'});
  input.select();
  return (await closed) === 'yes' ? input.value.trim() : null;
}

export function showText(name, text) {
  const copy = h('button', {type: 'button', class: 'quiet', onclick: () => copyText(text)}, 'Copy');
  openDialog(name, h('div', {class: 'dialog-body'}, h('pre', {class: 'plain', tabindex: '0', 'aria-label': name}, text), h('div', {class: 'dialog-buttons'}, copy)), {className: 'wide'});
}
