package cli

import (
	"bytes"
	"strings"
)

// The lines that config-ssh puts at the top of an ssh configuration. They have
// to stand before every Host: what follows one belongs to it.
const (
	includeNote = "# Sandboxes; `sandgate config-ssh --remove` takes this away."
	madeNote    = "# This file was made by sandgate config-ssh."
)

// bom may begin a file that a Windows editor has saved.
var bom = []byte("\xef\xbb\xbf")

// block is what is put at the top, with the line ends of the file.
func (at sshConfigPaths) block(text []byte, made bool) string {
	end := "\n"
	if bytes.Contains(text, []byte("\r\n")) {
		end = "\r\n"
	}
	lines := includeNote + end + "Include " + at.include + end + end
	if made {
		lines = madeNote + end + lines
	}
	return lines
}

// withInclude returns the configuration with the lines at its top, or nil if
// they are there already.
func (at sshConfigPaths) withInclude(text []byte, absent bool) []byte {
	if at.included(text) {
		return nil
	}
	made := absent || at.madeIt(text)
	text = at.withoutInclude(text)
	body, had := bytes.CutPrefix(text, bom)
	out := []byte{}
	if had {
		out = append(out, bom...)
	}
	return append(append(out, at.block(text, made)...), body...)
}

// included reports whether the Include stands where it counts.
func (at sshConfigPaths) included(text []byte) bool {
	for line := range strings.Lines(string(bytes.TrimPrefix(text, bom))) {
		keyword, args := directive(line)
		switch keyword {
		case "include":
			if args == at.include {
				return true
			}
		case "host", "match":
			return false
		}
	}
	return false
}

// withoutInclude returns the configuration as it was before the lines were put
// into it, wherever they stand now.
func (at sshConfigPaths) withoutInclude(text []byte) []byte {
	var out bytes.Buffer
	ours := false // the line before was the Include
	for line := range strings.Lines(string(text)) {
		bare := strings.TrimRight(line, "\r\n")
		body, hadBOM := strings.CutPrefix(bare, string(bom))
		keyword, args := directive(body)
		include := keyword == "include" && args == at.include
		switch {
		case include, body == includeNote, body == madeNote:
			if hadBOM {
				out.Write(bom)
			}
		case ours && bare == "":
		default:
			out.WriteString(line)
		}
		ours = include
	}
	return out.Bytes()
}

// madeIt reports whether there was no configuration before.
func (at sshConfigPaths) madeIt(text []byte) bool { return bytes.HasPrefix(text, []byte(madeNote)) }

// directive splits a line of an ssh configuration into its keyword, in lower
// case, and the rest. Comments and empty lines have none.
func directive(line string) (keyword, args string) {
	line = strings.TrimSpace(line)
	if line == "" || line[0] == '#' {
		return "", ""
	}
	i := strings.IndexAny(line, " \t=")
	if i < 0 {
		return strings.ToLower(line), ""
	}
	args = strings.TrimLeft(line[i:], " \t")
	args = strings.TrimLeft(strings.TrimPrefix(args, "="), " \t")
	return strings.ToLower(line[:i]), args
}

// literalHosts returns the names that a configuration has hosts for, patterns
// left out.
func literalHosts(text []byte) map[string]bool {
	found := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		keyword, args := directive(line)
		if keyword != "host" {
			continue
		}
		for name := range strings.FieldsSeq(args) {
			if name = strings.Trim(name, `"`); !strings.ContainsAny(name, "*?!") {
				found[name] = true
			}
		}
	}
	return found
}
