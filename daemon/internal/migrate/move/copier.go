// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/copy"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
)

// Copier copies and compares images.
type Copier interface {
	// Copy makes dst equal to src, durably, and reads dst back if requested. It continues from the
	// cursor of its key.
	Copy(ctx context.Context, req CopyRequest) (CopyResult, error)
	// Compare returns nil for equal content, otherwise an *api.Error with copy_mismatch and the
	// first different offset.
	Compare(ctx context.Context, src, dst []hv.Image, sizeBytes int64, progress func(Progress)) error
	// Unanswered reports whether a storage was requested to copy by itself and has not answered:
	// it may still write to dst.
	Unanswered(key string) (bool, error)
	// Restart makes the copy begin again, without the changes to its options. It does not change
	// the result of Unanswered.
	Restart(key string) error
	// Forget removes the copy's cursor and the changes to its options.
	Forget(ctx context.Context, key string) error
}

// CopyUpdates stores the operator's changes to the options of copies.
type CopyUpdates interface {
	// SetUpdate stores the operator's changes to the options of a copy, durably. Update returns
	// them, or a zero value.
	SetUpdate(key string, in api.MigrationUpdate) error
	Update(key string) (api.MigrationUpdate, error)
}

// UnitsCopier copies units (blocks of UnitBytes) that guests have written, and stores which units
// remain.
type UnitsCopier interface {
	// CopyUnits copies units, durably, while guests may write to them (copy.Units). It continues
	// from the cursor of its key.
	CopyUnits(ctx context.Context, req UnitsRequest) (copy.UnitsResult, error)
	// KeepUnits stores units under a key, durably. KeptUnits returns them, or fs.ErrNotExist.
	KeepUnits(key string, kept KeptUnits) error
	KeptUnits(key string) (KeptUnits, error)
	// ForgetUnits removes the cursors of CopyUnits and the kept units under keys with this prefix.
	ForgetUnits(prefix string) error
}

// CopyRequest is a request to copy the content of a chain. If Dst has base images, these are
// Src's, and only the data in Src's top image is copied. Key names the cursor.
type CopyRequest struct {
	Key       string
	Src       []hv.Image
	Dst       []hv.Image
	SizeBytes int64
	// DstPrint is the fingerprint that dst must have before the first write, or empty if unknown.
	DstPrint string
	// DstIsZero: the migration made dst, and nothing was written to it.
	DstIsZero bool
	// Thick: dst must not share blocks with Src to save space.
	Thick bool
	// Begins is called right before the first write. If it fails nothing is copied.
	Begins func() error
	// Offload describes how the storage copies by itself; nil if it cannot.
	Offload *copy.Offload
	// Options is called repeatedly, since the operator may change them.
	Options func() api.CopyOptions
	// GuestStats samples the guest's requests, so that the copy can yield to them; nil without a
	// running guest.
	GuestStats func(ctx context.Context) (*hv.DiskStats, error)
	Progress   func(Progress)
}

// KeptUnits are the units that remain to be copied.
type KeptUnits struct {
	Ranges []copy.Range     `json:"ranges,omitempty"`
	Again  []copy.Differing `json:"again,omitempty"`
}

// Bytes returns an upper bound of the remaining bytes: a unit may be in both lists.
func (k *KeptUnits) Bytes() (sum int64) {
	for _, r := range k.Ranges {
		sum += r.Bytes
	}
	for _, d := range k.Again {
		sum += d.Bytes
	}
	return sum
}

// UnitsRequest is the request of CopyUnits.
type UnitsRequest struct {
	Key       string
	Src, Dst  hv.Image
	SizeBytes int64
	UnitBytes int64
	Ranges    []copy.Range
	Again     []copy.Differing
	Still     bool
	Options   api.CopyOptions
	// GuestStats samples the guests' requests, so that the copy can yield to them.
	GuestStats func(ctx context.Context) (*hv.DiskStats, error)
}

// Progress is the progress of a copy.
type Progress struct {
	Phase              string
	BytesTotal         int64
	BytesDone          int64
	RateBytesPerSecond int64
	Pacing             Pacing
}

// CopyResult is the result of a copy.
type CopyResult struct {
	BytesTotal  int64  `json:"bytes_total"`
	BytesCopied int64  `json:"bytes_copied"`
	BytesZero   int64  `json:"bytes_zero"`
	Cloned      bool   `json:"cloned"`
	Offloaded   bool   `json:"offloaded,omitempty"`
	Verified    bool   `json:"verified"`
	Digest      string `json:"digest,omitempty"`
	// Remark names the program that copied, if it was not the built-in copier.
	Remark string `json:"remark,omitempty"`
}
