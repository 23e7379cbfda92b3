// LangChain's client for OpenAI, against /v1/chat/completions and /v1/responses.
import assert from 'node:assert/strict';

import {emma, libraries, person, rain, withServer} from './setup.mjs';

const [{ChatOpenAI}, {HumanMessage}, {tool}, {z}] = await libraries(
    {'@langchain/openai': '1.5.8', '@langchain/core': '1.2.13', 'zod': '4.6.7'},
    ['@langchain/openai', '@langchain/core/messages', '@langchain/core/tools', 'zod']);

const sum = 'What is 12 + 30?';
const personSchema = z.object({name: z.string(), age: z.int(), city: z.string()});

async function joined(stream) {
  let whole;
  for await (const chunk of stream) whole = whole ? whole.concat(chunk) : chunk;
  return whole;
}

async function checkText(model) {
  const whole = await model.invoke(sum);
  const streamed = await joined(await model.stream(sum));
  for (const message of [whole, streamed]) {
    assert.equal(message.text, '12 + 30 = 42');
    assert.equal(message.usage_metadata.output_tokens, 10);
    assert.equal(message.usage_metadata.input_tokens, 24);
  }
  const several = await model.batch([sum, 'What is the capital of Japan?']);
  assert.deepEqual(several.map((message) => message.text),
                   ['12 + 30 = 42', 'The capital of Japan is Tokyo.']);
}

async function checkTools(model) {
  const get_weather = tool(async () => rain, {
    name: 'get_weather',
    description: 'Get the weather in a city',
    schema: z.object({city: z.string()}),
  });
  const bound = model.bindTools([get_weather]);
  const question = new HumanMessage('Is it raining in Rabat?');
  const whole = await bound.invoke([question]);
  const streamed = await joined(await bound.stream([question]));
  for (const message of [whole, streamed]) {
    assert.equal(message.tool_calls.length, 1);
    const [call] = message.tool_calls;
    assert.equal(call.name, 'get_weather');
    assert.deepEqual(call.args, {city: 'Rabat'});
    const result = await get_weather.invoke(call);
    const answer = await bound.invoke([question, message, result]);
    assert.equal(answer.text, 'It is 21 degrees and rainy in Rabat.');
    assert.deepEqual(answer.tool_calls, []);
  }
}

await withServer(async (url) => {
  const options = {
    model: 'demo',
    temperature: 0,
    maxRetries: 0,
    apiKey: 'none',
    configuration: {baseURL: `${url}/v1`},
  };
  const chat = new ChatOpenAI({...options, modelKwargs: {reasoning_effort: 'none'}});
  const responses = new ChatOpenAI(
      {...options, useResponsesApi: true, modelKwargs: {reasoning: {effort: 'none'}}});
  for (const model of [chat, responses]) {
    await checkText(model);
    await checkTools(model);
    const structured = model.withStructuredOutput(personSchema, {method: 'jsonSchema'});
    assert.deepEqual(await structured.invoke(person), emma);
  }
  // The schema as a tool that must be called: the model has not learned to fill that one, but the
  // form is the schema's.
  const called = chat.withStructuredOutput(personSchema, {method: 'functionCalling'});
  assert.deepEqual(Object.keys(await called.invoke(person)).sort(), ['age', 'city', 'name']);
  await assert.rejects(chat.invoke('word '.repeat(2000)), {status: 400});
});
