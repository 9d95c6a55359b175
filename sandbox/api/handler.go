package api

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/sandgate/sandgate/keys"
	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// Config is what a handler needs. As is required; the rest has defaults.
type Config struct {
	// As binds the engine to a principal.
	As func(keys.Principal) sandbox.Operations
	// Principal decides who sent a request that did not come through an
	// in-process door. Its Denied error is answered with 401. Without it such
	// requests are refused.
	Principal func(*http.Request) (keys.Principal, error)
	// Recheck, when not nil, says whether the key that once proved a principal
	// still opens the door: it may have been deleted or have expired since. It
	// is asked for each request by a stream URL or an in-process door, whose
	// proof lies in the past. NotFound and Denied are answered with 401.
	Recheck func(context.Context, keys.Principal) error
	// BaseURL is what URLs in answers begin with, without a slash at the end.
	// Default: http:// and the Host of the request.
	BaseURL func(*http.Request) string
	// StreamSecret signs stream URLs; keep it over restarts so that URLs stay
	// valid. Default: a random one.
	StreamSecret []byte
	// Info answers GET /v1/info; the handler fills Principal in.
	Info    func() Info
	Version string           // of the server
	Log     *slog.Logger     // default: discards
	Now     func() time.Time // default: time.Now
}

// server serves the API. Its methods named after endpoints are in the files
// serve_*.go; each returns the data of the answer, or an error.
type server struct {
	cfg    Config
	mux    *http.ServeMux
	tokens streamTokens
}

// NewHandler makes the handler of the API.
func NewHandler(cfg Config) http.Handler {
	if cfg.Principal == nil {
		cfg.Principal = func(*http.Request) (keys.Principal, error) {
			return keys.Principal{}, fault.New(fault.Denied, "this door lets nobody in")
		}
	}
	if cfg.BaseURL == nil {
		cfg.BaseURL = func(r *http.Request) string { return "http://" + r.Host }
	}
	if cfg.Info == nil {
		cfg.Info = func() Info { return Info{} }
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if len(cfg.StreamSecret) == 0 {
		cfg.StreamSecret = make([]byte, 32)
		_, _ = rand.Read(cfg.StreamSecret) // never fails
	}
	s := &server{cfg: cfg, mux: http.NewServeMux(), tokens: streamTokens{secret: cfg.StreamSecret, now: cfg.Now}}
	s.routes()
	return s
}

func (s *server) routes() {
	s.lifeRoutes()
	s.fileRoutes()
	s.snapshotRoutes()
	s.sessionRoutes()
	s.handle("POST /sandbox", http.StatusCreated, s.create)
	s.handle("GET /sandbox", http.StatusOK, s.list)
	s.handle("GET /sandbox/{id}", http.StatusOK, s.get)
	s.handle("DELETE /sandbox/{id}", http.StatusOK, s.destroy)
	s.handle("GET /sandbox/status/{id}", http.StatusOK, s.status)
	s.handle("POST /sandbox/{id}/execute", http.StatusOK, s.execute)
	s.handle("GET /sandbox/execution/{id}", http.StatusOK, s.execution)
	s.handle("GET /sandbox/sandboxes/{id}/executions", http.StatusOK, s.executions)
	s.handle("GET /sandbox/sandboxes/{id}/events", http.StatusOK, s.events)
	s.handle("GET /sandbox/runtimes", http.StatusOK, s.runtimes)
	s.handle("DELETE /v1/executions/{id}", http.StatusOK, s.cancel)
	s.keyRoutes()
	s.handle("GET /v1/keys", http.StatusOK, s.keys)
	s.handle("POST /v1/keys", http.StatusCreated, s.addKey)
	s.handle("DELETE /v1/keys/{fingerprint}", http.StatusOK, s.deleteKey)
	s.handle("GET /v1/api-keys", http.StatusOK, s.apiKeys)
	s.handle("POST /v1/api-keys", http.StatusCreated, s.addAPIKey)
	s.handle("DELETE /v1/api-keys/{id}", http.StatusOK, s.deleteAPIKey)
	s.handle("GET /v1/info", http.StatusOK, s.info)
	s.handle("GET /v1/audit", http.StatusOK, s.audit)
	s.handle("POST /v1/server/reload", http.StatusOK, s.reload)
	s.mux.HandleFunc("GET /v1/streams/{id}/{stream}", s.readStream)
	s.mux.HandleFunc("POST /v1/streams/{id}/stdin", s.writeStdin)
	s.mux.HandleFunc("PUT /v1/streams/{id}/stdin", s.writeStdin)
	s.mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		writeEnvelope(w, http.StatusOK, envelope{Success: true, Data: []byte(`{"status":"ok"}`)})
	})
}

// request is one request on its way through an endpoint.
type request struct {
	*http.Request
	w   http.ResponseWriter
	ops sandbox.Operations
}

// errStreamed is returned by an endpoint that has sent its answer as a stream.
var errStreamed = errors.New("the answer was streamed")

// handle serves a pattern with an endpoint that answers with one value.
func (s *server) handle(pattern string, status int, endpoint func(*request) (any, error)) {
	s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		data, err := endpoint(&request{r, w, s.operations(r)})
		if errors.Is(err, errStreamed) {
			return
		}
		var env envelope
		if err == nil {
			env, err = success(data)
		}
		if err != nil {
			s.fail(w, r, err)
			return
		}
		if p, ok := w.(*answer); ok && p.streaming {
			p.writeLine(env)
			return
		}
		writeEnvelope(w, status, env)
	})
}

// ServeHTTP implements http.Handler.
func (s *server) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	w := &answer{ResponseWriter: rw, id: rand.Text()[:12]}
	w.Header().Set("X-Session-Id", w.id)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	start := s.cfg.Now()
	defer func() {
		if p := recover(); p != nil {
			if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				s.logRequest(w, r, start)
				panic(p)
			}
			s.cfg.Log.Error("panic in a request", "req", w.id, "method", r.Method, "path", r.URL.Path, "panic", p, "stack", string(debug.Stack()))
			if w.status != 0 {
				panic(http.ErrAbortHandler) // the answer has begun: cut it off
			}
			s.fail(w, r, fault.New(fault.Internal, "something went wrong inside sandgate; its log has the cause (request %s)", w.id))
		}
		s.logRequest(w, r, start)
	}()
	s.serve(w, r)
}

// serve finds out who asks, and for what.
func (s *server) serve(w *answer, r *http.Request) {
	h, pattern := s.mux.Handler(r)
	if pattern != "GET /health" {
		who, err := s.authenticate(r)
		if err != nil {
			s.fail(w, r, err)
			return
		}
		w.who = who
		r = r.WithContext(WithPrincipal(r.Context(), who))
	}
	if pattern == "" {
		// The mux knows whether the path exists with another method; its own
		// answer is plain text.
		probe := &statusProbe{header: http.Header{}}
		h.ServeHTTP(probe, r)
		if allow := probe.header.Get("Allow"); probe.status == http.StatusMethodNotAllowed {
			w.Header().Set("Allow", allow)
			writeEnvelope(w, probe.status, envelope{Message: r.Method + " is not allowed here; use " + allow, Code: "METHOD_NOT_ALLOWED"})
			return
		}
		writeEnvelope(w, http.StatusNotFound, envelope{Message: "there is no such endpoint", Code: string(fault.NotFound)})
		return
	}
	s.mux.ServeHTTP(w, r)
}

func (s *server) authenticate(r *http.Request) (keys.Principal, error) {
	if who, ok := PrincipalFrom(r.Context()); ok {
		return who, s.recheck(r.Context(), who)
	}
	if token := r.URL.Query().Get("token"); token != "" {
		who, err := s.tokens.verify(token, r.URL.Path)
		if err != nil {
			return keys.Principal{}, err
		}
		return who, s.recheck(r.Context(), who)
	}
	return s.cfg.Principal(r)
}

// recheck asks whether the key that proved who is still good. The error for
// one that is not is Denied, whatever the reason.
func (s *server) recheck(ctx context.Context, who keys.Principal) error {
	if s.cfg.Recheck == nil {
		return nil
	}
	err := s.cfg.Recheck(ctx, who)
	if fault.Is(err, fault.NotFound) {
		return fault.Wrap(err, fault.Denied, "%s", fault.From(err).Error())
	}
	return err
}

// operations is the engine on behalf of whoever sent r.
func (s *server) operations(r *http.Request) sandbox.Operations {
	who, _ := PrincipalFrom(r.Context())
	return s.cfg.As(who)
}

// fail answers with an error, and logs what only the log may know.
func (s *server) fail(w http.ResponseWriter, r *http.Request, err error) {
	status, env := failure(err)
	a, ok := w.(*answer)
	if ok {
		a.err = err
		if a.who.ID == "" && fault.Is(err, fault.Denied) {
			status, env.Code = http.StatusUnauthorized, codeUnauthorized
			w.Header().Set("WWW-Authenticate", "Bearer")
		}
		if a.streaming {
			a.writeLine(env)
			return
		}
	}
	writeEnvelope(w, status, env)
}

func (s *server) logRequest(w *answer, r *http.Request, start time.Time) {
	level := slog.LevelDebug
	if r.Method != http.MethodGet {
		level = slog.LevelInfo
	}
	attrs := []slog.Attr{
		slog.String("req", w.id), slog.String("method", r.Method), slog.String("path", r.URL.Path),
		slog.Int("status", w.status), slog.Int64("bytes", w.bytes), slog.Duration("took", s.cfg.Now().Sub(start)),
		slog.String("user", w.who.ID), slog.String("door", w.who.Door),
	}
	if w.err != nil {
		e := fault.From(w.err)
		attrs = append(attrs, slog.String("err", e.Error()))
		if e.Cause != nil {
			attrs = append(attrs, slog.Any("cause", e.Cause))
		}
		if e.Code == fault.Internal {
			level = slog.LevelError
		}
	}
	s.cfg.Log.LogAttrs(r.Context(), level, "request", attrs...)
}

type principalKey struct{}

// WithPrincipal marks requests with this context as coming from a principal
// that a door in this process has proved already.
func WithPrincipal(ctx context.Context, p keys.Principal) context.Context {
	return context.WithValue(ctx, principalKey{}, p)
}

// PrincipalFrom returns the principal that WithPrincipal put into ctx.
func PrincipalFrom(ctx context.Context) (keys.Principal, bool) {
	p, ok := ctx.Value(principalKey{}).(keys.Principal)
	return p, ok
}
