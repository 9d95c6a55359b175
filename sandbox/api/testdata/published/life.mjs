// Drives what the published client can do with a sandbox that lives: pausing,
// jobs, files, variables, snapshots and checkpoints. Arguments and output are
// those of client.mjs.
import { register } from 'node:module';
import { pathToFileURL } from 'node:url';

register('./hooks.mjs', import.meta.url);
const [, , folder, url, apiKey] = process.argv;
const lib = await import(pathToFileURL(`${folder}/dist/services/sandbox/index.js`).href);
const { APIClient } = await import(pathToFileURL(`${folder}/dist/services/api.js`).href);
const client = new lib.SandboxClient({ url, apiKey });
const quiet = { trace() {}, debug() {}, info() {}, warn() {}, error() {} };
const raw = new APIClient(url, quiet, apiKey, { maxRetries: 0 });
const text = async (stream) => await new Response(stream).text();
const failure = async (promise) => {
	try {
		await promise;
		return 'no error';
	} catch (err) {
		return String(err.status ?? err._tag ?? err);
	}
};

const out = {};
const sandbox = await client.create({ runtime: 'host:latest', name: 'life', timeout: { paused: '24h' }, env: { A: '1' } });
const sandboxId = sandbox.id;

out.written = await sandbox.writeFiles([
	{ path: 'src/a.txt', content: Buffer.from('hello\n') },
	{ path: 'src/b.txt', content: Buffer.from('world\n') },
]);
out.read = await text(await sandbox.readFile('src/a.txt'));
await sandbox.mkDir('made/deep', true);
out.listed = await sandbox.listFiles('src');
out.removed = await sandbox.rmFile('src/b.txt');
out.removedAgain = await sandbox.rmFile('src/b.txt');
out.removedDir = await sandbox.rmDir('made', true);
out.noFile = await failure(sandbox.readFile('none'));
const archive = new Uint8Array(await new Response(await lib.sandboxDownloadArchive(raw, { sandboxId, path: 'src', format: 'tar.gz' })).arrayBuffer());
await lib.sandboxUploadArchive(raw, { sandboxId, archive, path: 'copy', format: 'tar.gz' });
out.copied = await text(await sandbox.readFile('copy/a.txt'));
out.resolved = await lib.sandboxResolve(raw, sandboxId);
out.cliList = await lib.cliSandboxList(raw, { name: 'life', status: 'idle' });
out.env = await sandbox.setEnv({ B: '2', A: null });

const job = await client.createJob(sandboxId, { command: ['sh', '-c', 'echo from a job'] });
out.job = { id: job.id ?? job.jobId, status: job.status };
const jobId = out.job.id;
for (;;) {
	out.jobDone = await lib.jobGet(raw, { sandboxId, jobId });
	if (!['pending', 'running'].includes(out.jobDone.status)) break;
}
out.jobOutput = await (await fetch(out.jobDone.stdoutStreamUrl)).text();
const long = await lib.jobCreate(raw, { sandboxId, options: { command: ['sleep', '600'] } });
out.jobStopped = await lib.jobStop(raw, { sandboxId, jobId: long.jobId, force: true });
out.jobs = await client.listJobs(sandboxId, 10);

out.paused = await sandbox.pause();
out.pausedInfo = await sandbox.get();
await sandbox.resume();
await client.pause(sandboxId);
out.woken = await lib.sandboxExecute(raw, { sandboxId, options: { command: ['true'] } });
await lib.executionGet(raw, { executionId: out.woken.executionId, wait: '30s' });

const snapshot = await client.createSnapshot(sandboxId, { name: 'app', tag: 'v1', description: 'a snapshot' });
out.snapshot = snapshot;
out.snapshotGet = await client.getSnapshot(snapshot.snapshotId);
out.snapshots = await client.listSnapshots({ sandboxId, sort: 'size', direction: 'asc', limit: 10 });
out.retagged = await client.tagSnapshot(snapshot.snapshotId, 'v2');
out.untagged = await client.tagSnapshot(snapshot.snapshotId, null);
out.lineage = await client.getSnapshotLineage({ snapshot: snapshot.snapshotId });
out.lineageByName = await client.getSnapshotLineage({ name: 'app' });
out.notPublic = await failure(lib.snapshotPublicGet(raw, { snapshotRef: snapshot.snapshotId }));
const open = await client.createSnapshot(sandboxId, { tag: 'open', public: true });
out.publicGet = await lib.snapshotPublicGet(raw, { snapshotRef: open.snapshotId });
out.publicList = await lib.snapshotPublicList(raw, { limit: 5 });
const from = await client.create({ snapshot: snapshot.snapshotId });
out.from = { info: await from.get(), read: await text(await from.readFile('src/a.txt')) };
out.listed2 = await client.list({ snapshotId: snapshot.snapshotId, limit: 10 });
out.inUse = await failure(client.deleteSnapshot(snapshot.snapshotId));
await from.destroy();
await client.deleteSnapshot(snapshot.snapshotId);
await client.deleteSnapshot(open.snapshotId);
out.gone = await failure(client.getSnapshot(snapshot.snapshotId));

const checkpoint = await client.createDiskCheckpoint(sandboxId, 'before');
out.checkpoint = { id: checkpoint.id, name: checkpoint.name };
await sandbox.writeFiles([{ path: 'src/a.txt', content: Buffer.from('spoilt\n') }]);
await checkpoint.restore();
out.restored = await text(await sandbox.readFile('src/a.txt'));
out.checkpoints = await client.listDiskCheckpoints(sandboxId);
await checkpoint.delete();
out.executions = await client.listExecutions(sandboxId, 5);
out.events = await client.listEvents(sandboxId, { limit: 100 });
await sandbox.destroy();
console.log(JSON.stringify(out));
