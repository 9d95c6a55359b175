// Drives the published client (the folder in argv[2]) against the server at
// argv[3] with the API key argv[4], and prints what it got as JSON.
import { register } from 'node:module';
import { Writable } from 'node:stream';
import { pathToFileURL } from 'node:url';

register('./hooks.mjs', import.meta.url);
const [, , folder, url, apiKey] = process.argv;
const { SandboxClient } = await import(pathToFileURL(`${folder}/dist/services/sandbox/index.js`).href);
const client = new SandboxClient({ url, apiKey });

const sink = () => {
	const chunks = [];
	const w = new Writable({
		write(chunk, _encoding, done) {
			chunks.push(chunk);
			done();
		},
	});
	return { w, text: () => Buffer.concat(chunks).toString() };
};
const failure = async (promise) => {
	try {
		await promise;
		return 'no error';
	} catch (err) {
		return { tag: err._tag, status: err.status, message: err.message };
	}
};

const out = {};
const sandbox = await client.create({
	runtime: 'host:latest',
	name: 'published',
	description: 'made by the published client',
	resources: { memory: '256Mi', cpu: '500m' },
	timeout: { idle: '10m', execution: '2m' },
	env: { GREETING: 'hello' },
	metadata: { team: 'a', n: 1 },
	files: [{ path: 'data.txt', content: Buffer.from('from a file\n') }],
});
out.created = { id: sandbox.id, status: sandbox.status };
out.info = await sandbox.get();
out.connected = (await client.connect('published')).id;

const stdout = sink();
const stderr = sink();
out.execution = await sandbox.execute({
	command: ['sh', '-c', 'echo $GREETING; cat data.txt more.txt; echo oops >&2; exit 3'],
	files: [{ path: 'more.txt', content: Buffer.from('more\n') }],
	timeout: '30s',
	pipe: { stdout: stdout.w, stderr: stderr.w },
});
out.piped = [stdout.text(), stderr.text()];
out.fetched = await (await fetch(out.execution.stdoutStreamUrl)).text();
out.list = await client.list({ name: 'published', limit: 10, sort: 'created', direction: 'desc', live: true });
out.runtimes = await client.listRuntimes({ limit: 50 });
out.run = await client.run({ command: { exec: ['sh', '-c', 'cat in; echo err >&2; exit 5'], files: [{ path: 'in', content: Buffer.from('one-shot\n') }] }, runtime: 'host:latest' });

const { executionList, sandboxEventList, sandboxGetStatus } = await import(pathToFileURL(`${folder}/dist/services/sandbox/index.js`).href);
const { APIClient } = await import(pathToFileURL(`${folder}/dist/services/api.js`).href);
const quiet = { trace() {}, debug() {}, info() {}, warn() {}, error() {} };
const raw = new APIClient(url, quiet, apiKey, { maxRetries: 0 });
out.executions = await executionList(raw, { sandboxId: sandbox.id, limit: 5 });
out.events = await sandboxEventList(raw, { sandboxId: sandbox.id, limit: 5, direction: 'desc' });

const slow = sandbox.execute({ command: ['sleep', '600'] }).catch(() => {});
await sandboxGetStatus(raw, { sandboxId: sandbox.id, waitForStatus: ['running'], waitMs: 10000 });
out.busy = await failure(sandbox.execute({ command: ['true'] }));
await sandbox.destroy();
await slow;
out.after = await failure(sandbox.get());
out.missing = await failure(client.get('sbx_aaaaaaaaaaaa'));
out.badMemory = await failure(client.create({ resources: { memory: 'lots' } }));
console.log(JSON.stringify(out));
