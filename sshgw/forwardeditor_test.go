package sshgw

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// editorServer is what an editor runs in the sandbox, written so that it needs
// nothing but Python: it answers each connection with what it was sent.
const editorServer = `
import socket, threading, os
tcp = socket.socket(); tcp.bind(("127.0.0.1", 0)); tcp.listen(200)
unix = socket.socket(socket.AF_UNIX); unix.bind("editor.sock"); unix.listen(200)
with open("pid", "w") as f: f.write(str(os.getpid()))
with open("port.new", "w") as f: f.write(str(tcp.getsockname()[1]))
os.rename("port.new", "port")
def one(c):
    d = b""
    while b := c.recv(65536): d += b
    c.sendall(b"%d\n" % len(d) + d); c.close()
def serve(l):
    while True: threading.Thread(target=one, args=(l.accept()[0],)).start()
threading.Thread(target=serve, args=(unix,)).start()
serve(tcp)
`

// What editors do, in the order in which they do it: a large script on the
// standard input of a shell without a terminal, whose output is looked for
// markers; a server that goes on without its client; connections to it over
// every kind of forward; files.
func TestEditorStory(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("the server of the story needs python3")
	}
	g := newGateway(t)
	g.write("server.py", editorServer)
	if r := run(t, g.tool("scp", "-q", filepath.Join(g.dir, "server.py"), "box@gw:server.py"), nil); r.status != 0 {
		t.Fatal(r.stderr)
	}
	// 200 KB of script; no prompt, no echo, nothing but what it prints.
	var script strings.Builder
	script.WriteString("echo marker-begin\n")
	for i := range 4000 {
		fmt.Fprintf(&script, ": a line that does nothing, number %06d, and is long\n", i)
	}
	script.WriteString("setsid python3 server.py </dev/null >server.log 2>&1 &\nwhile [ ! -e port ]; do sleep 0.05; done\necho listeningOn==$(cat port)==\n")
	socks := freePort(t)
	cmd := g.ssh("-T", "-D", fmt.Sprint("127.0.0.1:", socks), "box@gw", "bash")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, errs := new(syncBuffer), new(syncBuffer)
	cmd.Stdout, cmd.Stderr = out, errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	if _, err := io.WriteString(in, script.String()); err != nil {
		t.Fatal(err)
	}
	out.waitFor(t, "==\n")
	begin, rest, _ := strings.Cut(out.String(), "listeningOn==")
	text, _, _ := strings.Cut(rest, "==")
	port, err := strconv.Atoi(text)
	if begin != "marker-begin\n" || err != nil {
		t.Fatalf("stdout %q, stderr %q", out.String(), errs.String())
	}
	defer func() { _ = run(t, g.ssh("-n", "box@gw", "kill $(cat pid)"), nil) }()
	data := string(noise(100_000))
	want := fmt.Sprintf("%d\n%s", len(data), data)
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if got := halfClose(t, dialSOCKS(t, socks, port), data); got != want {
				t.Errorf("-D: %d bytes of %d", len(got), len(want))
			}
		})
	}
	wg.Wait()
	// The client is killed; its server in the sandbox is not.
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	r := run(t, g.ssh("-W", fmt.Sprint("127.0.0.1:", port), "box@gw"), strings.NewReader(data))
	if r.status != 0 || r.stdout != want {
		t.Errorf("after a reconnect: status %d, %d bytes of %d, %q", r.status, len(r.stdout), len(want), r.stderr)
	}
	c := g.dial("box", "alice")
	unix, err := c.Dial("unix", filepath.Join(g.boxes.workspace, "editor.sock"))
	if err != nil {
		t.Fatal(err)
	}
	if got := halfClose(t, unix, data); got != want {
		t.Errorf("streamlocal: %d bytes of %d", len(got), len(want))
	}
	// 80 MB of an extension.
	big := bytes.Repeat(noise(1<<20), 80)
	r = run(t, g.tool("sftp", "-q", "-b", "-", "box@gw"), strings.NewReader("put "+g.write("big", string(big))+" big\n"))
	if got, err := os.ReadFile(filepath.Join(g.boxes.workspace, "big")); r.status != 0 || err != nil || !bytes.Equal(got, big) {
		t.Errorf("sftp: status %d, %d bytes of %d, %v, %q", r.status, len(got), len(big), err, r.stderr)
	}
	for _, status := range []int{0, 1, 127} {
		run(t, g.ssh("-n", "box@gw", fmt.Sprint("exit ", status)), nil).expect(t, status, "")
	}
}

// dialSOCKS connects to a port of 127.0.0.1 through a SOCKS5 proxy on another.
func dialSOCKS(t *testing.T, proxy, port int) net.Conn {
	t.Helper()
	c, err := new(net.Dialer).DialContext(context.Background(), "tcp", fmt.Sprint("127.0.0.1:", proxy))
	if err != nil {
		t.Error(err)
		return nil
	}
	answer := make([]byte, 12)
	if _, err := c.Write([]byte{5, 1, 0, 5, 1, 0, 1, 127, 0, 0, 1, byte(port >> 8), byte(port)}); err != nil {
		t.Error(err)
	}
	if _, err := io.ReadFull(c, answer); err != nil || answer[3] != 0 {
		t.Errorf("the proxy answered %x, %v", answer, err)
	}
	return c
}
