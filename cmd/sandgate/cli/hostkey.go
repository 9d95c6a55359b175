package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/crypto/ssh"

	"github.com/sandgate/sandgate/keys"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// hostKeyCommands work on the folder of host keys of this machine's server.
type hostKeyCommands struct {
	env   Env
	state string // flag
}

func newHostKeyCommand(env Env) *cobra.Command {
	h := &hostKeyCommands{env: env}
	cmd := &cobra.Command{
		Use: "hostkey", Short: "The keys by which this server proves who it is",
		Long: `The keys by which this machine's server proves who it is to ssh clients, in the
folder hostkeys of the state folder. A server that runs takes up a change with
` + "`sandgate reload`" + `.

To replace a key without anybody being asked: rotate, reload, wait until the
clients have connected once more (OpenSSH learns the next key by itself), then
retire, reload.`,
		Example: `  sandgate hostkey list
  sandgate hostkey rotate && sandgate reload
  sandgate hostkey known-hosts --host gateway.example:2222 >> ~/.ssh/known_hosts`,
		GroupID: groupServer,
	}
	(&app{Env: env}).group(cmd)
	cmd.PersistentFlags().StringVar(&h.state, "state", "", "state folder of the server (default as of serve)")
	cmd.AddCommand(h.list(), h.add(), h.rotate(), h.retire(), h.knownHosts(), h.signRequest())
	return cmd
}

// dir is the folder of the host keys.
func (h *hostKeyCommands) dir() (string, error) {
	d, err := chooseState(h.state, h.env.Getenv)
	if err != nil {
		return "", err
	}
	return d.hostKeys(), nil
}

func (h *hostKeyCommands) files() (string, []keys.HostKeyFile, error) {
	dir, err := h.dir()
	if err != nil {
		return "", nil, err
	}
	all, err := keys.HostKeyFiles(dir)
	if err != nil {
		return dir, nil, fault.Wrap(err, fault.Unavailable, "%v", err)
	}
	if len(all) == 0 {
		return dir, nil, fault.New(fault.NotFound, "there is no host key in %s; the server makes one when it starts", dir)
	}
	return dir, all, nil
}

// hostKeyLine is a host key as `hostkey list --json` prints it.
type hostKeyLine struct {
	Fingerprint string    `json:"fingerprint"`
	Type        string    `json:"type"`
	Path        string    `json:"path"`
	Next        bool      `json:"next"`
	Certificate string    `json:"certificate,omitempty"`
	Principals  []string  `json:"principals,omitempty"`
	ValidBefore time.Time `json:"validBefore,omitzero"`
	Problem     string    `json:"problem,omitempty"`
}

func (h *hostKeyCommands) list() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "list [flags]", Aliases: []string{"ls"}, Short: "List host keys and their certificates",
		Example: "  sandgate hostkey list", Args: exactly(),
		RunE: func(*cobra.Command, []string) error {
			_, all, err := h.files()
			if err != nil {
				return err
			}
			lines := []hostKeyLine{}
			t := table{header: []string{"FINGERPRINT", "TYPE", "USE", "CERTIFICATE", "FILE"}}
			for _, f := range all {
				l := hostKeyLine{Fingerprint: ssh.FingerprintSHA256(f.Key), Type: f.Key.Type(), Path: f.Path, Next: f.Next, Certificate: f.Certificate}
				use, certificate := "current", "-"
				if f.Next {
					use = "next"
				}
				if f.Certificate != "" {
					certificate = l.read(time.Now())
				}
				lines = append(lines, l)
				t.add(l.Fingerprint, l.Type, use, certificate, filepath.Base(f.Path))
			}
			if asJSON {
				return (&app{Env: h.env}).printJSON(map[string]any{"hostKeys": lines})
			}
			return t.write(h.env.Stdout)
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

// read reads the certificate, and says it in a few words.
func (l *hostKeyLine) read(now time.Time) string {
	cert, err := keys.ReadHostCertificate(l.Certificate, now)
	if err != nil {
		l.Problem = err.Error()
		return l.Problem
	}
	l.Principals = cert.ValidPrincipals
	words := "for " + strings.Join(cert.ValidPrincipals, ",")
	if cert.ValidBefore != ssh.CertTimeInfinity {
		l.ValidBefore = time.Unix(int64(cert.ValidBefore), 0).UTC()
		words += " until " + l.ValidBefore.Format(time.DateOnly)
	}
	return clean(words)
}

func kindOfHostKey(cmd *cobra.Command, kind *string) {
	cmd.Flags().StringVar(kind, "type", "ed25519", "kind of key: "+strings.Join(keys.HostKeyKinds(), ", "))
}

// make makes a host key.
func (h *hostKeyCommands) make(kind string, next bool) error {
	if !slices.Contains(keys.HostKeyKinds(), kind) {
		return flagError("type", fmt.Errorf("%q is not a kind: use %s", kind, strings.Join(keys.HostKeyKinds(), ", ")))
	}
	dir, err := h.dir()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fault.Wrap(err, fault.Unavailable, "the folder %s cannot be made", dir)
	}
	path, err := keys.AddHostKey(dir, kind, next)
	if err != nil {
		return fault.Wrap(err, fault.State, "%v", err)
	}
	use := "it is used"
	if next {
		use = "it is announced to clients"
	}
	fmt.Fprintf(h.env.Stderr, "made %s; %s after: sandgate reload\n", path, use)
	return nil
}

func (h *hostKeyCommands) add() *cobra.Command {
	var kind string
	cmd := &cobra.Command{
		Use: "add [flags]", Short: "Make a host key of another kind", Example: "  sandgate hostkey add --type rsa", Args: exactly(),
		RunE: func(*cobra.Command, []string) error { return h.make(kind, false) },
	}
	kindOfHostKey(cmd, &kind)
	return cmd
}

func (h *hostKeyCommands) rotate() *cobra.Command {
	var kind string
	cmd := &cobra.Command{
		Use: "rotate [flags]", Short: "Make the next host key, and have clients learn it",
		Example: "  sandgate hostkey rotate && sandgate reload", Args: exactly(),
		RunE: func(*cobra.Command, []string) error { return h.make(kind, true) },
	}
	kindOfHostKey(cmd, &kind)
	return cmd
}

func (h *hostKeyCommands) retire() *cobra.Command {
	var kind string
	cmd := &cobra.Command{
		Use: "retire [flags]", Short: "Put the next host key in the place of the present one",
		Example: "  sandgate hostkey retire && sandgate reload", Args: exactly(),
		RunE: func(*cobra.Command, []string) error {
			dir, err := h.dir()
			if err != nil {
				return err
			}
			old, err := keys.RetireHostKey(dir, kind, time.Now())
			if err != nil {
				return fault.Wrap(err, fault.State, "%v", err)
			}
			fmt.Fprintf(h.env.Stderr, "the old key is kept as %s; the next one is used after: sandgate reload\n", old)
			return nil
		},
	}
	kindOfHostKey(cmd, &kind)
	return cmd
}

func (h *hostKeyCommands) knownHosts() *cobra.Command {
	var hosts []string
	var authority string
	cmd := &cobra.Command{
		Use: "known-hosts [flags]", Short: "Print lines for known_hosts",
		Long: `Print the lines of known_hosts by which clients trust this server without being
asked; with --ca the line that trusts every host key an authority has signed.`,
		Example: `  sandgate hostkey known-hosts --host gateway.example:2222
  sandgate hostkey known-hosts --host '*.example' --ca host_ca.pub`,
		Args: exactly(),
		RunE: func(*cobra.Command, []string) error {
			for _, host := range hosts {
				if host == "" || strings.ContainsAny(host, " \t\r\n,#@") {
					return flagError("host", fmt.Errorf("%q is not a host or host:port", host))
				}
			}
			if len(hosts) == 0 {
				return usagef("--host: say under which name clients reach the server, such as gateway.example:2222")
			}
			if authority != "" {
				text, err := os.ReadFile(authority)
				if err != nil {
					return usageError{err}
				}
				pub, _, _, _, err := ssh.ParseAuthorizedKey(text)
				if err != nil {
					return flagError("ca", errors.New("this is not a public key"))
				}
				_, err = fmt.Fprintln(h.env.Stdout, "@cert-authority "+keys.KnownHostsLine(pub, hosts...))
				return err
			}
			_, all, err := h.files()
			if err != nil {
				return err
			}
			for _, f := range all {
				fmt.Fprintln(h.env.Stdout, keys.KnownHostsLine(f.Key, hosts...))
			}
			return nil
		},
	}
	cmd.Flags().StringSliceVar(&hosts, "host", nil, "name clients use, with :port if it is not 22 (repeatable)")
	cmd.Flags().StringVar(&authority, "ca", "", "public key of the authority that signs host keys")
	return cmd
}

func (h *hostKeyCommands) signRequest() *cobra.Command {
	var hosts []string
	cmd := &cobra.Command{
		Use: "sign-request [flags]", Short: "Write the public host keys to be signed, and say how",
		Example: "  sandgate hostkey sign-request --host gateway.example", Args: exactly(),
		RunE: func(*cobra.Command, []string) error {
			_, all, err := h.files()
			if err != nil {
				return err
			}
			if len(hosts) == 0 {
				hosts = []string{"gateway.example"}
			}
			fmt.Fprintln(h.env.Stderr, "where the authority's private key is, run what follows; bring each -cert.pub back beside its key, then: sandgate reload")
			for _, f := range all {
				pub := f.Path + ".pub"
				if err := os.WriteFile(pub, ssh.MarshalAuthorizedKey(f.Key), 0o644); err != nil && !errors.Is(err, fs.ErrExist) {
					return fault.Wrap(err, fault.Unavailable, "%s cannot be written", pub)
				}
				fmt.Fprintf(h.env.Stdout, "ssh-keygen -s host_ca -h -I sandgate -V +52w -n %s %s\n", strings.Join(hosts, ","), pub)
			}
			return nil
		},
	}
	cmd.Flags().StringSliceVar(&hosts, "host", nil, "name clients use, without a port (repeatable)")
	return cmd
}
