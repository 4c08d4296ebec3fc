// SPDX-License-Identifier: Apache-2.0

package libvirt_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// Any user may start a program named like QEMU, with the UUID of a guest.
func testFalseClaims(t *testing.T, env *realEnv) {
	id, src := env.define(t)
	env.Start(t, id)
	alone, err := env.conn.Process(t.Context(), id, "vda")
	must(t, err)
	open, err := env.conn.OpenFiles(t.Context(), id, src.Path)
	must(t, err)
	for range 3 {
		claimFalsely(t, id)
	}
	if p, err := env.conn.Process(t.Context(), id, "vda"); err != nil || !cmp.Equal(p, alone) {
		t.Errorf("beside false claims the process is %+v (%v), and alone it is %+v", p, err, alone)
	}
	files, err := env.conn.OpenFiles(t.Context(), id, src.Path)
	if err != nil || !cmp.Equal(files, open) || len(open) == 0 {
		t.Errorf("beside false claims %+v is open (%v), and alone %+v", files, err, open)
	}
	if v, err := env.conn.QEMUVersion(t.Context(), id); err != nil || v == (hv.Version{}) {
		t.Errorf("beside false claims the version of QEMU is %v (%v)", v, err)
	}
}

// claimFalsely starts a process of another user that claims to be a domain until the test ends.
func claimFalsely(t *testing.T, id string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "vf-claim-") //nolint:usetesting // the other user gets there
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	shell, err := os.ReadFile("/bin/sh")
	must(t, err)
	program := filepath.Join(dir, "qemu-mine")
	must(t, os.WriteFile(program, shell, 0o600))
	must(t, os.Chmod(program, 0o755))
	must(t, os.Chmod(dir, 0o755))
	p := exec.CommandContext(t.Context(), program, "-c", "echo; read -r line", "qemu", "-uuid", id, "-S")
	p.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	input, err := p.StdinPipe()
	must(t, err)
	output, err := p.StdoutPipe()
	must(t, err)
	must(t, p.Start())
	t.Cleanup(func() {
		_ = input.Close()
		_ = p.Wait() // its read has met the end
	})
	_, err = output.Read(make([]byte, 1)) // it has its arguments by now
	must(t, err)
}
