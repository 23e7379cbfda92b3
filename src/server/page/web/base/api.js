// Everything the page asks the server for.
import {readEvents} from './sse.js';
import {setting} from './settings.js';

export class ApiError extends Error {
  constructor(status, message, {type = '', param = null, retryAfter = 0} = {}) {
    super(message);
    this.status = status;
    this.type = type;
    this.param = param;
    this.retryAfter = retryAfter;  // seconds
  }
}

let askForKey = null;
// `ask` shows a dialog and resolves when there is a new key, to true, or when the user gave up, to false.
export function onKeyNeeded(ask) {
  askForKey = ask;
}

export async function request(path, {method = 'GET', body, signal, accept = 'application/json'} = {}) {
  while (true) {
    const key = setting('key');
    const headers = {Accept: accept};
    if (key) headers.Authorization = `Bearer ${key}`;
    if (body !== undefined) headers['Content-Type'] = 'application/json';
    let response;
    try {
      response = await fetch(path, {method, headers, signal, cache: 'no-store', body: body === undefined ? undefined : JSON.stringify(body)});
    } catch (error) {
      if (error.name === 'AbortError') throw error;
      throw new ApiError(0, 'The server does not answer. Is moeflux serve still running?');
    }
    if (response.ok) return response;
    const failure = await failureOf(response);
    if (failure.status === 401 && askForKey && await askForKey(failure.message)) continue;
    throw failure;
  }
}

async function failureOf(response) {
  const retryAfter = Number(response.headers.get('retry-after')) || 0;
  let error = {};
  try {
    ({error = {}} = await response.json());
  } catch {  // not ours: a proxy's page
  }
  return new ApiError(response.status, error.message ?? `The server answered ${response.status}.`, {...error, retryAfter});
}

export const getJson = async (path, options) => (await request(path, options)).json();
export const postJson = async (path, body, options) => (await request(path, {...options, method: 'POST', body})).json();

export async function listModels(signal) {
  return (await getJson('/v1/models', {signal})).data;
}

// Of a model in memory; another one would be loaded to be asked.
export function modelProps(model) {
  return getJson(`/props?model=${encodeURIComponent(model)}`);
}

export async function countTokens(model, content) {
  return (await postJson('/tokenize', {model, content, parse_special: false})).tokens.length;
}

// An answer as it comes. Yields the chunks of the server; throws ApiError for one that is an error.
export async function* streamChat(body, signal) {
  const response = await request('/v1/chat/completions', {
    method: 'POST', signal, accept: 'text/event-stream',
    body: {...body, stream: true, stream_options: {include_usage: true}, return_progress: true},
  });
  for await (const {data} of readEvents(response)) {
    if (data === '[DONE]') return;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new ApiError(chunk.error.code ?? 500, chunk.error.message, chunk.error);
    yield chunk;
  }
  throw new ApiError(0, 'The connection ended before the answer did.');
}

export async function* streamEngine(model, signal) {
  const query = model ? `?model=${encodeURIComponent(model)}` : '';
  const response = await request(`/engine/events${query}`, {signal, accept: 'text/event-stream'});
  for await (const {name, data} of readEvents(response)) yield {name, data: JSON.parse(data)};
}
