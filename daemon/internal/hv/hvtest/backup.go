// SPDX-License-Identifier: Apache-2.0

package hvtest

// BeginBackup plays virsh backup-begin on a live disk: libvirt has a job on the disk, and the
// disk's definition does not show it.
func (f *Fake) BeginBackup(id, target string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	dom, _, err := f.liveDisk(id, target)
	if err == nil {
		err = dom.mayBeginJob(target)
	}
	if err != nil {
		return err
	}
	if dom.backups == nil {
		dom.backups = make(map[string]bool)
	}
	dom.backups[target] = true
	return nil
}

// EndBackup ends the backup (virsh domjobabort).
func (f *Fake) EndBackup(id, target string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	dom, err := f.findActive(id)
	if err == nil {
		delete(dom.backups, target)
	}
	return err
}
