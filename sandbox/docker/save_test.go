package docker_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandgate/sandgate/sandbox/docker"
	"github.com/sandgate/sandgate/sandbox/driver"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// save saves a sandbox in a directory of the test.
func (b *box) save(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "saved")
	if err := b.d.Save(t.Context(), b.id, dir); err != nil {
		t.Fatal(err, errors.Unwrap(err))
	}
	return dir
}

// another makes and starts a sandbox beside b.
func (b *box) another(t *testing.T, id string, change func(*driver.Spec)) *box {
	t.Helper()
	n := &box{d: b.d, state: b.state, id: id}
	s := spec(t, id)
	if change != nil {
		change(&s)
	}
	if err := b.d.Create(t.Context(), s); err != nil {
		t.Fatal(err, errors.Unwrap(err))
	}
	n.start(t)
	return n
}

func (b *box) stop(t *testing.T) {
	t.Helper()
	if err := b.d.Stop(t.Context(), b.id, 0); err != nil {
		t.Fatal(err)
	}
}

func (b *box) restore(t *testing.T, dir string) {
	t.Helper()
	if err := b.d.Restore(t.Context(), b.id, dir); err != nil {
		t.Fatal(err, errors.Unwrap(err))
	}
}

// export returns a saved layer as bytes, and its entries as lines.
func export(t *testing.T, d *docker.Driver, dir string) ([]byte, string) {
	t.Helper()
	var b bytes.Buffer
	if err := d.Export(t.Context(), dir, &b); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for r := tar.NewReader(bytes.NewReader(b.Bytes())); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return b.Bytes(), strings.Join(lines, "\n")
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Name == "./" {
			continue // the engine does not tell how the root is
		}
		lines = append(lines, fmt.Sprintf("%s %c %o %d:%d %d %s", h.Name, h.Typeflag, h.Mode, h.Uid, h.Gid, h.Size, h.Linkname))
	}
}

// history is a script that does to a filesystem what can be done to one.
const history = `mkdir -p /w/d && echo first >/w/f && ln -s f /w/l && ln /w/f /w/h && mkfifo /w/p &&
	echo user >/w/u && chown 1000:1000 /w/u && chmod 4750 /w/u && rm /bin/wc &&
	mkdir /w/d/e && rm -rf /home && mkdir /home && echo new >/home/only`

// remains checks what history has left.
const remains = `[ "$(cat /w/f)$(cat /w/l)$(cat /w/h)" = firstfirstfirst ] && [ /w/f -ef /w/h ] && [ -p /w/p ] &&
	[ "$(stat -c %u:%g:%a /w/u)" = 1000:1000:4750 ] && [ ! -e /bin/wc ] && [ -d /w/d/e ] && [ "$(ls /home)" = only ]`

func TestSave(t *testing.T) {
	for name, via := range map[string]func(*testing.T) docker.Config{
		"files":  func(*testing.T) docker.Config { return docker.Config{} },
		"engine": func(t *testing.T) docker.Config { return docker.Config{Host: newFront(t, "tcp", "127.0.0.1:0").host} },
	} {
		t.Run(name, func(t *testing.T) {
			b := boot(t, via(t), nil)
			b.sh(t, history)
			first := b.save(t)
			if err := b.d.Save(t.Context(), b.id, first); !fault.Is(err, fault.Exists) {
				t.Errorf("saved twice in one place: %v", err)
			}
			b.sh(t, remains) // it runs on

			second := b.another(t, "second", func(s *driver.Spec) { s.Rootfs.Saved = []string{first} })
			second.sh(t, remains+" && echo second >/w/f && rm /w/u && rm -r /home")
			top := second.save(t)
			b.sh(t, remains) // and keeps what it has

			third := b.another(t, "third", func(s *driver.Spec) { s.Rootfs.Saved = []string{top, first} })
			third.sh(t, `[ "$(cat /w/f)" = second ] && [ "$(cat /w/h)" = first ] && [ ! -e /w/u ] && [ ! -e /home ] && [ ! -e /bin/wc ]`)

			_, entries := export(t, b.d, first)
			want := `bin/ 5 755 0:0 0 
bin/.wh.wc 0 0 0:0 0 
home/ 5 755 0:0 0 
home/.wh..wh..opq 0 0 0:0 0 
home/only 0 644 0:0 4 
w/ 5 755 0:0 0 
w/d/ 5 755 0:0 0 
w/d/e/ 5 755 0:0 0 
w/f 0 644 0:0 6 
w/h 1 644 0:0 0 w/f
w/l 2 777 0:0 0 f
w/p 6 644 0:0 0 
w/u 0 4750 1000:1000 5 
workspace/ 5 1777 0:0 0 `
			if entries != want {
				t.Errorf("the layer holds\n%s\nwant\n%s", entries, want)
			}
		})
	}
}
