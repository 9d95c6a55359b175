package cli

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/keys"
	"github.com/sandgate/sandgate/sandbox"
)

// reloadable is something that a reload reads anew. read takes over what it
// finds, or leaves what was there and says why; note is what is there now.
type reloadable struct {
	what, path string
	read       func(ctx context.Context) (note string, err error)
}

// canReload has reloads read something anew.
func (s *server) canReload(what, path string, read func(ctx context.Context) (note string, err error)) {
	s.reloads = append(s.reloads, reloadable{what, path, read})
}

// needRestart is what a reload leaves alone.
var needRestart = []string{"flags and environment of `sandgate serve`", "the sandgate program itself"}

// reload reads anew what can be, one thing after the other; one that fails
// keeps its old state and no other from being read. by is who asked for it.
func (s *server) reload(ctx context.Context, by string) (sandbox.Reload, error) {
	s.reloading.Lock()
	defer s.reloading.Unlock()
	done := sandbox.Reload{Files: make([]sandbox.Reloaded, 0, len(s.reloads)), Restart: needRestart}
	var failed []string
	for _, r := range s.reloads {
		f := sandbox.Reloaded{What: r.what, Path: r.path}
		note, err := r.read(ctx)
		if f.Note = note; err != nil {
			f.Error, f.Note = err.Error(), ""
			failed = append(failed, r.what)
		}
		done.Files = append(done.Files, f)
	}
	for _, line := range reloadLines(done) {
		s.cfg.log.Info("reload", "by", by, "outcome", line)
	}
	rec := sandbox.AuditRecord{Kind: sandbox.AuditReload, Principal: by, Time: time.Now()}
	if len(failed) > 0 {
		rec.Reason = "not reloaded: " + strings.Join(failed, ", ")
	}
	s.record(rec)
	return done, nil
}

// identity is the host keys that are used now.
func (s *server) identity() []ssh.Signer { return *s.hostKeys.Load() }

// reloadHostKeys takes over the keys in the folder. Connections that are open
// keep the one they have seen.
func (s *server) reloadHostKeys(context.Context) (string, error) {
	dir := s.cfg.state.hostKeys()
	if found, err := filepath.Glob(filepath.Join(dir, "ssh_host_*_key")); err != nil || len(found) == 0 {
		return "", errors.New("there is no host key in the folder")
	}
	all, err := keys.LoadOrCreateHostKeys(dir)
	if err != nil {
		return "", err
	}
	if s.gate != nil {
		shown, err := s.shownKeys(all)
		if err != nil {
			return "", err
		}
		if err := s.gate.SetHostKeys(shown); err != nil {
			return "", err
		}
	}
	s.hostKeys.Store(&all)
	fingerprints := make([]string, len(all))
	for i, k := range all {
		fingerprints[i] = ssh.FingerprintSHA256(k.PublicKey())
	}
	return strings.Join(fingerprints, " "), nil
}

// reloadOnHangup reloads at each SIGHUP until ctx ends. hup was registered
// before anything else was started, so that no signal ends the server
// meanwhile. When the terminal that the server was started from is gone, the
// signal means that, and end is called.
func (s *server) reloadOnHangup(ctx context.Context, hup <-chan os.Signal, end func()) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-hup:
		}
		if hungUp() {
			s.cfg.log.Info("the terminal is gone")
			end()
			return
		}
		_, _ = s.reload(ctx, s.operator.ID)
	}
}

// hungUp reports whether the terminal that standard error leads to is gone.
func hungUp() bool {
	_, err := unix.IoctlGetTermios(int(os.Stderr.Fd()), unix.TCGETS)
	return err == unix.EIO
}

// hangups returns where SIGHUPs arrive from now on.
func hangups() (hup <-chan os.Signal, stop func()) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, unix.SIGHUP)
	return c, func() { signal.Stop(c) }
}
