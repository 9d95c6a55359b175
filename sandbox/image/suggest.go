package image

import (
	"strings"

	"github.com/sandgate/sandgate/sandbox/fault"
)

// maxShownName bounds how much of an unknown name is repeated in an error.
const maxShownName = 64

// unknownRuntime is the error for a name that is not in the catalog. The name
// comes from a client, so it is quoted and cut.
func unknownRuntime(name string, available []string) error {
	shown := name
	if len(shown) > maxShownName {
		shown = shown[:maxShownName] + "…"
	}
	hint := ""
	if s := nearest(name, available); s != "" {
		hint = "; did you mean " + s + "?"
	}
	return fault.New(fault.NotFound, "there is no runtime %q%s (available: %s)", shown, hint, strings.Join(available, ", ")).About("runtime")
}

// nearest returns the candidate a person most likely meant, or "".
func nearest(name string, candidates []string) string {
	if len(name) > maxShownName {
		return ""
	}
	name = strings.ToLower(name)
	base, _, _ := strings.Cut(name, ":")
	best, bestDistance := "", 3 // more than two slips is another word
	for _, c := range candidates {
		cbase, _, _ := strings.Cut(c, ":")
		d := min(editDistance(name, c), editDistance(base, cbase))
		if d < bestDistance {
			best, bestDistance = c, d
		}
	}
	return best
}

// editDistance is the Levenshtein distance of two short strings.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			diagonal, row[j] = row[j], min(row[j]+1, row[j-1]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}
