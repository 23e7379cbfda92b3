// The AI SDK, through its provider for OpenAI-compatible servers and the one for Anthropic's API.
import assert from 'node:assert/strict';

import {emma, libraries, person, rain, withServer} from './setup.mjs';

const [{generateObject, generateText, stepCountIs, streamObject, streamText, tool},
       {createOpenAICompatible}, {createAnthropic}, {z}] = await libraries({
  'ai': '6.0.326',
  '@ai-sdk/openai-compatible': '2.0.87',
  '@ai-sdk/anthropic': '3.0.138',
  'zod': '4.6.7',
});

const sum = 'What is 12 + 30?';
const personSchema = z.object({name: z.string(), age: z.int(), city: z.string()});

async function checkText(plain, tokens) {
  const whole = await generateText({...plain, prompt: sum});
  assert.equal(whole.text, '12 + 30 = 42');
  assert.equal(whole.finishReason, 'stop');
  assert.equal(whole.usage.outputTokens, 10);
  assert.equal(whole.usage.inputTokens, tokens);

  const stream = streamText({...plain, prompt: sum});
  let text = '', pieces = 0;
  for await (const piece of stream.textStream) {
    text += piece;
    ++pieces;
  }
  assert.equal(text, '12 + 30 = 42');
  assert.ok(pieces > 3, `${pieces} pieces`);
  assert.equal(await stream.finishReason, 'stop');
  assert.equal((await stream.usage).outputTokens, 10);

  const cut = await generateText({...plain, prompt: sum, maxOutputTokens: 3});
  assert.equal(cut.text, '12 +');
  assert.equal(cut.finishReason, 'length');
}

async function checkThoughts(thinking) {
  const whole = await generateText({...thinking, prompt: 'Compute 37 + 33.'});
  const stream = streamText({...thinking, prompt: 'Compute 37 + 33.'});
  await stream.consumeStream();
  const streamed = {text: await stream.text, reasoningText: await stream.reasoningText};
  for (const result of [whole, streamed]) {
    assert.equal(result.text, '37 + 33 = 70');
    assert.equal(result.reasoningText, '7 + 3 = 10, 3 + 3 + 1 = 7, so 70.');
  }
}

// The SDK runs the tool and asks again with its result.
async function checkTools(plain) {
  const asked = [];
  const get_weather = tool({
    description: 'Get the weather in a city',
    inputSchema: z.object({city: z.string()}),
    execute: async ({city}) => {
      asked.push(city);
      return rain;
    },
  });
  const question = {
    ...plain, tools: {get_weather}, stopWhen: stepCountIs(3), prompt: 'Is it raining in Rabat?'};
  const whole = await generateText(question);
  const stream = streamText(question);
  await stream.consumeStream();
  for (const result of [whole, {text: await stream.text, steps: await stream.steps}]) {
    assert.equal(result.text, 'It is 21 degrees and rainy in Rabat.');
    assert.deepEqual(result.steps.map((step) => step.finishReason), ['tool-calls', 'stop']);
    assert.deepEqual(result.steps[0].toolCalls[0].input, {city: 'Rabat'});
    assert.equal(result.steps[0].toolResults[0].output, rain);
  }
  assert.deepEqual(asked, ['Rabat', 'Rabat']);

  const forced = await generateText(
      {...plain, tools: {get_weather}, toolChoice: 'required', prompt: 'How are you?'});
  assert.equal(forced.finishReason, 'tool-calls');
  assert.equal(typeof forced.toolCalls[0].input.city, 'string');
}

async function checkObjects(plain) {
  const whole = await generateObject({...plain, schema: personSchema, prompt: person});
  assert.deepEqual(whole.object, emma);

  const stream = streamObject({...plain, schema: personSchema, prompt: person});
  const states = [];
  for await (const state of stream.partialObjectStream) states.push(structuredClone(state));
  assert.deepEqual(states.at(-1), emma);
  assert.ok(states.length > 2);
  assert.deepEqual(await stream.object, emma);

  const color = await generateObject(
      {...plain, output: 'enum', enum: ['red', 'blue'], prompt: 'Red or blue?'});
  assert.ok(['red', 'blue'].includes(color.object));
}

await withServer(async (url) => {
  const options = {temperature: 0, maxRetries: 0};
  const openai = createOpenAICompatible({
    name: 'moeflux', baseURL: `${url}/v1`, includeUsage: true, supportsStructuredOutputs: true});
  const model = openai('demo');
  const noThoughts = {providerOptions: {moeflux: {reasoningEffort: 'none'}}};
  const plain = {...options, model, ...noThoughts};
  await checkText(plain, 24);
  await checkThoughts({...options, model});
  await checkTools(plain);
  await checkObjects(plain);

  const anthropic = createAnthropic({baseURL: `${url}/v1`, apiKey: 'none'});
  const claude = {...options, model: anthropic('demo'), maxOutputTokens: 100};
  await checkText(claude, 24);
  await checkThoughts({
    ...claude,
    temperature: undefined,
    providerOptions: {anthropic: {thinking: {type: 'enabled', budgetTokens: 1024}}}
  });
  await checkTools(claude);
  await checkObjects(
      {...claude, providerOptions: {anthropic: {structuredOutputMode: 'outputFormat'}}});
  // Otherwise the provider makes the schema a tool that must be called. The model has not learned
  // to fill that one, but the form is the schema's.
  const called = await generateObject({...claude, schema: personSchema, prompt: person});
  assert.deepEqual(Object.keys(called.object).sort(), ['age', 'city', 'name']);

  await assert.rejects(
      generateText({...plain, prompt: 'word '.repeat(2000)}),
      {statusCode: 400, message: /the context holds 1024/});
});
