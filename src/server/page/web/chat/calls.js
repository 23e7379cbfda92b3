// Calls of tools in an answer: what the model wants to be done, and the place for what came of it.
import {h, icon} from '../base/dom.js';
import {highlightedNodes} from '../render/nodes.js';

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {  // it is still being written, or it is none
    return text;
  }
}

export function callElement(call, result) {
  const body = pretty(call.arguments);
  return h('details', {class: 'call', open: result === undefined},
    h('summary', {}, icon('tool'), h('span', {}, 'Calls ', h('code', {}, call.name || '…')), result === undefined ? null : h('span', {class: 'call-state'}, 'answered')),
    body && body !== '{}' ? h('pre', {tabindex: '0', 'aria-label': 'Arguments'}, h('code', {}, highlightedNodes(body, 'json'))) : h('p', {class: 'hint'}, 'Without arguments.'),
    result === undefined ? null : [h('p', {class: 'hint'}, 'Result'), h('pre', {tabindex: '0', 'aria-label': 'Result'}, h('code', {}, result))]);
}

// The user stands in for the tools. onsend gets [{id, name, content}].
export function resultsForm(calls, onsend) {
  const fields = calls.map((call) => h('textarea', {rows: '2', 'aria-label': `Result of ${call.name}`, placeholder: `What ${call.name} gives`}));
  return h('form', {class: 'results', onsubmit: (event) => {
    event.preventDefault();
    onsend(calls.map((call, i) => ({id: call.id, name: call.name, content: fields[i].value})));
  }}, fields, h('button', {type: 'submit', class: 'primary'}, calls.length === 1 ? 'Send the result' : 'Send the results'));
}
