package drivertest

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/pkg/sftp"

	"github.com/sandgate/sandgate/sandbox/guest"
)

func transferTests() []test {
	return []test{
		{name: "Transfer/SFTP", run: func(t *testing.T, e *env) { testSFTP(t, e.boot(t), "") }},
		{name: "Transfer/SFTPOfUser", walls: true, run: testSFTPOfUser},
		{name: "Transfer/SCP", run: testSCP},
		{name: "Transfer/LentSCP", walls: true, run: testLentSCP},
	}
}

// sftp starts the sftp server of the guest.
func (b *box) sftp(t *testing.T, user string) *sftp.Client {
	t.Helper()
	out, in := io.Pipe()
	errs := newScreen()
	p, err := b.conn.Start(ctx(t), guest.Command{ID: newID(), Builtin: guest.BuiltinSFTP, User: user}, guest.Output{Stdout: in, Stderr: errs})
	if err != nil {
		t.Fatalf("start the sftp server: %v", err)
	}
	go func() { // ends with the process
		_, err := p.Wait(ctx(t))
		in.CloseWithError(err)
	}()
	c, err := sftp.NewClientPipe(out, p)
	if err != nil {
		t.Fatalf("speak sftp: %v (%s)", err, errs)
	}
	t.Cleanup(func() {
		c.Close()
		p.Close()
	})
	return c
}

func testSFTP(t *testing.T, b *box, user string) {
	c := b.sftp(t, user)
	content := bytes.Repeat([]byte("0123456789abcdef"), 100_000)
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	must("make a directory", c.Mkdir("dir"))
	f, err := c.Create("dir/file")
	must("create", err)
	_, err = f.ReadFrom(bytes.NewReader(content))
	must("write", err)
	must("close", f.Close())
	must("chmod", c.Chmod("dir/file", 0o640))
	must("rename", c.Rename("dir/file", "dir/other"))
	must("link", c.Symlink("other", "dir/link"))
	f, err = c.Open("dir/link")
	must("open", err)
	var back bytes.Buffer
	_, err = f.WriteTo(&back)
	must("read", err)
	must("close", f.Close())
	if !bytes.Equal(back.Bytes(), content) {
		t.Errorf("%d of %d bytes came back", back.Len(), len(content))
	}
	info, err := c.Stat("dir/other")
	must("stat", err)
	if info.Mode() != 0o640 || info.Size() != int64(len(content)) {
		t.Errorf("%v, %d bytes", info.Mode(), info.Size())
	}
	if at, err := c.RealPath("dir/link"); err != nil || !strings.HasSuffix(at, "/dir/other") {
		t.Errorf("the real path is %q, %v", at, err)
	}
	if list, err := c.ReadDir("dir"); err != nil || len(list) != 2 {
		t.Errorf("%d entries, %v", len(list), err)
	}
	if err := c.Rename("dir/other", "dir/link"); err == nil {
		t.Error("a rename replaces a file")
	}
	if _, err := c.Stat("missing"); !os.IsNotExist(err) {
		t.Errorf("a missing file: %v", err)
	}
}

// testSFTPOfUser holds that a plain user can run the server, and has no more
// rights with it than without.
func testSFTPOfUser(t *testing.T, e *env) {
	b := e.boot(t)
	testSFTP(t, b, "1000")
	if got := b.sh(t, "stat -c '%u %a' /workspace/dir /workspace/dir/other"); got != "1000 755\n1000 640" {
		t.Errorf("%q", got)
	}
	b.sh(t, "echo secret >/root-only && chmod 600 /root-only")
	c := b.sftp(t, "1000")
	if f, err := c.Open("/root-only"); !os.IsPermission(err) {
		t.Errorf("root's file is opened: %v, %v", f, err)
	}
	if err := c.Mkdir("/etc/made"); !os.IsPermission(err) {
		t.Errorf("a directory in /etc: %v", err)
	}
}

func testSCP(t *testing.T, e *env) {
	b := e.boot(t)
	r := b.run(t, guest.Command{Builtin: guest.BuiltinSCP, Args: []string{"-t", "--", "copied"}}, "C0600 6 name\nhello\n\x00")
	if r.exit.Status() != 0 || r.stdout != "\x00\x00\x00" {
		t.Fatalf("%+v", r)
	}
	r = b.run(t, guest.Command{Builtin: guest.BuiltinSCP, Args: []string{"-f", "copied"}}, "\x00\x00\x00")
	if r.exit.Status() != 0 || r.stdout != "C0600 6 copied\nhello\n\x00" {
		t.Fatalf("%+v", r)
	}
}

// testLentSCP holds that a shell finds scp in a sandbox that has none, whoever
// runs it, and that the shell does with its arguments what shells do.
func testLentSCP(t *testing.T, e *env) {
	b := e.boot(t)
	b.sh(t, "mkdir -m 777 'a dir' && echo one >'a dir/1.txt' && echo two >'a dir/2.txt'")
	for _, user := range []string{"", "1000"} {
		r := b.run(t, guest.Command{Script: `scp -f 'a dir'/*.txt`, User: user}, strings.Repeat("\x00", 5))
		if want := "C0644 4 1.txt\none\n\x00C0644 4 2.txt\ntwo\n\x00"; r.exit.Status() != 0 || r.stdout != want {
			t.Errorf("user %q: %+v", user, r)
		}
		r = b.run(t, guest.Command{Script: `scp -d -t "a dir"`, User: user}, "C0644 2 new"+user+"\nx\n\x00")
		if r.exit.Status() != 0 {
			t.Errorf("user %q: %+v", user, r)
		}
	}
	if got := b.sh(t, "stat -c '%n %u' 'a dir'/new*"); got != "a dir/new 0\na dir/new1000 1000" {
		t.Errorf("%q", got)
	}
	if r := b.try(t, "scp here there:"); r.exit.Status() != 1 || !strings.Contains(r.stderr, "install openssh-client") {
		t.Errorf("without -t and -f: %+v", r)
	}
}
