// The story of clients_test.go, told by npm's ssh2. Each line it prints is a fact.
"use strict";

const crypto = require("crypto");
const fs = require("fs");
const path = require("path");
const { Client } = require("ssh2");

const o = JSON.parse(process.argv[2]);
const say = (name, fact) => console.log(`${name}\t${fact}`);
const sha = (b) => crypto.createHash("sha256").update(b).digest("hex");
const numbers = (n) => Array.from({ length: n }, (_, i) => `${i + 1}\n`).join("");

// call turns a function with a callback into a promise.
const call = (f, ...args) => new Promise((resolve, reject) => f(...args, (err, value) => (err ? reject(err) : resolve(value))));

// collect reads a session to its end.
function collect(stream, input) {
  return new Promise((resolve, reject) => {
    const out = [], err = [];
    stream.on("data", (b) => out.push(b));
    stream.stderr.on("data", (b) => err.push(b));
    stream.on("error", reject);
    stream.on("close", (code, signal) => resolve({ code: signal || code, out: Buffer.concat(out), err: Buffer.concat(err) }));
    stream.end(input);
  });
}

async function main(client) {
  const run = async (command, input) => collect(await call(client.exec.bind(client), command), input);

  for (const command of ["true", "exit 7", "no-such-program", "kill -TERM $$"]) say(command, (await run(command)).code);
  const r = await run("seq 100000; seq 200000 >&2; seq 100001 150000");
  say("streams", `${r.code} ${r.out.toString() === numbers(150000)} ${r.err.toString() === numbers(200000)}`);

  const bulk = fs.readFileSync(o.bulk);
  say("up", (await run(`tee ${o.remote}.bulk | sha256sum | cut -c1-64`, bulk)).out.toString().trim());
  say("down", sha((await run(`cat ${o.remote}.bulk; rm ${o.remote}.bulk`)).out));

  say("shell", await shell(client));

  const sftp = await call(client.sftp.bind(client));
  await call(sftp.mkdir.bind(sftp), o.remote);
  let count = 0;
  for (const folder of fs.readdirSync(o.small)) {
    const here = path.join(o.small, folder), there = `${o.remote}/${folder}`, back = path.join(o.back, folder);
    await call(sftp.mkdir.bind(sftp), there);
    await Promise.all(fs.readdirSync(here).map((n) => call(sftp.fastPut.bind(sftp), path.join(here, n), `${there}/${n}`)));
    fs.mkdirSync(back, { recursive: true });
    const names = (await call(sftp.readdir.bind(sftp), there)).map((e) => e.filename);
    await Promise.all(names.map((n) => call(sftp.fastGet.bind(sftp), `${there}/${n}`, path.join(back, n))));
    count += names.length;
  }
  say("files", count);

  const tcp = await call(client.forwardOut.bind(client), "127.0.0.1", 1, "127.0.0.1", o.inside);
  const answer = await collect(tcp, "GET /hello HTTP/1.0\r\n\r\n");
  say("forward", answer.out.toString().split("\r\n\r\n")[1].trim());
}

async function shell(client) {
  const stream = await call(client.shell.bind(client), { term: "xterm", rows: 24, cols: 80 });
  let seen = "";
  let more = () => {};
  stream.on("data", (b) => { seen += b; more(); });
  const ended = new Promise((resolve) => stream.on("close", (code) => { resolve(code); more(); }));
  let over = false;
  ended.then(() => { over = true; });
  const expect = async (text) => {
    while (!seen.includes(text)) {
      if (over) throw new Error(`no ${JSON.stringify(text)} in ${JSON.stringify(seen)}`);
      await new Promise((resolve) => { more = resolve; });
    }
    seen = seen.slice(seen.indexOf(text) + text.length);
  };
  await expect("# ");
  stream.setWindow(30, 90, 0, 0);
  stream.write("until [ \"$(stty size)\" = '30 90' ]; do sleep 0.05; done; echo sto''ry $((6*7))\r");
  await expect("story 42\r\n");
  await expect("# ");
  stream.write("exit 3\r");
  return ended;
}

const client = new Client();
client.on("error", (err) => { console.error(err); process.exit(1); });
client.on("ready", () => main(client).then(() => client.end(), (err) => { console.error(err); process.exit(1); }));
client.connect({
  host: o.host, port: o.port, username: o.user, privateKey: fs.readFileSync(o.key),
  hostVerifier: (key) => key.toString("base64") === o.hostKey.split(" ")[1],
});
