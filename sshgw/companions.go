package sshgw

import "sync"

// maxCompanions bounds how many keys are remembered.
const maxCompanions = 4096

// companions remembers keys that are not registered but were offered by
// clients that then got in with another one. It only spares people a message
// they cannot use; nothing is decided by it.
type companions struct {
	mu   sync.Mutex
	keys map[string]struct{}
}

func (c *companions) has(fingerprint string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.keys[fingerprint]
	return ok
}

func (c *companions) add(fingerprints []string) {
	if len(fingerprints) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.keys == nil || len(c.keys)+len(fingerprints) > maxCompanions {
		c.keys = make(map[string]struct{})
	}
	for _, f := range fingerprints {
		c.keys[f] = struct{}{}
	}
}
