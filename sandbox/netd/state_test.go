package netd

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/egress"
)

func TestNamesKeepTheirMeaning(t *testing.T) {
	path := filepath.Join(t.TempDir(), "names")
	n, err := openNames(path)
	must(t, err)
	seen := map[netip.Addr]string{}
	for i := range 600 {
		name := fmt.Sprintf("n%d.test", i)
		a, err := n.address(name)
		must(t, err)
		if other := seen[a]; other != "" || !egress.FakeNetwork.Contains(a) {
			t.Fatalf("%s has the address %s of %q", name, a, other)
		}
		seen[a] = name
	}
	n.close()
	// The host went down while a line was written.
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	must(t, err)
	f.WriteString("half-a-na")
	f.Close()
	n, err = openNames(path)
	must(t, err)
	defer n.close()
	for a, name := range seen {
		if got, ok := n.name(a); !ok || got != name {
			t.Errorf("%s means %q, and meant %q", a, got, name)
		}
		if got, err := n.address(name); err != nil || got != a {
			t.Errorf("%s is %s, and was %s", name, got, a)
		}
	}
	a, err := n.address("new.test")
	must(t, err)
	if got, _ := n.name(a); got != "new.test" || seen[a] != "" {
		t.Errorf("a new name after a torn line: %s is %q", a, got)
	}
	for _, a := range []string{"198.18.0.0", "198.18.2.90", "198.19.255.255", "10.0.2.2", "198.20.0.1", "::1"} {
		if name, ok := n.name(netip.MustParseAddr(a)); ok {
			t.Errorf("%s means %q", a, name)
		}
	}
}

func TestNamesAreBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "names")
	must(t, os.WriteFile(path, []byte(strings.Repeat("x\n", maxNames-1)), 0o600))
	n, err := openNames(path)
	must(t, err)
	defer n.close()
	last, err := n.address("last.test")
	must(t, err)
	if last.String() != "198.19.0.0" {
		t.Errorf("the last address is %s", last)
	}
	if _, err := n.address("over.test"); !errors.Is(err, errNamesFull) {
		t.Errorf("one more: %v", err)
	}
	if got, err := n.address("last.test"); err != nil || got != last {
		t.Errorf("the last name is %s %v", got, err)
	}
}

// What a record does not say is not allowed.
func TestRecordsFailClosed(t *testing.T) {
	d := folder(t.TempDir())
	must(t, d.prepare())
	for text, want := range map[string]int{"{}": 0, `{"allow":null}`: 0, `{"allow":["a.test"]}`: 1, `{"open":true}`: -1} {
		must(t, os.WriteFile(d.record("sbx-r"), []byte(text), 0o600))
		rec, err := d.readRecord("sbx-r")
		must(t, err)
		p, err := egress.Parse(rec.rules(), false)
		must(t, err)
		if got := len(p.Strings()); p == nil && want != -1 || p != nil && got != want {
			t.Errorf("%s gives %d rules, open %v", text, got, p == nil)
		}
	}
	must(t, d.writeRecord("sbx-r", record{Open: true, In: 5}))
	if rec, err := d.readRecord("sbx-r"); err != nil || !rec.Open || rec.In != 5 {
		t.Errorf("%+v %v", rec, err)
	}
}

func TestJournal(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	j := newJournal(func() time.Time { return now })
	one := Refusal{Sandbox: "a", Kind: Refused, Proto: "tcp", Target: "x:1", Reason: "r"}
	for range 1000 {
		j.add(one)
	}
	found, next, lost, _ := j.since(0)
	if len(found) != 1 || found[0].Count != 1 || lost {
		t.Fatalf("a thousand times the same: %+v", found)
	}
	now = now.Add(refusalWindow)
	j.settle()
	found, next2, _, _ := j.since(next)
	if len(found) != 1 || found[0].Count != 999 || next2 <= next {
		t.Fatalf("what was repeated: %+v", found)
	}
	now = now.Add(refusalWindow)
	j.settle()
	if found, _, _, _ := j.since(next2); len(found) != 0 {
		t.Fatalf("nothing happened: %+v", found)
	}
	// Others are not drowned by one that makes noise.
	j.add(Refusal{Sandbox: "calm", Target: "y:1"})
	for i := range 100_000 {
		now = now.Add(time.Millisecond)
		noise := one
		noise.Target = fmt.Sprintf("x:%d", i)
		j.add(noise)
		if i%2000 == 0 {
			j.settle()
		}
	}
	found, _, lost, _ = j.since(0)
	calm, loud, count := 0, 0, 0
	for i, r := range found {
		if r.Sandbox == "calm" {
			calm++
		} else {
			loud++
			count += r.Count
		}
		if i > 0 && r.Seq <= found[i-1].Seq {
			t.Fatal("they are not in order")
		}
	}
	if calm != 1 || loud > keptRefusals || !lost || count < 50_000 {
		t.Errorf("%d of the calm one, %d of the loud one (%d in all), lost %v", calm, loud, count, lost)
	}
	if n := len(j.logs["a"].repeats); n > 2*refusalBurst+int(refusalWindow.Seconds())*refusalsASec {
		t.Errorf("%d are remembered", n)
	}
	later := newJournal(func() time.Time { return now.Add(time.Second) })
	later.load(j.save())
	again, _, _, _ := later.since(0)
	if len(again) != len(found) || later.seq < j.seq {
		t.Errorf("%d of %d travelled", len(again), len(found))
	}
	j.forget("a")
	if found, _, _, _ := j.since(0); len(found) != 1 {
		t.Errorf("forgotten, but there are %+v", found)
	}
}

func TestJournalWakesReaders(t *testing.T) {
	j := newJournal(time.Now)
	_, next, _, wake := j.since(0)
	go j.add(Refusal{Sandbox: "a"})
	select {
	case <-wake:
	case <-time.After(patience):
		t.Fatal("nobody was woken")
	}
	if found, _, _, _ := j.since(next); len(found) != 1 {
		t.Errorf("%+v", found)
	}
}

func FuzzQuestion(f *testing.F) {
	for _, kind := range []dnsmessage.Type{dnsmessage.TypeA, dnsmessage.TypeAAAA, dnsmessage.TypePTR} {
		m := dnsmessage.Message{Header: dnsmessage.Header{ID: 7, RecursionDesired: true}, Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName("a.test."), Type: kind, Class: dnsmessage.ClassINET}}}
		b, err := m.Pack()
		must(f, err)
		f.Add(b)
	}
	f.Add([]byte{0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0xc0, 12, 0, 1, 0, 1})
	n, err := openNames(filepath.Join(f.TempDir(), "names"))
	must(f, err)
	b := &box{id: "sbx-fuzz", names: n, d: &daemon{journal: newJournal(time.Now), outside: newOutside(netip.AddrPort{}, nil)}}
	none, err := egress.Parse([]string{}, false)
	must(f, err)
	b.policy.Store(&policy{none})
	f.Fuzz(func(t *testing.T, query []byte) {
		answer := b.answerDNS(t.Context(), query, dnsPayload)
		if answer == nil {
			return
		}
		var m dnsmessage.Message
		if err := m.Unpack(answer); err != nil {
			t.Fatalf("the answer to %x is malformed: %v", query, err)
		}
		if !m.Response || m.ID != uint16(query[0])<<8|uint16(query[1]) || len(m.Answers) > 0 || len(answer) > dnsPayload {
			t.Fatalf("the answer to %x is %+v", query, m)
		}
	})
}

func FuzzPacketLog(f *testing.F) {
	packet := forged()
	attrs := append(netlinkAttr(logAttrPrefix, []byte("spoof\x00")), netlinkAttr(logAttrPayload, packet)...)
	msg := append(make([]byte, unix.SizeofNlMsghdr+4), attrs...)
	msg[0], msg[4], msg[5] = byte(len(msg)), 0, unix.NFNL_SUBSYS_ULOG
	if found := parsePacketLog(msg); len(found) != 1 || found[0].prefix != "spoof" || found[0].dst.String() != "203.0.113.10" || protocolName(found[0].proto) != "udp" {
		f.Fatalf("%+v", found)
	}
	f.Add(msg)
	f.Add([]byte{20, 0, 0, 0, 0, 4})
	f.Fuzz(func(t *testing.T, b []byte) { parsePacketLog(b) })
}
