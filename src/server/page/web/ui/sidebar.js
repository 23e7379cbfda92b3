// The list of chats: by time, or what a search has found.
import {announce, chooseFiles, download, h, icon, iconButton, toast} from '../base/dom.js';
import {dayOf, plural, stamp} from '../base/text.js';
import {fromJson, toJson, toMarkdown} from '../store/transfer.js';
import {askText} from './dialog.js';
import {openMenu} from './menu.js';

export class Sidebar {
  #chats;
  #conversation;
  #actions;
  #search = h('input', {type: 'search', placeholder: 'Search', 'aria-label': 'Search the chats', autocomplete: 'off'});
  #list = h('div', {class: 'chat-list'});
  #asked = 0;

  // actions: {open(id), begin(), settings(), close()}
  constructor(element, chats, conversation, actions) {
    this.#chats = chats;
    this.#conversation = conversation;
    this.#actions = actions;
    element.append(
      h('div', {class: 'sidebar-head'}, h('span', {class: 'wordmark'}, h('span', {class: 'mark', 'aria-hidden': 'true'}, icon('engine')), 'moeflux'),
        iconButton('close', 'Close the list of chats', actions.close, {class: 'icon-button narrow-only'})),
      h('button', {type: 'button', class: 'new-chat', onclick: actions.begin}, icon('plus'), h('span', {}, 'New chat')),
      h('div', {class: 'search'}, icon('search'), this.#search),
      this.#list,
      h('div', {class: 'sidebar-foot'}, h('button', {type: 'button', class: 'quiet', onclick: actions.settings}, icon('gear'), h('span', {}, 'Settings'))));
    this.#search.addEventListener('input', () => this.#draw());
    this.#search.addEventListener('keydown', (event) => {
      if (event.key === 'Escape' && this.#search.value) {
        event.stopPropagation();
        this.#search.value = '';
        this.#draw();
      } else if (event.key === 'ArrowDown') {
        this.#list.querySelector('.chat-open')?.focus();
        event.preventDefault();
      }
    });
    this.#list.addEventListener('keydown', (event) => this.#move(event));
    chats.addEventListener('change', () => this.#draw());
    for (const name of ['open', 'running']) conversation.addEventListener(name, () => this.#draw());
    this.#draw();
  }

  focusSearch() {
    this.#search.focus();
    this.#search.select();
  }

  async #draw() {
    const asked = ++this.#asked;
    const text = this.#search.value.trim();
    const groups = [];
    if (text) {
      const found = await this.#chats.search(text);
      if (asked !== this.#asked) return;
      groups.push([found.length > 0 ? `Found ${plural(found.length, 'chat')}` : 'Nothing was found', found]);
      announce(groups[0][0]);
    } else {
      for (const chat of this.#chats.list()) {
        const day = dayOf(chat.updated);
        if (groups.at(-1)?.[0] !== day) groups.push([day, []]);
        groups.at(-1)[1].push({chat, excerpt: ''});
      }
    }
    const focused = document.activeElement?.closest?.('.chat-item')?.dataset.id;
    this.#list.replaceChildren(...groups.map(([name, entries]) => h('section', {}, h('h2', {class: 'group'}, name), h('ul', {}, entries.map((entry) => this.#item(entry))))));
    if (groups.length === 0) this.#list.append(h('p', {class: 'hint no-chats'}, 'Chats are kept in this browser. There are none yet.'));
    if (focused) this.#list.querySelector(`[data-id="${CSS.escape(focused)}"] .chat-open`)?.focus();
  }

  #item({chat, excerpt}) {
    const isOpen = chat.id === this.#conversation.chat.id;
    const title = chat.title || 'New chat';
    const more = iconButton('more', `More for ${title}`, () => openMenu(more, [
      {label: 'Rename', onclick: () => this.#rename(chat)},
      {label: 'Save as Markdown', onclick: () => this.#save(chat, 'md')},
      {label: 'Save as JSON', onclick: () => this.#save(chat, 'json')},
      {label: 'Delete', danger: true, onclick: () => this.#remove(chat)},
    ]), {class: 'icon-button small', 'aria-haspopup': 'menu', 'aria-expanded': 'false'});
    return h('li', {class: 'chat-item', 'data-id': chat.id},
      h('button', {type: 'button', class: 'chat-open', 'aria-current': isOpen ? 'page' : null, onclick: () => this.#actions.open(chat.id)},
        h('span', {class: 'chat-title'}, title), excerpt ? h('span', {class: 'excerpt'}, excerpt) : null,
        this.#conversation.isRunning(chat.id) ? h('span', {class: 'busy', role: 'img', 'aria-label': 'answering'}) : null),
      more);
  }

  #move(event) {
    if (!['ArrowDown', 'ArrowUp'].includes(event.key)) return;
    const items = [...this.#list.querySelectorAll('.chat-open')];
    const at = items.indexOf(document.activeElement);
    if (at < 0) return;
    event.preventDefault();
    const to = at + (event.key === 'ArrowDown' ? 1 : -1);
    if (to < 0) this.#search.focus();
    else items[Math.min(to, items.length - 1)].focus();
  }

  // The chat before or after the open one.
  step(by) {
    const list = this.#chats.list();
    const at = list.findIndex((chat) => chat.id === this.#conversation.chat.id);
    const to = list[at < 0 ? 0 : Math.min(Math.max(at + by, 0), list.length - 1)];
    if (to) this.#actions.open(to.id);
  }

  async #rename(chat) {
    const title = await askText('Rename the chat', 'Title', chat.title);
    if (!title) return;
    chat.title = title;
    await this.#chats.saveChat(chat, {touch: false});
  }

  async #save(chat, ending) {
    const tree = await this.#chats.tree(chat.id);
    const name = `${chat.title.replace(/[^\p{L}\p{N}]+/gu, '-').replace(/^-|-$/g, '').slice(0, 50) || 'chat'}.${ending}`;
    if (ending === 'md') download(name, toMarkdown(chat, tree.path(chat.leaf)), 'text/markdown');
    else download(name, toJson([{chat, messages: tree.all()}]));
  }

  async #remove(chat) {
    await this.#conversation.stop(chat.id);
    if (chat.id === this.#conversation.chat.id) this.#actions.begin();
    const removed = await this.#chats.remove(chat.id);
    toast('The chat was deleted.', {action: 'Undo', onaction: () => this.#chats.restore(removed)});
  }
}

export async function exportAll(chats) {
  const messages = Map.groupBy ? Map.groupBy(await chats.allMessages(), (message) => message.chat) : grouped(await chats.allMessages());
  download(`moeflux-chats-${stamp()}.json`, toJson(chats.list().map((chat) => ({chat, messages: messages.get(chat.id) ?? []}))));
}
function grouped(messages) {
  const groups = new Map();
  for (const message of messages) groups.set(message.chat, [...(groups.get(message.chat) ?? []), message]);
  return groups;
}

export async function importChats(chats) {
  const files = await chooseFiles({accept: '.json,application/json', multiple: true});
  for (const file of files) {
    try {
      const entries = fromJson(await file.text());
      const n = await chats.merge(entries);
      toast(`${plural(n, 'chat')} of ${entries.length} ${n === 1 ? 'was' : 'were'} new or newer than here.`);
    } catch (error) {
      toast(`${file.name}: ${error.message}`);
    }
  }
}
