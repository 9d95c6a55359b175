package netd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/egress"
)

// Bounds of what is asked of the world.
const (
	lookupTimeout = 5 * time.Second
	dialTimeout   = 5 * time.Second
	// How long answers are kept. The addresses behind a name are looked at
	// again whenever they are dialled, so this is about load and not safety.
	foundFor   = 30 * time.Second
	missingFor = 5 * time.Second
	maxAnswers = 8192
	maxTried   = 4 // addresses of one name
)

// outside is the way out: names are resolved, and addresses judged and dialled,
// here and nowhere else.
type outside struct {
	resolver  *net.Resolver
	forbidden []netip.Prefix // beside what is reserved

	mu      sync.Mutex
	answers map[string]*answer
}

type answer struct {
	ready   chan struct{} // closed when the rest is set
	addrs   []netip.Addr
	err     error
	expires time.Time
}

// newOutside asks server for names; the one this host uses when not valid.
func newOutside(server netip.AddrPort, forbidden []netip.Prefix) *outside {
	r := &net.Resolver{PreferGo: true}
	if server.IsValid() {
		r.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, server.String())
		}
	}
	return &outside{resolver: r, forbidden: forbidden, answers: map[string]*answer{}}
}

// errNoName is that a name does not exist, or has no address.
var errNoName = errors.New("the name does not exist")

// lookup returns the addresses of a name, judged by nobody yet.
func (o *outside) lookup(ctx context.Context, name string) ([]netip.Addr, error) {
	o.mu.Lock()
	a := o.answers[name]
	if a == nil || a.over() {
		a = &answer{ready: make(chan struct{})}
		o.makeRoom()
		o.answers[name] = a
		go o.ask(a, name)
	}
	o.mu.Unlock()
	select {
	case <-a.ready:
		return a.addrs, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (a *answer) over() bool {
	select {
	case <-a.ready:
		return time.Now().After(a.expires)
	default:
		return false
	}
}

// ask fills in an answer. It has a context of its own: several may wait.
func (o *outside) ask(a *answer, name string) {
	ctx, cancel := context.WithTimeout(context.Background(), lookupTimeout)
	defer cancel()
	// The dot keeps the search list of this host out of it.
	a.addrs, a.err = o.resolver.LookupNetIP(ctx, "ip", name+".")
	for i := range a.addrs {
		a.addrs[i] = a.addrs[i].Unmap()
	}
	// IPv4 first: a host without a way for IPv6 is common.
	slices.SortStableFunc(a.addrs, func(x, y netip.Addr) int { return x.BitLen() - y.BitLen() })
	a.expires = time.Now().Add(foundFor)
	if a.err != nil {
		a.expires = time.Now().Add(missingFor)
		if d, ok := errors.AsType[*net.DNSError](a.err); ok && d.IsNotFound {
			a.err = errNoName
		}
	}
	close(a.ready)
}

// makeRoom keeps the answers within their bound. The caller holds the lock.
func (o *outside) makeRoom() {
	if len(o.answers) < maxAnswers {
		return
	}
	for name, a := range o.answers {
		if a.over() {
			delete(o.answers, name)
		}
	}
	if len(o.answers) >= maxAnswers {
		clear(o.answers) // who waits for one has it in hand
	}
}

// judge says why an address cannot be dialled, whoever asks; empty when it can.
func (o *outside) judge(addr netip.Addr) string {
	addr = addr.Unmap()
	for _, p := range o.forbidden {
		if p.Contains(addr) {
			return "an address that this gateway does not let sandboxes reach"
		}
	}
	// The kernel's own word, so it is never out of date.
	routes, err := netlink.RouteGet(addr.AsSlice())
	switch {
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH):
		return "" // dialling says so
	case err != nil, len(routes) == 0:
		return "an address whose route is not known"
	case routes[0].Type == unix.RTN_LOCAL:
		return "an address of the host"
	case routes[0].Type != unix.RTN_UNICAST:
		return "not the address of a host"
	}
	return ""
}

// failure is that something allowed could not be reached, or was refused at
// the last moment.
type failure struct {
	kind   Kind
	reason string
}

func (f *failure) Error() string { return f.reason }

// candidates resolves a name and returns the addresses that may be dialled.
func (o *outside) candidates(ctx context.Context, p *egress.Policy, proto egress.Proto, name string, port uint16) ([]netip.Addr, error) {
	addrs, err := o.lookup(ctx, name)
	if errors.Is(err, errNoName) {
		return nil, &failure{Failed, "the name has no address"}
	}
	if err != nil {
		return nil, &failure{Failed, "the name cannot be resolved now"}
	}
	var good []netip.Addr
	why := ""
	for _, addr := range addrs {
		if !p.AllowsDial(proto, addr, port) {
			why, _ = egress.Reserved(addr)
			why = fmt.Sprintf("the name leads to %s (%s)", addr, why)
			continue
		}
		if reason := o.judge(addr); reason != "" {
			why = fmt.Sprintf("the name leads to %s (%s)", addr, reason)
			continue
		}
		good = append(good, addr)
	}
	if len(good) == 0 {
		if why == "" {
			return nil, &failure{Failed, "the name has no address"}
		}
		return nil, &failure{Refused, why}
	}
	return good[:min(len(good), maxTried)], nil
}

// dial connects to one of the addresses.
func (o *outside) dial(ctx context.Context, proto egress.Proto, addrs []netip.Addr, port uint16) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*dialTimeout)
	defer cancel()
	d := net.Dialer{Timeout: dialTimeout, KeepAlive: time.Minute}
	d.SetMultipathTCP(false)
	var last error
	for _, addr := range addrs {
		c, err := d.DialContext(ctx, string(proto), netip.AddrPortFrom(addr, port).String())
		if err == nil {
			return c, nil
		}
		last = err
		if ctx.Err() != nil {
			break
		}
	}
	return nil, &failure{Failed, dialReason(last)}
}

func dialReason(err error) string {
	switch {
	case errors.Is(err, unix.ECONNREFUSED):
		return "the server refused the connection"
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.EADDRNOTAVAIL):
		return "the server cannot be reached from this host"
	case errors.Is(err, context.Canceled):
		return "the connection was given up"
	}
	if t, ok := errors.AsType[net.Error](err); ok && t.Timeout() {
		return "the server did not answer in time"
	}
	return "the server cannot be reached"
}
