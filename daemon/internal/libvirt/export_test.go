// SPDX-License-Identifier: Apache-2.0

package libvirt

// Unsynced lists the directories that the next MakeDurable syncs.
func (c *Conn) Unsynced() []string {
	c.library.mu.Lock()
	defer c.library.mu.Unlock()
	return c.library.dirs(c.library.changed | c.library.doubtful)
}
