"""The story of clients_test.go, told by paramiko. Each line it prints is a fact."""

import base64
import hashlib
import json
import os
import sys
import threading

import paramiko

o = json.loads(sys.argv[1])


def say(name, fact):
    print("%s\t%s" % (name, fact), flush=True)


def run(command, data=b""):
    channel = transport.open_session()
    channel.exec_command(command)
    errors = []

    def feed():
        for i in range(0, len(data), 1 << 18):  # all at once is copied for each packet
            channel.sendall(data[i : i + (1 << 18)])
        channel.shutdown_write()

    others = [threading.Thread(target=feed), threading.Thread(target=lambda: errors.append(channel.makefile_stderr("rb").read()))]
    for t in others:
        t.start()
    out = channel.makefile("rb", 1 << 18).read()
    for t in others:
        t.join()
    return channel.recv_exit_status(), out, errors[0]


def shell():
    channel = transport.open_session()
    channel.get_pty("xterm", 80, 24)
    channel.resize_pty(90, 30)  # before anything runs that could take it
    channel.invoke_shell()
    seen = b""

    def expect(text):
        nonlocal seen
        while text not in seen:
            b = channel.recv(65536)
            if not b:
                raise EOFError("no %r in %r" % (text, seen))
            seen += b
        seen = seen[seen.index(text) + len(text) :]

    expect(b"# ")
    channel.sendall(b"stty size; echo sto''ry $((6*7))\r")
    expect(b"30 90\r\n")
    expect(b"story 42\r\n")
    expect(b"# ")
    channel.sendall(b"exit 3\r")
    while channel.recv(65536):
        pass
    return channel.recv_exit_status()


def numbers(n):
    return "".join("%d\n" % (i + 1) for i in range(n)).encode()


def files():
    sftp = client.open_sftp()
    sftp.mkdir(o["remote"])
    for folder, _, names in os.walk(o["small"]):
        there = os.path.join(o["remote"], os.path.relpath(folder, o["small"]))
        if folder != o["small"]:
            sftp.mkdir(there)
        for name in names:
            sftp.put(os.path.join(folder, name), os.path.join(there, name))
    count = 0
    for folder in sftp.listdir(o["remote"]):
        os.makedirs(os.path.join(o["back"], folder))
        for name in sftp.listdir(os.path.join(o["remote"], folder)):
            sftp.get(os.path.join(o["remote"], folder, name), os.path.join(o["back"], folder, name))
            count += 1
    sftp.close()
    return count


def forward():
    channel = transport.open_channel("direct-tcpip", ("127.0.0.1", o["inside"]), ("127.0.0.1", 1))
    channel.sendall(b"GET /hello HTTP/1.0\r\n\r\n")
    channel.shutdown_write()
    return channel.makefile("rb").read().split(b"\r\n\r\n", 1)[1].decode().strip()


client = paramiko.SSHClient()
kind, blob = o["hostKey"].split()[:2]
client.get_host_keys().add("[%s]:%d" % (o["host"], o["port"]), kind, paramiko.Ed25519Key(data=base64.b64decode(blob)))
client.connect(o["host"], o["port"], o["user"], key_filename=o["key"], allow_agent=False, look_for_keys=False)
transport = client.get_transport()

for command in "true", "exit 7", "no-such-program", "kill -TERM $$":
    say(command, run(command)[0])
status, out, err = run("seq 100000; seq 200000 >&2; seq 100001 150000")
say("streams", "%d %s %s" % (status, out == numbers(150000), err == numbers(200000)))
with open(o["bulk"], "rb") as f:
    bulk = f.read()
say("up", run("sha256sum | cut -c1-64", bulk)[1].decode().strip())
run("cat >%s.bulk" % o["remote"], bulk)
say("down", hashlib.sha256(run("cat %s.bulk; rm %s.bulk" % (o["remote"], o["remote"]))[1]).hexdigest())
say("shell", shell())
say("files", files())
say("forward", forward())
client.close()
