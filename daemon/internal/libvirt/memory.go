// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/beevik/etree"
	golibvirt "github.com/digitalocean/go-libvirt"
	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/libvirt/domainxml"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/rbd"
)

// memoryCallTimeout bounds the calls that write or read a guest's RAM, which may be terabytes on a
// slow disk.
const memoryCallTimeout = 6 * time.Hour

func (m *memory) SaveMemory(ctx context.Context, id, path string) error {
	if err := m.saveMemory(ctx, id, path); err != nil {
		return fmt.Errorf("save memory of domain %s: %w", id, err)
	}
	return nil
}

func (m *memory) saveMemory(ctx context.Context, id, path string) error {
	dom, err := m.domains.Domain(ctx, id)
	switch {
	case err != nil:
		return err
	case !filepath.IsAbs(path):
		return fmt.Errorf("path %s is not absolute", path)
	case !dom.State.Active():
		return hv.ErrNotActive
	case !dom.Persistent:
		return fmt.Errorf("%w: the domain is transient", hv.ErrUnsupported)
	}
	// libvirt would overwrite a file.
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("%w: %s", hv.ErrExists, path)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("look for %s: %w", path, err)
	}
	past, err := pastCache(filepath.Dir(path))
	if err != nil {
		return err
	}
	channels, err := m.saveChannels(ctx, id, past)
	if err != nil {
		return err
	}
	err = m.calls.modifyByItself(ctx, memoryCallTimeout, id, keptNothing, func(lv *golibvirt.Libvirt, dom golibvirt.Domain) error {
		return saveDomain(lv, dom, path, channels, past)
	})
	if err != nil {
		return m.calls.explain(context.WithoutCancel(ctx), id, "", err)
	}
	if dom, err = m.domains.Domain(context.WithoutCancel(ctx), id); err != nil {
		return err
	}
	if dom.State != hv.StateStopped {
		return fmt.Errorf("libvirt saved the domain, and it is %s", dom.State)
	}
	return nil
}

// pastCache returns the flag that makes libvirt bypass the page cache for a file in dir, or 0. A
// guest's RAM would evict the cached data of others, and would take longer to become durable (F14
// of registry/internal/sharedmove/DESIGN.md). pastCache returns 0 if dir is in memory, or if a
// test with an unnamed file shows no support by the filesystem: libvirt would refuse the save.
func pastCache(dir string) (golibvirt.DomainSaveRestoreFlags, error) {
	if inMemory, err := location.InMemory(dir); err != nil || inMemory {
		return 0, err
	}
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_WRONLY|unix.O_DIRECT|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return 0, nil //nolint:nilerr // not supported; the save finds any other error
	}
	return golibvirt.DomainSaveBypassCache, unix.Close(fd)
}

// SavingMemory implements hv.Hypervisor. libvirt shows the save in the state of a domain only if
// the domain ran before. The save continues when the connection that requested it is closed.
func (m *memory) SavingMemory(ctx context.Context, id string) (bool, error) {
	s, dom, err := m.domains.find(ctx, id)
	if err != nil {
		return false, fmt.Errorf("look whether domain %s is being saved: %w", id, err)
	}
	saving, err := call(ctx, s, func(lv *golibvirt.Libvirt) (bool, error) {
		job, params, err := lv.DomainGetJobStats(dom, 0)
		if said(err, golibvirt.ErrOperationInvalid) { // it is off
			return false, nil
		}
		if err != nil {
			return false, err
		}
		isSave := func(p golibvirt.TypedParam) bool {
			operation, _ := p.Value.I.(int32)
			return p.Field == golibvirt.DomainJobOperationStr && golibvirt.DomainJobOperation(operation) == golibvirt.DomainJobOperationStrSave
		}
		return golibvirt.DomainJobType(job) != golibvirt.DomainJobNone && slices.ContainsFunc(params, isSave), nil
	})
	if err != nil {
		return false, fmt.Errorf("look whether domain %s is being saved: %w", id, err)
	}
	return saving, nil
}

func (m *memory) SavedDisks(ctx context.Context, id, path string) ([]hv.Disk, error) {
	text, err := m.savedXML(ctx, id, path)
	if err != nil {
		return nil, fmt.Errorf("read saved memory of domain %s: %w", id, err)
	}
	known, err := m.domains.poolSourcesIn(ctx, text)
	if err != nil {
		return nil, fmt.Errorf("read saved memory of domain %s: %w", id, err)
	}
	dom, err := domainxml.ParseDomain(text, known, m.clusters)
	if err != nil {
		return nil, fmt.Errorf("read saved memory of domain %s: %w", id, err)
	}
	return dom.Disks, nil
}

// savedXML returns the definition in a file of SaveMemory. libvirt refuses a file with an
// unreadable header, and a file that libvirt has not marked as finished.
func (m *memory) savedXML(ctx context.Context, id, path string) (string, error) {
	s, err := m.connection.reads()
	if err != nil {
		return "", err
	}
	text, err := call(ctx, s, func(lv *golibvirt.Libvirt) (string, error) {
		return lv.DomainSaveImageGetXMLDesc(path, uint32(golibvirt.DomainSaveImageXMLSecure))
	})
	if said(err, golibvirt.ErrOperationFailed) {
		return "", fmt.Errorf("%w: %s: %w", hv.ErrIncomplete, path, err)
	}
	if err != nil {
		return "", err
	}
	doc, err := domainxml.ParseDoc(text)
	if err != nil {
		return "", err
	}
	if got := domainxml.TextIn(doc.Root(), "uuid"); got != id {
		return "", fmt.Errorf("%s holds the memory of domain %s", path, got)
	}
	return text, nil
}

func (m *memory) RestoreMemory(ctx context.Context, id, path string, opts hv.RestoreOptions) error {
	if err := m.restoreMemory(ctx, id, path, opts); err != nil {
		return fmt.Errorf("restore memory of domain %s: %w", id, err)
	}
	return nil
}

func (m *memory) restoreMemory(ctx context.Context, id, path string, opts hv.RestoreOptions) error {
	// libvirt would make an undefined domain a transient one.
	dom, err := m.domains.Domain(ctx, id)
	switch {
	case err != nil:
		return err
	case !filepath.IsAbs(path):
		return fmt.Errorf("path %s is not absolute", path)
	case dom.State.Active():
		return hv.ErrActive
	}
	saved, err := m.savedXML(ctx, id, path)
	if err != nil {
		return err
	}
	edited, err := restoredXML(saved, opts, m.clusters)
	if err != nil {
		return err
	}
	past, err := pastCache(filepath.Dir(path))
	if err != nil {
		return err
	}
	channels, err := m.restoreChannels(ctx)
	if err != nil {
		return err
	}
	flag := golibvirt.DomainSaveRunning
	if opts.Paused {
		flag = golibvirt.DomainSavePaused
	}
	err = m.calls.modifyByItself(ctx, memoryCallTimeout, id, keptNVRAM, func(lv *golibvirt.Libvirt, _ golibvirt.Domain) error {
		return restoreDomain(lv, path, edited, channels, flag|past)
	})
	if err != nil {
		if dom, readErr := m.domains.Domain(context.WithoutCancel(ctx), id); readErr == nil && dom.State.Active() &&
			said(err, golibvirt.ErrOperationFailed) { // another program has started it since
			return fmt.Errorf("%w: %w", hv.ErrActive, err)
		}
		return err
	}
	return m.verifyRestored(context.WithoutCancel(ctx), id, opts)
}

func restoredXML(saved string, opts hv.RestoreOptions, clusters rbd.Clusters) (string, error) {
	doc, err := domainxml.ParseDoc(saved)
	if err != nil {
		return "", err
	}
	for target, chain := range opts.Chains {
		disk := domainxml.FindDisk(doc, target)
		if disk == nil {
			return "", fmt.Errorf("%w: disk %s in the saved domain", hv.ErrNotFound, target)
		}
		if err := domainxml.SetChain(disk, chain, clusters); err != nil {
			return "", err
		}
	}
	setStartToken(doc.Root(), opts.StartToken)
	text, err := doc.WriteToString()
	if err != nil {
		return "", fmt.Errorf("write domain XML: %w", err)
	}
	return text, nil
}

// tokenNamespace is the namespace of the element in <metadata> that shows a start token to the
// hook: libvirt keeps the content of <metadata>, and the hook reads the whole XML.
const tokenNamespace = "urn:volferry:pass"

// setStartToken replaces the start token in a domain's metadata. libvirt would drop one of two
// elements of the same namespace.
func setStartToken(domain *etree.Element, token string) {
	metadata := domain.SelectElement("metadata")
	if metadata == nil {
		metadata = domain.CreateElement("metadata")
	}
	for _, e := range metadata.ChildElements() {
		if e.NamespaceURI() == tokenNamespace {
			metadata.RemoveChild(e)
		}
	}
	if token != "" {
		e := metadata.CreateElement("volferry:pass")
		e.CreateAttr("xmlns:volferry", tokenNamespace)
		e.SetText(token)
	}
}

func (m *memory) verifyRestored(ctx context.Context, id string, opts hv.RestoreOptions) error {
	dom, err := m.domains.Domain(ctx, id)
	if err != nil {
		return err
	}
	if !dom.State.Active() || opts.Paused && dom.State != hv.StatePaused {
		return fmt.Errorf("libvirt restored the domain, and it is %s", dom.State)
	}
	for target, chain := range opts.Chains {
		if disk := dom.LiveDisk(target); disk == nil || !disk.Terminated || !slices.Equal(disk.Chain, chain) {
			return fmt.Errorf("libvirt restored the domain, and its disk %s is not on %s", target, chain[0].Path)
		}
	}
	return nil
}
