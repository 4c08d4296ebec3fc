// SPDX-License-Identifier: Apache-2.0

package copy

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/openfile"
)

const thinBlock = 64 << 10

// thinEnd returns a device that counts as thin, of 8 blocks full of ones. A loop device frees the
// blocks of its file when they are discarded.
func thinEnd(t *testing.T) (f *fileEnd, file string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: needs root to make a loop device")
	}
	file = filepath.Join(t.TempDir(), "loop")
	if err := os.WriteFile(file, bytes.Repeat([]byte{1}, 8*thinBlock), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "losetup", "--find", "--show", "--direct-io=on", file).Output()
	if err != nil {
		t.Fatal(err)
	}
	device := strings.TrimSpace(string(out))
	t.Cleanup(func() { _ = exec.Command("losetup", "--detach", device).Run() }) //nolint:noctx // the test has ended
	f, err = openFile(openfile.Files{}, device, true, unix.O_DIRECT)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	f.thinBlockBytes.Store(thinBlock)
	f.zeroing.Store(zeroDiscard) // as if the device did not support punching
	return f, file
}

func holesOf(t *testing.T, file string) int64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(file, &st); err != nil {
		t.Fatal(err)
	}
	return st.Size - st.Blocks*512
}

func TestWholeThinBlocksAreDiscardedAndTheRestIsWritten(t *testing.T) {
	f, file := thinEnd(t)
	const off, n = thinBlock / 2, 4 * thinBlock // half a block, three, half a block
	if err := f.Zero(off, n); err != nil {
		t.Fatal(err)
	}
	if err := f.Flush(); err != nil {
		t.Fatal(err)
	}
	want := bytes.Repeat([]byte{1}, 8*thinBlock)
	clear(want[off : off+n])
	got := newBuffer(len(want))
	if _, err := f.ReadAt(got, 0); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the device holds something else (%v)", err)
	}
	if holes := holesOf(t, file); holes != 3*thinBlock {
		t.Errorf("%d bytes were given back, not three blocks", holes)
	}
	if way := f.zeroing.Load(); way != zeroDiscard {
		t.Errorf("zeros are made in way %d from now on", way)
	}
}

func TestWhatIsNotThinIsNotDiscarded(t *testing.T) {
	f, _ := thinEnd(t)
	f.thinBlockBytes.Store(0)
	if err := f.Zero(0, 2*thinBlock); err != nil {
		t.Fatal(err)
	}
	if err := f.Flush(); err != nil {
		t.Fatal(err)
	}
	if way := f.zeroing.Load(); way != zeroRange {
		t.Errorf("zeros are made in way %d", way)
	}
	if zero, err := f.readsZero(0, 2*thinBlock); !zero || err != nil {
		t.Errorf("the zeros were not made (%v)", err)
	}
	if zero, err := f.readsZero(0, 2*thinBlock+512); zero || err != nil {
		t.Errorf("what is behind them reads as zeros, too (%v)", err)
	}
}
