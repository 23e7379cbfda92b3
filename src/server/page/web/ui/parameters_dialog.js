// What is set for the answers of the open chat.
import {h, toast} from '../base/dom.js';
import {setSetting} from '../base/settings.js';
import {BUILTIN} from '../chat/builtin_tools.js';
import {NUMBERS, THINKING, ownTools} from '../chat/parameters.js';
import {openDialog} from './dialog.js';

export async function parametersDialog(conversation, models) {
  const options = structuredClone(conversation.chat.options);
  const props = await models.props();
  const defaults = props?.default_generation_settings?.params ?? {};
  const thinks = props?.moeflux?.thinks ?? true;

  const system = h('textarea', {rows: '4', value: options.system ?? '', placeholder: 'What the model should know before the chat begins'});
  const thinking = h('select', {}, THINKING.map(([value, label]) => h('option', {value}, label)));
  thinking.value = options.thinking ?? 'default';
  const stop = h('textarea', {rows: '2', value: options.stop ?? '', placeholder: 'One in each line'});
  const tools = h('textarea', {rows: '5', class: 'code-input', spellcheck: 'false', value: options.tools ?? '', placeholder: '[{"name": "get_weather", "description": "…", "parameters": {…}}]'});
  const problem = h('p', {class: 'problem', role: 'alert', hidden: true});
  const numbers = NUMBERS.map((each) => numberField(each, options[each.name], defaults[each.name === 'repetition_penalty' ? 'repeat_penalty' : each.name]));
  const boxes = BUILTIN.map(({name, description}) => {
    const input = h('input', {type: 'checkbox', value: name, checked: (options.builtin ?? []).includes(name)});
    return {input, element: h('label', {class: 'check'}, input, h('span', {}, h('code', {}, name), h('small', {}, description)))};
  });

  const read = () => {
    const given = {};
    for (const field of numbers) {
      const value = field.read();
      if (value !== null) given[field.name] = value;
    }
    if (system.value.trim()) given.system = system.value;
    if (thinking.value !== 'default') given.thinking = thinking.value;
    if (stop.value.trim()) given.stop = stop.value;
    if (tools.value.trim()) given.tools = tools.value;
    const builtin = boxes.filter(({input}) => input.checked).map(({input}) => input.value);
    if (builtin.length > 0) given.builtin = builtin;
    return given;
  };
  const form = h('form', {class: 'dialog-body parameters', novalidate: true, onsubmit: (event) => {
    event.preventDefault();
    try {
      for (const field of numbers) field.check();
      ownTools(tools.value);
    } catch (error) {
      problem.textContent = error.message;
      problem.hidden = false;
      return;
    }
    conversation.setOptions(read());
    form.closest('dialog').close('saved');
  }},
  h('label', {class: 'field'}, h('span', {}, 'System prompt'), system),
  thinks ? h('label', {class: 'field'}, h('span', {}, 'Thinking'), thinking) : null,
  h('fieldset', {class: 'numbers'}, h('legend', {}, 'Sampling'), numbers.map((field) => field.element)),
  h('label', {class: 'field'}, h('span', {}, 'Stop at'), stop),
  h('fieldset', {}, h('legend', {}, 'Tools'), boxes.map(({element}) => element),
    h('label', {class: 'field'}, h('span', {}, 'Your own, as JSON'), tools, h('small', {}, 'When the model calls one of these, you are asked for its result.'))),
  problem,
  h('div', {class: 'dialog-buttons'},
    h('button', {type: 'button', class: 'quiet', onclick: () => {
      setSetting('chat', read());
      toast('New chats begin with these parameters.');
    }}, 'Keep for new chats'),
    h('button', {type: 'submit', class: 'primary'}, 'Apply')));
  return openDialog('Parameters of this chat', form, {className: 'sheet'}).closed;
}

function numberField({name, label, min, max, step, hint, plain}, value, fallback) {
  const placeholder = fallback === undefined ? 'default' : String(Math.round(fallback * 1000) / 1000);
  const input = h('input', {type: 'number', min, max, step: 'any', inputmode: step < 1 ? 'decimal' : 'numeric', value: value ?? '', placeholder, 'aria-label': label});
  const slider = plain ? null : h('input', {type: 'range', min, max, step, 'aria-label': `${label}, slider`, tabindex: '-1', oninput: () => { input.value = slider.value; }});
  if (slider) {
    slider.value = String(value ?? fallback ?? min);
    input.addEventListener('input', () => { if (input.value !== '') slider.value = input.value; });
  }
  return {
    name,
    element: h('div', {class: 'number'}, h('div', {class: 'number-head'}, h('span', {}, label), input), slider, h('small', {}, hint)),
    read: () => (input.value === '' || !isFinite(Number(input.value)) ? null : Number(input.value)),
    check: () => {
      const number = Number(input.value);
      if (input.value !== '' && !(number >= min && number <= max)) throw new Error(`${label} must be from ${min} to ${max}.`);
    },
  };
}
