// SPDX-License-Identifier: Apache-2.0

package libvirt

// Unsynced lists the directories that the next MakeDurable syncs.
func (c *Conn) Unsynced() []string {
	c.library.mu.Lock()
	defer c.library.mu.Unlock()
	return c.library.dirs(c.library.changed | c.library.doubtful)
}

// WatchSyncs calls seen with each directory just before it is synced, until stop is called.
func (c *Conn) WatchSyncs(seen func(dir string)) (stop func()) {
	before := c.library.sync
	c.library.sync = func(dir string) error {
		seen(dir)
		return before(dir)
	}
	return func() { c.library.sync = before }
}
