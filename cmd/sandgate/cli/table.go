package cli

import (
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"

	"charm.land/lipgloss/v2"

	"github.com/sandgate/sandgate/sandbox"
)

// table writes columns for people. Cells are cleaned: they hold what
// sandboxes and their users chose.
type table struct {
	header []string
	rows   [][]string
	style  func(column int, cell string) string // of cleaned cells; may be nil
}

func (t *table) add(cells ...string) {
	for i := range cells {
		cells[i] = clean(cells[i])
	}
	t.rows = append(t.rows, cells)
}

func (t *table) write(w io.Writer) error {
	widths := make([]int, len(t.header))
	for _, row := range append([][]string{t.header}, t.rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], lipgloss.Width(cell))
		}
	}
	var b strings.Builder
	line := func(row []string, style func(int, string) string) {
		for i, cell := range row {
			text := cell
			if style != nil {
				text = style(i, cell)
			}
			b.WriteString(text)
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", widths[i]-lipgloss.Width(cell)+2))
			}
		}
		b.WriteByte('\n')
	}
	line(t.header, nil)
	for _, row := range t.rows {
		line(row, t.style)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// clean takes out of s what could steer a terminal or disguise text: control
// and format characters, and bytes that are not UTF-8.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case unicode.IsControl(r), unicode.Is(unicode.Cf, r), r == unicode.ReplacementChar:
			return '\uFFFD'
		}
		return r
	}, s)
}

// colour reports whether standard output takes colours.
func (a *app) colour() bool {
	return a.StdoutTTY && a.Getenv("NO_COLOR") == "" && a.Getenv("TERM") != "dumb"
}

// statusStyle colours the status of a sandbox or an execution, by what it
// means: green goes well, yellow changes, red wants a look, grey is over.
func (a *app) statusStyle(status string) string {
	if !a.colour() {
		return status
	}
	colour := "8"
	switch sandbox.Status(status) {
	case sandbox.Idle, sandbox.Running, "completed":
		colour = "2"
	case sandbox.Creating, sandbox.Stopping, sandbox.Paused, sandbox.Suspended, "queued", "pending":
		colour = "3"
	case sandbox.Failed, "timeout":
		colour = "1"
	}
	return lipgloss.NewStyle().Foreground(lipgloss.Color(colour)).Render(status)
}

// age says how long ago t was, to one unit: the rest is in --json.
func (a *app) age(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	d := a.Now().Sub(t)
	switch {
	case d < 0:
		return "in " + roundAge(-d)
	case d < time.Second:
		return "now"
	}
	return roundAge(d) + " ago"
}

func roundAge(d time.Duration) string {
	switch {
	case d < time.Minute:
		return sandbox.FormatDuration(d.Truncate(time.Second))
	case d < time.Hour:
		return sandbox.FormatDuration(d.Truncate(time.Minute))
	case d < 48*time.Hour:
		return sandbox.FormatDuration(d.Truncate(time.Hour))
	}
	return strconv.Itoa(int(d.Hours()/24)) + "d"
}

// size writes a number of bytes for a person, to a tenth of a unit; the rest is
// in --json.
func size(n int64) string {
	unit, f := 0, float64(n)
	for f >= 1024 && unit < 5 {
		unit, f = unit+1, f/1024
	}
	if unit == 0 {
		return strconv.FormatInt(n, 10) + "B"
	}
	return strconv.FormatFloat(f, 'f', 1, 64) + []string{"", "Ki", "Mi", "Gi", "Ti", "Pi"}[unit]
}

// pair is one line of a description.
type pair struct{ name, value string }

// describe writes pairs, without those that have no value.
func describe(w io.Writer, pairs []pair, style func(name, value string) string) error {
	width := 0
	for _, p := range pairs {
		if p.value != "" {
			width = max(width, len(p.name))
		}
	}
	var b strings.Builder
	for _, p := range pairs {
		if p.value == "" {
			continue
		}
		value := clean(p.value)
		if style != nil {
			value = style(p.name, value)
		}
		b.WriteString(p.name + strings.Repeat(" ", width-len(p.name)+2) + value + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}
