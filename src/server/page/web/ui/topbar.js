// The bar above the conversation.
import {h, icon, iconButton} from '../base/dom.js';
import {countSet} from '../chat/parameters.js';

export class Topbar {
  #title = h('h1', {class: 'title'});
  #engine;
  #parameters;
  #conversation;
  #chats;

  // actions: {sidebar(), begin(), parameters(), engine()}
  constructor(element, chats, conversation, models, actions) {
    this.#conversation = conversation;
    this.#chats = chats;
    this.#parameters = iconButton('sliders', 'Parameters of this chat', actions.parameters);
    this.#engine = h('button', {type: 'button', class: 'engine-button', 'aria-pressed': 'false', 'aria-controls': 'engine', title: 'The engine at work (Alt+E)', onclick: actions.engine}, icon('engine'), h('span', {}, 'Engine'));
    element.append(iconButton('menu', 'List of chats', actions.sidebar, {class: 'icon-button sidebar-button', 'aria-controls': 'sidebar'}),
      this.#title, h('div', {class: 'topbar-tools'}, models.select, this.#parameters, iconButton('plus', 'New chat', actions.begin, {class: 'icon-button narrow-only'}), this.#engine));
    for (const name of ['open', 'path', 'options', 'running']) conversation.addEventListener(name, () => this.draw());
    chats.addEventListener('change', () => this.draw());
    this.draw();
  }

  setEngine(open) { this.#engine.setAttribute('aria-pressed', String(open)); }
  focusEngine() { this.#engine.focus(); }

  draw() {
    const chat = this.#chats.get(this.#conversation.chat.id) ?? this.#conversation.chat;
    const title = chat.title || 'New chat';
    this.#title.textContent = title;
    document.title = chat.title ? `${title} · moeflux` : 'moeflux';
    const set = countSet(this.#conversation.chat.options);
    this.#parameters.dataset.count = set > 0 ? String(set) : '';
    this.#parameters.setAttribute('aria-label', set > 0 ? `Parameters of this chat, ${set} set` : 'Parameters of this chat');
  }
}
