// Where a question is written.
import {chooseFiles, h, icon, iconButton} from '../base/dom.js';
import {setting} from '../base/settings.js';
import {Attachments, isLongPaste} from './attachments.js';

const GROWS = CSS.supports('field-sizing', 'content');  // a text area by itself

export class Composer {
  #text = h('textarea', {id: 'prompt', rows: '1', placeholder: 'Write a message', 'aria-label': 'Message', autocomplete: 'off', enterkeyhint: 'send'});
  #send = h('button', {type: 'submit', class: 'send', 'aria-label': 'Send', title: 'Send'}, icon('send'));
  #drafts = new Map();
  #chat = null;
  #coarse = matchMedia('(pointer: coarse)');
  #form;
  isRunning = false;
  attachments;

  // onsend(text, files), onstop(), onlast(): the user wants to edit the last question.
  constructor(element, {onsend, onstop, onlast, countTokens}) {
    this.attachments = new Attachments(countTokens);
    const attach = iconButton('attach', 'Attach text files', async () => this.attachments.addFiles(await chooseFiles({multiple: true})));
    this.#form = h('form', {class: 'composer-box', onsubmit: (event) => {
      event.preventDefault();
      if (this.isRunning) onstop();
      else this.#submit(onsend);
    }}, this.attachments.element, h('div', {class: 'composer-row'}, attach, this.#text, this.#send));
    element.append(this.#form, h('p', {class: 'composer-note'}, 'Models make mistakes. Everything stays on this server and in this browser.'));
    this.#text.addEventListener('input', () => this.#resize());
    this.#text.addEventListener('keydown', (event) => {
      if (event.isComposing) return;
      if (event.key === 'Enter' && this.#sends(event)) {
        event.preventDefault();
        if (!this.isRunning) this.#submit(onsend);
      } else if (event.key === 'ArrowUp' && this.#text.value === '') {
        event.preventDefault();
        onlast();
      }
    });
    this.#text.addEventListener('paste', (event) => {
      const files = [...(event.clipboardData?.files ?? [])];
      const text = event.clipboardData?.getData('text/plain') ?? '';
      if (files.length > 0 && !text) {
        event.preventDefault();
        this.attachments.addFiles(files);
      } else if (isLongPaste(text)) {
        event.preventDefault();
        this.attachments.addPaste(text);
      }
    });
    this.#acceptDrops();
    this.#draw();
  }

  focus() { this.#text.focus(); }

  // Each chat has a text of its own that was not sent yet.
  open(chat) {
    if (this.#chat) this.#drafts.set(this.#chat, {text: this.#text.value, files: this.attachments.files});
    this.#chat = chat;
    const {text, files} = this.#drafts.get(chat) ?? {text: '', files: []};
    this.#text.value = text;
    this.attachments.set(files);
    this.#resize();
  }

  setRunning(running) {
    this.isRunning = running;
    this.#draw();
  }

  // On a phone, Enter is for new lines.
  #sends(event) {
    const withControl = event.ctrlKey || event.metaKey;
    if (withControl) return true;
    return setting('sendWith') === 'enter' && !event.shiftKey && !event.altKey && !this.#coarse.matches;
  }

  #submit(onsend) {
    const text = this.#text.value.trim(), {files} = this.attachments;
    if (!text && files.length === 0) return;
    this.#text.value = '';
    this.attachments.set([]);
    this.#resize();
    onsend(text, files);
  }

  #resize() {
    if (!GROWS) {
      this.#text.style.height = 'auto';
      this.#text.style.height = `${Math.min(this.#text.scrollHeight, innerHeight * 0.4)}px`;
    }
    this.#draw();
  }

  #draw() {
    const label = this.isRunning ? 'Stop' : 'Send';
    if (this.#send.getAttribute('aria-label') !== label) {
      this.#send.replaceChildren(icon(this.isRunning ? 'stop' : 'send'));
      this.#send.setAttribute('aria-label', label);
      this.#send.title = this.isRunning ? 'Stop (Esc)' : 'Send';
    }
    this.#send.classList.toggle('is-stop', this.isRunning);
    this.#send.disabled = !this.isRunning && this.#text.value.trim() === '' && this.attachments.files.length === 0;
  }

  #acceptDrops() {
    let depth = 0;
    const over = (n) => {
      depth = Math.max(0, depth + n);
      this.#form.classList.toggle('is-over', depth > 0);
    };
    addEventListener('dragenter', (event) => event.dataTransfer?.types.includes('Files') && over(1));
    addEventListener('dragleave', (event) => event.dataTransfer?.types.includes('Files') && over(-1));
    addEventListener('dragover', (event) => event.dataTransfer?.types.includes('Files') && event.preventDefault());
    addEventListener('drop', (event) => {
      depth = 0;
      over(0);
      if (event.dataTransfer?.files.length) {
        event.preventDefault();
        this.attachments.addFiles([...event.dataTransfer.files]).then(() => this.#draw());
      }
    });
  }
}
