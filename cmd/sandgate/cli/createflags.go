package cli

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/api"
)

// createFlags are what `create` and `run` say of the sandbox to make.
type createFlags struct {
	memory, cpu, disk            string
	runtime, runtimeID, snapshot string
	name, description            string
	env, files                   []string
	metadata                     string
	project, org                 string
	network                      bool
	allow                        []string
}

func (f *createFlags) register(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.memory, "memory", "", "memory limit, such as 512Mi or 1Gi")
	fl.StringVar(&f.cpu, "cpu", "", "CPU limit, such as 500m, 0.5 or 2")
	fl.StringVar(&f.disk, "disk", "", "disk limit, such as 2Gi")
	fl.StringVar(&f.runtime, "runtime", "", "runtime, such as base:latest; see: sandgate runtime list")
	fl.StringVar(&f.runtimeID, "runtime-id", "", "runtime by id (srt_…)")
	fl.StringVar(&f.snapshot, "snapshot", "", "snapshot to start from, by id or tag")
	fl.StringVar(&f.name, "name", "", "name, to be used wherever an id is")
	fl.StringVar(&f.description, "description", "", "description")
	fl.StringArrayVar(&f.env, "env", nil, "environment variable KEY=VALUE (repeatable)")
	fl.StringArrayVar(&f.files, "file", nil, "file to create, SANDBOX-PATH:LOCAL-PATH; - is standard input (repeatable)")
	fl.StringVar(&f.metadata, "metadata", "", "metadata of your own, a JSON object")
	fl.BoolVar(&f.network, "network", false, "give the sandbox a way out to the network; nothing can come in")
	fl.StringArrayVar(&f.allow, "allow", nil, "with a network, what may be reached: github.com, '*.npmjs.org:443', 10.1.0.0/16:5432 (repeatable; default: every public address)")
	fl.StringVar(&f.project, "project-id", "", "project the sandbox belongs to")
	fl.StringVar(&f.org, "org-id", "", "organization the sandbox belongs to")
}

// request turns the flags into a request. usedStdin reports that a file was
// read from standard input.
func (f *createFlags) request(a *app) (r api.CreateRequest, usedStdin bool, err error) {
	r = api.CreateRequest{
		Name: f.name, Description: f.description, Runtime: f.runtime, RuntimeID: f.runtimeID, Snapshot: f.snapshot, ProjectID: f.project,
	}
	if f.snapshot != "" && (f.runtime != "" || f.runtimeID != "") {
		return r, false, usagef("--snapshot and --runtime exclude each other: a snapshot includes its own runtime")
	}
	if f.memory+f.cpu+f.disk != "" {
		r.Resources = &api.Resources{Memory: f.memory, CPU: f.cpu, Disk: f.disk}
	}
	if err := checkResources(f.memory, f.cpu, f.disk); err != nil {
		return r, false, err
	}
	if f.network || len(f.allow) > 0 {
		r.Network = &api.Network{Enabled: true, Allow: f.allow}
	}
	if r.Env, err = assignments("env", f.env); err != nil {
		return r, false, err
	}
	if f.metadata != "" {
		if err := json.Unmarshal([]byte(f.metadata), &r.Metadata); err != nil || r.Metadata == nil {
			return r, false, flagError("metadata", errors.New(`not a JSON object, such as {"team":"a"}`))
		}
	}
	r.Files, usedStdin, err = a.readFiles(f.files)
	return r, usedStdin, err
}

// check parses the value of a flag so that a mistake is found, and named,
// before anything is sent.
func check[T any](flag, value string, parse func(string) (T, error)) error {
	if value == "" {
		return nil
	}
	if _, err := parse(value); err != nil {
		return flagError(flag, err)
	}
	return nil
}

// checkResources checks the flags that hold limits.
func checkResources(memory, cpu, disk string) error {
	return errors.Join(
		check("memory", memory, sandbox.ParseBytes),
		check("cpu", cpu, sandbox.ParseCPU),
		check("disk", disk, sandbox.ParseBytes))
}

// duration checks a flag that holds a duration.
func duration(flag, value string) error {
	return check(flag, value, func(s string) (time.Duration, error) { return sandbox.ParseDuration(s) })
}

// maxFileBytes bounds what the files of one request hold in all.
const maxFileBytes = 64 << 20

// readFiles reads what the values of --file name.
func (a *app) readFiles(specs []string) (files []api.File, usedStdin bool, err error) {
	room := int64(maxFileBytes)
	for _, spec := range specs {
		path, local, ok := strings.Cut(spec, ":")
		if !ok || path == "" || local == "" {
			return nil, false, flagError("file", fmt.Errorf("%q is not SANDBOX-PATH:LOCAL-PATH", spec))
		}
		file := api.File{Path: path}
		var content []byte
		switch {
		case local == "-" && usedStdin:
			return nil, false, flagError("file", errors.New("standard input can be read for one file only"))
		case local == "-":
			usedStdin = true
			if a.Stdin == nil {
				return nil, false, flagError("file", errors.New("there is no standard input"))
			}
			content, err = io.ReadAll(io.LimitReader(a.Stdin, room+1))
		case !a.Local:
			return nil, false, flagError("file", fmt.Errorf("%q would be a file of the gateway, not of your machine; send yours on standard input (--file %s:- <%s), or copy it with scp", local, path, local))
		default:
			content, file.Mode, err = readLocal(local, room+1)
		}
		if err != nil {
			return nil, false, flagError("file", err)
		}
		if room -= int64(len(content)); room < 0 {
			return nil, false, flagError("file", fmt.Errorf("the files are larger than %d MiB; copy them with scp instead", maxFileBytes>>20))
		}
		file.Content = base64.StdEncoding.EncodeToString(content)
		files = append(files, file)
	}
	return files, usedStdin, nil
}

// readLocal reads at most limit bytes of a file, and its permissions in octal.
func readLocal(path string, limit int64) (content []byte, mode string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, "", err
	}
	if info.IsDir() {
		return nil, "", fmt.Errorf("%s is a folder; give files, or copy the folder with scp -r", path)
	}
	content, err = io.ReadAll(io.LimitReader(f, limit))
	return content, fmt.Sprintf("%04o", info.Mode().Perm()), err
}
