// Puts the page together.
import {countTokens, onKeyNeeded} from './base/api.js';
import {toast} from './base/dom.js';
import {setSetting, setting} from './base/settings.js';
import {Composer} from './chat/composer.js';
import {Conversation} from './chat/conversation.js';
import {Thread} from './chat/thread.js';
import {EnginePanel} from './engine/panel.js';
import {Chats} from './store/chats.js';
import {askText} from './ui/dialog.js';
import {Intro} from './ui/intro.js';
import {listenToKeys} from './ui/keys.js';
import {Models} from './ui/models.js';
import {parametersDialog} from './ui/parameters_dialog.js';
import {settingsDialog} from './ui/settings_dialog.js';
import {Sidebar} from './ui/sidebar.js';
import {followTheme} from './ui/theme.js';
import {Topbar} from './ui/topbar.js';

const part = (id) => document.getElementById(id);
const app = part('app');
const narrow = matchMedia('(max-width: 860px)');

const chats = await Chats.open();
const models = new Models();
const conversation = new Conversation(chats, () => models.current, () => setting('chat'));

function setSidebar(open, remember = true) {
  app.dataset.sidebar = open ? 'open' : 'closed';
  part('scrim').hidden = !(open && narrow.matches);
  part('sidebar').inert = !open;
  if (remember && !narrow.matches) setSetting('sidebar', open ? 'open' : 'closed');
}

function begin() {
  if (conversation.path.length > 0 || !conversation.isNew) conversation.begin();
  if (narrow.matches) setSidebar(false);
  composer.focus();
}

async function open(id) {
  if (!await conversation.open(id)) return begin();
  if (narrow.matches) setSidebar(false);
  if (!matchMedia('(pointer: coarse)').matches) composer.focus();
}

const engine = new EnginePanel(part('engine'), app, () => models.current);
const toggleEngine = () => {
  engine.toggle();
  if (narrow.matches && engine.isOpen) part('engine').querySelector('button').focus();
};
new MutationObserver(() => topbar.setEngine(engine.isOpen)).observe(app, {attributeFilter: ['data-engine']});
engine.onclose = () => topbar.focusEngine();

const topbar = new Topbar(part('topbar'), chats, conversation, models, {
  sidebar: () => {
    setSidebar(app.dataset.sidebar !== 'open');
    if (narrow.matches) part('sidebar').querySelector('button').focus();
  },
  begin,
  parameters: () => parametersDialog(conversation, models),
  engine: toggleEngine,
});
topbar.setEngine(engine.isOpen);

const sidebar = new Sidebar(part('sidebar'), chats, conversation, {open, begin, settings: () => settingsDialog(chats), close: () => setSidebar(false)});
const thread = new Thread(part('conversation'), conversation, new Intro(models).element);
const composer = new Composer(part('composer'), {
  onsend: (text, files) => conversation.ask(text, files).catch((error) => toast(error.message)),
  onstop: () => conversation.stop(),
  onlast: () => thread.editLast(),
  countTokens: (text) => countTokens(models.current, text),
});

conversation.addEventListener('open', () => {
  composer.open(conversation.chat.id);
  composer.setRunning(Boolean(conversation.run));
  const hash = conversation.isNew ? '' : `#${conversation.chat.id}`;
  if (location.hash !== hash) history.pushState(null, '', hash || location.pathname);
});
conversation.addEventListener('path', () => {
  const hash = conversation.isNew ? '' : `#${conversation.chat.id}`;
  if (location.hash !== hash) history.replaceState(null, '', hash || location.pathname);
});
conversation.addEventListener('running', () => composer.setRunning(Boolean(conversation.run)));
conversation.addEventListener('grow', () => models.answers());
addEventListener('popstate', () => {
  const id = location.hash.slice(1);
  if (id && id !== conversation.chat.id) open(id);
  else if (!id && !conversation.isNew) begin();
});
addEventListener('moeflux:emptied', begin);

// What another window did to the chat that is open here.
chats.addEventListener('change', ({detail}) => {
  if (!detail.elsewhere || conversation.run || conversation.isNew) return;
  if (!chats.get(conversation.chat.id)) begin();
  else if (detail.id === conversation.chat.id) conversation.open(conversation.chat.id);
});

models.addEventListener('change', () => engine.modelChanged());
part('scrim').addEventListener('click', () => setSidebar(false));
narrow.addEventListener('change', () => setSidebar(!narrow.matches && setting('sidebar') === 'open', false));
setSidebar(!narrow.matches && setting('sidebar') === 'open', false);
followTheme(() => engine.recolour());

listenToKeys({
  stop: () => {
    if (narrow.matches && app.dataset.sidebar === 'open') setSidebar(false);
    else conversation.stop();
  },
  prompt: () => composer.focus(),
  begin,
  search: () => {
    setSidebar(true);
    sidebar.focusSearch();
  },
  step: (by) => sidebar.step(by),
  engine: toggleEngine,
});

// Several requests may find out at once that a key is needed: one dialog asks for all.
let asking = null;
onKeyNeeded((message) => {
  asking ??= (async () => {
    const key = await askText('A key is needed', 'Key', setting('key'), {type: 'password', hint: `${message[0].toUpperCase()}${message.slice(1)}.`, action: 'Use this key'});
    if (key) setSetting('key', key);
    return Boolean(key);
  })().finally(() => { asking = null; });
  return asking;
});

if (!chats.isKept) toast('This browser keeps nothing here: chats are lost when the page is closed.', {seconds: 12});
const id = location.hash.slice(1);
if (!id || !await conversation.open(id)) composer.open(conversation.chat.id);
await models.refresh();
if (!matchMedia('(pointer: coarse)').matches) composer.focus();
document.documentElement.dataset.ready = 'true';
