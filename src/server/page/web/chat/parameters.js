// What can be set for the answers of a chat, and how it is said to the server.
import {builtinTools} from './builtin_tools.js';

// Numbers a user may set; empty: the model's own.
export const NUMBERS = [
  {name: 'temperature', label: 'Temperature', min: 0, max: 2, step: 0.05, hint: '0 is always the likeliest token.'},
  {name: 'top_p', label: 'Top p', min: 0, max: 1, step: 0.01, hint: 'Likeliest tokens that have this probability together.'},
  {name: 'top_k', label: 'Top k', min: 0, max: 200, step: 1, hint: 'So many of the likeliest tokens; 0 is all.'},
  {name: 'min_p', label: 'Min p', min: 0, max: 1, step: 0.01, hint: 'At least this share of the likeliest one.'},
  {name: 'repetition_penalty', label: 'Repetition penalty', min: 0.5, max: 2, step: 0.01, hint: '1 is none.'},
  {name: 'max_tokens', label: 'Longest answer', min: 1, max: 1_000_000, step: 1, hint: 'In tokens. Empty: as the context allows.', plain: true},
  {name: 'seed', label: 'Seed', min: 0, max: 4_294_967_295, step: 1, hint: 'The same seed gives the same answer.', plain: true},
];

export const THINKING = [
  ['default', 'As the model does'], ['off', 'Off'], ['on', 'On'], ['low', 'Little'], ['medium', 'Some'], ['high', 'Much'],
];

// Throws Error where the text of own tools is not what it should be.
export function ownTools(text) {
  if (!text?.trim()) return [];
  let list;
  try {
    list = JSON.parse(text);
  } catch (error) {
    throw new Error(`The tools are not JSON: ${error.message}`);
  }
  if (!Array.isArray(list)) list = [list];
  return list.map((tool) => {
    const given = tool?.function ?? tool;
    if (typeof given?.name !== 'string') throw new Error('Each tool needs a name, as {"name", "description", "parameters"}.');
    return {type: 'function', function: {parameters: {type: 'object', properties: {}}, ...given}};
  });
}

// The fields of a request that come from a chat's options.
export function requestFields(options) {
  const fields = {};
  for (const {name} of NUMBERS) if (typeof options[name] === 'number') fields[name] = options[name];
  const stop = (options.stop ?? '').split('\n').filter(Boolean);
  if (stop.length > 0) fields.stop = stop;
  const thinking = options.thinking ?? 'default';
  if (thinking === 'off' || thinking === 'on') fields.chat_template_kwargs = {enable_thinking: thinking === 'on'};
  else if (thinking !== 'default') fields.reasoning_effort = thinking;
  const tools = [...builtinTools(options.builtin ?? []), ...ownTools(options.tools)];
  if (tools.length > 0) fields.tools = tools;
  return fields;
}

// How many options are not as the model has them.
export function countSet(options) {
  const names = [...NUMBERS.map((each) => each.name), 'stop', 'tools', 'system'];
  return names.filter((name) => options[name] !== undefined && options[name] !== '').length +
    ((options.thinking ?? 'default') !== 'default' ? 1 : 0) + (options.builtin?.length ? 1 : 0);
}
