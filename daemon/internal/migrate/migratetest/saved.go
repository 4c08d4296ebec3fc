// SPDX-License-Identifier: Apache-2.0

package migratetest

import (
	"context"
	"errors"
	"fmt"

	"github.com/volferry/volferry/daemon/internal/migrate/move"
)

// CopiedWhole returns nil if dst exists and equals src.
func (w *World) CopiedWhole() error {
	src, err := w.ReadImage(SrcPath)
	if err != nil {
		return err
	}
	dst, err := w.ReadImage(DstPath)
	if err == nil && fmt.Sprint(src) != fmt.Sprint(dst) {
		err = errors.New("dst is not equal to src")
	}
	return err
}

// NothingMade returns nil if src exists, dst does not, and no cursor remains.
func (w *World) NothingMade() error {
	var err error
	if !w.Exists(SrcPath) {
		err = errors.New("src is gone")
	}
	if w.Exists(DstPath) {
		err = errors.Join(err, errors.New("dst is left"))
	}
	w.Copier.Mu.Lock()
	defer w.Copier.Mu.Unlock()
	if len(w.Copier.Done) > 0 {
		err = errors.Join(err, errors.New("the cursor is left"))
	}
	return err
}

// NewSavedSpec returns the spec of a move with all guests paused.
func NewSavedSpec() move.Spec {
	s := NewSpec(move.MethodSave)
	s.InstanceID, s.InstanceName, s.Target, s.SrcAttachmentID, s.DstAttachmentID = "", "", "", "", ""
	return s
}

// SavedSpec is NewSavedSpec with the fingerprint of the world's src.
func (w *World) SavedSpec() move.Spec {
	s := NewSavedSpec()
	s.SrcPrint, _ = w.Images.Fingerprint(context.Background(), s.Src.Path) // src exists
	return s
}
