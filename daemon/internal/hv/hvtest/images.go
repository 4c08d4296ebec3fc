// SPDX-License-Identifier: Apache-2.0

// Package hvtest is the tests' side of package hv: an in-memory hypervisor with real data
// semantics (Fake) on in-memory images that the tests' image tools share with it (Images), and the
// conformance suite that Fake and package libvirt both pass. It knows nothing of Volferry's use of
// a hypervisor.
package hvtest

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/medium"
)

// BlockSize is the size of one block of content, which holds one number.
const BlockSize = 4096

// The formats of images.
const (
	Raw   = "raw"
	Qcow2 = "qcow2"
)

// ErrLocked is the error of an image tool if QEMU's image lock excludes it, and of a domain if
// another domain holds the image.
var ErrLocked = fmt.Errorf("%w: it is locked by a running domain", hv.ErrInUse)

// image is one image file. An absent block reads from the layer below, or as zero without one.
type image struct {
	format   string
	size     int64
	device   int64
	backing  hv.Image
	secret   string
	blocks   map[int64]uint64
	unstored map[int64]uint64
	full     bool
	writes   int64
	written  int64 // number of its last write, as its modification time
	kept     int64
	before   int64
	born     int64
	opID     string
	// bitmaps are its stored dirty bitmaps, by name, with the blocks written since.
	bitmaps   map[string]map[int64]bool
	idle      map[string]bool
	snapshots map[string]*ImageSnapshot
}

// ImageInfo describes the header and the allocation of an image.
type ImageInfo struct {
	Format    string
	SizeBytes int64
	// DeviceBytes is the size of the block device with a qcow2 image, 0 for other images.
	DeviceBytes int64
	Backing     hv.Image
	Secret      string
	Allocated   int
	Written     int64 // number of its last write, as its modification time
	Before      int64 // Written when the host booted
	Born        int64 // distinguishes it from an earlier image at its path
}

// ImageSnapshot is a Ceph snapshot of an image.
type ImageSnapshot struct {
	ID        uint64
	Protected bool
	// Written: the image was written since the snapshot.
	Written bool

	writes int64
}

// Images is the storage of a simulated host: images by path. Its methods do the work of image
// tools such as qemu-img, and obey QEMU's locks. It is safe for concurrent use.
type Images struct {
	mu         sync.Mutex
	files      map[string]*image
	made       int64
	snapshots  uint64
	holders    func(path string) (readers, writers int)
	violations []string
}

func newImages() *Images {
	return &Images{
		files:   make(map[string]*image),
		holders: func(string) (int, int) { return 0, 0 },
	}
}

// CreateImage makes an empty image. It returns fs.ErrExist if the path is taken.
func (m *Images) CreateImage(path, format string, sizeBytes int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.create(path, &image{format: format, size: sizeBytes})
}

// CreateOverlay makes an empty qcow2 image on top of backing, which need not exist, with the same
// encryption. It returns fs.ErrExist if the path is taken.
func (m *Images) CreateOverlay(path string, backing hv.Image, sizeBytes int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.create(path, &image{format: Qcow2, size: sizeBytes, backing: backing, secret: backing.LUKSSecret})
}

// TableBytes is how much larger a full qcow2 image is than a raw image.
const TableBytes = 2 * BlockSize

// CreateOnDevice makes an empty qcow2 image on the block device at path, over any existing content.
func (m *Images) CreateOnDevice(path string, sizeBytes int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	img, err := m.openForWrite(path)
	if err != nil {
		return err
	}
	img.device = img.wholeBytes()
	if sizeBytes+TableBytes > img.device {
		return fmt.Errorf("create on %s: an image of %d bytes may outgrow its %d", path, sizeBytes, img.device)
	}
	img.format, img.size, img.backing, img.blocks = Qcow2, sizeBytes, hv.Image{}, make(map[int64]uint64)
	img.modified()
	return nil
}

func (img *image) wholeBytes() int64 {
	if img.device != 0 {
		return img.device
	}
	return img.size
}

func (m *Images) create(path string, img *image) error {
	if _, taken := m.files[path]; taken {
		return &fs.PathError{Op: "create", Path: path, Err: fs.ErrExist}
	}
	m.made++
	img.blocks, img.born = make(map[int64]uint64), m.made
	m.files[path] = img
	return nil
}

// Link adds a path to an image. It returns fs.ErrExist if the path is taken.
func (m *Images) Link(path, to string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	img, err := m.open(path)
	if err != nil {
		return err
	}
	if m.files[to] != nil {
		return &fs.PathError{Op: "link", Path: to, Err: fs.ErrExist}
	}
	m.files[to] = img
	return nil
}

// Exists reports whether there is an image at path.
func (m *Images) Exists(path string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.files[path] != nil
}

// Beside lists the other files in the directory of path that differ from path only in the
// extension.
func (m *Images) Beside(path string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var beside []string
	for other := range m.files {
		if other != path && strings.TrimSuffix(other, filepath.Ext(other)) == strings.TrimSuffix(path, filepath.Ext(path)) {
			beside = append(beside, other)
		}
	}
	slices.Sort(beside)
	return beside, nil
}

// Info reads the header of an image. It returns fs.ErrNotExist if there is none.
func (m *Images) Info(path string) (ImageInfo, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	img, err := m.open(path)
	if err != nil {
		return ImageInfo{}, err
	}
	return ImageInfo{Format: img.format, SizeBytes: img.size, DeviceBytes: img.device, Backing: img.backing, Secret: img.secret, Allocated: len(img.blocks), Written: img.written, Before: img.before, Born: img.born}, nil
}

// Remove deletes an image; it returns nil if there is none. As on Linux, an image that a domain
// has open can be deleted, but AssertClean reports that. An image with snapshots cannot be
// deleted.
func (m *Images) Remove(path string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if readers, writers := m.holders(path); readers+writers > 0 && m.files[path] != nil {
		m.violate("%s was removed while a domain had it open", path)
	}
	if img := m.files[path]; img != nil && len(img.snapshots) > 0 {
		return fmt.Errorf("remove %s: it has snapshots", path)
	}
	delete(m.files, path)
	return nil
}

// SetFull makes an image's filesystem full, or gives it space again.
func (m *Images) SetFull(path string, full bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	img, err := m.open(path)
	if err != nil {
		return err
	}
	img.full = full
	return nil
}

// WriteBlock writes a block into one image, to prepare content or to play a person who violates
// the rules.
func (m *Images) WriteBlock(path string, block int64, value uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	img, err := m.openForWrite(path)
	if err != nil {
		return err
	}
	return img.write(path, block, value)
}

// Read returns the content of a chain, top first, as a guest sees it: the blocks that are not zero.
func (m *Images) Read(chain []hv.Image) (map[int64]uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.read(chain)
}

// ReadImage returns the content of an image, through the backing images in the headers.
func (m *Images) ReadImage(path string) (map[int64]uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	chain, err := m.headerChain(path)
	if err != nil {
		return nil, err
	}
	return m.read(chain)
}

// Writers counts the running domains that may write to an image now.
func (m *Images) Writers(path string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, writers := m.holders(path)
	return writers
}

func (m *Images) open(path string) (*image, error) {
	img := m.files[path]
	if img == nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	}
	return img, nil
}

func isLocked(path string) bool { return medium.Of(path).Witnessed }

func (m *Images) openForWrite(path string) (*image, error) {
	if readers, writers := m.holders(path); readers+writers > 0 && isLocked(path) {
		return nil, &fs.PathError{Op: "open for writing", Path: path, Err: ErrLocked}
	}
	return m.open(path)
}

func (m *Images) read(chain []hv.Image) (map[int64]uint64, error) {
	content := make(map[int64]uint64)
	for i := len(chain) - 1; i >= 0; i-- {
		img, err := m.open(chain[i].Path)
		if err != nil {
			return nil, err
		}
		if img.format != chain[i].Format {
			return nil, fmt.Errorf("open %s: it is %s and not %s", chain[i].Path, img.format, chain[i].Format)
		}
		if err := img.decrypt(chain[i]); err != nil {
			return nil, err
		}
		maps.Copy(content, img.guestBlocks(chain[i]))
		maps.DeleteFunc(content, func(block int64, _ uint64) bool { return !within(chain[i], img, block) })
	}
	maps.DeleteFunc(content, func(_ int64, value uint64) bool { return value == 0 })
	return content, nil
}

func (m *Images) headerChain(path string) ([]hv.Image, error) {
	var chain []hv.Image
	secret := ""
	for path != "" {
		img, err := m.open(path)
		if err != nil {
			return nil, err
		}
		if img.format != Raw {
			secret = img.secret
		}
		chain = append(chain, hv.Image{Type: hv.SourceFile, Format: img.format, Path: path, LUKSSecret: secret})
		path, secret = img.backing.Path, img.backing.LUKSSecret
	}
	return chain, nil
}

func (m *Images) violate(format string, args ...any) {
	m.violations = append(m.violations, fmt.Sprintf(format, args...))
}

var errNoSpace = errors.New("no space left on device")

func (img *image) modified() {
	img.writes++
	img.written = img.writes
}

func (img *image) write(path string, block int64, value uint64) error {
	switch {
	case block < 0 || (block+1)*BlockSize > img.size:
		return fmt.Errorf("write %s: block %d is beyond its end", path, block)
	case img.full:
		return &fs.PathError{Op: "write", Path: path, Err: errNoSpace}
	}
	img.note(block)
	img.blocks[block] = value
	for name, written := range img.bitmaps {
		if !img.idle[name] {
			written[block] = true
		}
	}
	img.modified()
	return nil
}

func within(img hv.Image, file *image, block int64) bool { return block*BlockSize < sizeOf(img, file) }

func sizeOf(img hv.Image, file *image) int64 {
	if img.SliceBytes != 0 {
		return img.SliceBytes
	}
	return file.size - headerBlocks(img)*BlockSize
}

// HeaderBytes is the size of a LUKS container's header; the guest's data follows it.
const HeaderBytes = BlockSize

func luksHeader(secret string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(secret)) // it cannot fail
	return h.Sum64()
}

func isContainer(img hv.Image) bool { return img.Format == Raw && img.LUKSSecret != "" }

func headerBlocks(img hv.Image) int64 {
	if isContainer(img) {
		return HeaderBytes / BlockSize
	}
	return 0
}

// decrypt refuses an image that QEMU could not open with the secret of named, or without one.
func (img *image) decrypt(named hv.Image) error {
	switch {
	case isContainer(named):
		if img.blocks[0] != luksHeader(named.LUKSSecret) {
			return fmt.Errorf("open %s: it has no LUKS header that secret %s opens", named.Path, named.LUKSSecret)
		}
	case img.secret != named.LUKSSecret:
		return fmt.Errorf("open %s: it is encrypted with secret %q, not %q", named.Path, img.secret, named.LUKSSecret)
	}
	return nil
}

func (img *image) guestBlocks(named hv.Image) map[int64]uint64 {
	header := headerBlocks(named)
	blocks := make(map[int64]uint64, len(img.blocks))
	for block, value := range img.blocks {
		if block >= header {
			blocks[block-header] = value
		}
	}
	return blocks
}

func (img *image) note(block int64) {
	if _, noted := img.unstored[block]; noted {
		return
	}
	if img.unstored == nil {
		img.unstored = make(map[int64]uint64)
	}
	img.unstored[block] = img.blocks[block]
}

func (img *image) stored() { img.unstored = nil }
