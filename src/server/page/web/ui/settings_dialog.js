// What holds for the whole page.
import {h, toast} from '../base/dom.js';
import {getJson} from '../base/api.js';
import {setSetting, setting} from '../base/settings.js';
import {plural} from '../base/text.js';
import {confirmDialog, openDialog} from './dialog.js';
import {exportAll, importChats} from './sidebar.js';

function choice(name, setTo, entries) {
  return entries.map(([value, label]) => h('label', {class: 'radio'},
    h('input', {type: 'radio', name, value, checked: setting(setTo) === value, onchange: () => setSetting(setTo, value)}), h('span', {}, label)));
}

export function settingsDialog(chats) {
  const key = h('input', {type: 'password', value: setting('key'), autocomplete: 'off', placeholder: 'None', onchange: () => setSetting('key', key.value.trim())});
  const server = h('p', {class: 'hint'}, '');
  getJson('/api/version').then(({moeflux}) => { server.textContent = `moeflux ${moeflux} at ${location.host}`; }).catch(() => {});
  const n = chats.list().length;
  openDialog('Settings', h('div', {class: 'dialog-body settings'},
    h('fieldset', {class: 'segments'}, h('legend', {}, 'Appearance'), choice('theme', 'theme', [['system', 'As the system'], ['light', 'Light'], ['dark', 'Dark']])),
    h('fieldset', {class: 'segments'}, h('legend', {}, 'Send a message with'), choice('send', 'sendWith', [['enter', 'Enter'], ['ctrl', 'Ctrl + Enter']])),
    h('label', {class: 'field'}, h('span', {}, 'Key of the server'), key, h('small', {}, 'Only where the server was started with --api-key. It is kept in this browser.')),
    h('fieldset', {}, h('legend', {}, 'Chats'),
      h('p', {class: 'hint'}, chats.isKept ? `${plural(n, 'chat')} in this browser. They are never sent anywhere but, message by message, to this server.` : 'This browser keeps nothing here: chats are lost when the page is closed.'),
      h('div', {class: 'buttons'},
        h('button', {type: 'button', onclick: () => exportAll(chats)}, 'Export all'),
        h('button', {type: 'button', onclick: () => importChats(chats)}, 'Import'),
        h('button', {type: 'button', class: 'danger', onclick: async () => {
          if (!await confirmDialog('Delete all chats?', `${plural(n, 'chat')} will be gone from this browser. Export them first if in doubt.`, 'Delete all')) return;
          await chats.removeAll();
          dispatchEvent(new Event('moeflux:emptied'));
          toast('All chats were deleted.');
        }}, 'Delete all'))),
    h('p', {class: 'hint'}, 'Press ', h('kbd', {}, '?'), ' outside of a text to see the keys.'), server));
}
