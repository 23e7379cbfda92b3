// The chat that is open: asks, stops, asks again, goes from one branch to another. Knows nothing of how it
// is shown; says what happens by events: 'open', 'path', 'grow', 'running'.
import {streamChat} from '../base/api.js';
import {Tree, newId} from '../store/tree.js';
import {apiMessages, takeChunk} from './answer.js';
import {isBuiltin, runBuiltin} from './builtin_tools.js';
import {requestFields} from './parameters.js';

const KEEP_EVERY = 1000;  // milliseconds between two copies of a growing answer
const MOST_ROUNDS = 8;    // of calls that the page answers by itself

export class Conversation extends EventTarget {
  #chats;
  #model;
  #runs = new Map();  // by chat: {abort, message, progress, tree, chat, ended}
  chat = null;
  tree = new Tree();
  isNew = true;

  // model: a function that names the one that is to answer; newOptions: those of a new chat.
  constructor(chats, model, newOptions) {
    super();
    this.#chats = chats;
    this.#model = model;
    this.newOptions = newOptions;
    this.begin();
  }

  get path() { return this.tree.path(this.chat.leaf); }
  get run() { return this.#runs.get(this.chat.id) ?? null; }
  isRunning(id) { return this.#runs.has(id); }
  #emit(name, detail) { this.dispatchEvent(new CustomEvent(name, {detail})); }

  begin() {
    this.chat = this.#chats.create(structuredClone(this.newOptions()));
    this.tree = new Tree();
    this.isNew = true;
    this.#emit('open');
  }

  // False: there is no such chat.
  async open(id) {
    const chat = this.#chats.get(id);
    if (!chat) return false;
    const run = this.#runs.get(id);
    const tree = run?.tree ?? await this.#chats.tree(id);
    this.chat = run?.chat ?? chat;
    this.tree = tree;
    this.isNew = false;
    this.#emit('open');
    return true;
  }

  async ask(content, files) {
    const message = this.#made({role: 'user', parent: this.chat.leaf, content});
    if (files.length > 0) message.files = files;
    await this.#add(message);
    await this.#answer();
  }

  // Another question in the place of this one.
  async edit(id, content, files) {
    await this.stop();
    this.chat.leaf = this.tree.get(id).parent;
    await this.ask(content, files);
  }

  // Another answer in the place of this one.
  async retry(id) {
    await this.stop();
    this.chat.leaf = this.tree.get(id).parent;
    this.#emit('path');
    await this.#answer();
  }

  // What the tools of a message gave that the user has filled in.
  async giveResults(id, results) {
    this.chat.leaf = id;
    await this.#add(this.#made({role: 'tool', parent: id, content: '', results}));
    await this.#answer();
  }

  // A question that was left without an answer gets one.
  resume() { return this.#answer(); }

  // Resolves when the answer of the chat has ended and what was said is kept.
  async stop(id = this.chat.id) {
    const run = this.#runs.get(id);
    run?.abort.abort();
    await run?.ended;
  }

  async choose(id) {
    this.chat.leaf = this.tree.leafBelow(id);
    this.#emit('path');
    if (!this.isNew) await this.#chats.saveChat(this.chat, {touch: false});
  }

  async setOptions(options) {
    this.chat.options = options;
    if (!this.isNew) await this.#chats.saveChat(this.chat, {touch: false});
    this.#emit('options');
  }

  #made(fields) {
    const latest = Math.max(0, ...this.tree.all().map((message) => message.time));
    return {id: newId(), chat: this.chat.id, time: Math.max(Date.now(), latest + 1), ...fields};
  }

  async #add(message) {
    const {chat, tree} = this;
    tree.add(message);
    chat.leaf = message.id;
    chat.model = this.#model();
    this.isNew = false;
    this.#emit('path');
    await this.#chats.saveMessage(chat, message);
  }

  async #answer() {
    const {chat, tree} = this;
    if (this.#runs.has(chat.id)) return;
    const run = {abort: new AbortController(), progress: {}, chat, tree};
    this.#runs.set(chat.id, run);
    run.ended = this.#answerAll(run);
    await run.ended;
  }

  async #answerAll(run) {
    const {chat, tree} = run;
    try {
      for (let round = 0; round < MOST_ROUNDS; ++round) {
        await this.#answerOnce(run);
        const results = this.#resultsOf(run.message, chat.options);
        if (!results) break;
        const given = {id: newId(), chat: chat.id, time: Math.max(Date.now(), run.message.time + 1), parent: run.message.id, role: 'tool', content: '', results};
        tree.add(given);
        chat.leaf = given.id;
        if (this.chat === chat) this.#emit('path');
        await this.#keep(chat, given);
      }
    } finally {
      this.#runs.delete(chat.id);
      this.#emit('running', {chat, message: run.message});
    }
  }

  async #answerOnce(run) {
    const {chat, tree, abort} = run;
    const model = this.#model();
    const path = tree.path(chat.leaf);
    const message = {id: newId(), chat: chat.id, time: Math.max(Date.now(), (path.at(-1)?.time ?? 0) + 1), parent: chat.leaf, role: 'assistant', content: '', model};
    run.message = message;
    run.progress = {began: performance.now()};
    tree.add(message);
    chat.leaf = message.id;
    chat.model = model;
    if (this.chat === chat) this.#emit('path');
    this.#emit('running', {chat, message});
    await this.#keep(chat, message);
    let kept = performance.now();
    try {
      const body = {...requestFields(chat.options), messages: apiMessages(path, chat.options.system)};
      if (model) body.model = model;
      for await (const chunk of streamChat(body, abort.signal)) {
        takeChunk(message, chunk, run.progress);
        this.#emit('grow', {chat, message});
        if (performance.now() - kept < KEEP_EVERY) continue;
        kept = performance.now();
        if (this.#chats.get(chat.id)) await this.#chats.keepDraft(message);
      }
    } catch (error) {
      if (abort.signal.aborted) message.reason = 'stopped';
      else message.error = error.message;
    }
    message.calls = message.calls?.filter(Boolean);
    if (run.progress.thoughtBegan && message.thoughtSeconds === undefined)
      message.thoughtSeconds = (performance.now() - run.progress.thoughtBegan) / 1000;
    this.#emit('grow', {chat, message, ended: true});
    await this.#keep(chat, message);
  }

  // Unless the chat was deleted meanwhile.
  async #keep(chat, message) {
    if (this.#chats.get(chat.id)) await this.#chats.saveMessage(chat, message);
  }

  // Of calls all of which the page can answer; null: none, or others.
  #resultsOf(message, options) {
    if (message.reason !== 'tool_calls' || !message.calls?.length) return null;
    const enabled = options.builtin ?? [];
    if (!message.calls.every((call) => isBuiltin(call.name, enabled))) return null;
    return message.calls.map((call) => ({id: call.id, name: call.name, content: runBuiltin(call.name, call.arguments)}));
  }
}
