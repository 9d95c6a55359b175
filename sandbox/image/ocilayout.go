package image

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/sandgate/sandgate/sandbox"
	"github.com/sandgate/sandgate/sandbox/fault"
)

// An exported snapshot is an OCI image layout in a tar archive. What other
// tools do not need to know is in annotations of its manifest. A file
// manifest.json lets engines load it that are older than such archives.

// The annotations of the manifest.
const (
	annotationVersion = "org.sandgate.snapshot.version" // "1"
	annotationName    = "org.sandgate.snapshot.name"
	annotationTag     = "org.sandgate.snapshot.tag"
	annotationRuntime = "org.sandgate.snapshot.runtime" // JSON
	annotationLineage = "org.sandgate.snapshot.lineage" // ids, separated by commas
	annotationBase    = "org.sandgate.snapshot.base"    // baseIncluded or baseAbsent

	annotationCreated     = "org.opencontainers.image.created"
	annotationDescription = "org.opencontainers.image.description"
	annotationRefName     = "org.opencontainers.image.ref.name"
	annotationImageName   = "io.containerd.image.name" // what Docker calls it

	archiveVersion = "1"
	baseIncluded   = "included" // the lowest layer is the runtime
	baseAbsent     = "absent"   // the runtime is one of the importing host
)

// Names and bounds of an archive.
const (
	layoutFile   = "oci-layout"
	indexFile    = "index.json"
	dockerFile   = "manifest.json"
	blobsPrefix  = "blobs/sha256/"
	layoutText   = `{"imageLayoutVersion":"1.0.0"}`
	maxDocument  = 4 << 20 // of an index, a manifest or a configuration
	maxBlobs     = 2*maxImageLayers + 8
	maxAnnotated = 16 << 10 // of one annotation
)

var _ sandbox.Archives = (*Catalog)(nil)

// archivedRuntime is a runtime in an annotation.
type archivedRuntime struct {
	ID     string   `json:"id"`
	Name   string   `json:"name"`
	Tags   []string `json:"tags,omitempty"`
	Source string   `json:"source,omitempty"`
	Digest string   `json:"digest"`
}

func annotations(a sandbox.Archive) (map[string]string, error) {
	runtime, err := json.Marshal(archivedRuntime{
		ID: a.Runtime.ID, Name: a.Runtime.Name, Tags: a.Runtime.Tags, Source: a.Runtime.Source, Digest: a.Runtime.Digest,
	})
	if err != nil {
		return nil, err
	}
	out := map[string]string{
		annotationVersion: archiveVersion, annotationRuntime: string(runtime), annotationBase: baseAbsent,
		annotationCreated: a.CreatedAt.UTC().Format("2006-01-02T15:04:05Z"),
	}
	if a.Base != nil {
		out[annotationBase] = baseIncluded
	}
	for key, value := range map[string]string{
		annotationName: a.Name, annotationTag: a.Tag, annotationDescription: a.Description, annotationLineage: strings.Join(a.Lineage, ","),
	} {
		if value != "" {
			out[key] = value
		}
	}
	return out, nil
}

var (
	runtimeID   = regexp.MustCompile(`^srt_[a-z0-9_-]{1,60}$`)
	runtimeName = regexp.MustCompile(`^[a-z0-9][a-z0-9._/-]{0,99}(:[A-Za-z0-9._-]{1,100})?$`)
	lineageID   = regexp.MustCompile(`^snp_[a-z0-9]{1,32}$`)
)

// readAnnotations fills in what a manifest says about the snapshot, and reports
// whether the lowest layer is the runtime. All of it may be a lie: it is
// checked for form here, and for truth by digests.
func readAnnotations(m *v1.Manifest, a *sandbox.Archive) (base bool, err error) {
	notes := m.Annotations
	if notes[annotationVersion] != archiveVersion {
		return false, refused("it is an image, but no snapshot that sandgate of this version has exported")
	}
	for key, value := range notes {
		if len(value) > maxAnnotated {
			return false, refused("its annotation %.80q is longer than %d bytes", key, maxAnnotated)
		}
	}
	var rt archivedRuntime
	if err := json.Unmarshal([]byte(notes[annotationRuntime]), &rt); err != nil {
		return false, refused("its annotation of the runtime is no JSON")
	}
	if _, ok := hexOf(rt.Digest); !ok || !runtimeID.MatchString(rt.ID) || !runtimeName.MatchString(rt.Name) || len(rt.Tags) > 32 {
		return false, refused("its runtime %.80q is none", rt.Name)
	}
	a.Runtime = sandbox.RuntimeRef{ID: rt.ID, Name: rt.Name, Tags: rt.Tags, Source: plainLine(rt.Source), Digest: rt.Digest}
	for i, tag := range a.Runtime.Tags {
		a.Runtime.Tags[i] = plainLine(tag)
	}
	a.Name, a.Tag, a.Description = notes[annotationName], notes[annotationTag], notes[annotationDescription]
	for id := range strings.SplitSeq(notes[annotationLineage], ",") {
		if lineageID.MatchString(id) {
			a.Lineage = append(a.Lineage, id)
		}
	}
	switch notes[annotationBase] {
	case baseIncluded:
		return true, nil
	case baseAbsent:
		return false, nil
	}
	return false, refused("it does not say whether it includes its runtime")
}

// refused is the error for an archive that is not what it should be.
func refused(format string, args ...any) error {
	return fault.New(fault.Invalid, "this archive cannot be imported: %s", fmt.Sprintf(format, args...)).About("snapshot")
}

var notInRepository = regexp.MustCompile(`[^a-z0-9]+`)

// imageName is what container engines call an imported snapshot.
func imageName(a sandbox.Archive) string {
	name := strings.Trim(notInRepository.ReplaceAllString(strings.ToLower(a.Name), "-"), "-")
	if name == "" {
		name = "snapshot"
	}
	tag := a.Tag
	if tag == "" {
		tag = "latest"
	}
	return "sandgate/" + name + ":" + tag
}
