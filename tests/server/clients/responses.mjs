// OpenAI's own client against /v1/responses.
import assert from 'node:assert/strict';

import {library, rain, weather, withServer} from './setup.mjs';

const {default: OpenAI} = await library('openai', '6.49.0');

await withServer(async (url) => {
  const client = new OpenAI({baseURL: `${url}/v1`, apiKey: 'none', maxRetries: 0});
  const plain = {model: 'demo', temperature: 0, reasoning: {effort: 'none'}};

  const whole = await client.responses.create({...plain, input: 'What is 12 + 30?'});
  assert.equal(whole.output_text, '12 + 30 = 42');
  assert.equal(whole.status, 'completed');
  assert.equal(whole.usage.output_tokens, 10);

  // The client builds the response from the events; it must be the one that comes at the end.
  const stream = client.responses.stream(
      {...plain, input: 'Compute 37 + 33.', reasoning: {effort: 'high'}});
  let text = '', thought = '', expected = 0;
  for await (const event of stream) {
    assert.equal(event.sequence_number, expected++);
    if (event.type === 'response.output_text.delta') text += event.delta;
    if (event.type === 'response.reasoning_text.delta') thought += event.delta;
  }
  const final = await stream.finalResponse();
  assert.equal(text, '37 + 33 = 70');
  assert.equal(final.output_text, text);
  assert.equal(thought, '7 + 3 = 10, 3 + 3 + 1 = 7, so 70.');
  assert.equal(final.output[0].content[0].text, thought);

  const tools = [{type: 'function', strict: true, ...weather}, {type: 'web_search'}];
  const input = [{role: 'user', content: 'Is it raining in Rabat?'}];
  const calling = client.responses.stream({...plain, input, tools});
  const called = (await calling.finalResponse()).output[0];
  assert.equal(called.type, 'function_call');
  assert.equal(called.name, 'get_weather');
  assert.deepEqual(JSON.parse(called.arguments), {city: 'Rabat'});
  const {parsed_arguments, ...call} = called;
  const output = {type: 'function_call_output', call_id: call.call_id, output: rain};
  const after = await client.responses.create({...plain, input: [...input, call, output], tools});
  assert.equal(after.output_text, 'It is 21 degrees and rainy in Rabat.');

  const cut = await client.responses.create(
      {...plain, input: 'What is 12 + 30?', max_output_tokens: 3});
  assert.equal(cut.status, 'incomplete');
  assert.equal(cut.incomplete_details.reason, 'max_output_tokens');

  await assert.rejects(
      client.responses.create({...plain, input: 'x', previous_response_id: 'resp_1'}),
      {status: 400, param: 'previous_response_id'});
});
