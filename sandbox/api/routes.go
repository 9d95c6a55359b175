package api

import "net/http"

// lifeRoutes are the endpoints of what happens to a sandbox, and in it.
func (s *server) lifeRoutes() {
	s.handle("POST /sandbox/{id}/pause", http.StatusOK, s.pause)
	s.handle("POST /sandbox/{id}/resume", http.StatusOK, s.resume)
	s.handle("POST /sandbox/sandboxes/{id}/jobs", http.StatusCreated, s.createJob)
	s.handle("GET /sandbox/sandboxes/{id}/jobs", http.StatusOK, s.jobs)
	s.handle("GET /sandbox/sandboxes/{id}/jobs/{job}", http.StatusOK, s.job)
	s.handle("DELETE /sandbox/sandboxes/{id}/jobs/{job}", http.StatusOK, s.stopJob)
	s.handle("PATCH /sandbox/env/{id}", http.StatusOK, s.setEnv)
	s.handle("PATCH /v1/sandboxes/{id}", http.StatusOK, s.update)
	s.handle("POST /v1/sandboxes/{id}/fork", http.StatusCreated, s.fork)
	s.handle("GET /v1/sandboxes/{id}/usage", http.StatusOK, s.usage)
	s.handle("GET /v1/events", http.StatusOK, s.events)
	s.handle("GET /v1/events/follow", http.StatusOK, s.followEvents)
	s.handle("GET /v1/sandboxes/{id}/events/follow", http.StatusOK, s.followEvents)
	s.handle("GET /cli/sandbox", http.StatusOK, s.cliList)
	s.handle("GET /cli/sandbox/{id}", http.StatusOK, s.cliGet)
	s.handle("GET /v1/stats", http.StatusOK, s.stats)
}

// fileRoutes are the endpoints of files.
func (s *server) fileRoutes() {
	s.handle("POST /fs/{id}", http.StatusOK, s.writeFiles)
	s.handle("GET /fs/{id}", http.StatusOK, s.readFile)
	s.handle("GET /fs/list/{id}", http.StatusOK, s.listFiles)
	s.handle("POST /fs/mkdir/{id}", http.StatusOK, s.mkdir)
	s.handle("POST /fs/rm/{id}", http.StatusOK, s.removeFile)
	s.handle("POST /fs/rmdir/{id}", http.StatusOK, s.removeDir)
	s.handle("GET /fs/download/{id}", http.StatusOK, s.download)
	s.handle("POST /fs/upload/{id}", http.StatusOK, s.upload)
	s.handle("PUT /v1/sandboxes/{id}/file", http.StatusOK, s.putFile)
	s.handle("GET /v1/sandboxes/{id}/stat", http.StatusOK, s.statFile)
	s.handle("POST /v1/sandboxes/{id}/rename", http.StatusOK, s.rename)
	s.handle("POST /v1/sandboxes/{id}/chmod", http.StatusOK, s.chmod)
}

// snapshotRoutes are the endpoints of the files of a sandbox as a whole.
func (s *server) snapshotRoutes() {
	s.handle("POST /sandbox/{id}/snapshot", http.StatusCreated, s.createSnapshot)
	s.handle("GET /sandbox/snapshots", http.StatusOK, s.snapshots)
	s.handle("GET /sandbox/snapshots/public", http.StatusOK, s.publicSnapshots)
	s.handle("GET /sandbox/snapshots/public/{id}", http.StatusOK, s.publicSnapshot)
	s.handle("GET /sandbox/snapshots/lineage", http.StatusOK, s.lineage)
	s.handle("GET /sandbox/snapshots/{id}", http.StatusOK, s.snapshot)
	s.handle("PATCH /sandbox/snapshots/{id}", http.StatusOK, s.tagSnapshot)
	s.handle("DELETE /sandbox/snapshots/{id}", http.StatusOK, s.deleteSnapshot)
	s.handle("GET /v1/snapshots/{id}/files", http.StatusOK, s.snapshotFiles)
	s.handle("GET /v1/snapshots/{id}/archive", http.StatusOK, s.exportSnapshot)
	s.handle("POST /v1/snapshots/import", http.StatusCreated, s.importSnapshot)
	s.handle("GET /v1/diff", http.StatusOK, s.diff)
	s.handle("POST /sandbox/{id}/checkpoint", http.StatusCreated, s.createCheckpoint)
	s.handle("GET /sandbox/checkpoints/{id}", http.StatusOK, s.checkpoints)
	s.handle("POST /sandbox/{id}/checkpoint/{checkpoint}/restore", http.StatusOK, s.restoreCheckpoint)
	s.handle("DELETE /sandbox/{id}/checkpoint/{checkpoint}", http.StatusOK, s.deleteCheckpoint)
}
