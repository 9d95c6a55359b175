package netd

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/sandgate/sandgate/sandbox/egress"
)

const (
	dnsPort = 53
	// fakeTTL is short as other things go, although the meaning of an address
	// never changes: a name may stop to exist.
	fakeTTL    = 60
	dnsIdle    = 10 * time.Second
	dnsPayload = 1232
	// extendedBlocked is "blocked" of RFC 8914.
	extendedError   = 15
	extendedBlocked = 15
)

// asksUs reports whether what goes to port 53 of an address is for our own
// name server: all of it, but where a rule names another one by its address.
// Answers of that one are addresses, for which rules for names are no good.
func (b *box) asksUs(proto egress.Proto, dst netip.AddrPort) bool {
	p := b.policy.Load().rules
	return p == nil || !p.AllowsAddr(proto, dst.Addr(), dst.Port())
}

// packetDNS answers a question that came as a packet.
func (b *box) packetDNS(r *router, query []byte, src, dst netip.AddrPort) {
	select {
	case b.asking <- struct{}{}:
	default:
		return // the sandbox asks again
	}
	r.wg.Go(func() {
		defer func() { <-b.asking }()
		if answer := b.answerDNS(r.ctx, query, dnsPayload); answer != nil && r.ctx.Err() == nil {
			b.answer(r, answer, src, dst)
		}
	})
}

// serveDNS answers questions on a connection.
func (c *conn) serveDNS() {
	stop := context.AfterFunc(c.ctx, func() { c.kill() })
	defer stop()
	defer func() {
		// Half a question cannot be handed over; the sandbox asks again.
		if c.stopping.Load() {
			c.kill()
		}
	}()
	for {
		c.inner.SetDeadline(time.Now().Add(dnsIdle))
		var size [2]byte
		if _, err := io.ReadFull(c.inner, size[:]); err != nil {
			return
		}
		query := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(c.inner, query); err != nil {
			return
		}
		answer := c.box.answerDNS(c.ctx, query, maxPacket)
		if answer == nil {
			return
		}
		if _, err := c.inner.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...)); err != nil {
			return
		}
	}
}

// answerDNS answers one question; nil for what is none.
func (b *box) answerDNS(ctx context.Context, query []byte, limit int) []byte {
	q, ok := parseQuestion(query)
	if !ok {
		return nil
	}
	if q.code == dnsmessage.RCodeSuccess {
		b.resolve(ctx, &q)
	}
	return q.pack(limit)
}

// question is a question, and its answer.
type question struct {
	header   dnsmessage.Header
	question dnsmessage.Question
	edns     bool

	code    dnsmessage.RCode
	blocked string // why, for a person who looks closely
	addr    netip.Addr
	pointer string
}

func parseQuestion(query []byte) (q question, ok bool) {
	var p dnsmessage.Parser
	var err error
	if q.header, err = p.Start(query); err != nil || q.header.Response {
		return q, false
	}
	if q.header.OpCode != 0 {
		q.code = dnsmessage.RCodeNotImplemented
		return q, true
	}
	all, err := p.AllQuestions()
	if err != nil || len(all) != 1 {
		q.code = dnsmessage.RCodeFormatError
		return q, true
	}
	q.question = all[0]
	if q.question.Class != dnsmessage.ClassINET {
		q.code = dnsmessage.RCodeRefused
		return q, true
	}
	if p.SkipAllAnswers() != nil || p.SkipAllAuthorities() != nil {
		q.code = dnsmessage.RCodeFormatError
		return q, true
	}
	for {
		h, err := p.AdditionalHeader()
		if err != nil {
			break
		}
		q.edns = q.edns || h.Type == dnsmessage.TypeOPT
		if p.SkipAdditional() != nil {
			break
		}
	}
	return q, true
}

// resolve answers by the policy. Every name that is allowed and exists has one
// address, of ours, and nothing else: no IPv6, and no keys or hints of other
// protocols.
func (b *box) resolve(ctx context.Context, q *question) {
	asked := q.question.Name.String()
	if q.question.Type == dnsmessage.TypePTR {
		q.code = dnsmessage.RCodeNameError
		if name, ok := b.pointer(asked); ok {
			q.code, q.pointer = dnsmessage.RCodeSuccess, name
		}
		return
	}
	name, ok := egress.CanonicalName(asked)
	if !ok {
		q.code = dnsmessage.RCodeNameError
		return
	}
	if !b.policy.Load().rules.KnowsName(name) {
		q.code, q.blocked = dnsmessage.RCodeNameError, "no rule allows this name"
		b.d.journal.add(Refusal{Sandbox: b.id, Kind: Refused, Proto: "dns", Target: name, Reason: noRule, Rule: name})
		return
	}
	_, err := b.d.outside.lookup(ctx, name)
	switch {
	case errors.Is(err, errNoName):
		q.code = dnsmessage.RCodeNameError
		return
	case err != nil:
		q.code = dnsmessage.RCodeServerFailure
		if ctx.Err() == nil {
			b.d.journal.add(Refusal{Sandbox: b.id, Kind: Failed, Proto: "dns", Target: name, Reason: "the name cannot be resolved now"})
		}
		return
	case q.question.Type != dnsmessage.TypeA:
		return
	}
	if q.addr, err = b.names.address(name); err != nil {
		q.code = dnsmessage.RCodeServerFailure
		reason := "the name cannot be kept"
		if errors.Is(err, errNamesFull) {
			reason = errNamesFull.Error()
		} else {
			b.d.log.Error("keep name", "sandbox", b.id, "err", err)
		}
		b.d.journal.add(Refusal{Sandbox: b.id, Kind: Failed, Proto: "dns", Target: name, Reason: reason})
	}
}

// pointer finds the name of "4.3.18.198.in-addr.arpa.".
func (b *box) pointer(asked string) (string, bool) {
	labels := strings.Split(strings.TrimSuffix(strings.ToLower(asked), ".in-addr.arpa."), ".")
	if len(labels) != 4 {
		return "", false
	}
	var a [4]byte
	for i, l := range labels {
		n, err := strconv.ParseUint(l, 10, 8)
		if err != nil {
			return "", false
		}
		a[3-i] = byte(n)
	}
	return b.names.name(netip.AddrFrom4(a))
}

// pack writes the answer.
func (q *question) pack(limit int) []byte {
	h := dnsmessage.Header{
		ID: q.header.ID, Response: true, OpCode: q.header.OpCode, RCode: q.code,
		RecursionDesired: q.header.RecursionDesired, RecursionAvailable: true,
	}
	m := dnsmessage.NewBuilder(make([]byte, 0, 512), h)
	m.EnableCompression()
	err := m.StartQuestions()
	if err == nil && q.question.Type != 0 {
		err = m.Question(q.question)
	}
	if err == nil {
		err = m.StartAnswers()
	}
	rh := dnsmessage.ResourceHeader{Name: q.question.Name, Class: dnsmessage.ClassINET, TTL: fakeTTL}
	if err == nil && q.addr.IsValid() {
		err = m.AResource(rh, dnsmessage.AResource{A: q.addr.As4()})
	}
	if err == nil && q.pointer != "" {
		var name dnsmessage.Name
		if name, err = dnsmessage.NewName(q.pointer + "."); err == nil {
			err = m.PTRResource(rh, dnsmessage.PTRResource{PTR: name})
		}
	}
	if err == nil && q.edns {
		err = q.packOptions(&m)
	}
	if err != nil {
		return nil
	}
	b, err := m.Finish()
	if err != nil || len(b) > limit {
		return nil
	}
	return b
}

func (q *question) packOptions(m *dnsmessage.Builder) error {
	if err := m.StartAdditionals(); err != nil {
		return err
	}
	var rh dnsmessage.ResourceHeader
	if err := rh.SetEDNS0(dnsPayload, dnsmessage.RCodeSuccess, false); err != nil {
		return err
	}
	var opt dnsmessage.OPTResource
	if q.blocked != "" {
		opt.Options = []dnsmessage.Option{{Code: extendedError, Data: append(binary.BigEndian.AppendUint16(nil, extendedBlocked), q.blocked...)}}
	}
	return m.OPTResource(rh, opt)
}
