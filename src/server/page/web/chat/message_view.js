// One message of the chat, and what can be done with it.
import {copyText, h, icon, iconButton} from '../base/dom.js';
import {bytes, count, duration, percent, plural, short} from '../base/text.js';
import {Prose} from '../render/nodes.js';
import {fileChip} from './attachments.js';
import {callElement, resultsForm} from './calls.js';

const REASONS = {length: 'The answer was cut off: it is as long as it may be.', stopped: 'Stopped.'};

function branchPicker({siblings, index}, onchoose) {
  if (siblings.length < 2) return null;
  const go = (step) => onchoose(siblings[index + step].id);
  return h('span', {class: 'branches', role: 'group', 'aria-label': 'Branches'},
    iconButton('left', 'Branch before', () => go(-1), {disabled: index === 0, class: 'icon-button small'}),
    h('span', {class: 'figure', 'aria-label': `Branch ${index + 1} of ${siblings.length}`}, `${index + 1}/${siblings.length}`),
    iconButton('right', 'Next branch', () => go(1), {disabled: index + 1 === siblings.length, class: 'icon-button small'}));
}

export class UserView {
  element;
  #message;
  #actions;
  constructor(message, branches, actions) {
    this.#message = message;
    this.#actions = actions;
    const copy = iconButton('copy', 'Copy', () => copyText(message.content, copy), {class: 'icon-button small'});
    this.element = h('article', {class: 'message user', 'data-id': message.id, 'aria-label': 'You'},
      message.files?.length ? h('div', {class: 'files'}, message.files.map((file) => fileChip(file))) : null,
      message.content ? h('div', {class: 'bubble'}, message.content) : null,
      h('footer', {class: 'message-foot'}, branchPicker(branches, actions.choose), copy,
        iconButton('edit', 'Edit and ask again', () => this.edit(), {class: 'icon-button small'})));
  }
  update() {}

  edit() {
    const before = [...this.element.childNodes];
    const text = h('textarea', {class: 'edit-text', rows: '3', 'aria-label': 'Edit the message', value: this.#message.content});
    const close = () => this.element.replaceChildren(...before);
    const form = h('form', {class: 'edit', onsubmit: (event) => {
      event.preventDefault();
      if (text.value.trim() || this.#message.files?.length) this.#actions.edit(this.#message.id, text.value.trim(), this.#message.files ?? []);
    }, onkeydown: (event) => {
      if (event.key === 'Escape') {
        event.stopPropagation();
        close();
      }
      if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) form.requestSubmit();
    }}, text, h('div', {class: 'edit-buttons'}, h('button', {type: 'button', class: 'quiet', onclick: close}, 'Cancel'), h('button', {type: 'submit', class: 'primary'}, 'Ask again')));
    this.element.replaceChildren(form);
    text.style.height = `${Math.min(text.scrollHeight + 4, innerHeight / 2)}px`;
    text.focus();
  }
}

// The results of a message's calls are shown in the message itself.
export class AnswerView {
  element;
  #message;
  #results;
  #branches;
  #actions;
  #prose = new Prose();
  #thought = null;  // {element, prose}
  #calls = h('div', {class: 'calls'});
  #callKey = '';
  #status = h('p', {class: 'status', hidden: true});
  #foot = h('footer', {class: 'message-foot'});

  constructor(message, branches, results, actions) {
    this.#message = message;
    this.#branches = branches;
    this.#results = results;
    this.#actions = actions;
    this.element = h('article', {class: 'message answer', 'data-id': message.id, 'aria-label': message.model || 'Answer'},
      this.#prose.element, this.#calls, this.#status, this.#foot);
    this.update(null);
  }

  // run: while the answer is being given.
  update(run) {
    const message = this.#message;
    this.element.setAttribute('aria-busy', String(Boolean(run)));
    this.#drawThought(run);
    this.#prose.set(message.content);
    this.#drawCalls(run);
    this.#drawStatus(run);
    this.element.classList.toggle('is-growing', Boolean(run) && (message.content !== '' || Boolean(message.reasoning)));
    if (run) this.#foot.replaceChildren();
    else this.#drawFoot();
  }

  #drawThought(run) {
    const {reasoning, thoughtSeconds} = this.#message;
    if (!reasoning?.trim()) return;
    if (!this.#thought) {
      const prose = new Prose(), summary = h('span');
      const element = h('details', {class: 'thought'}, h('summary', {}, icon('thought'), summary), prose.element);
      this.#thought = {element, prose, summary};
      this.element.prepend(element);
    }
    const thinks = run && !this.#message.content && !this.#message.calls?.length;
    this.#thought.element.classList.toggle('is-thinking', Boolean(thinks));
    const text = thinks ? 'Thinking…' : thoughtSeconds === undefined ? 'Thoughts' : `Thought for ${duration(thoughtSeconds)}`;
    if (this.#thought.summary.textContent !== text) this.#thought.summary.textContent = text;
    this.#thought.prose.set(reasoning.trim());
  }

  #drawCalls(run) {
    const calls = this.#message.calls ?? [];
    const wants = !run && calls.length > 0 && this.#message.reason === 'tool_calls' && !this.#results;
    const key = JSON.stringify([calls, this.#results, wants]);
    if (key === this.#callKey) return;
    this.#callKey = key;
    const resultOf = (call) => this.#results?.find((each) => each.id === call.id)?.content;
    this.#calls.replaceChildren(...calls.map((call) => callElement(call, resultOf(call))));
    if (wants) this.#calls.append(resultsForm(calls, (results) => this.#actions.giveResults(this.#message.id, results)));
  }

  #drawStatus(run) {
    const {error, reason, content, reasoning, calls} = this.#message;
    let text = error ?? REASONS[reason] ?? '';
    if (run && !content && !reasoning && !calls?.length) text = this.#waitingText(run.progress);
    else if (!run && !error && !reason) text = 'This answer was interrupted.';
    this.#status.textContent = text;
    this.#status.hidden = text === '';
    this.#status.classList.toggle('is-error', Boolean(error));
    this.#status.classList.toggle('is-waiting', Boolean(run));
  }
  #waitingText({prompt}) {
    if (!prompt) return 'Waiting for the model…';
    const done = prompt.processed, total = prompt.total;
    return done < total ? `Reading the prompt: ${count(done)} of ${plural(total, 'token')}` : 'Thinking of an answer…';
  }

  #drawFoot() {
    const message = this.#message;
    const copy = iconButton('copy', 'Copy the answer', () => copyText(message.content, copy), {class: 'icon-button small'});
    this.#foot.replaceChildren(...[
      branchPicker(this.#branches, this.#actions.choose), copy,
      iconButton('retry', 'Answer again', () => this.#actions.retry(message.id), {class: 'icon-button small'}),
      message.report ? reportElement(message) : null,
    ].filter(Boolean));
  }
}

// What the answer cost: the speed, and all the rest when asked.
function reportElement({report, model}) {
  const {timings, usage, moeflux} = report;
  const speed = timings.predicted_per_second;
  const experts = moeflux?.experts;
  const asked = experts ? experts.hits + experts.misses : 0;
  const rows = [
    ['Model', model],
    ['Answer', `${plural(timings.predicted_n, 'token')} in ${duration(timings.predicted_ms / 1000)}`],
    ['Prompt', `${plural(timings.prompt_n + timings.cache_n, 'token')}, ${count(timings.cache_n)} known already; ${duration(timings.prompt_ms / 1000)}`],
    usage ? ['In all', plural(usage.total_tokens, 'token')] : null,
    asked > 0 ? ['Experts', `${percent(experts.hit_rate, 1)} of ${count(asked)} were in memory`] : null,
    asked > 0 ? ['Read', `${bytes(moeflux.bytes_read)} from the drive; ${duration(experts.wait_seconds)} spent waiting`] : null,
    moeflux?.drafts?.drafted > 0 ? ['Drafts', `${count(moeflux.drafts.accepted)} of ${count(moeflux.drafts.drafted)} were right`] : null,
    moeflux ? ['Computed with', `all ${moeflux.top_k} of ${moeflux.n_experts} experts, precision ${moeflux.precision}`] : null,
  ].filter(Boolean);
  const brief = [speed > 0 ? `${short(speed)} tokens/s` : plural(timings.predicted_n, 'token'), asked > 0 ? `${percent(experts.hit_rate)} hits` : null].filter(Boolean).join(' · ');
  return h('details', {class: 'report'}, h('summary', {title: 'What this answer cost'}, brief),
    h('dl', {}, rows.map(([name, value]) => h('div', {}, h('dt', {}, name), h('dd', {}, value)))));
}
