package guest_test

import (
	"encoding/json"
	"path/filepath"

	"github.com/sandgate/sandgate/sandbox/guest/internal/wire"
)

// harmlessFile makes a request of an operation on files stay within dir,
// whatever a fuzzer made of it; nil is for other operations. What it cannot
// decode the agent cannot either.
func harmlessFile(dir string, req wire.Request) any {
	within := func(p *wire.Path) {
		if *p != "" { // which is refused before anything is looked up
			*p = wire.Path(filepath.Join(dir, filepath.Clean("/"+string(*p))))
		}
	}
	switch req.Op {
	case wire.OpWrite:
		return rewrite(req.Args, func(a *wire.Write) { within(&a.Path); a.User = "" })
	case wire.OpRead:
		return rewrite(req.Args, func(a *wire.Read) { within(&a.Path); a.User = "" })
	case wire.OpStat:
		return rewrite(req.Args, func(a *wire.Stat) { within(&a.Path); a.User = "" })
	case wire.OpListFiles:
		return rewrite(req.Args, func(a *wire.ListFiles) { within(&a.Path); a.User = "" })
	case wire.OpMkdir:
		return rewrite(req.Args, func(a *wire.Mkdir) { within(&a.Path); a.User = "" })
	case wire.OpRemove:
		return rewrite(req.Args, func(a *wire.Remove) { within(&a.Path); a.User = "" })
	case wire.OpRename:
		return rewrite(req.Args, func(a *wire.Rename) { within(&a.From); within(&a.To); a.User = "" })
	case wire.OpChmod:
		return rewrite(req.Args, func(a *wire.Chmod) { within(&a.Path); a.User = "" })
	case wire.OpPack:
		return rewrite(req.Args, func(a *wire.Pack) { within(&a.Path); a.User = "" })
	case wire.OpUnpack:
		return rewrite(req.Args, func(a *wire.Unpack) { within(&a.Path); a.User = "" })
	}
	return nil
}

func rewrite[A any](raw json.RawMessage, change func(*A)) any {
	var args A
	if json.Unmarshal(raw, &args) != nil {
		return raw
	}
	change(&args)
	return args
}

// fileSeeds are requests of every operation on files.
var fileSeeds = []string{
	`{"op":"write","args":{"path":"a/b","mode":420,"options":true,"parents":true,"append":true,"size":5}}`,
	`{"op":"write","args":{"path":["/w=="],"mode":70000,"options":true}}`,
	`{"op":"read","args":{"path":"a","offset":-1,"length":5}}`,
	`{"op":"stat","args":{"path":"a","noFollow":true}}`,
	`{"op":"stat","args":{"path":["not base64"]}}`,
	`{"op":"list-files","args":{"path":".","depth":3,"limit":1}}`,
	`{"op":"mkdir","args":{"path":"a/b/c","mode":511,"parents":true}}`,
	`{"op":"remove","args":{"path":"a","dir":true,"recursive":true}}`,
	`{"op":"rename","args":{"from":"a","to":"b"}}`,
	`{"op":"chmod","args":{"path":"a","mode":4095}}`,
	`{"op":"pack","args":{"path":".","format":"zip"}}`,
	`{"op":"unpack","args":{"path":"x","format":"tar.gz","maxBytes":-1}}`,
}
