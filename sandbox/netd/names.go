package netd

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/egress"
)

// maxNames bounds how many names one sandbox can have addresses for.
const maxNames = 65536

// fakeBase is the address of the first name, less one.
var fakeBase = egress.FakeNetwork.Addr()

// names gives each name of one sandbox an address that means it. An address
// never changes its meaning while the sandbox lives: programs inside keep it,
// and memory images keep it longer.
//
// They are kept in a file with a line for each name, the first for the first
// address, which is only appended to.
type names struct {
	mu    sync.RWMutex
	file  *os.File
	list  []string
	index map[string]int
}

var errNamesFull = errors.New("the sandbox has looked up too many names")

// openNames reads the names of a sandbox; a file that does not exist is made.
func openNames(path string) (*names, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open names: %w", err)
	}
	n := &names{file: f, index: map[string]int{}}
	if err := n.read(path); err != nil {
		f.Close()
		return nil, err
	}
	return n, nil
}

func (n *names) read(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read names: %w", err)
	}
	// A line without an end was being written when the host went down. Nobody
	// was told of it.
	whole := bytes.LastIndexByte(b, '\n') + 1
	if whole < len(b) {
		if err := n.file.Truncate(int64(whole)); err != nil {
			return fmt.Errorf("mend names: %w", err)
		}
	}
	for line := range strings.Lines(string(b[:whole])) {
		name := strings.TrimSuffix(line, "\n")
		n.list = append(n.list, name)
		n.index[name] = len(n.list) - 1
	}
	return nil
}

// address returns the address of a name. When it returns, the meaning is on
// the disk.
func (n *names) address(name string) (netip.Addr, error) {
	n.mu.RLock()
	i, ok := n.index[name]
	n.mu.RUnlock()
	if ok {
		return fakeAddress(i), nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if i, ok := n.index[name]; ok {
		return fakeAddress(i), nil
	}
	if len(n.list) == maxNames {
		return netip.Addr{}, errNamesFull
	}
	size, err := n.file.Seek(0, 2)
	if err == nil {
		if _, err = n.file.WriteString(name + "\n"); err == nil {
			err = unix.Fdatasync(int(n.file.Fd()))
		}
	}
	if err != nil {
		_ = n.file.Truncate(size) // half a line would be mended at the next start
		return netip.Addr{}, fmt.Errorf("write names: %w", err)
	}
	n.list = append(n.list, name)
	n.index[name] = len(n.list) - 1
	return fakeAddress(len(n.list) - 1), nil
}

// name returns what an address means.
func (n *names) name(addr netip.Addr) (string, bool) {
	if !egress.FakeNetwork.Contains(addr) {
		return "", false
	}
	a, base := addr.As4(), fakeBase.As4()
	i := (int(a[1])-int(base[1]))<<16 + int(a[2])<<8 + int(a[3]) - 1
	n.mu.RLock()
	defer n.mu.RUnlock()
	if i < 0 || i >= len(n.list) {
		return "", false
	}
	return n.list[i], true
}

func fakeAddress(i int) netip.Addr {
	a := fakeBase.As4()
	i++
	a[1] += byte(i >> 16)
	a[2], a[3] = byte(i>>8), byte(i)
	return netip.AddrFrom4(a)
}

func (n *names) close() { n.file.Close() }
