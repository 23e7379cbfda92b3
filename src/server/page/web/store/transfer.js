// Chats as files: JSON to bring them elsewhere and back, Markdown to read.
import {Tree} from './tree.js';

const FORMAT = 'moeflux-chats', VERSION = 1;

export function toJson(entries) {
  return JSON.stringify({format: FORMAT, version: VERSION, exported: new Date().toISOString(), chats: entries}, null, 1);
}

const ROLES = new Set(['user', 'assistant', 'tool']);
const isText = (value) => typeof value === 'string';

// Checked member by member: the file may come from anywhere. Throws Error that says what is wrong.
export function fromJson(text) {
  let file;
  try {
    file = JSON.parse(text);
  } catch {
    throw new Error('The file is not JSON.');
  }
  if (file?.format !== FORMAT) throw new Error('The file holds no chats of moeflux.');
  if (file.version !== VERSION) throw new Error(`The file is of version ${file.version}; this page reads ${VERSION}.`);
  if (!Array.isArray(file.chats)) throw new Error('The file has no list of chats.');
  return file.chats.map(readEntry);
}

function readEntry({chat, messages} = {}, index) {
  const wrong = (what) => new Error(`Chat ${index + 1} of the file: ${what}.`);
  if (!isText(chat?.id) || !isText(chat.title) || !isFinite(chat.updated)) throw wrong('id, title or time is missing');
  if (!Array.isArray(messages)) throw wrong('there is no list of messages');
  const read = messages.map((message) => readMessage(message, chat.id));
  if (read.includes(null)) throw wrong('a message cannot be read');
  const tree = new Tree(read);
  return {
    chat: {
      id: chat.id, title: chat.title, created: Number(chat.created) || chat.updated, updated: Number(chat.updated),
      leaf: tree.get(chat.leaf) ? chat.leaf : read.at(-1)?.id ?? null,
      model: isText(chat.model) ? chat.model : '',
      options: typeof chat.options === 'object' && chat.options !== null ? chat.options : {},
    },
    messages: read,
  };
}

function readMessage(message, chat) {
  if (!isText(message?.id) || !ROLES.has(message.role) || !isFinite(message.time)) return null;
  const read = {
    id: message.id, chat, parent: isText(message.parent) ? message.parent : null, role: message.role, time: Number(message.time),
    content: isText(message.content) ? message.content : '',
  };
  for (const name of ['reasoning', 'model', 'reason', 'error']) {
    if (isText(message[name])) read[name] = message[name];
  }
  if (isFinite(message.thoughtSeconds)) read.thoughtSeconds = Number(message.thoughtSeconds);
  if (Array.isArray(message.files))
    read.files = message.files.filter((file) => isText(file?.name) && isText(file.text)).map(({name, text}) => ({name, text}));
  if (Array.isArray(message.calls))
    read.calls = message.calls.filter((call) => isText(call?.id) && isText(call.name)).map(({id, name, arguments: text}) => ({id, name, arguments: isText(text) ? text : '{}'}));
  if (Array.isArray(message.results))
    read.results = message.results.filter((each) => isText(each?.id) && isText(each.content)).map(({id, name, content}) => ({id, name: isText(name) ? name : '', content}));
  if (typeof message.report === 'object' && message.report !== null) read.report = message.report;
  return read;
}

// The branch that is shown, as a text.
export function toMarkdown(chat, path) {
  const parts = [`# ${chat.title || 'Chat'}\n`];
  for (const message of path) {
    if (message.role === 'user') parts.push(`## You\n\n${withFiles(message)}\n`);
    if (message.role === 'assistant') {
      parts.push(`## ${message.model || 'Assistant'}\n`);
      if (message.reasoning) parts.push(`${message.reasoning.trim().split('\n').map((line) => `> ${line}`).join('\n')}\n`);
      if (message.content) parts.push(`${message.content.trim()}\n`);
      for (const call of message.calls ?? []) parts.push(`\`${call.name}(${call.arguments})\`\n`);
    }
    for (const result of message.results ?? []) parts.push(`\`${result.name}\` gave:\n\n${fenced(result.content)}\n`);
  }
  return parts.join('\n');
}

// A fence longer than any in the text.
export function fenced(text, language = '') {
  const longest = Math.max(2, ...(text.match(/`+/g) ?? []).map((ticks) => ticks.length));
  const fence = '`'.repeat(longest + 1);
  return `${fence}${language}\n${text.replace(/\n$/, '')}\n${fence}`;
}

// What the model is sent of a message of the user: its files come first.
export function withFiles(message) {
  const files = (message.files ?? []).map((file) => `${file.name}:\n${fenced(file.text)}`);
  return [...files, message.content].filter(Boolean).join('\n\n');
}
