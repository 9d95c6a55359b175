package api_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/sandgate/sandgate/sandbox/api"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// Under these variables the test binary plays the ssh program.
const (
	sshSocketEnv = "API_TEST_SSH_SOCKET" // pass the streams on to this socket
	sshRefuseEnv = "API_TEST_SSH_REFUSE" // say this and fail
	sshArgsEnv   = "API_TEST_SSH_ARGS"   // write the arguments into this file
)

func TestMain(m *testing.M) {
	if path := os.Getenv(sshArgsEnv); path != "" {
		if err := os.WriteFile(path, []byte(strings.Join(os.Args[1:], " ")), 0o600); err != nil {
			panic(err)
		}
	}
	if why := os.Getenv(sshRefuseEnv); why != "" {
		fmt.Fprintln(os.Stderr, why)
		os.Exit(255)
	}
	if socket := os.Getenv(sshSocketEnv); socket != "" {
		c, err := net.Dial("unix", socket)
		if err != nil {
			panic(err)
		}
		go func() {
			_, _ = io.Copy(c, os.Stdin)
			_ = c.(*net.UnixConn).CloseWrite()
		}()
		_, _ = io.Copy(os.Stdout, c)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestDialSSH(t *testing.T) {
	h := newHandler(t, newEngine(t))
	dir := t.TempDir()
	ln, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var served sync.WaitGroup
	served.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			served.Go(func() { _ = api.ServeConn(ctx, h, alice, c) })
		}
	})
	defer func() {
		stop()
		ln.Close()
		served.Wait()
	}()
	t.Setenv(sshSocketEnv, filepath.Join(dir, "s"))
	t.Setenv(sshArgsEnv, filepath.Join(dir, "args"))

	c, err := api.Dial("ssh://me@gw.example:2222", api.DialConfig{SSH: os.Args[0]})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	made := create(t, c, api.CreateRequest{Command: &api.Command{Exec: []string{"echo", "hi"}, Mode: "oneshot"}})
	if out := output(t, c, made.StdoutStreamURL); out != "hi\n" {
		t.Errorf("stdout = %q", out)
	}
	args, err := os.ReadFile(filepath.Join(dir, "args"))
	if want := "-l me -p 2222 -s -- gw.example sandgate-api"; err != nil || !strings.HasSuffix(string(args), want) {
		t.Errorf("ssh was called with %q, %v; want …%s", args, err, want)
	}
}

// What ssh says is what the user reads.
func TestDialSSHRefused(t *testing.T) {
	t.Setenv(sshRefuseEnv, "me@gw: Permission denied (publickey).\x1b[0m")
	c, err := api.Dial("ssh://gw", api.DialConfig{SSH: os.Args[0]})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = c.List(t.Context(), api.ListRequest{})
	wantFault(t, err, fault.Unavailable, "", "")
	if want := "ssh://gw does not answer: me@gw: Permission denied (publickey). [0m"; err == nil || err.Error() != want {
		t.Errorf("error %q, want %q", err, want)
	}
	c, err = api.Dial("ssh://gw", api.DialConfig{SSH: filepath.Join(t.TempDir(), "no-ssh")})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Health(t.Context()); !fault.Is(err, fault.Unavailable) {
		t.Errorf("without ssh: %v", err)
	}
}

func TestDialHosts(t *testing.T) {
	for _, host := range []string{
		"unix:///run/s.sock", "ssh://gw", "ssh://me@gw:2222", "ssh://me@[::1]:22", "ssh://10.0.0.1/", "http://127.0.0.1:8080", "https://gw.example/", "https://gw.example/api",
	} {
		if _, err := api.Dial(host, api.DialConfig{}); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
	for _, host := range []string{
		"", "gw", "unix://", "unix:///", "ftp://gw", "ssh://", "ssh://-oProxyCommand=x", "ssh://-oProxyCommand=x@gw", "ssh://a%20b", "ssh://gw/path",
		"ssh://me:secret@gw", "ssh://gw?x=1", "ssh://%2doProxyCommand=x@gw", "ssh://gw\nx", "ssh://gw:22x", "https://", "https://u:p@gw", "https://gw?x", "http://gw#f", "ssh://$(id)",
	} {
		_, err := api.Dial(host, api.DialConfig{})
		wantFault(t, err, fault.Invalid, "", "host")
	}
	c, err := api.Dial("unix://"+filepath.Join(t.TempDir(), "none"), api.DialConfig{})
	if err != nil {
		t.Fatal(err)
	}
	err = c.Health(t.Context())
	wantFault(t, err, fault.Unavailable, "", "")
	if err == nil || !strings.HasSuffix(err.Error(), "no such file or directory; is `sandgate serve` running there?") {
		t.Errorf("error %q", err)
	}
}
