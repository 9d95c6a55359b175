package keys

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Bounds of what Parse reads.
const (
	maxFile = 1 << 20  // bytes in all
	maxLine = 16 << 10 // bytes of one line, what OpenSSH takes
	maxKeys = 1000     // keys, good and bad
)

// Parsed is a good key of an authorized_keys file.
type Parsed struct {
	Line int // counted from 1
	Key  Key // as FromPublicKey makes it
}

// Rejected is a line that is not a key, or one that is not accepted.
type Rejected struct {
	Line   int // counted from 1
	Reason string
}

// String says "line 3: " and the reason.
func (r Rejected) String() string { return fmt.Sprintf("line %d: %s", r.Line, r.Reason) }

// Parse reads public keys in the form of authorized_keys, one to a line. Blank
// lines and those that begin with # are skipped. A line that is not taken is
// among the rejected with a reason that does not repeat its content; the rest
// is read on. Options in front of a key are restrictions that Sandgate would
// not keep, so a key with options is rejected and not taken without them. Only
// no-touch-required, in front of a security key, is understood.
//
// The error is about the whole input: it cannot be read or is too large.
func Parse(r io.Reader) ([]Parsed, []Rejected, error) {
	var p parser
	in := bufio.NewReaderSize(&io.LimitedReader{R: r, N: maxFile + 1}, maxLine)
	for read := 0; ; {
		text, size, err := readLine(in)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, nil, fmt.Errorf("read public keys: %w", err)
		}
		if read += size; read > maxFile {
			return nil, nil, fmt.Errorf("more than %d KiB: this is not a file of public keys", maxFile>>10)
		}
		if size > 0 {
			p.line(text, size > len(text))
		}
		if len(p.parsed)+len(p.rejected) > maxKeys {
			return nil, nil, fmt.Errorf("more than %d keys in one file: split it", maxKeys)
		}
		if errors.Is(err, io.EOF) {
			break
		}
	}
	return p.parsed, p.rejected, nil
}

// readLine reads a line and tells its size. Of a line that is longer than the
// buffer the text is the beginning alone.
func readLine(in *bufio.Reader) (text string, size int, err error) {
	line, err := in.ReadSlice('\n')
	text, size = string(line), len(line)
	for errors.Is(err, bufio.ErrBufferFull) {
		line, err = in.ReadSlice('\n')
		size += len(line)
	}
	return text, size, err
}

// ParseKey reads exactly one public key line.
func ParseKey(line string) (Key, error) {
	parsed, rejected, err := Parse(strings.NewReader(line))
	switch {
	case err != nil:
		return Key{}, err
	case len(rejected) > 0:
		return Key{}, errors.New(rejected[0].Reason)
	case len(parsed) != 1:
		return Key{}, fmt.Errorf("%d public keys where one is expected", len(parsed))
	}
	return parsed[0].Key, nil
}

// parser holds what was read so far.
type parser struct {
	number   int
	until    string // skip to a line with this prefix: the inside of a block
	seen     map[string]int
	parsed   []Parsed
	rejected []Rejected
}

func (p *parser) reject(format string, args ...any) {
	p.rejected = append(p.rejected, Rejected{Line: p.number, Reason: fmt.Sprintf(format, args...)})
}

func (p *parser) line(text string, long bool) {
	p.number++
	if p.number == 1 {
		text = strings.TrimPrefix(text, "\ufeff") // a byte order mark
	}
	text = strings.Trim(text, " \t\r\n")
	switch {
	case p.until != "":
		if strings.HasPrefix(text, p.until) {
			p.until = ""
		}
		return
	case long:
		p.reject("longer than %d bytes: this is not a public key", maxLine)
		return
	case text == "" || text[0] == '#':
		return
	}
	if reason, until := recognizeBlock(text); reason != "" {
		p.reject("%s", reason)
		p.until = until
		return
	}
	key, err := parseLine(text)
	if err != nil {
		p.reject("%v", err)
		return
	}
	if first, dup := p.seen[key.Fingerprint]; dup {
		p.reject("the same key as on line %d", first)
		return
	}
	if p.seen == nil {
		p.seen = map[string]int{}
	}
	p.seen[key.Fingerprint] = p.number
	p.parsed = append(p.parsed, Parsed{Line: p.number, Key: key})
}

// recognizeBlock recognizes the first line of what people give by mistake: a
// key in another format, over several lines. until is how its last line begins.
func recognizeBlock(line string) (reason, until string) {
	switch {
	case strings.HasPrefix(line, "PuTTY-User-Key-File-"):
		return "this is a private key; give the public key (in PuTTYgen: the field “Public key for pasting”)", "Private-MAC:"
	case strings.HasPrefix(line, "---- BEGIN SSH2 PUBLIC KEY"):
		return "this is a public key in another format: convert it with ssh-keygen -i -f FILE", "---- END"
	case strings.HasPrefix(line, "---- BEGIN SSH2 ENCRYPTED PRIVATE KEY"):
		return "this is a private key; give the .pub file", "---- END"
	case !strings.HasPrefix(line, "-----BEGIN "):
		return "", ""
	case strings.Contains(line, "PRIVATE KEY"):
		return "this is a private key; give the .pub file", "-----END "
	case strings.Contains(line, "RSA PUBLIC KEY"):
		return "this is a public key in another format: convert it with ssh-keygen -i -m PEM -f FILE", "-----END "
	case strings.Contains(line, "PUBLIC KEY"):
		return "this is a public key in another format: convert it with ssh-keygen -i -m PKCS8 -f FILE", "-----END "
	}
	return "this is not an ssh public key", "-----END "
}

// parseLine reads one line with a key on it.
func parseLine(line string) (Key, error) {
	if strings.ContainsRune(line, 0) || strings.HasPrefix(line, "\xff\xfe") || strings.HasPrefix(line, "\xfe\xff") { // UTF-16
		return Key{}, errors.New("the file is not plain text in UTF-8: save it as that")
	}
	noTouch := false
	if keyType, _ := cutField(line); !namesKeyType(keyType) {
		options, rest, ok := cutOptions(line)
		if !ok || !strings.EqualFold(options, noTouchOption) {
			return Key{}, explain(line)
		}
		noTouch, line = true, rest
	}
	keyType, rest := cutField(line)
	if !namesKeyType(keyType) {
		return Key{}, explain(line)
	}
	encoded, comment := cutField(rest)
	if encoded == "" {
		return Key{}, errors.New("the key is missing after its type: copy the whole line")
	}
	pub, err := parseBlob(keyType, encoded)
	if err != nil {
		return Key{}, err
	}
	k, err := FromPublicKey(pub, comment)
	if err != nil {
		return Key{}, err
	}
	if k.NoTouch = noTouch; noTouch && !k.SecurityKey() {
		return Key{}, fmt.Errorf("the option %s is for security keys (sk-…), and this key is none: remove it", noTouchOption)
	}
	return k, nil
}

// noTouchOption is the one option of a key that is kept; verifyOption cannot
// be: the ssh library does not tell whether a PIN was asked for.
const (
	noTouchOption = "no-touch-required"
	verifyOption  = "verify-required"
)

// explain says what is wrong with a line that does not begin with the type of a key.
func explain(line string) error {
	if strings.HasPrefix(line, "AAAA") {
		return errors.New("the type of the key is missing in front of it: copy the whole line")
	}
	options, rest, ok := cutOptions(line)
	if !ok {
		return errors.New("a quote is not closed")
	}
	if keyType, _ := cutField(rest); !namesKeyType(keyType) {
		return errors.New("this is not a public key")
	}
	if strings.HasPrefix(options, "@") {
		return errors.New("this is a line of known_hosts, not a public key of a user")
	}
	name, _, _ := strings.Cut(options, ",")
	name, _, _ = strings.Cut(name, "=")
	if strings.EqualFold(name, verifyOption) {
		return fmt.Errorf("the option %s cannot be kept by this server; make the key itself ask for its PIN (ssh-keygen -t ed25519-sk -O verify-required) and remove the option here", verifyOption)
	}
	return fmt.Errorf("the option %q in front of the key is not supported: remove it if the key may do without", clip(name, 40))
}

// cutOptions cuts a line after the options that stand in front of the key.
// Quotes may hold spaces and escaped quotes. ok is false when one stays open.
func cutOptions(line string) (options, rest string, ok bool) {
	quoted := false
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case c == '\\' && i+1 < len(line) && line[i+1] == '"':
			i++
		case c == '"':
			quoted = !quoted
		case !quoted && (c == ' ' || c == '\t'):
			return line[:i], line[i:], true
		}
	}
	return line, "", !quoted
}

// cutField cuts s after its first field; blanks separate fields.
func cutField(s string) (field, rest string) {
	s = strings.TrimLeft(s, " \t")
	if i := strings.IndexAny(s, " \t"); i >= 0 {
		return s[:i], strings.TrimLeft(s[i:], " \t")
	}
	return s, ""
}

// namesKeyType reports whether a field is the type of a key, accepted or not.
func namesKeyType(field string) bool {
	if strings.ContainsAny(field, `",=`) {
		return false
	}
	return strings.HasPrefix(field, "ssh-") || strings.HasPrefix(field, "ecdsa-sha2-") ||
		strings.HasPrefix(field, "sk-ssh-") || strings.HasPrefix(field, "sk-ecdsa-") ||
		strings.HasPrefix(field, "rsa-sha2-") || strings.HasPrefix(field, "webauthn-sk-")
}
