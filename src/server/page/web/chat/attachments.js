// Files and long pastes that go with a question, as text.
import {h, icon, iconButton, toast} from '../base/dom.js';
import {bytes, count} from '../base/text.js';
import {showText} from '../ui/dialog.js';

const LARGEST = 8 << 20;      // bytes of a file
const LONG_PASTE = 3000;      // characters
const LONG_LINES = 60;

export const isLongPaste = (text) => text.length > LONG_PASTE || text.split('\n').length > LONG_LINES;

// Throws Error that says why a file cannot be sent.
export async function readTextFile(file) {
  if (file.size > LARGEST) throw new Error(`${file.name} is larger than ${bytes(LARGEST)}.`);
  const data = new Uint8Array(await file.arrayBuffer());
  let text;
  try {
    text = new TextDecoder('utf-8', {fatal: true}).decode(data);
  } catch {
    throw new Error(`${file.name} is not a text.`);
  }
  if (text.includes('\0')) throw new Error(`${file.name} is not a text.`);
  return {name: file.name, text: text.replace(/\r\n?/g, '\n')};
}

export function fileChip(file, onremove = null) {
  const chip = h('span', {class: 'chip'},
    h('button', {type: 'button', class: 'chip-name', onclick: () => showText(file.name, file.text), title: `Show ${file.name}`}, icon('file'), h('span', {}, file.name), h('small', {}, bytes(new Blob([file.text]).size))));
  if (onremove) chip.append(iconButton('close', `Remove ${file.name}`, onremove, {class: 'icon-button small'}));
  return chip;
}

export class Attachments {
  files = [];
  element = h('div', {class: 'attachments', hidden: true, role: 'group', 'aria-label': 'Attachments'});
  #tokens = h('span', {class: 'hint'});
  #countTokens;
  #asked = 0;

  // countTokens: of a text, a promise.
  constructor(countTokens) { this.#countTokens = countTokens; }

  set(files) {
    this.files = [...files];
    this.#draw();
  }
  async addFiles(files) {
    for (const file of files) {
      try {
        this.files.push(await readTextFile(file));
      } catch (error) {
        toast(error.message);
      }
    }
    this.#draw();
  }
  addPaste(text) {
    const n = this.files.filter((file) => /^Pasted text/.test(file.name)).length;
    this.files.push({name: `Pasted text ${n + 1}`, text});
    this.#draw();
  }

  #draw() {
    this.element.hidden = this.files.length === 0;
    this.#tokens.textContent = '';
    this.element.replaceChildren(...this.files.map((file) => fileChip(file, () => {
      this.files = this.files.filter((each) => each !== file);
      this.#draw();
    })), this.#tokens);
    if (this.files.length > 0) this.#count();
  }
  async #count() {
    const asked = ++this.#asked;
    try {
      const n = await this.#countTokens(this.files.map((file) => file.text).join('\n'));
      if (asked === this.#asked) this.#tokens.textContent = `${count(n)} tokens`;
    } catch {  // the server will say what is wrong when it is asked
    }
  }
}
