// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/google/uuid"

	"github.com/volferry/volferry/internal/atomicfile"
)

// A pass is a file beside a domain's guard. The hook lets a start through the
// guards of the owner that its second line names, if the definition that libvirt is
// about to run has the text of its first line in it. The hook's PASS is this too.
const passSuffix = ".pass"

// passMode: the text is nobody's to read but root's.
const passMode = 0o600

// Pass lets one start through the guard that the owner has set: the start of a
// definition with the returned text in it, which nobody can guess. Everybody else is
// refused as before, and guards of other owners refuse this start too. It replaces a
// pass of before, and holds until EndPass or the next Set or Clear of the domain.
func (g *Guards) Pass(id, owner string) (text string, err error) {
	path, err := g.path(id)
	if err != nil {
		return "", err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	text = uuid.NewString()
	if err := atomicfile.Write(path+passSuffix, []byte(text+"\n"+mark(owner)+"\n"), passMode); err != nil {
		return "", fmt.Errorf("let instance %s through its guard: %w", id, err)
	}
	return text, nil
}

// EndPass ends the domain's pass, durably before it returns. No pass is no error.
func (g *Guards) EndPass(id string) error {
	path, err := g.path(id)
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return endPass(path)
}

// endPass removes the pass beside the guard at path. The caller holds mu.
func endPass(path string) error {
	if _, err := os.Lstat(path + passSuffix); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := atomicfile.Remove(path + passSuffix); err != nil {
		return fmt.Errorf("end pass: %w", err)
	}
	return nil
}
