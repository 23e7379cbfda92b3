// The messages of the open branch, from top to bottom. Stays at the end while an answer grows, unless the
// reader has gone elsewhere.
import {announce, h, iconButton} from '../base/dom.js';
import {AnswerView, UserView} from './message_view.js';

const NEAR = 80;  // pixels from the end that count as the end

export class Thread {
  #element;
  #conversation;
  #list = h('div', {class: 'thread'});
  #views = new Map();
  #end = iconButton('down', 'To the end', () => this.#toEnd(true), {class: 'icon-button to-end', hidden: true});
  #frame = 0;
  #changed = new Set();
  #follows = true;
  #intro;
  #resume = h('button', {type: 'button', class: 'resume', onclick: () => this.#conversation.resume()}, 'Get an answer');

  // intro: an element for a chat without messages.
  constructor(element, conversation, intro) {
    this.#element = element;
    this.#conversation = conversation;
    this.#intro = intro;
    element.append(this.#list, this.#end);
    conversation.addEventListener('open', () => {
      this.#views.clear();
      this.#follows = true;
      this.#draw();
      this.#toEnd();
    });
    conversation.addEventListener('path', () => {
      this.#draw();
      this.#toEnd();
    });
    conversation.addEventListener('grow', ({detail}) => this.#grew(detail));
    conversation.addEventListener('running', ({detail}) => {
      if (detail.chat === conversation.chat) this.#draw();
    });
    element.addEventListener('scroll', () => this.#scrolled(), {passive: true});
    new ResizeObserver(() => this.#follows && this.#toEnd()).observe(this.#list);
    this.#draw();
  }

  editLast() {
    const last = this.#conversation.path.findLast((message) => message.role === 'user');
    if (last) this.#views.get(last.id)?.view.edit();
  }

  #draw() {
    const {tree, path, run} = this.#conversation;
    this.#element.classList.toggle('is-empty', path.length === 0);
    if (path.length === 0) {
      this.#views.clear();
      return this.#list.replaceChildren(this.#intro);
    }
    const actions = {
      choose: (id) => this.#conversation.choose(id),
      edit: (id, text, files) => this.#conversation.edit(id, text, files),
      retry: (id) => this.#conversation.retry(id),
      giveResults: (id, results) => this.#conversation.giveResults(id, results),
    };
    const shown = [];
    path.forEach((message, i) => {
      if (message.role === 'tool') return;
      const results = path[i + 1]?.role === 'tool' ? path[i + 1].results : null;
      const branches = tree.branches(message.id);
      const isRunning = run?.message === message;
      // Whatever a view was made of; it is made anew when that changes.
      const key = `${branches.index}/${branches.siblings.length}/${results ? 'results' : ''}`;
      let held = this.#views.get(message.id);
      if (!held || held.key !== key || held.message !== message) {
        const view = message.role === 'user' ? new UserView(message, branches, actions) : new AnswerView(message, branches, results, actions);
        held = {view, key, message};
        this.#views.set(message.id, held);
      }
      held.view.update(isRunning ? run : null);
      shown.push(held.view.element);
    });
    if (path.at(-1).role !== 'assistant' && !run) shown.push(this.#resume);
    const wanted = new Set(shown);
    for (const child of [...this.#list.children]) if (!wanted.has(child)) child.remove();
    shown.forEach((element, i) => {
      if (this.#list.children[i] !== element) this.#list.insertBefore(element, this.#list.children[i] ?? null);
    });
  }

  #grew({chat, message, ended}) {
    if (chat !== this.#conversation.chat) return;
    if (ended) announce(message.error ?? (message.content ? `Answer: ${message.content.slice(0, 1000)}` : message.calls?.length ? `The model calls ${message.calls.map((call) => call.name).join(', ')}.` : 'The answer has ended.'));
    this.#changed.add(message.id);
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0;
      for (const id of this.#changed) {
        const {run} = this.#conversation;
        this.#views.get(id)?.view.update(run?.message.id === id ? run : null);
      }
      this.#changed.clear();
      if (this.#follows) this.#toEnd();
    });
  }

  #scrolled() {
    const {scrollTop, scrollHeight, clientHeight} = this.#element;
    this.#follows = scrollHeight - scrollTop - clientHeight < NEAR;
    this.#end.hidden = this.#follows;
  }
  #toEnd(smooth = false) {
    this.#element.scrollTo({top: this.#element.scrollHeight, behavior: smooth && !matchMedia('(prefers-reduced-motion: reduce)').matches ? 'smooth' : 'instant'});
  }
}
