package store

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/sandgate/sandgate/sandbox"
)

// crashWriterEnv makes the test binary a writer to the database it names.
const crashWriterEnv = "SANDGATE_TEST_STORE_WRITER"

// crashWriter writes from several goroutines until it is killed, and says on
// stdout what was acknowledged: "sandbox number-of-changes".
func crashWriter(path string) {
	s, err := Open(context.Background(), Config{Path: path})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for w := range 4 {
		go func() {
			for n := 0; ; n++ {
				id := fmt.Sprintf("sbx_%d_%d_%d", os.Getpid(), w, n)
				sb := newSandbox(id)
				sb.Name = id
				err := s.CreateSandbox(context.Background(), sb, sandbox.Event{Type: sandbox.EventCreate})
				for i := 1; err == nil && i <= 5; i++ {
					fmt.Println(id, i-1) // one write call, so a line is whole or not there
					_, err = s.UpdateSandbox(context.Background(), id, func(sb *sandbox.Sandbox) ([]sandbox.Event, error) {
						sb.Executions = i
						return []sandbox.Event{{Type: sandbox.EventExecStarted}, {Type: sandbox.EventExecEnded}}, nil
					})
				}
				if err != nil {
					fmt.Fprintln(os.Stderr, err)
					os.Exit(1)
				}
				fmt.Println(id, 5)
			}
		}()
	}
	select {}
}

// TestKill kills a writer in the middle of its writes, several times on the
// same database. Whatever it had acknowledged is there, and nothing is half there.
func TestKill(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	acknowledged := map[string]int{} // sandbox to changes
	for round := range 5 {
		killWriter(t, path, 50+100*round, acknowledged)

		s := openAt(t, path)
		all, total, err := s.Sandboxes(t.Context(), sandbox.SandboxFilter{})
		must(t, err)
		if total != len(all) || total < len(acknowledged) {
			t.Fatalf("%d sandboxes, %d acknowledged", total, len(acknowledged))
		}
		found := map[string]sandbox.Sandbox{}
		for _, sb := range all {
			found[sb.ID] = sb
			// A change and its two events are there together or not at all.
			if events := checkEvents(t, s, sb.ID); len(events) != 1+2*sb.Executions {
				t.Fatalf("%s has %d changes and %d events", sb.ID, sb.Executions, len(events))
			}
		}
		for id, changes := range acknowledged {
			sb, ok := found[id]
			if !ok || sb.Executions < changes {
				t.Fatalf("round %d: %s was acknowledged with %d changes; found %v with %d", round, id, changes, ok, sb.Executions)
			}
		}
		var check string
		must(t, s.read.QueryRowContext(t.Context(), "PRAGMA integrity_check").Scan(&check))
		if check != "ok" {
			t.Fatalf("integrity check: %s", check)
		}
		must(t, s.Close())
	}
}

// killWriter starts a writer, kills it after some acknowledgements, and notes
// all that it has given.
func killWriter(t *testing.T, path string, after int, acknowledged map[string]int) {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), crashWriterEnv+"="+path)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	lines := 0
	for sc := bufio.NewScanner(out); sc.Scan(); lines++ { // to the end of what it wrote
		id, changes, ok := strings.Cut(sc.Text(), " ")
		n, err := strconv.Atoi(changes)
		if !ok || err != nil {
			continue // the last line, cut off
		}
		acknowledged[id] = max(acknowledged[id], n)
		if lines == after {
			must(t, cmd.Process.Kill())
		}
	}
	if err := cmd.Wait(); err == nil || lines < after {
		t.Fatalf("the writer ended by itself after %d lines: %v", lines, err)
	}
}
