package layer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"slices"
	"strings"
)

// Entries lists an archive in the neutral form, which may come from anywhere,
// sorted by path. Directories of which the archive has only what lies in them
// are listed as Implied.
func Entries(ctx context.Context, r io.Reader) ([]Entry, error) {
	all := make(map[string]*Entry)
	sum := sha256.New()
	buf := make([]byte, 256<<10)
	err := scan(ctx, r, neutralForm, Limits{}, func(e *Entry, content io.Reader) error {
		all[e.Path] = e
		if e.Type != File || e.Same != "" {
			return nil
		}
		sum.Reset()
		if _, err := io.CopyBuffer(struct{ io.Writer }{sum}, content, buf); err != nil {
			return err
		}
		e.Digest = "sha256:" + hex.EncodeToString(sum.Sum(nil))
		return nil
	})
	if err != nil {
		return nil, failure(err, "read the layer")
	}
	list := make([]Entry, 0, len(all))
	for _, e := range all {
		list = append(list, *e)
	}
	slices.SortFunc(list, func(a, b Entry) int { return comparePaths(a.Path, b.Path) })
	return list, nil
}

// comparePaths sorts what is in a directory right behind it.
func comparePaths(a, b string) int {
	for {
		left, restA, moreA := strings.Cut(a, "/")
		right, restB, moreB := strings.Cut(b, "/")
		if c := strings.Compare(left, right); c != 0 || !moreA || !moreB {
			if c == 0 && moreA != moreB {
				if moreB {
					return -1
				}
				return 1
			}
			return c
		}
		a, b = restA, restB
	}
}
