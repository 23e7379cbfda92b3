// What tests with the official client libraries share: the library, from npm, and a server to talk
// to. A test is run as
//   node CLIENT.mjs PROGRAM MODEL CACHE
// and skips itself with 77 where a package cannot be had.
import assert from 'node:assert/strict';
import {spawn, spawnSync} from 'node:child_process';
import {existsSync, mkdirSync, renameSync, rmSync} from 'node:fs';
import {createRequire} from 'node:module';
import path from 'node:path';

const [program, model, cache] = process.argv.slice(2);
const kSkipped = 77;

// The package's exports. Installed once and kept in CACHE; scripts of packages are not run.
export async function library(name, version) {
  const home = path.resolve(cache, `${name.replaceAll('/', '+')}-${version}`);
  if (!existsSync(home)) {
    const fresh = `${home}.${process.pid}`;
    mkdirSync(fresh, {recursive: true});
    const result = spawnSync(
        'npm',
        ['install', '--prefix', fresh, '--ignore-scripts', '--no-audit', '--no-fund',
         `${name}@${version}`],
        {encoding: 'utf8', timeout: 90_000});
    if (result.status !== 0) {
      rmSync(fresh, {recursive: true, force: true});
      console.log(`SKIP: ${name}@${version} cannot be installed`);
      process.exit(kSkipped);
    }
    renameSync(fresh, home);
  }
  return import(createRequire(path.join(home, 'index.js')).resolve(name));
}

// Resolves with the server's address once the model is there.
function addressOf(server) {
  return new Promise((resolve, reject) => {
    let said = '';
    server.stderr.on('data', (chunk) => {
      said += chunk;
      const ready = said.match(/ready: .* at (http:\S+)\/v1,/);
      if (ready) resolve(ready[1]);
    });
    server.on('exit', () => reject(new Error(`the server ended: ${said}`)));
  });
}

// Runs `test(url)` with a server of the model, and ends the process with its result.
export async function withServer(test) {
  const server = spawn(
      program,
      ['serve', model, '--port', '0', '--ctx-size', '512', '--threads', '1', '--prefix-store',
       'off', '--no-profile', '--alias', 'demo'],
      {stdio: ['ignore', 'ignore', 'pipe']});
  let status = 0;
  try {
    const url = await addressOf(server);
    await test(url);
    assert.equal((await fetch(`${url}/health`)).status, 200);
  } catch (error) {
    console.error(error);
    status = 1;
  } finally {
    server.kill('SIGTERM');
  }
  process.exit(status);
}

export function tool(name, description, properties) {
  const parameters = {type: 'object', properties, required: Object.keys(properties)};
  return {name, description, parameters};
}
export const weather = tool('get_weather', 'Get the weather in a city', {city: {type: 'string'}});
