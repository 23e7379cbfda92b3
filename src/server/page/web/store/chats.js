// The chats of this browser: a list in memory, everything else read when it is needed. Other windows
// of the page are told of changes and tell of theirs.
import {firstLine} from '../base/text.js';
import {openDatabase} from './database.js';
import {Tree, newId} from './tree.js';

export class Chats extends EventTarget {
  #db;
  #list = new Map();
  #channel = 'BroadcastChannel' in globalThis ? new BroadcastChannel('moeflux') : null;

  static async open() {
    const chats = new Chats();
    chats.#db = await openDatabase();
    for (const chat of await chats.#db.all('chats')) chats.#list.set(chat.id, chat);
    if (chats.#channel) {
      chats.#channel.onmessage = async ({data}) => {
        chats.#list = new Map((await chats.#db.all('chats')).map((chat) => [chat.id, chat]));
        chats.dispatchEvent(new CustomEvent('change', {detail: {...data, elsewhere: true}}));
      };
    }
    return chats;
  }

  get isKept() { return this.#db.isKept; }
  get(id) { return this.#list.get(id); }
  // The one used last comes first.
  list() { return [...this.#list.values()].sort((a, b) => b.updated - a.updated); }

  create(options = {}) {
    const now = Date.now();
    return {id: newId(), title: '', created: now, updated: now, leaf: null, model: '', options};
  }

  async saveChat(chat, {touch = true} = {}) {
    if (touch) chat.updated = Date.now();
    this.#list.set(chat.id, chat);
    await this.#db.put('chats', chat);
    this.#tell(chat.id);
  }

  async saveMessage(chat, message) {
    await this.#db.put('messages', message);
    if (!chat.title && message.role === 'user') chat.title = firstLine(message.content || message.files?.[0]?.name || 'Chat');
    await this.saveChat(chat);
  }

  // Of an answer that is still growing: nobody is told.
  keepDraft(message) { return this.#db.put('messages', message); }

  async tree(id) { return new Tree(await this.#db.messagesOf(id)); }

  async remove(id) {
    const chat = this.#list.get(id), messages = await this.#db.messagesOf(id);
    this.#list.delete(id);
    await this.#db.removeChat(id);
    this.#tell(id);
    return {chat, messages};
  }

  async restore({chat, messages}) {
    await this.#db.put('messages', ...messages);
    await this.saveChat(chat, {touch: false});
  }

  async removeAll() {
    this.#list.clear();
    await this.#db.clear();
    this.#tell(null);
  }

  allMessages() { return this.#db.all('messages'); }

  // Everything of chats that are new or newer than here. Returns how many were.
  async merge(entries) {
    let n = 0;
    for (const {chat, messages} of entries) {
      const mine = this.#list.get(chat.id);
      if (mine && mine.updated >= chat.updated) continue;
      await this.#db.put('messages', ...messages);
      await this.#db.put('chats', chat);
      this.#list.set(chat.id, chat);
      ++n;
    }
    this.#tell(null);
    return n;
  }

  // Chats that have all the words, in their title or in one message: [{chat, excerpt}].
  async search(text) {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    const found = new Map();
    const matches = (where) => words.every((word) => where.includes(word));
    for (const chat of this.#list.values()) {
      if (matches(chat.title.toLowerCase())) found.set(chat.id, '');
    }
    for (const message of await this.#db.all('messages')) {
      if (found.get(message.chat) || !message.content) continue;
      const lower = message.content.toLowerCase();
      if (matches(lower)) found.set(message.chat, excerpt(message.content, lower.indexOf(words[0])));
    }
    return this.list().filter((chat) => found.has(chat.id)).map((chat) => ({chat, excerpt: found.get(chat.id)}));
  }

  #tell(id) {
    this.#channel?.postMessage({id});
    this.dispatchEvent(new CustomEvent('change', {detail: {id, elsewhere: false}}));
  }
}

function excerpt(text, at) {
  const begin = Math.max(0, at - 30);
  return `${begin > 0 ? '…' : ''}${text.slice(begin, at + 60).replace(/\s+/g, ' ').trim()}…`;
}
