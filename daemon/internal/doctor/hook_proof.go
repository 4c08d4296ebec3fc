// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/volferry/volferry/daemon/internal/guard"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/atomicfile"
)

// HookProof stores a proof that libvirt runs the hook. The proof is valid only for the libvirt
// process that it names.
type HookProof struct {
	guards *guard.Dir
	path   string

	mu sync.Mutex
}

type hookProofRecord struct {
	Process string `json:"process"`
	Why     string `json:"why"`
}

// NewHookProof returns the proof in a state directory.
func NewHookProof(stateDir string, guards *guard.Dir) *HookProof {
	return &HookProof{guards: guards, path: filepath.Join(stateDir, "hook-proof.json")}
}

// of reports whether it is proven that this libvirt process runs hooks, and why.
func (p *HookProof) of(process *hv.DaemonProcess) (why string, proven bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var kept hookProofRecord
	text, err := os.ReadFile(p.path)
	if err == nil && json.Unmarshal(text, &kept) == nil && kept.Process == process.ID {
		return kept.Why, true
	}
	if !p.guards.HookWasThere(process.Since) {
		return "", false
	}
	why = "the hook was installed before " + process.Name + " started"
	// If the proof cannot be stored, it is found again while the hook is unchanged.
	_ = p.write(hookProofRecord{Process: process.ID, Why: why})
	return why, true
}

func (p *HookProof) keep(process *hv.DaemonProcess) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.write(hookProofRecord{Process: process.ID, Why: "the hook refused a test start at " + time.Now().UTC().Format(time.RFC3339)})
}

func (p *HookProof) write(r hookProofRecord) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return atomicfile.Write(p.path, text, 0o600)
}
