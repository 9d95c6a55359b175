package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// audit has ssh-audit look at the gateway. It calls itself OpenSSH, to which
// the gateway offers AES-GCM alone, so it looks a second time under another
// name, to which everything is offered.
func (s *stage) audit(t *testing.T) {
	const python = "/usr/bin/python3"
	needTools(t, python)
	modules := filepath.Join(toolsFolder(t), "ssh-audit/usr/lib/python3/dist-packages")
	if _, err := os.Stat(filepath.Join(modules, "ssh_audit")); err != nil {
		t.Skipf("needs ssh-audit, which scripts/deps.sh installs: %v", err)
	}
	run := func(t *testing.T, ident string, args ...string) (int, string) {
		t.Helper()
		argv := append([]string{"PYTHONPATH=" + modules, "PYTHONDONTWRITEBYTECODE=1", python, "-c",
			"import sys, ssh_audit.globals as g; g.SSH_HEADER = sys.argv.pop(1) or g.SSH_HEADER; import ssh_audit.ssh_audit as a; sys.exit(a.main())",
			ident, "-n", "-p", s.port}, append(args, "127.0.0.1")...)
		status, stdout, stderr := s.try(t, nil, "env", argv...)
		return status, stdout + stderr
	}
	const openSSH, stranger = "", "SSH-{0}-stranger"

	t.Run("policy", func(t *testing.T) {
		policy, err := filepath.Abs("../../../scripts/ssh-audit.policy")
		if err != nil {
			t.Fatal(err)
		}
		if status, out := run(t, stranger, "-P", policy); status != 0 || !strings.Contains(out, "Passed") {
			t.Errorf("exit status %d: %s", status, out)
		}
		// What the policy does not name fails it.
		text, err := os.ReadFile(policy)
		if err != nil {
			t.Fatal(err)
		}
		less := filepath.Join(t.TempDir(), "policy")
		if err := os.WriteFile(less, []byte(strings.Replace(string(text), ", hmac-sha2-512-etm@openssh.com", "", 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		if status, out := run(t, stranger, "-P", less); status == 0 {
			t.Errorf("a policy with an algorithm less has passed: %s", out)
		}
	})

	for name, ident := range map[string]string{"as OpenSSH": openSSH, "as a stranger": stranger} {
		t.Run(name, func(t *testing.T) {
			// It also tries how fast it can connect, 38 times at most.
			_, out := run(t, ident, "-j")
			found, algorithms := auditFindings(t, out)
			for _, must := range []string{"mlkem768x25519-sha256", "kex-strict-s-v00@openssh.com", "ssh-ed25519", "aes256-gcm@openssh.com"} {
				if !slices.Contains(algorithms, must) {
					t.Errorf("it has not seen %s, but %v", must, algorithms)
				}
			}
			listed := auditExcuses(t)
			for _, f := range found {
				if strings.HasPrefix(f, "fail ") || !slices.ContainsFunc(listed, func(word string) bool { return strings.Contains(f, word) }) {
					t.Errorf("not among the reasons in docs/security.md: %s", f)
				}
			}
		})
	}
	// Whoever is in the middle of it is not locked out.
	s.inside(t, "true")
}

// auditFindings are what ssh-audit finds wrong, a line each, and what it has
// looked at.
func auditFindings(t *testing.T, out string) (found, algorithms []string) {
	t.Helper()
	type algorithm struct {
		Algorithm string
		Notes     map[string][]string
	}
	var report struct {
		Notes              []string `json:"additional_notes"`
		CVEs               []json.RawMessage
		Enc, Kex, Key, MAC []algorithm
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, note := range report.Notes {
		found = append(found, "note "+note)
	}
	for _, cve := range report.CVEs {
		found = append(found, "fail "+string(cve))
	}
	for _, a := range slices.Concat(report.Enc, report.Kex, report.Key, report.MAC) {
		algorithms = append(algorithms, a.Algorithm)
		for _, level := range []string{"fail", "warn"} {
			for _, why := range a.Notes[level] {
				found = append(found, level+" "+a.Algorithm+" "+why)
			}
		}
	}
	return found, algorithms
}

// auditExcuses are the first cells of the table in docs/security.md.
func auditExcuses(t *testing.T) (words []string) {
	t.Helper()
	text, err := os.ReadFile("../../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## What ssh-audit says\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(section, -1) {
		words = append(words, m[1])
	}
	if len(words) == 0 {
		t.Fatal("docs/security.md has no table of what ssh-audit says")
	}
	return words
}
