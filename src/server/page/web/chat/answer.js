// One answer: what a request says of the messages before it, and how its chunks become a message.
import {withFiles} from '../store/transfer.js';

export function apiMessages(path, system) {
  const messages = system?.trim() ? [{role: 'system', content: system}] : [];
  const lastQuestion = path.findLastIndex((message) => message.role === 'user');
  path.forEach((message, index) => {
    if (message.role === 'user') {
      messages.push({role: 'user', content: withFiles(message)});
    } else if (message.role === 'assistant') {
      if (!message.content && !message.calls?.length) return;
      const said = {role: 'assistant', content: message.content};
      // Thoughts count for as long as the model is at the same question.
      if (message.reasoning && index > lastQuestion) said.reasoning_content = message.reasoning;
      if (message.calls?.length)
        said.tool_calls = message.calls.map((call) => ({id: call.id, type: 'function', function: {name: call.name, arguments: call.arguments || '{}'}}));
      messages.push(said);
    } else {
      for (const result of message.results) messages.push({role: 'tool', tool_call_id: result.id, name: result.name, content: result.content});
    }
  });
  return messages;
}

// Adds a chunk to the message. Returns whether anything of it that is kept has changed.
export function takeChunk(message, chunk, progress) {
  if (chunk.prompt_progress) progress.prompt = chunk.prompt_progress;
  const choice = chunk.choices[0];
  let grew = false;
  if (choice) {
    const delta = choice.delta ?? {};
    if (delta.reasoning_content) {
      progress.thoughtBegan ??= performance.now();
      message.reasoning = (message.reasoning ?? '') + delta.reasoning_content;
      grew = true;
    }
    if (delta.content || delta.tool_calls) {
      if (progress.thoughtBegan && message.thoughtSeconds === undefined)
        message.thoughtSeconds = (performance.now() - progress.thoughtBegan) / 1000;
      progress.prompt = null;
    }
    if (delta.reasoning_content) progress.prompt = null;
    if (delta.content) {
      message.content += delta.content;
      grew = true;
    }
    for (const part of delta.tool_calls ?? []) {
      message.calls ??= [];
      const call = (message.calls[part.index] ??= {id: part.id, name: '', arguments: ''});
      if (part.function?.name) call.name = part.function.name;
      if (part.function?.arguments) call.arguments += part.function.arguments;
      grew = true;
    }
    if (choice.finish_reason) message.reason = choice.finish_reason;
  }
  if (chunk.timings) message.report = {usage: chunk.usage, timings: chunk.timings, moeflux: chunk.moeflux};
  return grew;
}
