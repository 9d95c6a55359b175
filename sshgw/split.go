package sshgw

import (
	"strings"
	"unicode/utf8"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// maxCommandLine bounds a command line for the command tree.
const maxCommandLine = 1 << 20

// splitCommand splits a command line for the command tree into arguments.
//
// The client's shell has usually taken off one layer of quotes and ssh has
// joined the rest with spaces. So this knows words, single quotes, double
// quotes and backslashes, and nothing more: there is no shell here, and
// characters such as ; | & $ * < > are ordinary ones. What cannot be split
// without guessing is an error.
func splitCommand(line string) ([]string, error) {
	switch {
	case len(line) > maxCommandLine:
		return nil, fault.New(fault.Invalid, "the command is %d bytes long; at most %d are accepted", len(line), maxCommandLine)
	case !utf8.ValidString(line):
		return nil, fault.New(fault.Invalid, "the command is not valid UTF-8")
	case strings.IndexByte(line, 0) >= 0:
		return nil, fault.New(fault.Invalid, "the command contains a NUL byte")
	}
	var (
		args  []string
		word  strings.Builder
		open  bool // word holds an argument, possibly an empty one
		quote byte // the quote we are in, or 0
	)
	for i := 0; i < len(line); i++ {
		b := line[i]
		switch {
		case quote == '\'' && b != '\'':
			word.WriteByte(b)
		case quote != 0 && b == quote:
			quote = 0
		case b == '\\' && quote != '\'':
			i++
			if i == len(line) {
				return nil, fault.New(fault.Invalid, "the command ends with a backslash; quote it or leave it out")
			}
			open = true
			// Within double quotes a backslash is special before " and \ only.
			if quote == '"' && line[i] != '"' && line[i] != '\\' {
				word.WriteByte('\\')
			}
			word.WriteByte(line[i])
		case quote == '"':
			word.WriteByte(b)
		case b == '\'' || b == '"':
			quote, open = b, true
		case b == ' ' || b == '\t' || b == '\n' || b == '\r':
			if open {
				args = append(args, word.String())
				word.Reset()
				open = false
			}
		default:
			open = true
			word.WriteByte(b)
		}
	}
	if quote != 0 {
		return nil, fault.New(fault.Invalid, "the command has an opening %c without a closing one", quote)
	}
	if open {
		args = append(args, word.String())
	}
	return args, nil
}
