// Ollama's own client against the server.
import assert from 'node:assert/strict';

import {library, rain, weather, withServer} from './setup.mjs';

const {Ollama} = await library('ollama', '0.6.4');

await withServer(async (host) => {
  const client = new Ollama({host});
  const options = {temperature: 0};
  const messages = [{role: 'user', content: 'What is 12 + 30?'}];

  const whole = await client.chat({model: 'demo', messages, think: false, options});
  assert.equal(whole.message.content, '12 + 30 = 42');
  assert.equal(whole.done_reason, 'stop');
  assert.equal(whole.eval_count, 10);

  let content = '', thinking = '', last;
  const sum = [{role: 'user', content: 'Compute 37 + 33.'}];
  const stream =
      await client.chat({model: 'demo', messages: sum, think: true, stream: true, options});
  for await (const part of stream) {
    content += part.message.content;
    thinking += part.message.thinking ?? '';
    last = part;
  }
  assert.equal(content, '37 + 33 = 70');
  assert.equal(thinking, '7 + 3 = 10, 3 + 3 + 1 = 7, so 70.');
  assert.ok(last.done && last.total_duration > 0);

  const question = [{role: 'user', content: 'Is it raining in Rabat?'}];
  const tools = [{type: 'function', function: weather}];
  const called =
      await client.chat({model: 'demo', messages: question, tools, think: false, options});
  assert.deepEqual(called.message.tool_calls[0].function,
                   {index: 0, name: 'get_weather', arguments: {city: 'Rabat'}});
  const answer = {role: 'tool', tool_name: 'get_weather', content: rain};
  const after = await client.chat(
      {model: 'demo', messages: [...question, called.message, answer], tools, think: false,
       options});
  assert.equal(after.message.content, 'It is 21 degrees and rainy in Rabat.');

  const generated = await client.generate(
      {model: 'demo', prompt: 'What is 12 + 30?', think: false, options});
  assert.equal(generated.response, '12 + 30 = 42');

  assert.equal((await client.list()).models[0].name, 'demo:latest');
  assert.equal((await client.ps()).models[0].name, 'demo:latest');
  assert.deepEqual((await client.show({model: 'demo'})).capabilities,
                   ['completion', 'tools', 'thinking']);
  assert.equal((await client.embed({model: 'demo', input: 'x'})).embeddings.length, 1);
  await assert.rejects(client.chat({model: 'demo', messages, options: {num_ctx: 99999}}),
                       {name: 'ResponseError', status_code: 400, message: /num_ctx/});
});
