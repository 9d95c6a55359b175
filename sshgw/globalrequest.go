package sshgw

import (
	"sync"

	gossh "golang.org/x/crypto/ssh"
)

// maxRequests bounds the global requests of one connection that wait for work
// to be done; what comes on top is refused in its turn.
const maxRequests = 300

// requests answers the global requests of a connection: in the order they
// came, as the protocol demands, and without the loop that reads the
// connection ever waiting, however long the work for one takes. A flood of
// requests that only have to be refused is kept as a number.
type requests struct {
	mu      sync.Mutex
	queue   []request
	work    int // entries of queue with work
	working bool
}

// request is one request with work, or a number that are refused.
type request struct {
	r        *gossh.Request
	work     func() (ok bool, answer []byte) // nil: refused
	refusals int
}

// globalRequest takes a request that belongs to no channel.
//
// no-more-sessions@openssh.com cannot be honoured: the library hands out
// requests and new channels apart, so it is not known which sessions came
// before it; it asks for no answer.
func (c *conn) globalRequest(sc *gossh.ServerConn, r *gossh.Request) {
	c.watch(sc)
	own := *r
	r.WantReply = false // the library answers nothing: it would not wait for its turn
	work := c.globalWork(sc, own.Type, own.Payload)
	q := &c.requests
	q.mu.Lock()
	defer q.mu.Unlock()
	if work != nil && q.work >= maxRequests {
		work = nil
	}
	if work == nil && !own.WantReply {
		return
	}
	if work == nil {
		own.Payload = nil
		if n := len(q.queue); n > 0 && q.queue[n-1].work == nil {
			q.queue[n-1].refusals++
		} else {
			q.queue = append(q.queue, request{r: &own, refusals: 1})
		}
	} else {
		q.queue = append(q.queue, request{r: &own, work: work})
		q.work++
	}
	if !q.working && c.enter() {
		q.working = true
		go func() {
			defer c.wg.Done()
			defer contain(c.log, "global request", func() { _ = sc.Close() })
			for q.answer() {
			}
		}()
	}
}

// globalWork returns what a request asks to be done, or nil for one that is
// refused.
func (c *conn) globalWork(sc *gossh.ServerConn, kind string, payload []byte) func() (bool, []byte) {
	if _, joins := joinerOf(sc.Permissions); joins {
		return nil
	}
	switch kind {
	case "hostkeys-prove-00@openssh.com":
		return func() (bool, []byte) { return c.proveHostKeys(sc, payload) }
	case "tcpip-forward":
		return func() (bool, []byte) { return c.listenTCP(sc, payload) }
	case "cancel-tcpip-forward":
		return func() (bool, []byte) { return c.cancelTCP(payload), nil }
	case "streamlocal-forward@openssh.com":
		return func() (bool, []byte) { return c.listenUnix(sc, payload), nil }
	case "cancel-streamlocal-forward@openssh.com":
		return func() (bool, []byte) { return c.cancelUnix(payload), nil }
	}
	return nil
}

// answer answers the next entry; false when there is none.
func (q *requests) answer() bool {
	q.mu.Lock()
	if len(q.queue) == 0 {
		q.working, q.queue = false, nil
		q.mu.Unlock()
		return false
	}
	next := q.queue[0]
	q.queue = q.queue[1:]
	if next.work != nil {
		q.work--
	}
	q.mu.Unlock()
	if next.work != nil {
		ok, answer := next.work()
		_ = next.r.Reply(ok, answer)
		return true
	}
	for range next.refusals {
		if next.r.Reply(false, nil) != nil {
			return true // the connection has ended
		}
	}
	return true
}
