package keys

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"golang.org/x/crypto/ssh"
)

// maxAuthorities bounds the lines of a file of authorities.
const maxAuthorities = 100

// Authority is a key whose user certificates open the door, and what they can
// be at most.
type Authority struct {
	Key         ssh.PublicKey
	Fingerprint string
	Comment     string
	Role        Role     // of all its certificates
	Principals  []string // it speaks for; empty: any
	Scope       Scope
}

// ParseAuthorities reads a file of certificate authorities: public keys in the
// form of authorized_keys, one to a line, with options in front of the key:
//
//	role=admin          certificates make admins, not members
//	principals="a,b"    it speaks for these alone
//	sandbox="…", project="…", verbs="…", no-forwarding
//	                    the scope of its certificates at most
//	cert-authority      nothing: it goes without saying
//
// The error names the line. Anything that is not understood is an error: a
// restriction that is misspelt must not fall away.
func ParseAuthorities(r io.Reader) ([]Authority, error) {
	in := bufio.NewReaderSize(&io.LimitedReader{R: r, N: maxFile + 1}, maxLine)
	var all []Authority
	for number, read := 1, 0; ; number++ {
		text, size, err := readLine(in)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("read authorities: %w", err)
		}
		end := errors.Is(err, io.EOF)
		if read += size; read > maxFile {
			return nil, fmt.Errorf("more than %d KiB: this is not a file of public keys", maxFile>>10)
		}
		line := strings.TrimSpace(strings.TrimPrefix(text, "\ufeff"))
		switch {
		case size > len(text):
			return nil, fmt.Errorf("line %d: longer than %d bytes", number, maxLine)
		case line == "" || line[0] == '#':
		default:
			a, err := parseAuthority(line)
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", number, err)
			}
			for _, b := range all {
				if a.Fingerprint == b.Fingerprint {
					return nil, fmt.Errorf("line %d: an authority that stands in the file twice", number)
				}
			}
			if all = append(all, a); len(all) > maxAuthorities {
				return nil, fmt.Errorf("more than %d authorities", maxAuthorities)
			}
		}
		if end {
			return all, nil
		}
	}
}

func parseAuthority(line string) (Authority, error) {
	a := Authority{Role: Member}
	if field, _ := cutField(line); !namesKeyType(field) {
		options, rest, ok := cutOptions(line)
		if !ok {
			return Authority{}, errors.New("a quote is not closed")
		}
		if keyType, _ := cutField(rest); !namesKeyType(keyType) {
			return Authority{}, explain(line)
		}
		if err := a.setOptions(options); err != nil {
			return Authority{}, err
		}
		line = rest
	}
	keyType, rest := cutField(line)
	encoded, comment := cutField(rest)
	pub, err := parseBlob(keyType, encoded)
	if err != nil {
		return Authority{}, err
	}
	k, err := FromPublicKey(pub, comment)
	if err != nil {
		return Authority{}, err
	}
	a.Key, a.Fingerprint, a.Comment = pub, k.Fingerprint, k.Comment
	return a, nil
}

func (a *Authority) setOptions(text string) error {
	options, err := splitOptions(text)
	if err != nil {
		return err
	}
	lists := map[string][]string{}
	noForwarding := false
	for _, o := range options {
		switch o.name {
		case "cert-authority", "no-forwarding":
			if o.given {
				return fmt.Errorf("the option %s takes no value", o.name)
			}
			noForwarding = noForwarding || o.name == "no-forwarding"
		case "role":
			if a.Role, err = ParseRole(o.value); err != nil {
				return err
			}
		case "principals", scopeSandbox, scopeProject, scopeVerbs:
			if o.value == "" {
				return fmt.Errorf("the option %s is empty", o.name)
			}
			lists[o.name] = append(lists[o.name], strings.Split(o.value, ",")...)
		default:
			return fmt.Errorf("the option %q is not known: use role, principals, sandbox, project, verbs, no-forwarding", clip(o.name, 40))
		}
	}
	for _, name := range lists["principals"] {
		if !ValidPrincipal(name) {
			return fmt.Errorf("%q cannot be a principal", clip(name, 40))
		}
	}
	a.Principals = lists["principals"]
	var field string
	if a.Scope, field, err = NewScope(lists[scopeSandbox], lists[scopeProject], lists[scopeVerbs], noForwarding); err != nil {
		return fmt.Errorf("the option %s: %w", field, err)
	}
	return nil
}

// option is one of the options in front of a key.
type option struct {
	name, value string
	given       bool // there is a value
}

// splitOptions reads options as OpenSSH writes them: a,b=c,d="e,\"f".
func splitOptions(text string) ([]option, error) {
	var all []option
	for text != "" {
		end := strings.IndexAny(text, `,="`)
		if end < 0 {
			end = len(text)
		}
		o := option{name: strings.ToLower(text[:end])}
		if text = text[end:]; strings.HasPrefix(text, "=") {
			var ok bool
			if o.value, text, ok = optionValue(text[1:]); !ok {
				return nil, errors.New("a quote is not closed")
			}
			o.given = true
		}
		if o.name == "" || text != "" && text[0] != ',' {
			return nil, errors.New("the options in front of the key are malformed")
		}
		if all = append(all, o); len(all) > maxAuthorities {
			return nil, errors.New("too many options")
		}
		if text = strings.TrimPrefix(text, ","); text == "" {
			break
		}
	}
	return all, nil
}

func optionValue(text string) (value, rest string, ok bool) {
	if !strings.HasPrefix(text, `"`) {
		if i := strings.IndexByte(text, ','); i >= 0 {
			return text[:i], text[i:], true
		}
		return text, "", true
	}
	var b strings.Builder
	for i := 1; i < len(text); i++ {
		switch {
		case text[i] == '\\' && i+1 < len(text) && text[i+1] == '"':
			i++
			b.WriteByte('"')
		case text[i] == '"':
			return b.String(), text[i+1:], true
		default:
			b.WriteByte(text[i])
		}
	}
	return "", "", false
}
