// Keys that work everywhere in the page, and the dialog that lists them.
import {h} from '../base/dom.js';
import {openDialog} from './dialog.js';

const LIST = [
  ['Send', 'Enter'], ['New line', 'Shift + Enter'], ['Edit the last message', '↑ in an empty box'], ['Stop the answer', 'Esc'], ['Message box', '/'],
  ['New chat', 'Ctrl + Shift + O'], ['Search', 'Ctrl + K'], ['Chat above, below', 'Alt + ↑, ↓'], ['Engine', 'Alt + E'], ['These keys', '?'],
];

const isText = (element) => element?.matches?.('input:not([type=range]):not([type=checkbox]):not([type=radio]), textarea, select, [contenteditable]');

// actions: {stop(), prompt(), begin(), search(), step(by), engine()}
export function listenToKeys(actions) {
  addEventListener('keydown', (event) => {
    if (document.querySelector('dialog[open]')) return;
    const control = event.ctrlKey || event.metaKey, key = event.key.toLowerCase();
    let action = null;
    if (control && event.shiftKey && key === 'o') action = actions.begin;
    else if (control && !event.shiftKey && key === 'k') action = actions.search;
    else if (event.altKey && (key === 'e' || event.code === 'KeyE')) action = actions.engine;
    else if (event.altKey && key === 'arrowup') action = () => actions.step(-1);
    else if (event.altKey && key === 'arrowdown') action = () => actions.step(1);
    else if (key === 'escape') action = actions.stop;
    else if (control || event.altKey || isText(event.target)) return;
    else if (key === '/') action = actions.prompt;
    else if (key === '?') action = showKeys;
    if (!action) return;
    event.preventDefault();
    action();
  });
}

function showKeys() {
  openDialog('Keys', h('div', {class: 'dialog-body'}, h('dl', {class: 'keys'}, LIST.map(([name, keys]) => h('div', {}, h('dt', {}, name), h('dd', {}, h('kbd', {}, keys)))))), {className: 'narrow'});
}
