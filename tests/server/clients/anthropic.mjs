// Anthropic's own client against /v1/messages.
import assert from 'node:assert/strict';

import {library, rain, weather, withServer} from './setup.mjs';

const {Anthropic, AuthenticationError, BadRequestError} =
    await library('@anthropic-ai/sdk', '1.8.0');

const ask = (text) => (
    {model: 'demo', max_tokens: 100, temperature: 0, messages: [{role: 'user', content: text}]});

async function checkText(client) {
  const message = await client.messages.create(ask('What is 12 + 30?'));
  assert.equal(message.type, 'message');
  assert.equal(message.role, 'assistant');
  assert.deepEqual(message.content, [{type: 'text', text: '12 + 30 = 42'}]);
  assert.equal(message.stop_reason, 'end_turn');
  assert.match(message._request_id, /^req_/);
  const {input_tokens, cache_read_input_tokens, output_tokens} = message.usage;
  assert.equal(output_tokens, 10);
  const counted = await client.messages.countTokens(
      {model: 'demo', messages: ask('What is 12 + 30?').messages});
  assert.equal(counted.input_tokens, input_tokens + cache_read_input_tokens);
}

async function checkStream(client) {
  const stream = client.messages.stream(ask('What is 12 + 30?'));
  let text = '';
  stream.on('text', (piece) => text += piece);
  const message = await stream.finalMessage();
  assert.equal(text, '12 + 30 = 42');
  assert.equal(message.content[0].text, text);
  assert.equal(message.stop_reason, 'end_turn');
  assert.equal(message.usage.output_tokens, 10);
}

async function checkThinking(client) {
  const body = {...ask('Compute 40 + 91.'), thinking: {type: 'enabled', budget_tokens: 1024}};
  const whole = await client.messages.create(body);
  const streamed = await client.messages.stream(body).finalMessage();
  for (const message of [whole, streamed]) {
    assert.deepEqual(message.content.map((block) => block.type), ['thinking', 'text']);
    assert.equal(message.content[0].thinking, '0 + 1 = 1, 4 + 9 = 13, so 131.');
    assert.ok(message.content[0].signature.length > 0);
    assert.equal(message.content[1].text, '40 + 91 = 131');
  }
}

async function checkTools(client) {
  const {parameters, ...named} = weather;
  const question = {
    ...ask('Is it raining in Rabat?'), tools: [{...named, input_schema: parameters}]};
  const whole = await client.messages.create(question);
  const streamed = await client.messages.stream(question).finalMessage();
  for (const message of [whole, streamed]) {
    assert.equal(message.stop_reason, 'tool_use');
    assert.equal(message.content.length, 1);
    const [call] = message.content;
    assert.match(call.id, /^toolu_/);
    assert.equal(call.name, 'get_weather');
    assert.deepEqual(call.input, {city: 'Rabat'});
    const result = {type: 'tool_result', tool_use_id: call.id, content: rain};
    const answer = await client.messages.create({
      ...question,
      messages: [
        ...question.messages, {role: 'assistant', content: message.content},
        {role: 'user', content: [result]}
      ],
    });
    assert.equal(answer.stop_reason, 'end_turn');
    assert.deepEqual(
        answer.content, [{type: 'text', text: 'It is 21 degrees and rainy in Rabat.'}]);
  }
}

async function checkStops(client) {
  const question = ask('What is 12 + 30?');
  const stopped = await client.messages.create({...question, stop_sequences: [' =']});
  assert.equal(stopped.stop_reason, 'stop_sequence');
  assert.equal(stopped.stop_sequence, ' =');
  assert.equal(stopped.content[0].text, '12 + 30');
  const cut = await client.messages.create({...question, max_tokens: 2});
  assert.equal(cut.stop_reason, 'max_tokens');
}

async function checkErrors(client, url) {
  await assert.rejects(client.messages.create(ask('x'.repeat(9000))), (error) => {
    assert.ok(error instanceof BadRequestError);
    assert.match(error.message, /prompt is too long: \d+ tokens > 1024 maximum/);
    assert.match(error.requestID, /^req_/);
    return true;
  });
  const stranger = new Anthropic({baseURL: url, apiKey: 'wrong', maxRetries: 0});
  await assert.rejects(stranger.messages.create(ask('Hi')), AuthenticationError);
}

await withServer(async (url) => {
  const client = new Anthropic({baseURL: url, apiKey: 'k', maxRetries: 0});
  for (const check of [checkText, checkStream, checkThinking, checkTools, checkStops, checkErrors])
    await check(client, url);
}, ['--api-key', 'k']);
