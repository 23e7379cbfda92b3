// OpenAI's own client against /v1/chat/completions and /v1/completions.
import assert from 'node:assert/strict';

import {library, rain, weather, withServer} from './setup.mjs';

const {default: OpenAI} = await library('openai', '6.49.0');

await withServer(async (url) => {
  const client = new OpenAI({baseURL: `${url}/v1`, apiKey: 'none', maxRetries: 0});
  const plain = {model: 'demo', temperature: 0, reasoning_effort: 'none'};
  const messages = [{role: 'user', content: 'What is 12 + 30?'}];

  const models = await client.models.list();
  assert.deepEqual(models.data.map((model) => model.id), ['demo']);
  assert.equal((await client.models.retrieve('demo')).id, 'demo');

  const whole = await client.chat.completions.create({...plain, messages});
  assert.equal(whole.choices[0].message.content, '12 + 30 = 42');
  assert.equal(whole.choices[0].finish_reason, 'stop');
  assert.equal(whole.usage.completion_tokens, 10);

  const stream = await client.chat.completions.create(
      {...plain, messages, stream: true, stream_options: {include_usage: true}});
  let text = '', usage = null;
  for await (const chunk of stream) {
    text += chunk.choices[0]?.delta.content ?? '';
    usage = chunk.usage ?? usage;
  }
  assert.equal(text, '12 + 30 = 42');
  assert.equal(usage.total_tokens, 34);
  // A later turn begins with what was read.
  const again = await client.chat.completions.create({...plain, messages});
  assert.ok(again.usage.prompt_tokens_details.cached_tokens > 0);

  const {reasoning_effort, ...thinking} = plain;
  const thought = await client.chat.completions.create({...thinking, messages});
  assert.equal(thought.choices[0].message.content, '12 + 30 = 42');
  assert.equal(thought.choices[0].message.reasoning_content, '2 + 0 = 2, 1 + 3 = 4, so 42.');

  // The client joins the pieces of a call by their index.
  const tools = [{type: 'function', function: weather}];
  const question = [{role: 'user', content: 'Is it raining in Rabat?'}];
  const calling = client.chat.completions.stream({...plain, messages: question, tools});
  const called = (await calling.finalChatCompletion()).choices[0];
  assert.equal(called.finish_reason, 'tool_calls');
  const [call] = called.message.tool_calls;
  assert.equal(call.function.name, 'get_weather');
  assert.deepEqual(JSON.parse(call.function.arguments), {city: 'Rabat'});
  const after = await client.chat.completions.create({
    ...plain,
    tools,
    messages: [
      ...question, called.message,
      {role: 'tool', tool_call_id: call.id, content: rain}
    ],
  });
  assert.equal(after.choices[0].message.content, 'It is 21 degrees and rainy in Rabat.');

  const several = await client.chat.completions.create(
      {...plain, messages, n: 2, logprobs: true, top_logprobs: 2, max_tokens: 3, seed: 1});
  assert.deepEqual(several.choices.map((choice) => choice.message.content), ['12 +', '12 +']);
  assert.equal(several.choices[0].finish_reason, 'length');
  assert.equal(several.choices[0].logprobs.content.length, 3);

  const prompt = '<|im_start|>user\nWhat is 12 + 30?<|im_end|>\n' +
      '<|im_start|>assistant\n<think>\n\n</think>\n\n';
  const completion = await client.completions.create({model: 'demo', temperature: 0, prompt});
  assert.equal(completion.choices[0].text, '12 + 30 = 42');
  let streamed = '';
  for await (const chunk of await client.completions.create(
                 {model: 'demo', temperature: 0, prompt, stream: true}))
    streamed += chunk.choices[0].text;
  assert.equal(streamed, '12 + 30 = 42');

  await assert.rejects(
      client.chat.completions.create({...plain, messages, temperature: -1}),
      {status: 400, param: 'temperature', type: 'invalid_request_error'});
  await assert.rejects(
      client.chat.completions.create(
          {...plain, messages: [{role: 'user', content: 'word '.repeat(2000)}]}),
      {status: 400, code: 'context_length_exceeded', type: 'exceed_context_size_error'});

  // A client that leaves.
  const left = await client.chat.completions.create(
      {...plain, messages, stream: true, ignore_eos: true});
  for await (const chunk of left) {
    if (chunk.choices[0].delta.content) break;
  }
});
