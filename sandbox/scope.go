package sandbox

import (
	"context"
	"slices"

	"github.com/sandgate/sandgate/keys"
	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
)

// operation is the name of a method of Actor, or of one way to call it.
type operation string

// What Start is asked for, by what it starts.
const (
	startShell   operation = "Start a shell"
	startCommand operation = "Start a command"
	startFiles   operation = "Start a file transfer"
	startSCP     operation = "Start scp"
)

// needs says which verb each operation needs; where there are several, any of
// them will do. An operation without one is open to every key: what a key is
// for must be found before it can be used. resolve and allow look here, so an
// operation that is missing works for nobody.
var needs = map[operation][]keys.Verb{
	"Principal":  nil,
	"Get":        nil, // without Read, who it is and how it is alone; see shownSandbox
	"List":       nil,
	"WaitStatus": nil,
	"Countdown":  nil,
	"Runtimes":   nil,
	"Projects":   nil,

	// What is started decides; see startOperation.
	"Start":         {keys.Shell, keys.Exec, keys.Files},
	startShell:      {keys.Shell},
	startCommand:    {keys.Exec},
	startFiles:      {keys.Files},
	startSCP:        {keys.Files, keys.Exec}, // a command where the sandbox has its own
	"OpenSession":   {keys.Shell},
	"RenameSession": {keys.Shell},
	"DetachSession": {keys.Shell},
	"KillSession":   {keys.Shell},
	"Sessions":      {keys.Read, keys.Shell},
	"Session":       {keys.Read, keys.Shell},

	"Execute":    {keys.Exec},
	"Cancel":     {keys.Exec},
	"WriteStdin": {keys.Exec},
	"CreateJob":  {keys.Exec},
	"StopJob":    {keys.Exec},
	// Who runs a command may see what comes of it.
	"Execution":       {keys.Read, keys.Exec},
	"Output":          {keys.Read, keys.Exec},
	"ExecutionOutput": {keys.Read, keys.Exec},
	"Job":             {keys.Read, keys.Exec},
	"Jobs":            {keys.Read, keys.Exec},
	"JobOutput":       {keys.Read, keys.Exec},

	"WriteFile":      {keys.Files},
	"WriteFiles":     {keys.Files},
	"ReadFile":       {keys.Files},
	"Stat":           {keys.Files},
	"ListFiles":      {keys.Files},
	"OpenFile":       {keys.Files},
	"PutFile":        {keys.Files},
	"Mkdir":          {keys.Files},
	"RemoveFile":     {keys.Files},
	"RemoveDir":      {keys.Files},
	"Rename":         {keys.Files},
	"Chmod":          {keys.Files},
	"Download":       {keys.Files},
	"Upload":         {keys.Files},
	"Diff":           {keys.Files},
	"DiffFile":       {keys.Files},
	"SnapshotFiles":  {keys.Files},
	"ExportSnapshot": {keys.Files},

	"Dial":   {keys.Forward},
	"Listen": {keys.Forward},

	"Executions":       {keys.Read},
	"ExecutionHistory": {keys.Read},
	"Events":           {keys.Read},
	"EventHistory":     {keys.Read},
	"Subscribe":        {keys.Read},
	"Usage":            {keys.Read},
	"Stats":            {keys.Read},
	"Snapshot":         {keys.Read, keys.Create},
	"Snapshots":        {keys.Read, keys.Create},
	"Lineage":          {keys.Read},
	"SandboxesOf":      {keys.Read},
	"Checkpoints":      {keys.Read},
	"Recordings":       {keys.Read},
	"Recording":        {keys.Read},
	"ReadRecording":    {keys.Read},

	"Create":         {keys.Create},
	"Fork":           {keys.Create},
	"ImportSnapshot": {keys.Create},

	"Delete":            {keys.Manage},
	"Pause":             {keys.Manage},
	"Resume":            {keys.Manage},
	"SetEnv":            {keys.Manage},
	"Update":            {keys.Manage},
	"CreateSnapshot":    {keys.Manage},
	"TagSnapshot":       {keys.Manage},
	"DeleteSnapshot":    {keys.Manage},
	"CreateCheckpoint":  {keys.Manage},
	"RestoreCheckpoint": {keys.Manage},
	"DeleteCheckpoint":  {keys.Manage},
	"DeleteRecording":   {keys.Manage},

	// Of the server, and for admins alone.
	"Audit":        {keys.Read},
	"ReloadServer": {keys.Manage},

	"AddKey":        {keys.Keyring},
	"ListKeys":      {keys.Keyring},
	"DeleteKey":     {keys.Keyring},
	"AddAPIKey":     {keys.Keyring},
	"ListAPIKeys":   {keys.Keyring},
	"DeleteAPIKey":  {keys.Keyring},
	"CreateInvite":  {keys.Keyring},
	"Invites":       {keys.Keyring},
	"RevokeInvite":  {keys.Keyring},
	"CreateProject": {keys.Keyring},
	"DeleteProject": {keys.Keyring},
	"AddMember":     {keys.Keyring},
	"RemoveMember":  {keys.Keyring},
}

// startOperation is what starting a command comes to. A shell can run commands
// and a command can be a shell: the two verbs are for people to say what a key
// is meant for, and no wall between the two.
func startOperation(cmd guest.Command) operation {
	switch {
	case cmd.Builtin == guest.BuiltinSCP:
		return startSCP
	case cmd.Builtin != "":
		return startFiles
	case cmd.Script == "" && len(cmd.Args) == 0:
		return startShell
	}
	return startCommand
}

// allow refuses an operation whose verb the actor's key lacks.
func (a *Actor) allow(op operation) error {
	verbs, known := needs[op]
	if !known {
		return fault.New(fault.Internal, "the operation %q is open to nobody: it has no verb", op)
	}
	if len(verbs) == 0 || slices.ContainsFunc(verbs, a.who.Scope.Allows) {
		return nil
	}
	return fault.New(fault.Denied, "this needs the verb %q, which the key %s does not have (it has: %s)", verbs[0], a.keyName(), a.who.Scope).About("key")
}

// keyName names the actor's credential in a message to its holder.
func (a *Actor) keyName() string {
	if a.who.KeyID == "" {
		return "of " + a.who.ID
	}
	return a.who.KeyID
}

// within reports whether the sandbox is inside the fence of the actor's key.
// Names in it are names of the actor's own sandboxes, as they are now.
func (a *Actor) within(s *Sandbox) bool {
	return inFence(a.who.Scope, a.who.ID, s.ID, s.Name, s.Owner, s.Project)
}

func inFence(scope keys.Scope, principal, id, name, owner, project string) bool {
	return !scope.Fenced() || slices.Contains(scope.Sandboxes, id) ||
		project != "" && slices.Contains(scope.Projects, project) ||
		name != "" && owner == principal && slices.Contains(scope.Sandboxes, name)
}

// Visibility is what a principal may see of all sandboxes, where that is more
// or less than their own.
type Visibility struct {
	Admin     bool
	Principal string
	Projects  []string // registered ones that the principal is a member of
	Scope     keys.Scope
}

// Sees reports whether a sandbox with this id, name, owner and project is seen.
func (v *Visibility) Sees(id, name, owner, project string) bool {
	return (v.Admin || owner == v.Principal || project != "" && slices.Contains(v.Projects, project)) &&
		inFence(v.Scope, v.Principal, id, name, owner, project)
}

// seen tells what the actor may see of all sandboxes: all of an owner, where
// that says it (empty: everybody's), otherwise what v says.
func (a *Actor) seen(ctx context.Context) (owner string, v *Visibility, err error) {
	v = &Visibility{Admin: a.who.IsAdmin(), Principal: a.who.ID, Scope: a.who.Scope}
	if !v.Admin {
		if v.Projects, err = a.e.cfg.Store.MemberOf(ctx, ProjectGroup, a.who.ID); err != nil {
			return "", nil, err
		}
	}
	switch {
	case v.Scope.Fenced() || len(v.Projects) > 0:
		return "", v, nil
	case v.Admin:
		return "", nil, nil
	}
	return a.who.ID, nil, nil
}

// shownSandbox is the sandbox as the actor may see it: a key that may not read
// finds it, and is not told what is set in it.
func (a *Actor) shownSandbox(s Sandbox) Sandbox {
	if a.who.Scope.Allows(keys.Read) {
		return s
	}
	s.Env, s.Metadata, s.Command, s.Description = nil, nil, nil, ""
	return s
}

// enclose puts what the actor wants to make into the project that the scope of
// its key demands, and refuses what would lie outside of it.
func (a *Actor) enclose(project *string) error {
	scope := a.who.Scope
	switch {
	case !scope.Fenced() || slices.Contains(scope.Projects, *project):
		return nil
	case *project == "" && len(scope.Projects) == 1:
		*project = scope.Projects[0]
		return nil
	case len(scope.Projects) == 0:
		return fault.New(fault.Denied, "the key %s is for certain sandboxes alone (%s) and makes no others", a.keyName(), scope).About("key")
	}
	return fault.New(fault.Denied, "the key %s makes sandboxes of its projects alone (%s); name one of these", a.keyName(), scope).About("key")
}

// Needs tells which verbs, any of them, an operation of [Operations] needs. ok
// is false for what is none.
func Needs(method string) (verbs []keys.Verb, ok bool) {
	verbs, ok = needs[operation(method)]
	return slices.Clone(verbs), ok
}
