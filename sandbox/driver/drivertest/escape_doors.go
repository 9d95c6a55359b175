package drivertest

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox/guest"
	guesttree "github.com/sandgate/sandgate/sandbox/guest/tree"
)

// testEscapeDoors takes paths of the host's to the doors that Files/PathTricks
// does not knock at: where a command starts, what is dialled, where a file is
// moved to, and whole trees, whose target is the host in one direction.
func testEscapeDoors(t *testing.T, e *env) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "secret-of-the-host"), []byte(secretValue), 0o666); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(e.scratch, "s"+newID()[:4])
	if l, err := net.Listen("unix", socket); err == nil {
		defer l.Close()
	} else {
		t.Logf("no socket to look for: %v", err)
	}
	before := contents(t, dir)
	e.siege(t, func(b *box) {
		b.sh(t, `ln -s / root; ln -s `+dir+` host; mkdir from; echo in >from/f`)
		for _, through := range []string{"", "/proc/1/root", "/proc/self/root", "/proc/1/cwd/../../..", "root", "/proc/self/fd/3/../../..", strings.Repeat("../", 40)} {
			path := through + dir
			p, err := b.conn.Start(ctx(t), guest.Command{ID: newID(), NoStdin: true, Args: []string{"cat", "secret-of-the-host"}, Dir: path}, guest.Output{})
			if err == nil {
				if exit, err := p.Wait(ctx(t)); err == nil && exit.Status() == 0 {
					t.Errorf("a command starts in %q of the host", path)
				}
			}
			if s, err := b.conn.Dial(ctx(t), "unix", through+socket); err == nil {
				s.Close()
				t.Errorf("%q of the host is dialled", through+socket)
			}
			for _, to := range []string{path, path + "/moved"} {
				_ = b.conn.Rename(ctx(t), "from/f", to, "") // where it may, it moves inside
				b.try(t, "[ -e from/f ] || echo in >from/f")
			}
			_, _ = b.conn.CopyIn(ctx(t), dir, path, guest.UploadOptions{}) // the same
			_, _ = b.conn.RemoveDir(ctx(t), path, guest.RemoveDirOptions{Recursive: true})
			b.try(t, "ln -sfn "+dir+" host")
		}
		if contents(t, dir) != before {
			t.Error("what the host has was changed")
		}
		// A tree that leads out of the directory it is copied to.
		b.sh(t, `mkdir -p tree/sub && cd tree && ln -s `+dir+` sub/out && ln -s ../../.. up && ln -s `+dir+`/secret-of-the-host file && mkfifo pipe && echo x >'..x'`)
		to := t.TempDir()
		root, err := guesttree.OpenDir(to)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		if _, err := b.conn.CopyOut(ctx(t), "tree", "", root, guesttree.Limits{}); err != nil {
			t.Logf("copied out: %v", err)
		}
		// And again, over links that the first copy has left in the place of
		// directories and files.
		b.sh(t, `cd tree && rm sub/out up file && mkdir up sub/out && echo evil >up/evil && echo evil >sub/out/secret-of-the-host && echo evil >file`)
		if _, err := b.conn.CopyOut(ctx(t), "tree", "", root, guesttree.Limits{}); err != nil {
			t.Logf("copied out again: %v", err)
		}
		if contents(t, dir) != before {
			t.Error("a copy has left its directory")
		}
		if _, err := os.Stat(filepath.Join(to, "../../../evil")); err == nil {
			t.Error("a copy has climbed")
		}
	})
}

// testHostileAccounts holds that files the guest itself reads for every
// command neither stop nor fill it, whatever they have become.
func testHostileAccounts(t *testing.T, e *env) {
	e.siege(t, func(b *box) {
		b.sh(t, "cp /etc/passwd /passwd; cp /etc/group /group")
		for _, script := range []string{
			"mkfifo /etc/passwd; mkfifo /etc/group", "ln -s /dev/zero /etc/passwd; ln -s /dev/zero /etc/group", "mkdir /etc/passwd /etc/group",
			"ln -s /proc/kmsg /etc/passwd; ln -s passwd /etc/group", "ln -s /dev/tty /etc/passwd; ln -s group /etc/group",
			"dd if=/dev/zero of=/etc/passwd bs=1 count=1 seek=8G; yes user:x:1000:1000:x | head -c 8000000 >/etc/group",
		} {
			b.sh(t, "rm -rf /etc/passwd /etc/group; "+script)
			c, cancel := context.WithTimeout(ctx(t), time.Minute)
			p, err := b.conn.Start(c, guest.Command{ID: newID(), NoStdin: true, User: "user", Args: []string{"true"}}, guest.Output{})
			if err == nil {
				_, err = p.Wait(c)
			}
			if c.Err() != nil {
				t.Errorf("%q: a command of a user hangs: %v", script, err)
			}
			_, _ = b.conn.PutFile(c, "f", guest.WriteOptions{User: "user"}, io.LimitReader(strings.NewReader("x"), 1))
			cancel()
			b.ping(t)
			b.sh(t, "true")
		}
		b.sh(t, "rm -rf /etc/passwd /etc/group; mv /passwd /group /etc")
		if got := strings.TrimSpace(b.run(t, guest.Command{Args: []string{"id", "-u"}, User: "user"}, "").stdout); got != "1000" {
			t.Errorf("afterwards the user is %q", got)
		}
	})
}
