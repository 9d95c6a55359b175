"""The story of clients_test.go, told by asyncssh. Each line it prints is a fact."""

import asyncio
import hashlib
import json
import sys

import asyncssh

o = json.loads(sys.argv[1])


def say(name, fact):
    print("%s\t%s" % (name, fact), flush=True)


def numbers(n):
    return "".join("%d\n" % (i + 1) for i in range(n)).encode()


async def shell(conn):
    p = await conn.create_process(term_type="xterm", term_size=(80, 24), encoding=None)
    await p.stdout.readuntil(b"# ")
    p.change_terminal_size(90, 30)
    # The window changes on another path than what is typed.
    p.stdin.write(b"until [ \"$(stty size)\" = '30 90' ]; do sleep 0.05; done; echo sto''ry $((6*7))\r")
    await p.stdout.readuntil(b"story 42\r\n")
    await p.stdout.readuntil(b"# ")
    p.stdin.write(b"exit 3\r")
    await p.wait_closed()
    return p.exit_status


async def signalled(conn):
    """A signal that the client sends, over the protocol."""
    p = await conn.create_process("echo ready; exec sleep 1000", encoding=None)
    await p.stdout.readuntil(b"ready\n")
    p.send_signal("TERM")
    await p.wait_closed()
    return p.exit_signal[0]


async def files(conn):
    async with conn.start_sftp_client() as sftp:
        await sftp.put(o["small"], o["remote"], recurse=True)
        await sftp.get(o["remote"], o["back"], recurse=True)
        folders = [d for d in await sftp.listdir(o["remote"]) if d not in (".", "..")]
        return sum([len([n for n in await sftp.listdir(o["remote"] + "/" + d) if n not in (".", "..")]) for d in folders])


async def forward(conn):
    listener = await conn.forward_local_port("127.0.0.1", 0, "127.0.0.1", o["inside"])
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.get_port())
    writer.write(b"GET /hello HTTP/1.0\r\n\r\n")
    writer.write_eof()
    answer = await reader.read()
    writer.close()
    listener.close()
    return answer.split(b"\r\n\r\n", 1)[1].decode().strip()


async def main():
    known = asyncssh.import_known_hosts("[%s]:%d %s" % (o["host"], o["port"], o["hostKey"]))
    async with asyncssh.connect(o["host"], o["port"], username=o["user"], client_keys=[o["key"]], known_hosts=known, config=None, agent_path=None) as conn:
        for command in "true", "exit 7", "no-such-program", "kill -TERM $$":
            r = await conn.run(command)
            say(command, r.exit_signal[0] if r.exit_signal else r.exit_status)
        say("send_signal", await signalled(conn))
        r = await conn.run("seq 100000; seq 200000 >&2; seq 100001 150000", encoding=None)
        say("streams", "%d %s %s" % (r.exit_status, r.stdout == numbers(150000), r.stderr == numbers(200000)))
        # Many at once on one connection, each with a status of its own.
        many = await asyncio.gather(*[conn.run("exit %d" % i) for i in range(30)])
        say("many", [r.exit_status for r in many] == list(range(30)))
        with open(o["bulk"], "rb") as f:
            bulk = f.read()
        r = await conn.run("tee %s.bulk | sha256sum | cut -c1-64" % o["remote"], input=bulk, encoding=None)
        say("up", r.stdout.decode().strip())
        r = await conn.run("cat %s.bulk; rm %s.bulk" % (o["remote"], o["remote"]), encoding=None)
        say("down", hashlib.sha256(r.stdout).hexdigest())
        say("shell", await shell(conn))
        say("files", await files(conn))
        say("forward", await forward(conn))


asyncio.run(main())
