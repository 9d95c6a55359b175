package agent

import (
	"errors"
	"io"
	"maps"
	"slices"
	"sync"

	"github.com/hashicorp/yamux"

	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
	"github.com/sandgate/sandgate/sandbox/guest/internal/wire"
)

// session is one connection of a host.
type session struct {
	agent    *Agent
	mux      *yamux.Session
	handlers sync.WaitGroup

	mu    sync.Mutex
	ended bool
	// cuts end what the connection is attached to, however stuck it is, by
	// the numbers that the host knows them by.
	cuts   map[uint64]func()
	newest uint64
	// listeners are the sockets it listens on, by the same numbers.
	listeners map[uint64]*listener
}

// serve handles streams until the connection ends, and returns when every
// handler has. The loss of the connection is noticed here and not by those who
// read from it: one that is stuck in a write to a standard input does not read.
func (s *session) serve() error {
	var err error
	for {
		var st *yamux.Stream
		if st, err = s.mux.AcceptStream(); err != nil {
			break
		}
		s.handlers.Go(func() { s.handle(st) })
	}
	s.mux.Close()
	s.mu.Lock()
	s.ended = true
	cuts := slices.Collect(maps.Values(s.cuts))
	s.mu.Unlock()
	for _, cut := range cuts {
		cut()
	}
	s.handlers.Wait()
	return err
}

// track registers how to cut something off and returns its number. When the
// connection has ended already it is cut off at once.
func (s *session) track(cut func()) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.newest++
	s.cuts[s.newest] = cut
	if s.ended {
		go cut() // takes locks of its own; never blocks for long
	}
	return s.newest
}

func (s *session) untrack(number uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.cuts, number)
}

// detach cuts off what has the number, if it is still there.
func (s *session) detach(number uint64) {
	s.mu.Lock()
	cut := s.cuts[number]
	s.mu.Unlock()
	if cut != nil {
		cut()
	}
}

// handle serves one operation. The host closes the stream first, always; the
// guest closes it when it has seen that, so that nothing it has sent is lost.
func (s *session) handle(st *yamux.Stream) {
	defer st.Close()
	var req wire.Request
	if err := wire.ReadMessage(st, &req, wire.MaxRequest); err != nil {
		if isViolation(err) && s.reply(st, nil, invalidRequest(err)) {
			untilLeft(st)
		}
		return
	}
	s.operate(st, req)
	untilLeft(st)
}

func (s *session) operate(st *yamux.Stream, req wire.Request) {
	a := s.agent
	switch req.Op {
	case wire.OpPing:
		s.reply(st, nil, nil)
	case wire.OpList:
		s.reply(st, a.list(), nil)
	case wire.OpShutdown:
		// The answer goes out first: the connection ends with everything else.
		s.reply(st, nil, nil)
		go a.Shutdown() // ends this session, so nothing here can wait for it
	case wire.OpStart:
		with(s, st, req, func(cmd guest.Command) error {
			att := newAttachment(st)
			p, err := a.start(cmd, att)
			if err != nil {
				return err
			}
			s.converse(st, p, att)
			return nil
		})
	case wire.OpAttach:
		with(s, st, req, func(args wire.Attach) error {
			p, err := a.find(args.ID)
			if err != nil {
				return err
			}
			att := newAttachment(st)
			att.hold = guest.Hold(args.Hold)
			p.attach(att, args.From)
			s.converse(st, p, att)
			return nil
		})
	case wire.OpDetach:
		with(s, st, req, func(args wire.Detach) error {
			s.detach(args.Attachment)
			s.reply(st, nil, nil)
			return nil
		})
	case wire.OpSignal:
		simple(s, st, req, func(args wire.Signal) string { return args.ID }, func(p *process, args wire.Signal) error {
			return p.signalName(args.Signal, args.Session)
		})
	case wire.OpResize:
		simple(s, st, req, func(args wire.Resize) string { return args.ID }, func(p *process, args wire.Resize) error {
			return p.resize(guest.Size{Rows: args.Rows, Cols: args.Cols})
		})
	case wire.OpCloseOutput:
		simple(s, st, req, targetID, func(p *process, _ wire.Target) error { p.closeOutput(); return nil })
	case wire.OpHangup:
		simple(s, st, req, targetID, func(p *process, _ wire.Target) error { p.hangup(); return nil })
	case wire.OpForget:
		simple(s, st, req, targetID, func(p *process, _ wire.Target) error { return p.forget() })
	case wire.OpWrite:
		with(s, st, req, func(args wire.Write) error { return s.writeFile(st, args) })
	case wire.OpRead:
		with(s, st, req, func(args wire.Read) error { return s.readFile(st, args) })
	case wire.OpDial:
		with(s, st, req, func(args wire.Dial) error { return s.dial(st, args) })
	case wire.OpListen:
		with(s, st, req, func(args wire.Listen) error { return s.listen(st, args) })
	case wire.OpAccept:
		with(s, st, req, func(args wire.Accept) error { return s.accept(st, args) })
	default:
		if s.fileOperation(st, req) {
			return
		}
		s.reply(st, nil, fault.New(fault.Unsupported, "this sandbox's guest is too old for %q; restart the sandbox to renew it", wire.Printable(string(req.Op), 32)))
	}
}

func targetID(t wire.Target) string { return t.ID }

// with decodes the arguments of an operation that answers for itself when it
// succeeds.
func with[A any](s *session, st *yamux.Stream, req wire.Request, do func(A) error) {
	var args A
	if err := wire.Unmarshal(req.Args, &args); err != nil {
		s.reply(st, nil, invalidRequest(err))
		return
	}
	if err := do(args); err != nil {
		s.reply(st, nil, err)
	}
}

// simple decodes the arguments of an operation on one process and answers.
func simple[A any](s *session, st *yamux.Stream, req wire.Request, id func(A) string, do func(*process, A) error) {
	with(s, st, req, func(args A) error {
		p, err := s.agent.find(id(args))
		if err != nil {
			return err
		}
		if err := do(p, args); err != nil {
			return err
		}
		s.reply(st, nil, nil)
		return nil
	})
}

// reply answers a request and reports whether anybody listens.
func (s *session) reply(w io.Writer, result any, err error) bool {
	sent := wire.WriteMessage(w, response(result, err), wire.MaxResponse)
	if errors.Is(sent, wire.ErrTooLarge) {
		err = fault.New(fault.Exhausted, "the answer is too long for one message")
		sent = wire.WriteMessage(w, response(nil, err), wire.MaxResponse)
	}
	return sent == nil
}

// conclude ends a transfer. Whether anybody listens makes no difference.
func conclude(frames *wire.FrameWriter, result any, err error) {
	end := response(result, nil)
	end.Error = response(nil, err).Error
	_ = frames.JSON(wire.KindResult, end)
}

// untilLeft reads a stream on which the host has nothing more to say until the
// host has left it, or is gone.
func untilLeft(st *yamux.Stream) { _, _ = io.Copy(io.Discard, st) }
