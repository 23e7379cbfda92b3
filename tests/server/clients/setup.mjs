// What tests with the official client libraries share: packages from npm, and a server to talk to.
// A test is run as
//   node CLIENT.mjs PROGRAM MODEL CACHE
// and skips itself with 77 where a package cannot be had.
import assert from 'node:assert/strict';
import {spawn, spawnSync} from 'node:child_process';
import {existsSync, mkdirSync, renameSync, rmSync} from 'node:fs';
import {createRequire} from 'node:module';
import path from 'node:path';
import {pathToFileURL} from 'node:url';

const [program, model, cache] = process.argv.slice(2);
const kSkipped = 77;

export function skip(why) {
  console.log(`SKIP: ${why}`);
  process.exit(kSkipped);
}

// The folder with `packages` ({name: version}), installed once and kept in CACHE under the name and
// version of the first. Scripts of packages are not run.
export function install(packages) {
  const wanted = Object.entries(packages).map(([name, version]) => `${name}@${version}`);
  const home = path.resolve(cache, wanted[0].replace('/', '+').replace(/(?!^)@/, '-'));
  if (existsSync(home)) return home;
  const fresh = `${home}.${process.pid}`;
  mkdirSync(fresh, {recursive: true});
  const result = spawnSync(
      'npm',
      ['install', '--prefix', fresh, '--ignore-scripts', '--no-audit', '--no-fund', ...wanted],
      {encoding: 'utf8', timeout: 90_000});
  try {
    if (result.status === 0) renameSync(fresh, home);
  } catch (error) {
    if (!existsSync(home)) throw error;  // another test has installed them meanwhile
  } finally {
    rmSync(fresh, {recursive: true, force: true});
  }
  if (result.status !== 0) {
    const said = result.stderr?.match(/npm error (?!code|syscall|errno|address|port).*/);
    const why = result.error?.message ?? said?.[0];
    skip(`${wanted.join(', ')} cannot be installed: ${why ?? 'npm failed'}`);
  }
  return home;
}

// The exports of each of `modules`, in that order.
export async function libraries(packages, modules = Object.keys(packages)) {
  const {resolve} = createRequire(path.join(install(packages), 'index.js'));
  return Promise.all(modules.map((name) => import(pathToFileURL(resolve(name)).href)));
}

export async function library(name, version) {
  return (await libraries({[name]: version}))[0];
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
export async function withServer(test, options = []) {
  const server = spawn(
      program,
      ['serve', model, '--port', '0', '--ctx-size', '1024', '--threads', '1', '--prefix-store',
       'off', '--no-profile', '--alias', 'demo', ...options],
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

// What the demo model has learned to work with.
export const weather = tool('get_weather', 'Get the weather in a city', {city: {type: 'string'}});
export const rain = '{"temperature": 21, "sky": "rainy"}';  // a result of it
export const person = 'Extract name, age, city as JSON. ' +
    'Emma is 31 years old, lives in Oslo and likes pie.';
export const emma = {name: 'Emma', age: 31, city: 'Oslo'};
