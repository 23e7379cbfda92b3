// Tools that the page itself runs when a model calls them. They reach nothing outside of the page.
import {calculate} from './calculator.js';

const TOOLS = {
  calculator: {
    description: 'Computes an arithmetic expression',
    parameters: {type: 'object', properties: {expression: {type: 'string', description: 'such as (2 + 3) * sqrt(16)'}}, required: ['expression']},
    run: ({expression}) => String(calculate(String(expression))),
  },
  get_time: {
    description: 'Tells the date and the time of the day where the user is',
    parameters: {type: 'object', properties: {}},
    run: () => new Date().toLocaleString('en-GB', {dateStyle: 'full', timeStyle: 'long'}),
  },
};

export const BUILTIN = Object.entries(TOOLS).map(([name, {description}]) => ({name, description}));

export function builtinTools(names) {
  return names.filter((name) => name in TOOLS).map((name) => {
    const {description, parameters} = TOOLS[name];
    return {type: 'function', function: {name, description, parameters}};
  });
}

export const isBuiltin = (name, enabled) => enabled.includes(name) && name in TOOLS;

// What the model is told; what went wrong is an answer, too.
export function runBuiltin(name, text) {
  try {
    return TOOLS[name].run(JSON.parse(text || '{}'));
  } catch (error) {
    return `Error: ${error.message}`;
  }
}
