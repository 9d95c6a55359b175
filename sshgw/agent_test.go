package sshgw

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	gossh "golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
)

// sshAgent starts an ssh agent that holds alice's key, and returns its socket.
func sshAgent(t *testing.T, g *gateway) string {
	t.Helper()
	path, err := exec.LookPath("ssh-agent")
	if err != nil {
		t.Skip("ssh-agent is not installed")
	}
	sock := filepath.Join(g.dir, "agent.sock")
	cmd := exec.Command(path, "-D", "-a", sock)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	eventually(t, "the agent", func() bool { _, err := os.Stat(sock); return err == nil })
	add := exec.Command("ssh-add", "-q", filepath.Join(g.dir, "alice"))
	add.Env = append(os.Environ(), "SSH_AUTH_SOCK="+sock)
	if out, err := add.CombinedOutput(); err != nil {
		t.Fatalf("ssh-add: %v, %s", err, out)
	}
	return sock
}

// -A: the session has the client's agent, alone and only while it lasts.
func TestAgentForward(t *testing.T) {
	g := newGateway(t)
	sock := sshAgent(t, g)
	with := func(args ...string) *exec.Cmd {
		cmd := g.ssh(append([]string{"-o", "IdentityAgent=SSH_AUTH_SOCK"}, args...)...)
		cmd.Env = append(cmd.Env, "SSH_AUTH_SOCK="+sock)
		return cmd
	}
	r := run(t, with("-n", "-A", "box@gw", "ssh-add -l; stat -c %a $SSH_AUTH_SOCK $(dirname $SSH_AUTH_SOCK); echo $SSH_AUTH_SOCK"), nil)
	lines := strings.Split(strings.TrimSpace(r.stdout), "\n")
	if r.status != 0 || len(lines) != 4 || !strings.Contains(lines[0], g.fingerprint("alice")) {
		t.Fatalf("status %d, stdout %q, stderr %q", r.status, r.stdout, r.stderr)
	}
	if lines[2] != "700" {
		t.Errorf("the socket's directory has mode %s", lines[2])
	}
	eventually(t, "the end of the socket", func() bool { _, err := os.Lstat(lines[3]); return err != nil })
	// 20 requests at once.
	r = run(t, with("-n", "-A", "box@gw", "for i in $(seq 20); do ssh-add -l & done | grep -c ED25519; wait"), nil)
	r.expect(t, 0, "20\n")
	r = run(t, with("-n", "-a", "box@gw", "echo ${SSH_AUTH_SOCK-none}"), nil)
	r.expect(t, 0, "none\n")
	// The command tree has no use for it and does not mind.
	r = run(t, with("-n", "-A", "gw", "whoami"), nil)
	r.expect(t, 0, "")
}

// P22, D4: one session of a connection has the agent, another one has not.
func TestP22AgentOfOneSession(t *testing.T) {
	g := newGateway(t)
	c := g.dial("box", "alice")
	keyring := agent.NewKeyring()
	if err := agent.ForwardToAgent(c, keyring); err != nil {
		t.Fatal(err)
	}
	run := func(ask bool, cmd string) string {
		s, err := c.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if ask {
			if err := agent.RequestAgentForwarding(s); err != nil {
				t.Fatal(err)
			}
		}
		out, err := s.Output(cmd)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(out))
	}
	first, without, second := run(true, "echo $SSH_AUTH_SOCK"), run(false, "echo ${SSH_AUTH_SOCK-none}"), run(true, "echo $SSH_AUTH_SOCK")
	if first == "" || without != "none" || second == "" || first == second {
		t.Errorf("sockets %q, %q and %q", first, without, second)
	}
	if got := run(true, "ssh-add -l || true"); !strings.Contains(got, "no identities") {
		t.Errorf("an empty agent says %q", got)
	}
	// Asked for after the start, it is refused.
	ch, requests, err := c.OpenChannel("session", nil)
	if err != nil {
		t.Fatal(err)
	}
	go gossh.DiscardRequests(requests)
	if ok, err := ch.SendRequest("exec", true, gossh.Marshal(struct{ S string }{"cat"})); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if ok, _ := ch.SendRequest("auth-agent-req@openssh.com", true, nil); ok {
		t.Error("an agent was taken after the start")
	}
	_ = ch.Close()
}

// An agent that cannot be had does not keep anybody from working.
func TestAgentSwitchedOff(t *testing.T) {
	g := newGateway(t, func(c *Config) { c.NoForwarding = true })
	sock := sshAgent(t, g)
	cmd := g.ssh("-o", "IdentityAgent=SSH_AUTH_SOCK", "-n", "-A", "box@gw", "echo ${SSH_AUTH_SOCK-none}")
	cmd.Env = append(cmd.Env, "SSH_AUTH_SOCK="+sock)
	r := run(t, cmd, nil)
	if r.expect(t, 0, "none\n"); r.stderr != "" {
		t.Errorf("stderr %q", r.stderr)
	}
}

// A client that takes no agent channels gets none to keep.
func TestAgentRefusedByClient(t *testing.T) {
	g := newGateway(t)
	c := g.dial("box", "alice")
	s, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	if err := agent.RequestAgentForwarding(s); err != nil {
		t.Fatal(err)
	}
	sock := new(syncBuffer)
	s.Stdout = sock
	in, err := s.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start("echo $SSH_AUTH_SOCK; cat"); err != nil {
		t.Fatal(err)
	}
	sock.waitFor(t, "\n")
	conn, err := net.Dial("unix", strings.TrimSpace(sock.String()))
	if err != nil {
		t.Fatal(err)
	}
	if got := halfClose(t, conn, ""); got != "" {
		t.Errorf("got %q", got)
	}
	_ = in.Close()
	if err := s.Wait(); err != nil {
		t.Error(err)
	}
}

func (g *gateway) fingerprint(key string) string {
	return gossh.FingerprintSHA256(g.signer(key).PublicKey())
}
