// What users of the official clients do beyond a plain question, as cases that are counted:
//   node cases.mjs PROGRAM MODEL CACHE SDK
// SDK is one of those below. Prints how many cases pass, and fails unless all do. Skips itself with
// 77 where the packages cannot be had.
import assert from 'node:assert/strict';

import {emma, libraries, person, rain, weather, withServer} from './setup.mjs';

const sum = [{role: 'user', content: 'What is 12 + 30?'}];
const begun = [...sum, {role: 'assistant', content: '12 + 30'}];
const rainy = [{role: 'user', content: 'Is it raining in Rabat?'}];
const rainyAnswer = 'It is 21 degrees and rainy in Rabat.';

async function until(condition) {
  for (let i = 0; i < 500; ++i) {
    const result = await condition();
    if (result) return result;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  throw new Error('it does not come true');
}

function lengthOf(vector) {
  return Math.hypot(...vector);
}

// Each gives {name: test(url)}.
const sdks = {
  async openai() {
    const [{default: OpenAI, toFile}, {zodResponseFormat, zodFunction}, {z}] = await libraries(
        {'openai': '7.55.0', 'zod': '4.6.7'}, ['openai', 'openai/helpers/zod', 'zod']);
    const client = (url) => new OpenAI({baseURL: `${url}/v1`, apiKey: 'none', maxRetries: 0});
    const chat = {model: 'demo', temperature: 0, reasoning_effort: 'none'};
    const respond = {model: 'demo', temperature: 0, reasoning: {effort: 'none'}};
    const tools = [{type: 'function', function: weather}];
    return {
      'an answer that is begun': async (url) => {
        const answer = await client(url).chat.completions.create({...chat, messages: begun});
        assert.equal(answer.choices[0].message.content, ' = 42');
      },
      'functions before tools': async (url) => {
        const {choices: [choice]} = await client(url).chat.completions.create(
            {...chat, messages: rainy, functions: [weather]});
        assert.equal(choice.finish_reason, 'function_call');
        assert.deepEqual(JSON.parse(choice.message.function_call.arguments), {city: 'Rabat'});
        const after = await client(url).chat.completions.create({
          ...chat,
          functions: [weather],
          messages: [...rainy, choice.message, {role: 'function', name: 'get_weather', content: rain}],
        });
        assert.equal(after.choices[0].message.content, rainyAnswer);
      },
      'runTools': async (url) => {
        const asked = [];
        const runner = client(url).chat.completions.runTools({
          ...chat,
          messages: rainy,
          tools: [{
            type: 'function',
            function: {...weather, parse: JSON.parse, function: ({city}) => { asked.push(city); return rain; }},
          }],
        });
        assert.equal(await runner.finalContent(), rainyAnswer);
        assert.deepEqual(asked, ['Rabat']);
      },
      'runTools in a stream': async (url) => {
        const runner = client(url).chat.completions.runTools({
          ...chat, stream: true, messages: rainy,
          tools: [{type: 'function', function: {...weather, parse: JSON.parse, function: () => rain}}],
        });
        assert.equal(await runner.finalContent(), rainyAnswer);
      },
      'parse': async (url) => {
        const format = zodResponseFormat(z.object({name: z.string(), age: z.int(), city: z.string()}), 'person');
        const parsed = await client(url).chat.completions.parse(
            {...chat, messages: [{role: 'user', content: person}], response_format: format});
        assert.deepEqual(parsed.choices[0].message.parsed, emma);
      },
      'stop strings do not end thoughts': async (url) => {
        const {reasoning_effort, ...thinking} = chat;
        const {choices: [choice]} = await client(url).chat.completions.create({...thinking, messages: sum, stop: ['so ', ' =']});
        assert.equal(choice.message.content, '12 + 30');
      },
      'a call that is cut off': async (url) => {
        const {choices: [choice]} = await client(url).chat.completions.create(
            {...chat, messages: rainy, tools, max_tokens: 6});
        assert.equal(choice.finish_reason, 'length');
        assert.doesNotMatch(choice.message.content ?? '', /[<>]/);
      },
      'images and audio are refused by name': async (url) => {
        for (const type of ['image_url', 'input_audio']) {
          await assert.rejects(
              client(url).chat.completions.create({...chat, messages: [{role: 'user', content: [{type}]}]}),
              (error) => error.status === 400 && error.message.includes(type));
        }
        await assert.rejects(client(url).chat.completions.create(
            {...chat, messages: sum, modalities: ['text', 'audio']}), {status: 400, param: 'modalities'});
      },
      'embeddings': async (url) => {
        // The client asks for base64 and gives floats.
        const {data, usage} = await client(url).embeddings.create({model: 'demo', input: ['a frog', 'a pond']});
        assert.equal(data.length, 2);
        assert.equal(data[0].embedding.length, 256);
        assert.ok(Math.abs(lengthOf(data[1].embedding) - 1) < 1e-5);
        assert.ok(usage.prompt_tokens > 0);
      },
      'embeddings as floats, fewer dimensions': async (url) => {
        const {data} = await client(url).embeddings.create(
            {model: 'demo', input: 'a frog', encoding_format: 'float', dimensions: 16});
        assert.equal(data[0].embedding.length, 16);
      },
      'embeddings of nothing': (url) => assert.rejects(
          client(url).embeddings.create({model: 'demo', input: ''}), {status: 400, param: 'input'}),
      'previous_response_id': async (url) => {
        const first = await client(url).responses.create({...respond, input: 'What is 12 + 30?'});
        const second = await client(url).responses.create(
            {...respond, input: 'What is 1 + 3?', previous_response_id: first.id});
        assert.equal(second.output_text, '1 + 3 = 4');
        assert.equal(second.previous_response_id, first.id);
      },
      'retrieve and delete': async (url) => {
        const first = await client(url).responses.create({...respond, input: 'What is 12 + 30?'});
        assert.deepEqual((await client(url).responses.retrieve(first.id)).output, first.output);
        await client(url).responses.delete(first.id);
        await assert.rejects(client(url).responses.retrieve(first.id), {status: 404});
      },
      'store: false': async (url) => {
        const first = await client(url).responses.create({...respond, input: 'What is 12 + 30?', store: false});
        await assert.rejects(client(url).responses.retrieve(first.id), {status: 404});
      },
      'in the background': async (url) => {
        const queued = await client(url).responses.create({...respond, input: 'What is 12 + 30?', background: true});
        assert.equal(queued.status, 'queued');
        const done = await until(async () => {
          const now = await client(url).responses.retrieve(queued.id);
          return now.status === 'completed' && now;
        });
        assert.equal(done.output_text, '12 + 30 = 42');
      },
      'cancel': async (url) => {
        const queued = await client(url).responses.create(
            {...respond, input: 'Tell me a short story about a frog.', background: true});
        const status = (await client(url).responses.cancel(queued.id)).status;
        assert.ok(['cancelled', 'completed'].includes(status), status);
      },
      'input items': async (url) => {
        const first = await client(url).responses.create({...respond, input: 'What is 12 + 30?'});
        const items = [];
        for await (const item of client(url).responses.inputItems.list(first.id)) items.push(item);
        assert.deepEqual(items.map((item) => item.role), ['user']);
      },
      'input_tokens': async (url) => {
        const {input_tokens} = await client(url).responses.inputTokens.count({model: 'demo', input: 'What is 12 + 30?'});
        assert.ok(input_tokens > 10);
      },
      'include logprobs': async (url) => {
        const first = await client(url).responses.create(
            {...respond, input: 'What is 12 + 30?', include: ['message.output_text.logprobs'], top_logprobs: 2});
        assert.equal(first.output[0].content[0].logprobs.map((each) => each.token).join(''), '12 + 30 = 42');
      },
      'include encrypted thoughts': async (url) => {
        const first = await client(url).responses.create({
          ...respond, reasoning: {effort: 'high'}, input: 'What is 12 + 30?', store: false,
          include: ['reasoning.encrypted_content']});
        const {content, ...thought} = first.output[0];
        assert.ok(thought.encrypted_content);
        await client(url).responses.create(
            {...respond, input: [...sum, thought, first.output[1], {role: 'user', content: 'What is 1 + 3?'}]});
      },
      'item references': async (url) => {
        const first = await client(url).responses.create({...respond, input: 'What is 12 + 30?'});
        const second = await client(url).responses.create({
          ...respond,
          input: [...sum, {type: 'item_reference', id: first.output[0].id}, {role: 'user', content: 'What is 1 + 3?'}]});
        assert.equal(second.output_text, '1 + 3 = 4');
      },
    };
  },

  async anthropic() {
    const [{Anthropic}, {betaZodTool}, {z}] = await libraries(
        {'@anthropic-ai/sdk': '1.10.0', 'zod': '4.6.7'},
        ['@anthropic-ai/sdk', '@anthropic-ai/sdk/helpers/beta/zod', 'zod']);
    const client = (url) => new Anthropic({baseURL: url, apiKey: 'none', maxRetries: 0});
    const ask = {model: 'demo', max_tokens: 100, temperature: 0};
    const {parameters, ...named} = weather;
    const tool = (run) => betaZodTool(
        {name: 'get_weather', description: weather.description, inputSchema: z.object({city: z.string()}), run});
    const textOf = (message) => message.content.filter((block) => block.type === 'text').map((block) => block.text).join('');
    return {
      'an answer that is begun': async (url) => {
        assert.equal(textOf(await client(url).messages.create({...ask, messages: begun})), ' = 42');
      },
      'a tool runner': async (url) => {
        const asked = [];
        const message = await client(url).beta.messages.toolRunner({
          ...ask, messages: rainy, tools: [tool(({city}) => { asked.push(city); return rain; })]});
        assert.equal(textOf(message), rainyAnswer);
        assert.deepEqual(asked, ['Rabat']);
      },
      'a tool runner in a stream': async (url) => {
        const runner = client(url).beta.messages.toolRunner(
            {...ask, stream: true, messages: rainy, tools: [tool(() => rain)]});
        let last;
        for await (const stream of runner) last = await stream.finalMessage();
        assert.equal(textOf(last), rainyAnswer);
      },
      'a tool runner without a thread': async (url) => {
        const message = await client(url).beta.messages.toolRunner(
            {...ask, thread: false, messages: rainy, tools: [tool(() => rain)]});
        assert.equal(textOf(message), rainyAnswer);
      },
      'a thread is refused by its code': (url) => assert.rejects(
          client(url).beta.messages.create({...ask, messages: sum, thread: {type: 'create'}}),
          (error) => error.status === 400 && error.error.error.details.error_code === 'thread_unsupported_request'),
      'a thread says that there are none': async (url) => {
        const thread = client(url).beta.messages.thread({...ask});
        await assert.rejects(thread.send({role: 'user', content: 'What is 12 + 30?'}), {status: 400});
      },
      'a thread that may go on without': async (url) => {
        const thread = client(url).beta.messages.thread({...ask, unsupportedRequestBehavior: 'continue_unthreaded'});
        assert.equal(textOf(await thread.send({role: 'user', content: 'What is 12 + 30?'})), '12 + 30 = 42');
      },
      'a call that is cut off': async (url) => {
        const message = await client(url).messages.create(
            {...ask, max_tokens: 6, messages: rainy, tools: [{...named, input_schema: parameters}]});
        assert.equal(message.stop_reason, 'max_tokens');
        assert.doesNotMatch(textOf(message), /[<>]/);
      },
      'a stop string in a call': async (url) => {
        const message = await client(url).messages.create(
            {...ask, stop_sequences: ['Rabat'], messages: rainy, tools: [{...named, input_schema: parameters}]});
        assert.doesNotMatch(textOf(message), /[<>]/);
      },
      'stop strings do not end thoughts': async (url) => {
        const message = await client(url).messages.create(
            {...ask, temperature: undefined, messages: sum, stop_sequences: ['so ', ' ='], thinking: {type: 'enabled', budget_tokens: 1024}});
        assert.ok(message.content.some((block) => block.type === 'thinking' && block.thinking.includes('so ')));
      },
      'images are refused by name': (url) => assert.rejects(
          client(url).messages.create({...ask, messages: [{role: 'user', content: [{type: 'image', source: {type: 'base64', media_type: 'image/png', data: 'aGk='}}]}]}),
          (error) => error.status === 400 && error.message.includes('image')),
      'countTokens': async (url) => {
        assert.ok((await client(url).messages.countTokens({model: 'demo', messages: begun})).input_tokens > 10);
      },
    };
  },

  async ollama() {
    const [{Ollama}] = await libraries({'ollama': '0.6.4'});
    const client = (host) => new Ollama({host});
    const options = {temperature: 0};
    return {
      'an answer that is begun': async (url) => {
        const answer = await client(url).chat({model: 'demo', messages: begun, think: false, options});
        assert.equal(answer.message.content, ' = 42');
      },
      'embed': async (url) => {
        const {embeddings, prompt_eval_count} = await client(url).embed({model: 'demo', input: ['a frog', 'a pond']});
        assert.deepEqual(embeddings.map((each) => each.length), [256, 256]);
        assert.ok(prompt_eval_count > 0);
      },
      'embed with fewer dimensions': async (url) => {
        const {embeddings: [frog]} = await client(url).embed({model: 'demo', input: 'a frog', dimensions: 8});
        assert.ok(frog.length === 8 && Math.abs(lengthOf(frog) - 1) < 1e-5);
      },
      'embeddings': async (url) => {
        assert.equal((await client(url).embeddings({model: 'demo', prompt: 'a frog'})).embedding.length, 256);
      },
      'embed what is too long': (url) => assert.rejects(
          client(url).embed({model: 'demo', input: 'word '.repeat(3000)}), {status_code: 400}),
      'embed what is cut': async (url) => {
        assert.equal((await client(url).embed({model: 'demo', input: 'word '.repeat(3000), truncate: true})).embeddings.length, 1);
      },
      'images are refused by name': (url) => assert.rejects(
          client(url).chat({model: 'demo', messages: [{role: 'user', content: 'x', images: ['aGk=']}]}),
          {status_code: 400, message: /images/}),
      'stop strings do not end thoughts': async (url) => {
        const answer = await client(url).chat({model: 'demo', messages: sum, think: true, options: {...options, stop: ['so ', ' =']}});
        assert.equal(answer.message.content, '12 + 30');
      },
    };
  },

  async ai() {
    const [{embed, embedMany, generateText, generateObject, streamText, rerank}, {createOpenAI}, {createOpenAICompatible}, {z}] =
        await libraries({'ai': '7.0.173', '@ai-sdk/openai': '4.0.118', '@ai-sdk/openai-compatible': '3', 'zod': '4.6.7'});
    const openai = (url) => createOpenAI({baseURL: `${url}/v1`, apiKey: 'none'});
    const noThoughts = {openai: {reasoningEffort: 'none', forceReasoning: true}};
    const plain = {temperature: 0, maxRetries: 0};
    return {
      'a question over Responses': async (url) => {
        const {text} = await generateText({...plain, model: openai(url)('demo'), prompt: 'What is 12 + 30?'});
        assert.equal(text, '12 + 30 = 42');
      },
      'a conversation over Responses': async (url) => {
        const first = await generateText({...plain, model: openai(url)('demo'), prompt: 'What is 12 + 30?'});
        const {text} = await generateText({
          ...plain, model: openai(url)('demo'),
          messages: [{role: 'user', content: 'What is 12 + 30?'}, ...first.response.messages, {role: 'user', content: 'What is 1 + 3?'}]});
        assert.equal(text, '1 + 3 = 4');
      },
      'previousResponseId': async (url) => {
        const first = await generateText({...plain, model: openai(url)('demo'), prompt: 'What is 12 + 30?'});
        const {text} = await generateText({
          ...plain, model: openai(url)('demo'), prompt: 'What is 1 + 3?',
          providerOptions: {openai: {previousResponseId: first.providerMetadata.openai.responseId}}});
        assert.equal(text, '1 + 3 = 4');
      },
      'a stream over Responses': async (url) => {
        const stream = streamText({...plain, model: openai(url)('demo'), prompt: 'What is 12 + 30?'});
        assert.equal(await stream.text, '12 + 30 = 42');
      },
      'an answer that is begun': async (url) => {
        const model = createOpenAICompatible({name: 'moeflux', baseURL: `${url}/v1`})('demo');
        const {text} = await generateText({...plain, model, messages: begun, providerOptions: {moeflux: {reasoningEffort: 'none'}}});
        assert.equal(text.trim(), '= 42');
      },
      'embed': async (url) => {
        const {embedding} = await embed({model: openai(url).embedding('demo'), value: 'a frog'});
        assert.equal(embedding.length, 256);
      },
      'embedMany': async (url) => {
        const {embeddings, usage} = await embedMany({model: openai(url).embedding('demo'), values: ['a frog', 'a pond']});
        assert.equal(embeddings.length, 2);
        assert.ok(usage.tokens > 0);
      },
    };
  },

  async langchain() {
    const [{ChatOpenAI, OpenAIEmbeddings}, {HumanMessage, AIMessage}] = await libraries(
        {'@langchain/openai': '1.6.0', '@langchain/core': '1'}, ['@langchain/openai', '@langchain/core/messages']);
    const options = (url) => (
        {model: 'demo', temperature: 0, maxRetries: 0, apiKey: 'none', configuration: {baseURL: `${url}/v1`}});
    return {
      'an answer that is begun': async (url) => {
        const chat = new ChatOpenAI({...options(url), modelKwargs: {reasoning_effort: 'none'}});
        const answer = await chat.invoke([new HumanMessage('What is 12 + 30?'), new AIMessage('12 + 30')]);
        assert.equal(answer.text, ' = 42');
      },
      'previous_response_id': async (url) => {
        const chat = new ChatOpenAI({...options(url), useResponsesApi: true, modelKwargs: {reasoning: {effort: 'none'}}});
        const first = await chat.invoke('What is 12 + 30?');
        const second = await chat.invoke('What is 1 + 3?', {previous_response_id: first.response_metadata.id});
        assert.equal(second.text, '1 + 3 = 4');
      },
      'embeddings of documents': async (url) => {
        const embeddings = new OpenAIEmbeddings(options(url));
        const vectors = await embeddings.embedDocuments(['a frog', 'a pond', 'a frog']);
        assert.equal(vectors.length, 3);
        assert.deepEqual(vectors[0], vectors[2]);
      },
      'the embedding of a query': async (url) => {
        const embeddings = new OpenAIEmbeddings({...options(url), dimensions: 32});
        assert.equal((await embeddings.embedQuery('a frog')).length, 32);
      },
    };
  },
};

const sdk = process.argv[5];
if (!sdks[sdk]) throw new Error(`there are ${Object.keys(sdks).join(', ')}, and no ${sdk}`);
const cases = await sdks[sdk]();
await withServer(async (url) => {
  const failed = [];
  for (const [name, test] of Object.entries(cases)) {
    try {
      await test(url);
    } catch (error) {
      failed.push(name);
      console.log(`FAIL ${sdk}: ${name}: ${String(error.message).split('\n')[0].slice(0, 300)}`);
    }
  }
  const all = Object.keys(cases).length;
  console.log(`${sdk}: ${all - failed.length} of ${all} cases pass`);
  assert.deepEqual(failed, []);
});
