package cli

import (
	"bytes"
	"context"
	"io"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/proxy"
)

// What editors that work on a remote machine do, without the editor: they pipe
// a long script into a shell that has no terminal, read from its output where
// the server listens that it has started, talk to that through SOCKS over many
// connections at once, and find it again after the connection was lost.
func (s *stage) edit(t *testing.T) {
	needTools(t, "ssh")
	const port = "8090"
	script := strings.Repeat("# what an installer has to say\n", 8000) + `set -e
read -r line <<'END'
printed once
END
echo "$line"
setsid busybox httpd -f -p 127.0.0.1:` + port + ` -h /workspace/www </dev/null >/dev/null 2>&1 &
until (exec 3<>/dev/tcp/127.0.0.1/` + port + `) 2>/dev/null; do sleep 0.05; done
echo "listeningOn==` + port + `=="
exec sleep 1000
`
	socks := freePort(t)
	client := exec.Command("ssh", "-v", "-T", "-D", socks, "-o", "ConnectTimeout=15", "-F", s.config, "box", "bash")
	client.Env, client.Dir = s.env, s.dir
	client.Stdin = strings.NewReader(script)
	var errs bytes.Buffer
	client.Stderr = &errs
	stdout, err := client.StdoutPipe()
	if err == nil {
		err = client.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	stop := sync.OnceFunc(func() {
		client.Process.Kill()
		client.Wait()
	})
	t.Cleanup(stop)
	giveUp := time.AfterFunc(clientPatience, stop)
	defer giveUp.Stop()

	want := "printed once\nlisteningOn==" + port + "==\n"
	got := make([]byte, len(want))
	if n, err := io.ReadFull(stdout, got); string(got) != want {
		stop()
		t.Fatalf("the shell printed %q, want %q: %v\n%s", got[:n], want, err, lastOf(errs.String()))
	}

	dialer, err := proxy.SOCKS5("tcp", "127.0.0.1:"+socks, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			conn, err := dialer.(proxy.ContextDialer).DialContext(ctx, "tcp", "127.0.0.1:"+port)
			if err != nil {
				t.Errorf("through SOCKS: %v", err)
				return
			}
			defer conn.Close()
			if got, err := hello(conn); err != nil || got != insideText {
				t.Errorf("through SOCKS came %q, %v", got, err)
			}
		})
	}
	all.Wait()

	// The laptop is closed. What has left its session goes on.
	stop()
	answer := s.run(t, strings.NewReader("GET /hello HTTP/1.0\r\n\r\n"), "ssh", "-F", s.config, "-W", "127.0.0.1:"+port, "box")
	if !strings.HasSuffix(answer, "\r\n\r\n"+insideText) {
		t.Errorf("after the connection was lost came %q", answer)
	}
}
